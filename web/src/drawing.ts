// A query or a witness as a picture: given names in frames, unknowns in lozenges, missing links dashed.
import type { GraphEdge, GraphNode } from "./api";
import { svg } from "./dom";
import { type Direction, layout } from "./layout";
import { probability } from "./numbers";

export interface DrawnNode extends GraphNode {
  /** The variable that the entity stands for. */
  variable?: string;
}

export interface DrawnEdge extends GraphEdge {
  missing?: boolean;
  probability?: number | null;
}

const LONGEST = 26;
let pen: CanvasRenderingContext2D | null = null;
let pictures = 0;

function measure(text: string): number {
  pen ??= document.createElement("canvas").getContext("2d");
  if (pen === null) return text.length * 8;
  pen.font = `500 14px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

const shortened = (text: string) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

export interface Style {
  /** Below 1 for less room between nodes. */
  stretch?: number;
  /** Across, however wide that is. */
  across?: boolean;
  /** Stored links without their relation, missing ones with their probability alone. */
  plain?: boolean;
}

const labelOf = (edge: DrawnEdge) =>
  edge.missing ? `${shortened(edge.label)}  ${probability(edge.probability ?? null)}` : shortened(edge.label);

/** The picture; ``room`` is the width it may take, by which it decides whether to grow across or down. */
export function draw(nodes: DrawnNode[], edges: DrawnEdge[], room: number, title: string, style: Style = {}): SVGSVGElement {
  const words = style.plain ? (edge: DrawnEdge) => (edge.missing ? probability(edge.probability ?? null) : "") : labelOf;
  const shown = nodes.map((node) => ({ ...node, full: node.label, label: shortened(node.label) }));
  // With more links than a tree has, some cross; they get more room.
  const stretch = style.stretch ?? (edges.length >= nodes.length ? 1.5 : 1);
  const lay = (direction: Direction) => layout(shown, edges, direction, measure, words, stretch);
  const across = lay("across");
  const picture = style.across || across.width <= room ? across : pick(across, lay("down"), room);
  const arrow = `arrow-${++pictures}`;
  return svg(
    "svg",
    {
      class: "graph",
      role: nodes.some((node) => node.name) ? "group" : "img",
      "aria-label": `${title}: ${inWords(nodes, edges)}`,
      viewBox: `0 0 ${picture.width} ${picture.height}`,
      width: Math.ceil(picture.width),
      height: Math.ceil(picture.height),
    },
    svg("defs", {}, ...[arrow, `${arrow}-missing`].map((id) => svg("marker", { id, class: id.endsWith("missing") ? "tip missing" : "tip", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { d: "M0 1 L10 5 L0 9 z" })))),
    ...picture.lines.map((line) =>
      svg("path", { class: line.edge.missing ? "edge missing" : "edge", d: line.path, "marker-end": `url(#${line.edge.missing ? `${arrow}-missing` : arrow})` }),
    ),
    ...picture.boxes.map(({ node, x, y, width, height }) =>
      svg(
        "g",
        { class: `vertex ${node.kind}`, "data-term": node.term, "data-entity": node.name, tabindex: node.name ? 0 : null, role: node.name ? "button" : null, "aria-label": node.name ? node.full : null },
        svg("title", {}, node.variable ? `${node.variable} = ${node.full}` : node.full),
        svg("rect", { class: `node ${node.kind}`, x: x - width / 2, y: y - height / 2, width, height, rx: node.kind === "entity" ? 5 : height / 2 }),
        svg("text", { x, y: y + 5 }, node.label),
      ),
    ),
    ...picture.lines.filter((line) => words(line.edge)).map((line) =>
      svg(
        "g",
        { class: line.edge.missing ? "label missing" : "label" },
        svg("title", {}, line.edge.label),
        svg("rect", { x: line.x - measure(words(line.edge)) / 2 - 2, y: line.y - 10, width: measure(words(line.edge)) + 4, height: 20 }),
        svg("text", { x: line.x, y: line.y + 4 }, words(line.edge)),
      ),
    ),
  );
}

function pick<T extends { width: number; height: number }>(across: T, down: T, room: number): T {
  return across.width <= room * 1.1 || across.width <= down.width ? across : down;
}

/** What the picture says, for those who do not see it. */
function inWords(nodes: DrawnNode[], edges: DrawnEdge[]): string {
  const label = new Map(nodes.map((node) => [node.id, node.label]));
  const said = edges.map((edge) => {
    const fact = `${label.get(edge.source) ?? edge.source} ${edge.label} ${label.get(edge.target) ?? edge.target}`;
    return edge.missing ? `${fact} (missing, probability ${probability(edge.probability ?? null)})` : fact;
  });
  return said.join("; ");
}
