// Names of entities: each leads to the card of its entity. One listener of the document opens the cards (main.ts).
import { el } from "./dom";

/** A name to follow; plain text for what is no entity. ``inTable``: reached by arrow keys, not by Tab. */
export function named(name: string | null, label: string, inTable = false): HTMLElement | string {
  if (name === null) return label;
  return el("button", { type: "button", class: "entity-name", "data-entity": name, tabindex: inTable ? -1 : null }, label);
}

/** The entity whose name an event is on; null for anything else. */
export function entityAt(event: Event): string | null {
  const place = event.target instanceof Element ? event.target.closest<HTMLElement | SVGElement>("[data-entity]") : null;
  return place?.dataset.entity ?? null;
}
