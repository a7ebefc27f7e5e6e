// The card of an entity: what it is, its facts, facts that are likely missing, and questions about it.
import { entity, type EntityFacts, type FactGroup } from "./api";
import type { Panel } from "./drawer";
import { type Child, el, put, refill } from "./dom";
import { named } from "./names";
import { count, counted } from "./numbers";

const ALL = 500;

/** ``ask`` puts a question; ``missing`` lists what is likely missing of an entity, where a model can say. */
export function cardOf(name: string, label: string, on: { ask(query: string): void; missing(name: string): Child }): Panel {
  return {
    kicker: "Entity",
    title: label,
    waiting: "Looking it up",
    async content(_body, signal) {
      const found = await entity(name, {}, signal);
      const { value, classes } = found;
      const own = value.term ?? (value.iri && `<${value.iri}>`);
      const parts: HTMLElement[] = [
        el("p", { class: "about" }, ...classes.flatMap((each) => [named(each.name, each.label), " · "]), counted(found.count, "fact"), own && " · ", own && el("code", {}, own)),
      ];
      parts.push(part("Facts", el("dl", { class: "entity-facts" }, ...found.facts.flatMap((group) => facts(value, group)))));
      const missing = on.missing(value.name ?? name);
      if (missing) parts.push(part("May be missing", missing));
      if (found.questions.length > 0) {
        parts.push(part("Ask about it", el("ul", { class: "asked" }, ...found.questions.map((question) =>
          el("li", {}, el("button", { type: "button", class: "example", click: () => on.ask(question.query) }, el("span", { class: "example-title" }, question.title), el("code", {}, question.query)))))));
      }
      return parts;
    },
  };
}

const part = (title: string, ...content: Child[]) => el("section", { class: "view", "aria-label": title }, el("h3", {}, title), ...content);

/** One relation and who is at its other end. */
function facts(value: EntityFacts["value"], group: FactGroup): HTMLElement[] {
  const place = el("dd", {});
  const fill = (shown: FactGroup) => {
    refill(place, ...shown.values.flatMap((other, at) => [at > 0 && ", ", named(other.name, other.label)]));
    const rest = shown.count - shown.values.length;
    if (rest > 0 && shown.values.length < ALL) {
      put(place, " ", el("button", { type: "button", class: "quiet small", click: () => void more() }, `and ${count(rest)} more`));
    } else if (rest > 0) put(place, ` and ${count(rest)} more`);
  };
  const more = async () => {
    const all = await entity(value.name ?? value.label, { relation: group.relation, limit: String(ALL) });
    const same = all.facts.find((other) => other.inverse === group.inverse);
    if (same) fill(same);
  };
  fill(group);
  const relation = el("span", { class: "relation" }, group.label);
  const pattern = group.inverse ? ["… ", relation, ` ${value.label}`] : [relation, " …"];
  return [el("dt", {}, ...pattern), place];
}
