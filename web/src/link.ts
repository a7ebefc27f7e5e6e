// The question in the address, after #, so that it can be shared. What follows # never leaves the browser by itself.
import type { Mode, Question } from "./api";

export const DEFAULTS: Question = { query: "", mode: "both", top: 20, min_probability: 0, model: null };
const MODES: Mode[] = ["both", "known", "predicted"];

/** The part of the address after #; settings that are as usual are left out. */
export function toHash(question: Question): string {
  const part = new URLSearchParams({ q: question.query });
  if (question.mode !== DEFAULTS.mode) part.set("mode", question.mode);
  if (question.top !== DEFAULTS.top) part.set("top", String(question.top));
  if (question.min_probability !== DEFAULTS.min_probability) part.set("min", String(question.min_probability));
  if (question.model) part.set("model", question.model);
  return `#${part}`;
}

/** The question of an address; null where it holds none. Whatever is not understood is as usual. */
export function fromHash(hash: string): Question | null {
  const part = new URLSearchParams(hash.replace(/^#/, ""));
  const query = part.get("q");
  if (!query) return null;
  return {
    query,
    mode: MODES.find((mode) => mode === part.get("mode")) ?? DEFAULTS.mode,
    top: within(part.get("top"), 1, 1000, DEFAULTS.top, Math.round),
    min_probability: within(part.get("min"), 0, 1, DEFAULTS.min_probability),
    model: part.get("model"),
  };
}

/** The number that a text says, kept between two others; ``usual`` where it says none. */
export function within(text: string | null, low: number, high: number, usual: number, round = (x: number) => x): number {
  const value = text === null || text.trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) ? Math.min(high, Math.max(low, round(value))) : usual;
}
