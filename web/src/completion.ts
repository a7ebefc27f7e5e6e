// What the word before the cursor may become: variables of the text, SPARQL's words, and names of the graph.
import { type Completion as Option, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { complete, type Completion } from "./api";
import { TOKENS } from "./tokens";

const WORD = /[?$]\w*|<[^<>"{}|^`\\\s]*|[\p{L}_][\p{L}\p{N}_.-]*:?[\p{L}\p{N}_.%-]*|:[\p{L}\p{N}_.%-]*/u;
const BEFORE = new RegExp(`(?:${WORD.source})$`, "u");
const KEYWORDS = ["SELECT", "DISTINCT", "WHERE", "ASK", "COUNT", "FILTER", "UNION", "VALUES", "ORDER BY", "ASC", "DESC", "LIMIT", "OFFSET", "PREFIX"];
const LIMIT = 20;

export type Place = "subject" | "predicate" | "object" | "prefix" | "elsewhere";

/** Where the next word of a text stands: which part of a triple, or outside of any; and the word of the triple before it. */
function placeAfter(text: string): { place: Place; before: string } {
  let depth = 0;
  let part = 0;
  let last = "";
  const words = ["", "", ""];
  for (const [token] of text.matchAll(TOKENS)) {
    if (token.startsWith("#")) continue;
    if (token === "{" || token === "}") depth += token === "{" ? 1 : -1;
    if ("{}.".includes(token)) part = 0;
    else if (token === ";") part = 1;
    else if (token === ",") part = 2;
    else if (!"()".includes(token)) {
      part += 1;
      words[part] = token;
    }
    last = token;
  }
  const parts: Place[] = ["subject", "predicate", "object"];
  const place = /^prefix$/i.test(last) ? "prefix" : depth < 1 ? "elsewhere" : (parts[part] ?? "elsewhere");
  return { place, before: place === "predicate" || place === "object" ? (words[part] ?? "") : "" };
}

/** CodeMirror's source of completions. */
export async function completions(context: CompletionContext): Promise<CompletionResult | null> {
  const found = context.matchBefore(BEFORE);
  const word = found?.text ?? "";
  if (!word && !context.explicit) return null;
  const from = found?.from ?? context.pos;
  const text = context.state.doc.toString();
  if (/^[?$]/.test(word)) return { from, options: variables(text, word), validFor: /^[?$]\w*$/ };

  const { place, before } = placeAfter(text.slice(0, from));
  const kinds = place === "predicate" ? ["relation"] : place === "prefix" ? ["prefix"] : place === "elsewhere" ? [] : ["entity"];
  const isBare = !/[:<]/.test(word);
  const options = isBare && place !== "prefix" && word ? keywords(word) : [];
  if (isBare && word && kinds[0] === "entity") kinds.push("prefix");
  if (!word && (place === "subject" || place === "elsewhere")) return { from, options: variables(text, "?") };
  if (!word && place === "object") options.push(...variables(text, "?"));

  const stop = new AbortController();
  context.addEventListener("abort", () => stop.abort());
  try {
    const lists = await Promise.all(kinds.map((kind) => complete(word, kind, LIMIT, stop.signal, { after: before })));
    for (const list of lists) options.push(...list.map((entry, rank) => option(entry, rank)));
  } catch {
    // Completion is a help, not a need: typing goes on without it.
  }
  // The server matches by label too, so CodeMirror must not filter by what the text to insert looks like.
  return context.aborted || options.length === 0 ? null : { from, options, filter: false };
}

function option(entry: Completion, rank: number): Option {
  const shown: Option = { label: entry.insert, type: entry.kind, boost: -rank };
  // The label helps where the name is something else: a number, or a name made unique.
  const isSame = entry.label === entry.insert.replace(/^[^:]*:/, "").replaceAll("_", " ") || entry.label === entry.insert;
  const detail = entry.kind === "prefix" ? entry.detail : isSame || entry.insert.endsWith(`:${entry.label}`) ? "" : entry.label;
  return detail ? { ...shown, detail } : shown;
}

function keywords(word: string): Option[] {
  const upper = word.toUpperCase();
  return KEYWORDS.filter((keyword) => keyword.startsWith(upper) && keyword !== upper).map((label) => ({ label, type: "keyword" }));
}

function variables(text: string, word: string): Option[] {
  const names = new Set([...text.matchAll(/[?$](\w+)/g)].map((match) => `?${match[1]}`));
  const typed = `?${word.slice(1)}`;
  const repeats = [...text.matchAll(/[?$]\w+/g)].filter((match) => match[0].slice(1) === typed.slice(1)).length;
  if (repeats < 2) names.delete(typed);
  return [...names].map((label) => ({ label, type: "variable" }));
}
