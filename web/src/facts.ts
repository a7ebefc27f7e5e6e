// What stands behind the answers: the graph, its relations and the models.
import type { GraphFacts, ModelFacts } from "./api";
import { el, refill } from "./dom";
import { count, counted } from "./numbers";

const FEW = 12;

export function showFacts(host: HTMLElement, line: HTMLElement, graph: GraphFacts, models: ModelFacts[]): void {
  refill(line, el("strong", {}, graph.name), ` · ${counted(graph.entities, "entity", "entities")} · ${counted(graph.relations.length, "relation")} · ${counted(graph.triples, "triple")}`);
  refill(host, relations(graph), el("div", { class: "facts-side" }, modelList(models), prefixes(graph)));
}

function relations(graph: GraphFacts): HTMLElement {
  const sorted = [...graph.relations].sort((a, b) => b.count - a.count);
  const most = Math.max(1, ...sorted.map((relation) => relation.count));
  const item = (relation: GraphFacts["relations"][number]) => {
    const fill = el("span", { class: "fill" });
    fill.style.inlineSize = `${(100 * relation.count) / most}%`;
    return el("li", {}, el("span", { class: "name", title: relation.name }, relation.label), el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "figure" }, count(relation.count)));
  };
  const rest = sorted.slice(FEW);
  return el("section", { class: "card", "aria-label": "Relations" },
    el("h3", {}, "Relations"),
    el("ul", { class: "relations" }, ...sorted.slice(0, FEW).map(item)),
    rest.length > 0 && el("details", {}, el("summary", {}, `${count(rest.length)} more`), el("ul", { class: "relations" }, ...rest.slice(0, 500).map(item))),
  );
}

function modelList(models: ModelFacts[]): HTMLElement {
  const figures = (model: ModelFacts) =>
    Object.entries(model.metrics).slice(0, 6).map(([name, value]) => el("div", {}, el("dt", {}, name.toUpperCase()), el("dd", {}, Number.isInteger(value) ? count(value) : value.toFixed(3))));
  const item = (model: ModelFacts) =>
    el("li", {},
      el("p", { class: "model-name" }, model.name, model.default && models.length > 1 && el("span", { class: "about" }, " main")),
      el("p", { class: "about" }, [model.kind !== model.name && model.kind, model.trained && `training: ${model.trained}`, model.calibrated ? "calibrated probabilities" : "probabilities not calibrated"].filter(Boolean).join(" · ")),
      Object.keys(model.metrics).length > 0 && el("p", { class: "about" }, "In validation, on answers that were hidden from training:"),
      el("dl", { class: "figures" }, ...figures(model)),
    );
  return el("section", { class: "card", "aria-label": "Models" }, el("h3", {}, models.length === 1 ? "Model" : "Models"),
    models.length ? el("ul", { class: "models" }, ...models.map(item)) : el("p", { class: "about" }, "A graph without a model: it answers what it holds."));
}

function prefixes(graph: GraphFacts): HTMLElement {
  const entries = Object.entries(graph.prefixes);
  return el("section", { class: "card", "aria-label": "Prefixes" }, el("h3", {}, "Prefixes"),
    entries.length
      ? el("dl", { class: "prefixes" }, ...entries.flatMap(([name, iri]) => [el("dt", {}, `${name}:`), el("dd", {}, iri || "names as the graph spells them")]))
      : el("p", { class: "about" }, "Names are written :like_this."));
}
