// A query as text, with one link more.
import { TOKENS } from "./tokens";

const isVariable = (word: string) => /^[?$]\w+$/.test(word);

/** The names of the variables in a text, each once, with their question mark. */
export function variablesOf(text: string): string[] {
  const words = [...text.matchAll(TOKENS)].map(([token]) => token).filter(isVariable);
  return [...new Set(words.map((word) => `?${word.slice(1)}`))];
}

/** A variable that the text does not have. */
export function freshVariable(text: string): string {
  const taken = new Set(variablesOf(text));
  for (const name of ["?x", "?y", "?z"]) if (!taken.has(name)) return name;
  for (let number = 1; ; number++) if (!taken.has(`?x${number}`)) return `?x${number}`;
}

/** The place, among the tokens, of the brace that closes the query's own group: not one of VALUES behind it. */
function closingOf(tokens: RegExpExecArray[]): number {
  const where = tokens.findIndex(([token]) => /^where$/i.test(token));
  let depth = 0;
  for (let place = Math.max(0, where); place < tokens.length; place++) {
    const token = tokens[place]?.[0];
    if (token === "{") depth += 1;
    else if (token === "}" && --depth === 0) return place;
  }
  return -1;
}

/**
 * The query with this link in its group; its new variables are asked for. Null where the text has no group that
 * a link could stand in.
 */
export function withLink(text: string, from: string, relation: string, to: string): string | null {
  const link = `${from} ${relation} ${to}`;
  const wanted = [...new Set([from, to].filter(isVariable))];
  if (!text.trim()) return wanted.length > 0 ? `SELECT ${wanted.join(" ")} WHERE {\n  ${link}\n}` : `ASK {\n  ${link}\n}`;
  const tokens = [...text.matchAll(TOKENS)];
  const closing = closingOf(tokens);
  const last = tokens[closing - 1]?.[0];
  const end = tokens[closing]?.index;
  if (last === undefined || end === undefined) return null;
  const before = text.slice(0, end).trimEnd();
  const apart = text.includes("\n") ? "\n  " : " ";
  const isComment = last.startsWith("#");
  // A name does not end with a dot, so one at its end closes the link before.
  const isClosed = ["{", "}"].includes(last) || (last.endsWith(".") && !/^["']/.test(last));
  const dot = isClosed ? "" : isComment ? ". " : " .";
  const grown = isComment ? `${before}${apart}${dot}${link}` : `${before}${dot}${apart}${link}`;
  const added = wanted.filter((name) => !variablesOf(text).includes(name));
  const whole = `${grown}${text.includes("\n") ? "\n" : " "}${text.slice(end)}`;
  if (added.length === 0) return whole;
  return whole.replace(/\bselect\b(?:\s+(?:distinct|reduced))?(?:\s+[?$]\w+)+/i, (list) => `${list} ${added.join(" ")}`);
}
