// The answers as one graph: what the rows rest on, stored links solid, missing ones dashed.
import { type Answer, ask, type Question, type Row } from "./api";
import { el } from "./dom";
import { draw, type DrawnEdge, type DrawnNode } from "./drawing";

/** Rows of each status that a picture has; more would not be read. */
const DRAWN = 8;
const DENSE = 0.64;

/** The picture of an answer's first rows, or a sentence where there is nothing to draw. */
export async function pictureOf(question: Question, answer: Answer, room: number, signal: AbortSignal): Promise<HTMLElement> {
  if (answer.form !== "select") return el("p", { class: "about" }, "Rows of values are no graph.");
  const parts = [answer.known > 0 && 0, answer.predicted > 0 && answer.known].filter((offset) => offset !== false);
  const pages = await Promise.all(parts.map((offset) => ask(question, DRAWN, offset, signal, true)));
  const rows = new Map(pages.flatMap((page) => page.rows).map((row) => [row.index, row]));
  const shown = [...rows.values()].filter((row, _, all) => all.filter((other) => other.status === row.status).indexOf(row) < DRAWN);
  const { nodes, edges } = graphOf(shown);
  if (nodes.length === 0) return el("p", { class: "about" }, "There is nothing to draw.");
  const left = answer.total - shown.length;
  const about = `${left > 0 ? `The first ${DRAWN} rows of each kind. ` : ""}Solid links are in the graph, dashed ones are missing, with their probability.`;
  return el("div", {}, el("p", { class: "about" }, about), el("div", { class: "drawing answer-graph" }, draw(nodes, edges, room, "The answers as a graph", { stretch: DENSE, across: true, plain: true })));
}

function graphOf(rows: Row[]): { nodes: DrawnNode[]; edges: DrawnEdge[] } {
  const found = new Set(rows.flatMap((row) => row.values.map((value) => value.name)));
  const nodes = new Map<string, DrawnNode>();
  const edges = new Map<string, DrawnEdge>();
  for (const row of rows) {
    const links = [...row.held.map((link) => ({ link, missing: false })), ...row.missing.map((link) => ({ link, missing: true }))];
    for (const { link, missing } of links) {
      for (const [id, label] of [[link.subject, link.labels[0]], [link.object, link.labels[2]]] as const) {
        const isOpen = id.startsWith("?");
        nodes.set(id, { id, label: label ?? id, kind: found.has(id) ? "target" : isOpen ? "hidden" : "entity", term: null, name: isOpen ? null : id });
      }
      const key = JSON.stringify([link.subject, link.predicate, link.object]);
      edges.set(key, { source: link.subject, target: link.object, label: link.labels[1] ?? link.predicate, missing, probability: link.probability });
    }
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}
