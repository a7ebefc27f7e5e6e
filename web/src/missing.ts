// Facts that the graph is likely to miss: a list to look through, and to accept or reject one by one.
import { decide, Refusal, suggest, type Suggestion, type Verdict } from "./api";
import { bar } from "./answers";
import { el, put, refill } from "./dom";
import { named } from "./names";
import { refused, waiting } from "./notices";

export interface Wanted {
  relation?: string;
  entity?: string;
}

/** Fills ``host`` with the likeliest missing facts of all relations, of one, or of one entity. */
export async function listMissing(host: HTMLElement, wanted: Wanted, top: number): Promise<void> {
  const list = el("ul", { class: "missing-list" });
  const foot = el("div", { class: "missing-foot" });
  const asked = String(Math.random());
  host.dataset.asked = asked;
  refill(host, list, foot);

  async function load(): Promise<void> {
    refill(foot, waiting("Looking for missing facts"));
    const pending = list.querySelectorAll("li:not(.decided)").length;
    try {
      const found = await suggest({ ...wanted, top: String(top), skip: String(pending) });
      if (host.dataset.asked !== asked) return;
      put(list, ...found.suggestions.map((each) => item(each, found.writable)));
      refill(foot);
      if (list.childElementCount === 0) put(foot, el("p", { class: "about" }, found.note || "Nothing is likely to be missing."));
      else if (found.note) put(foot, el("p", { class: "about" }, found.note));
      if (found.suggestions.length === top) put(foot, el("button", { type: "button", class: "quiet", click: () => void load() }, "More"));
      if (!found.writable && list.childElementCount > 0 && !wanted.entity) put(foot, el("p", { class: "about" }, "This server takes no changes, so there is nothing to accept."));
    } catch (error) {
      if (host.dataset.asked === asked) refill(foot, refused(error instanceof Refusal ? error : new Refusal("Failure", String(error)), () => void load()));
    }
  }
  await load();
}

function item(suggestion: Suggestion, writable: boolean): HTMLElement {
  const { subject, object } = suggestion;
  const place = el("div", { class: "decision" });
  const entry = el("li", {},
    el("div", { class: "suggested" }, el("p", { class: "fact" }, named(subject.name, subject.label), " ", el("span", { class: "relation" }, suggestion.label), " ", named(object.name, object.label)), bar(suggestion.probability, "predicted")),
    suggestion.why && el("p", { class: "about" }, `${suggestion.why}.`),
    writable && place,
  );
  const act = (verdict: Verdict, label: string, what: string) =>
    el("button", { type: "button", class: "quiet small", "aria-label": `${label}: ${subject.label} ${suggestion.label} ${object.label}`, click: () => void settle(verdict, what) }, label);
  const open = () => {
    entry.classList.remove("decided");
    refill(place, act("accept", "Accept", "In the graph now."), act("reject", "Reject", "Rejected; it will not be suggested again."));
  };
  const settle = async (verdict: Verdict, what: string) => {
    const had = place.contains(document.activeElement);
    for (const button of place.querySelectorAll("button")) button.disabled = true;
    try {
      await decide({ subject: subject.name ?? "", predicate: suggestion.predicate, object: object.name ?? "", verdict });
    } catch (error) {
      return refill(place, refused(error instanceof Refusal ? error : new Refusal("Failure", String(error)), () => void settle(verdict, what)));
    }
    if (verdict === "undo") open();
    else {
      entry.classList.add("decided");
      refill(place, el("span", { role: "status" }, what), act("undo", "Undo", ""));
    }
    if (had) place.querySelector("button")?.focus();
  };
  open();
  return entry;
}
