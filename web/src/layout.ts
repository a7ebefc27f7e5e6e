// Where the nodes and edges of a small graph go: in layers, what is given first, what it leads to after it.
import type { GraphEdge, GraphNode } from "./api";

export type Direction = "across" | "down";

export interface Box<N> {
  node: N;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Line<E> {
  edge: E;
  path: string;
  /** Middle of the line's label. */
  x: number;
  y: number;
}

interface Point {
  x: number;
  y: number;
}

/** A line whose label has no place yet; ``at`` gives the point after a share of the way. */
interface Bare<E> {
  edge: E;
  path: string;
  at(share: number): Point;
}

export interface Layout<N, E> {
  boxes: Box<N>[];
  lines: Line<E>[];
  width: number;
  height: number;
}

const HEIGHT = 36;
const MARGIN = 10;
const ARROW = 3;
/** Where on its line a label may stand, the best place first. */
const SHARES = [0.5, 0.25, 0.75, 0.36, 0.64, 0.18, 0.82];

interface Placed {
  layer: number;
  along: number;
  width: number;
  slot: number;
}

/** Boxes and lines of a graph. ``measure`` gives the width of a text in pixels; ``stretch`` is above 1 for more room. */
export function layout<N extends GraphNode, E extends GraphEdge>(
  nodes: N[],
  edges: E[],
  direction: Direction,
  measure: (text: string) => number,
  labelOf: (edge: E) => string = (edge) => edge.label,
  stretch = 1,
): Layout<N, E> {
  const known = new Set(nodes.map((node) => node.id));
  const drawn = edges.filter((edge) => known.has(edge.source) && known.has(edge.target));
  const across = direction === "across";
  const layers = layered(nodes, drawn);
  const placed = new Map<string, Placed>();
  for (const [layer, ids] of layers.entries()) {
    for (const id of ids) {
      const width = Math.max(56, measure(nodes.find((node) => node.id === id)!.label) + 28);
      const labels = drawn.filter((edge) => edge.source === id || edge.target === id).map((edge) => measure(labelOf(edge)));
      // Downwards, labels of neighbouring lines stand side by side, nearer to one another than the nodes do.
      const slot = stretch * (across ? HEIGHT + 34 : Math.max(width + 24, ids.length > 1 ? Math.max(0, ...labels) * 1.35 + 14 : 0));
      placed.set(id, { layer, along: 0, width, slot });
    }
  }
  spread(layers, placed, drawn);

  const widths = layers.map((ids) => Math.max(...ids.map((id) => placed.get(id)!.width)));
  const starts: number[] = [];
  let start = MARGIN;
  for (let layer = 0; layer < layers.length; layer++) {
    starts.push(start);
    start += across ? widths[layer]! + gapAfter(layer, placed, drawn, measure, labelOf) : HEIGHT + 76 * stretch;
  }
  const low = Math.min(...[...placed.values()].map((place) => place.along - extent(place, across) / 2));
  const boxes = nodes.map((node): Box<N> => {
    const place = placed.get(node.id)!;
    const along = place.along - low + MARGIN;
    return across
      ? { node, x: starts[place.layer]! + widths[place.layer]! / 2, y: along, width: place.width, height: HEIGHT }
      : { node, x: along, y: starts[place.layer]! + HEIGHT / 2, width: place.width, height: HEIGHT };
  });
  const at = new Map(boxes.map((box) => [box.node.id, box]));
  const lines = bundled(drawn).map(({ edge, bend }) => {
    const [from, to] = [at.get(edge.source)!, at.get(edge.target)!];
    const span = Math.abs(placed.get(edge.source)!.layer - placed.get(edge.target)!.layer);
    // A line that stays in its layer, or leaps over one, goes round what may stand between.
    const round = edge.source !== edge.target && span !== 1 && bend === 0 ? (span === 0 ? 34 : 22 * span) : bend;
    return line(edge, from, to, round);
  });
  return framed(boxes, labelled(boxes, lines, (edge) => measure(labelOf(edge))), measure, labelOf);
}

const extent = (place: Placed, across: boolean) => (across ? HEIGHT : place.width);

/** Layers by distance from what is given, each in an order that keeps lines from crossing. */
function layered(nodes: GraphNode[], edges: GraphEdge[]): string[][] {
  const beside = neighbours(nodes, edges);
  const depth = new Map<string, number>();
  const walk = (starts: string[]) => {
    for (const id of starts) depth.set(id, 0);
    for (let front = starts; front.length > 0; ) {
      const next: string[] = [];
      for (const id of front)
        for (const other of beside.get(id)!)
          if (!depth.has(other)) {
            depth.set(other, depth.get(id)! + 1);
            next.push(other);
          }
      front = next;
    }
  };
  walk(nodes.filter((node) => node.kind === "entity").map((node) => node.id));
  // Parts of the graph without anything given begin with their first node.
  for (const node of nodes) if (!depth.has(node.id)) walk([node.id]);

  const layers: string[][] = [];
  for (const node of nodes) (layers[depth.get(node.id)!] ??= []).push(node.id);
  const order = (ids: string[], fixed: string[]) => {
    const rank = new Map(fixed.map((id, place) => [id, place]));
    const key = (id: string, place: number) => mean([...beside.get(id)!].flatMap((other) => rank.get(other) ?? [])) ?? place;
    const keys = new Map(ids.map((id, place) => [id, key(id, place)]));
    ids.sort((a, b) => keys.get(a)! - keys.get(b)!);
  };
  for (let sweep = 0; sweep < 4; sweep++) {
    for (let layer = 1; layer < layers.length; layer++) order(layers[layer]!, layers[layer - 1]!);
    for (let layer = layers.length - 2; layer >= 0; layer--) order(layers[layer]!, layers[layer + 1]!);
  }
  return layers;
}

function neighbours(nodes: GraphNode[], edges: GraphEdge[]): Map<string, Set<string>> {
  const beside = new Map(nodes.map((node) => [node.id, new Set<string>()]));
  for (const edge of edges) {
    if (edge.source === edge.target) continue;
    beside.get(edge.source)!.add(edge.target);
    beside.get(edge.target)!.add(edge.source);
  }
  return beside;
}

/** Move the nodes of each layer towards their neighbours, keeping their order and their distance. */
function spread(layers: string[][], placed: Map<string, Placed>, edges: GraphEdge[]): void {
  for (const ids of layers) stack(ids, placed, ids.map(() => 0));
  for (let sweep = 0; sweep < 8; sweep++)
    for (const ids of layers) {
      const wanted = ids.map((id) => {
        const ends = edges.flatMap((edge) => (edge.source === id ? [edge.target] : edge.target === id ? [edge.source] : []));
        return mean(ends.filter((other) => other !== id).map((other) => placed.get(other)!.along)) ?? placed.get(id)!.along;
      });
      stack(ids, placed, wanted);
    }
}

/** Places next to one another, as near to the wanted ones as their distances let them: their mean stays. */
function stack(ids: string[], placed: Map<string, Placed>, wanted: number[]): void {
  const along: number[] = [];
  for (const [place, id] of ids.entries()) {
    const slot = placed.get(id)!.slot;
    const before = place === 0 ? -Infinity : along[place - 1]! + (placed.get(ids[place - 1]!)!.slot + slot) / 2;
    along.push(Math.max(wanted[place]!, before));
  }
  const shift = (mean(wanted) ?? 0) - (mean(along) ?? 0);
  for (const [place, id] of ids.entries()) placed.get(id)!.along = along[place]! + shift;
}

/** Room between a layer and the next: enough for the longest label on the way. */
function gapAfter<E extends GraphEdge>(
  layer: number, placed: Map<string, Placed>, edges: E[], measure: (text: string) => number, labelOf: (edge: E) => string,
): number {
  const crossing = edges.filter((edge) => {
    const ends = [placed.get(edge.source)!.layer, placed.get(edge.target)!.layer];
    return Math.min(...ends) <= layer && Math.max(...ends) > layer;
  });
  return Math.max(60, ...crossing.map((edge) => measure(labelOf(edge)) + 44));
}

/** Edges with how far each bends aside: those between the same two nodes keep apart. */
function bundled<E extends GraphEdge>(edges: E[]): { edge: E; bend: number }[] {
  const pair = (edge: E) => [edge.source, edge.target].sort().join("\u0000");
  const sizes = new Map<string, number>();
  for (const edge of edges) sizes.set(pair(edge), (sizes.get(pair(edge)) ?? 0) + 1);
  const seen = new Map<string, number>();
  return edges.map((edge) => {
    const number = seen.get(pair(edge)) ?? 0;
    seen.set(pair(edge), number + 1);
    const side = edge.source < edge.target ? 1 : -1;
    return { edge, bend: side * (number - (sizes.get(pair(edge))! - 1) / 2) * 52 };
  });
}

function line<N, E>(edge: E, from: Box<N>, to: Box<N>, bend: number): Bare<E> {
  if (from === to) {
    const [x, top, reach] = [from.x, from.y - from.height / 2, 34 + Math.abs(bend)];
    const path = `M${n(x - 12)} ${n(top)} C${n(x - 30)} ${n(top - reach)} ${n(x + 30)} ${n(top - reach)} ${n(x + 12)} ${n(top - ARROW)}`;
    return { edge, path, at: () => ({ x, y: top - reach * 0.75 }) };
  }
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const middle = { x: (from.x + to.x) / 2 - (dy / length) * bend * 2, y: (from.y + to.y) / 2 + (dx / length) * bend * 2 };
  const a = edgeOf(from, middle, 0);
  const b = edgeOf(to, middle, ARROW);
  if (bend === 0) {
    const at = (share: number) => ({ x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share });
    return { edge, path: `M${n(a.x)} ${n(a.y)} L${n(b.x)} ${n(b.y)}`, at };
  }
  const mix = (from: number, over: number, to: number, share: number) => (1 - share) ** 2 * from + 2 * share * (1 - share) * over + share ** 2 * to;
  const at = (share: number) => ({ x: mix(a.x, middle.x, b.x, share), y: mix(a.y, middle.y, b.y, share) });
  return { edge, path: `M${n(a.x)} ${n(a.y)} Q${n(middle.x)} ${n(middle.y)} ${n(b.x)} ${n(b.y)}`, at };
}

/** Lines with their labels, each where it covers least of the nodes and of the labels before it. */
function labelled<N, E>(boxes: Box<N>[], lines: Bare<E>[], widthOf: (edge: E) => number): Line<E>[] {
  const taken = boxes.map(({ x, y, width, height }) => ({ x, y, width, height }));
  return lines.map(({ edge, path, at }) => {
    const size = { width: widthOf(edge) + 6, height: 17 };
    const covered = (share: number) => taken.reduce((sum, other) => sum + overlap({ ...at(share), ...size }, other), 0);
    const share = SHARES.reduce((best, other) => (covered(other) < covered(best) ? other : best));
    taken.push({ ...at(share), ...size });
    return { edge, path, ...at(share) };
  });
}

type Area = Point & { width: number; height: number };
const overlap = (a: Area, b: Area) =>
  Math.max(0, (a.width + b.width) / 2 - Math.abs(a.x - b.x)) * Math.max(0, (a.height + b.height) / 2 - Math.abs(a.y - b.y));

/** Where the way from a box's centre to a point leaves the box, and a little further. */
function edgeOf<N>(box: Box<N>, towards: Point, further: number): Point {
  const [dx, dy] = [towards.x - box.x, towards.y - box.y];
  const length = Math.hypot(dx, dy) || 1;
  const scale = Math.min(box.width / 2 / (Math.abs(dx) || 1e-9), box.height / 2 / (Math.abs(dy) || 1e-9)) + further / length;
  return { x: box.x + dx * scale, y: box.y + dy * scale };
}

/** Everything moved so that it begins at the margin, labels included. */
function framed<N, E>(boxes: Box<N>[], lines: Line<E>[], measure: (text: string) => number, labelOf: (edge: E) => string): Layout<N, E> {
  const spans = [
    ...boxes.map((box) => [box.x - box.width / 2, box.x + box.width / 2, box.y - box.height / 2, box.y + box.height / 2]),
    ...lines.map((line) => {
      const half = measure(labelOf(line.edge)) / 2;
      return [line.x - half, line.x + half, line.y - 10, line.y + 10];
    }),
  ];
  const left = Math.min(...spans.map((span) => span[0]!)) - MARGIN;
  const top = Math.min(...spans.map((span) => span[2]!)) - MARGIN;
  const right = Math.max(...spans.map((span) => span[1]!)) + MARGIN;
  const bottom = Math.max(...spans.map((span) => span[3]!)) + MARGIN;
  const moved = (path: string) => path.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x: string, y: string) => `${n(Number(x) - left)} ${n(Number(y) - top)}`);
  return {
    boxes: boxes.map((box) => ({ ...box, x: box.x - left, y: box.y - top })),
    lines: lines.map((line) => ({ ...line, path: moved(line.path), x: line.x - left, y: line.y - top })),
    width: right - left,
    height: bottom - top,
  };
}

const n = (value: number) => String(Math.round(value * 10) / 10);
const mean = (values: number[]) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
