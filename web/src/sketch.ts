// Drawing a question: links are added by name, or pulled from one node of its picture to another.
import { type Beside, type Completion, complete } from "./api";
import { byId, el, refill, svg } from "./dom";
import { freshVariable, variablesOf, withLink } from "./pattern";

const PAUSE = 120;
const OFFERED = 12;
/** Pixels that a hand may move in a click. */
const STILL = 6;
const SPELT = /^(?:<[^<>\s]*>|[\p{L}_][\p{L}\p{N}_.-]*:\S+|:\S+)$/u;

type Kind = "entity" | "relation";

/** ``picture`` is where the question is drawn; its nodes say in ``data-term`` how a query names them. */
export function createSketch(picture: HTMLElement, question: { read(): string; write(text: string): void }): void {
  const place = byId<HTMLDetailsElement>("sketch");
  const [from, relation, to] = ["link-from", "link-relation", "link-to"].map((id) => byId<HTMLInputElement>(id)) as [HTMLInputElement, HTMLInputElement, HTMLInputElement];
  const problem = byId("link-problem");

  function tell(message: string): void {
    problem.textContent = message;
    problem.hidden = message === "";
  }

  async function add(): Promise<void> {
    tell("");
    try {
      const link = { from: await spelt(from, "entity"), relation: await spelt(relation, "relation"), to: await spelt(to, "entity") };
      const text = withLink(question.read(), link.from, link.relation, link.to);
      if (text === null) return tell("The text above has no { … } that a link could stand in.");
      question.write(text);
    } catch (error) {
      return tell(error instanceof Error ? error.message : String(error));
    }
    for (const input of [from, relation, to]) input.value = "";
    from.focus();
  }

  for (const [input, kind] of [[from, "entity"], [relation, "relation"], [to, "entity"]] as const) {
    offer(input, kind, question.read, () => (input === from ? { before: relation.value.trim() } : { after: (input === relation ? from : relation).value.trim() }));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      void add();
    });
  }
  byId("link-add").addEventListener("click", () => void add());

  pulled(picture, (start, end) => {
    // While nothing is being drawn, a click on a name leads to its card (main.ts).
    if (end === start && !place.open && !start.startsWith("?")) return;
    place.open = true;
    tell("");
    if (end !== start) [from.value, to.value] = [start, end ?? freshVariable(question.read())];
    else if (from.value && !to.value && from.value !== start) to.value = start;
    else [from.value, to.value] = [start, ""];
    (from.value && to.value ? relation : to).focus();
  });
}

/** What was written into a field, as a query names it; an Error says what is wrong with it. */
async function spelt(input: HTMLInputElement, kind: Kind): Promise<string> {
  const word = input.value.trim();
  try {
    if (!word) throw new Error(kind === "relation" ? "Which link? Name a relation." : "A link needs two ends: names, or variables such as ?x.");
    if (/^[?$]\w+$/.test(word)) {
      if (kind === "relation") throw new Error("A link is a relation of the graph; it cannot be a variable.");
      return `?${word.slice(1)}`;
    }
    if (SPELT.test(word)) return word;
    const found = await complete(word, kind, OFFERED);
    const same = found.filter((entry) => [entry.label, entry.insert.replace(/^[^:]*:/, "")].some((name) => name.toLowerCase() === word.toLowerCase()));
    if (same.length > 1) throw new Error(`Several are called ${word}: ${same.map((entry) => entry.insert).join(", ")}. Which?`);
    if (same[0]) return same[0].insert;
    const near = found.slice(0, 3).map((entry) => entry.insert);
    throw new Error(`The graph has no ${kind} called ${word}.${near.length > 0 ? ` Near it: ${near.join(", ")}.` : ""}`);
  } catch (error) {
    input.focus();
    throw error;
  }
}

/** Names of the graph below a field, while it is written into. */
function offer(input: HTMLInputElement, kind: Kind, read: () => string, beside: () => Beside): void {
  let timer = 0;
  let asking = new AbortController();
  const list = byId(input.getAttribute("list") ?? "");
  const option = (entry: Completion) => el("option", { value: entry.insert, label: entry.label });

  async function look(): Promise<void> {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const text = read();
    const variables = kind === "entity" ? [...variablesOf(text), freshVariable(text)].map((name) => el("option", { value: name })) : [];
    const word = input.value.trim();
    try {
      const names = word.startsWith("?") ? [] : await complete(word, kind, OFFERED, signal, beside());
      if (!signal.aborted) refill(list, ...variables, ...names.map(option));
    } catch {
      // A help, not a need.
    }
  }

  input.addEventListener("focus", () => void look());
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void look(), PAUSE);
  });
}

/** Calls ``done`` with the names of two nodes when a line was pulled between them; null for one that ends nowhere. */
function pulled(picture: HTMLElement, done: (start: string, end: string | null) => void): void {
  const nodeAt = (event: PointerEvent) => {
    const under = document.elementFromPoint(event.clientX, event.clientY);
    return under !== null && picture.contains(under) ? under.closest<SVGGElement>("g.vertex[data-term]") : null;
  };
  picture.addEventListener("pointerdown", (event) => {
    const node = nodeAt(event);
    const canvas = node?.ownerSVGElement;
    const scale = canvas?.getScreenCTM()?.inverse();
    if (!node || !canvas || !scale || event.button !== 0) return;
    event.preventDefault();
    const start = node.dataset.term ?? "";
    const at = (moved: PointerEvent) => new DOMPoint(moved.clientX, moved.clientY).matrixTransform(scale);
    const origin = at(event);
    const line = svg("line", { class: "pulled", x1: origin.x, y1: origin.y, x2: origin.x, y2: origin.y });
    canvas.append(line);
    const move = (moved: PointerEvent) => {
      const point = at(moved);
      line.setAttribute("x2", String(point.x));
      line.setAttribute("y2", String(point.y));
    };
    const stop = new AbortController();
    const finish = (ended: PointerEvent | null) => {
      stop.abort();
      line.remove();
      if (ended === null) return;
      const isStill = Math.hypot(ended.clientX - event.clientX, ended.clientY - event.clientY) < STILL;
      const inside = picture.contains(document.elementFromPoint(ended.clientX, ended.clientY));
      const end = nodeAt(ended)?.dataset.term ?? null;
      if (isStill) done(start, start);
      else if (inside && end !== start) done(start, end);
    };
    window.addEventListener("pointermove", move, { signal: stop.signal });
    window.addEventListener("pointerup", finish, { signal: stop.signal });
    window.addEventListener("pointercancel", () => finish(null), { signal: stop.signal });
  });
}
