// Why a row is an answer: a sentence, its facts as a picture, what speaks for each missing link; and on request where
// the model looked and what would change its mind.
import { type Answer, type Attention, type Counterfactual, type Explanation, explain, type Place, type Question, type Reason, Refusal, type Row } from "./api";
import { badge, bar } from "./answers";
import type { Panel } from "./drawer";
import { draw } from "./drawing";
import { el, put, refill } from "./dom";
import { named } from "./names";
import { refused, waiting } from "./notices";
import { count, ordinal, percent, probability } from "./numbers";

/** Why a row of an answer is one; ``rows`` are in the order shown, ``left`` is called when the dialog is closed. */
export function reasonsOf(question: Question, answer: Answer, rows: Row[], row: Row, left: (row: Row) => void): Panel {
  const place = rows.findIndex((other) => other.index === row.index);
  return {
    kicker: `Row ${row.index + 1}`,
    title: row.values.map((value) => value.label).join(" · ") || "That it holds",
    waiting: "Looking for the reasons",
    async content(body, signal) {
      const found = await explain(question, row.index, ["witness"], signal);
      return views(found, row, answer, body, () => explain(question, row.index, ["attention", "counterfactual"], signal));
    },
    near(by) {
      const next = rows[place + by];
      return next ? reasonsOf(question, answer, rows, next, left) : null;
    },
    left: () => left(row),
  };
}

function views(found: Explanation, row: Row, answer: Answer, body: HTMLElement, more: () => Promise<Explanation>): HTMLElement[] {
  const said = found.sentence.charAt(0).toUpperCase() + found.sentence.slice(1);
  const verdict = el("div", { class: "verdict" }, badge(row.status), bar(row.probability, row.status), row.status === "predicted" && answer.model && el("span", { class: "by" }, `by ${answer.model}`));
  const parts: HTMLElement[] = [verdict, el("p", { class: "sentence" }, `${said}.`)];
  parts.push(section("Facts", row.status === "known" ? "The facts that together make the row; the graph has all of them." : "The facts that together would make the row. Solid links are in the graph; dashed ones are missing, each with its probability.", found.witness && witness(found.witness, body), found.skipped.witness));
  parts.push(...found.reasons.filter((reason) => reason.places.length > 0).map(reasoned));
  if (answer.model) parts.push(onRequest(more));
  return parts;
}

/** What speaks for one missing link and against it, and who else was considered for its ends. */
function reasoned(reason: Reason): HTMLElement {
  const sign = (isFor: boolean) => el("span", { class: isFor ? "sign for" : "sign against" }, isFor ? "+" : "−", el("span", { class: "unseen" }, isFor ? " speaks for it: " : " speaks against it: "));
  const said = [...reason.rules.map((rule) => ({ text: rule.text, speaks_for: true })), ...reason.kinds];
  return el("section", { class: "view reason", "aria-label": `Reasons: ${reason.link}` },
    el("h3", {}, reason.link, " ", el("span", { class: "figure" }, probability(reason.probability))),
    el("ul", { class: "said" }, ...said.map((each) => el("li", {}, sign(each.speaks_for), el("span", {}, each.text)))),
    el("div", { class: "places" }, ...reason.places.map(considered)),
  );
}

function considered(place: Place): HTMLElement {
  const stored = place.rivals.filter((rival) => rival.is_stored);
  const others = place.rivals.filter((rival) => !rival.is_stored);
  const more = place.stored - stored.length;
  const embedding = place.embedding_rank === null ? "" : `; by embedding alone ${ordinal(place.embedding_rank)}`;
  return el("div", { class: "place" },
    el("h4", {}, place.pattern),
    el("p", { class: "about" }, `${place.entity} is ${ordinal(place.rank)} of ${count(place.of)}${embedding}`),
    el("ul", { class: "rivals" }, ...others.map((rival) => el("li", {}, named(rival.entity, rival.entity), bar(rival.probability, "predicted")))),
    stored.length > 0 && el("p", { class: "about" }, "In the graph: ", ...stored.flatMap((rival, at) => [at > 0 && ", ", named(rival.entity, rival.entity)]), more > 0 && ` and ${count(more)} more`),
  );
}

/** What is about the model that reads the whole question takes longer, and is fetched when somebody opens it. */
function onRequest(more: () => Promise<Explanation>): HTMLElement {
  const body = el("div", { class: "more-body" });
  let isAsked = false;
  const open = async () => {
    if (isAsked) return;
    isAsked = true;
    refill(body, waiting("Asking the model"));
    try {
      const found = await more();
      refill(body,
        section("Attention", "How the attention of each unknown divides among the parts of the question. It says what the model looked at, not what convinced it.", found.attention && attention(found.attention), found.skipped.attention),
        section("What if", "The share that the model gives the row, as asked and after one change.", found.counterfactual.length > 0 && counterfactual(found.counterfactual), found.skipped.counterfactual),
      );
    } catch (error) {
      isAsked = false;
      if (error instanceof Refusal) refill(body, refused(error, () => void open()));
    }
  };
  return el("details", { class: "more", toggle: () => void open() }, el("summary", {}, "What the model looked at, and what would change its mind"), body);
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
    return el("span", { class: `bar broad ${kind}` }, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "figure" }, probability(value)));
  };
  const lines = found.map((change) =>
    el("li", {}, el("span", { class: "what" }, change.what, el("span", { class: "how" }, change.how)),
      change.after === null ? el("span", { class: "about" }, change.reason) : strip(change.after, turn(before, change.after))),
  );
  return el("ul", { class: "changes" }, el("li", {}, el("span", { class: "what" }, "As asked"), strip(before, "same")), ...lines);
}

const turn = (before: number | null, after: number) => (before === null || after === before ? "same" : after < before ? "down" : "up");
