// Why a row is an answer: its witness as a picture, where the model looked, and what would change its mind.
import { type Answer, type Attention, type Counterfactual, type Explanation, explain, type Question, Refusal, type Row } from "./api";
import { badge, bar } from "./answers";
import { draw } from "./drawing";
import { el, put, refill } from "./dom";
import { refused, waiting } from "./notices";
import { percent, probability } from "./numbers";

export interface Drawer {
  open(question: Question, answer: Answer, rows: Row[], row: Row): void;
}

/** A dialog at the side of the page; Escape closes it, the arrows go to the row before or after. */
export function createDrawer(dialog: HTMLDialogElement, onClose: (row: Row) => void): Drawer {
  let asked: { question: Question; answer: Answer; rows: Row[] } | null = null;
  let row: Row | null = null;
  let under = new AbortController();

  dialog.addEventListener("close", () => {
    under.abort();
    if (row) onClose(row);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  function step(by: number): void {
    const next = asked?.rows[asked.rows.findIndex((other) => other.index === row?.index) + by];
    if (next) void show(next);
  }

  async function show(shown: Row): Promise<void> {
    if (asked === null) return;
    under.abort();
    under = new AbortController();
    const { signal } = under;
    const { question, answer, rows } = asked;
    const held = dialog.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.does : undefined;
    row = shown;
    const place = rows.findIndex((other) => other.index === shown.index);
    const body = el("div", { class: "why-body", "aria-busy": "true" }, waiting("Looking for the reasons"));
    refill(
      dialog,
      el("div", { class: "why-frame" },
        el("header", { class: "why-head" },
          el("div", { class: "why-title" },
            el("p", { class: "kicker" }, `Row ${shown.index + 1}`),
            el("h2", { id: "why-title" }, shown.values.map((value) => value.label).join(" · ")),
          ),
          el("div", { class: "why-tools" },
            el("button", { type: "button", class: "quiet icon", "data-does": "before", "aria-label": "Row before", disabled: place <= 0, click: () => step(-1) }, "↑"),
            el("button", { type: "button", class: "quiet icon", "data-does": "after", "aria-label": "Row after", disabled: place >= rows.length - 1, click: () => step(1) }, "↓"),
            el("button", { type: "button", class: "quiet icon", "data-does": "close", "aria-label": "Close", click: () => dialog.close() }, "✕"),
          ),
        ),
        body,
      ),
    );
    if (!dialog.open) dialog.showModal();
    focusOn(dialog, held);
    try {
      const found = await explain(question, shown.index, signal);
      if (!signal.aborted) refill(body, ...views(found, shown, answer, body));
    } catch (error) {
      if (!signal.aborted) refill(body, refused(error instanceof Refusal ? error : new Refusal("Failure", String(error)), () => void show(shown)));
    } finally {
      if (!signal.aborted) body.setAttribute("aria-busy", "false");
    }
  }

  return {
    open(question, answer, rows, first) {
      asked = { question, answer, rows };
      void show(first);
    },
  };
}

function focusOn(dialog: HTMLElement, does: string | undefined): void {
  const usual = dialog.querySelector<HTMLElement>('[data-does="close"]');
  const wanted = does ? dialog.querySelector<HTMLButtonElement>(`[data-does="${does}"]:not(:disabled)`) : null;
  (wanted ?? usual)?.focus();
}

function views(found: Explanation, row: Row, answer: Answer, body: HTMLElement): HTMLElement[] {
  const parts: HTMLElement[] = [el("div", { class: "verdict" }, badge(row.status), bar(row.probability, row.status), row.status === "predicted" && answer.model && el("span", { class: "by" }, `by ${answer.model}`))];
  parts.push(section("Witness", "The facts that together make the row. Solid links are stored in the graph; dashed ones are missing, each with the probability that the model gives it.", found.witness && witness(found.witness, body), found.skipped.witness));
  parts.push(section("Attention", "How the attention of each unknown divides among the parts of the question. It says what the model looked at, not what convinced it.", found.attention && attention(found.attention), found.skipped.attention));
  parts.push(section("What if", "The share that the model gives the row, as asked and after one change.", found.counterfactual.length > 0 && counterfactual(found.counterfactual), found.skipped.counterfactual));
  return parts;
}

function section(title: string, about: string, content: HTMLElement | null | false, skipped: string | undefined): HTMLElement {
  const part = el("section", { class: "view", "aria-label": title }, el("h3", {}, title));
  if (content) put(part, el("p", { class: "about" }, about), content);
  else put(part, el("p", { class: "about" }, skipped ?? "There is nothing to show here."));
  return part;
}

function witness(found: NonNullable<Explanation["witness"]>, body: HTMLElement): HTMLElement {
  const edges = found.links.map((link) => ({ source: link.subject, target: link.object, label: link.relation, missing: !link.stored, probability: link.probability }));
  const room = body.clientWidth - 32;
  return el("div", { class: "drawing witness" }, draw(found.nodes, edges, room, "Witness"), !found.complete && el("p", { class: "about" }, "The search stopped early; there may be a better witness."));
}

/** A table whose cells are darker the more attention they stand for; the numbers say the same. */
function attention(found: Attention): HTMLElement {
  const tables: [string, number[][]][] = [["all layers", found.mean], ["last layer", found.last], ...found.by_layer.map((table, place): [string, number[][]] => [`layer ${place + 1}`, table])];
  const frame = el("div", { class: "table-frame" });
  const show = (table: number[][]) => {
    const most = Math.max(...table.flat(), 1e-9);
    const cells = (values: number[]) =>
      values.map((value) => {
        const cell = el("td", {}, percent(value));
        cell.style.setProperty("--heat", `${Math.round((44 * value) / most)}%`);
        return cell;
      });
    // Parts run down the page, so that a long question fits a narrow screen.
    refill(frame, el("table", { class: "heat" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "part"), ...found.unknowns.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...found.tokens.map((token, place) => el("tr", {}, el("th", { scope: "row" }, token), ...cells(table.map((line) => line[place] ?? 0))))),
    ));
  };
  const choice = el("select", { change: (event: Event) => show(tables[Number((event.target as HTMLSelectElement).value)]![1]) }, ...tables.map(([name], place) => el("option", { value: place }, name)));
  show(found.mean);
  return el("div", {}, el("label", { class: "field layers" }, el("span", {}, "Mean over the heads of"), " ", choice), frame);
}

function counterfactual(found: Counterfactual[]): HTMLElement {
  const before = found.find((change) => change.before !== null)?.before ?? null;
  const most = Math.max(before ?? 0, ...found.map((change) => change.after ?? 0), 1e-9);
  const strip = (value: number | null, kind: string) => {
    const fill = el("span", { class: "fill" });
    fill.style.inlineSize = `${(100 * (value ?? 0)) / most}%`;
    return el("span", { class: `bar wide ${kind}` }, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "figure" }, probability(value)));
  };
  const lines = found.map((change) =>
    el("li", {}, el("span", { class: "what" }, change.what, el("span", { class: "how" }, change.how)),
      change.after === null ? el("span", { class: "about" }, change.reason) : strip(change.after, turn(before, change.after))),
  );
  return el("ul", { class: "changes" }, el("li", {}, el("span", { class: "what" }, "As asked"), strip(before, "same")), ...lines);
}

const turn = (before: number | null, after: number) => (before === null || after === before ? "same" : after < before ? "down" : "up");
