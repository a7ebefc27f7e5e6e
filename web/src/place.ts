// Where in a query a problem is.
import type { Problem } from "./api";

const NAME = /'((?:[^'\\]|\\.)+)'|"((?:[^"\\]|\\.)+)"/;
/** Names of a query, with what stands before their local part; strings and comments are passed over. */
const NAMES = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*|<([^<>\s]*)>|(?<![\w?$])[\w-]*:([^\s{}()<>,;"']+)/g;

/** The problem at its place. An unknown name comes without one: it is where the text first has the name it quotes. */
export function placed(text: string, problem: Problem): Problem {
  if (problem.line !== null) return problem;
  const quoted = NAME.exec(problem.message);
  const name = quoted?.[1] ?? quoted?.[2];
  if (name === undefined) return problem;
  for (const match of text.matchAll(NAMES)) {
    const written = (match[1] ?? match[2] ?? "").replace(/\.$/, "");
    if (written && (same(written, name) || name.endsWith(written))) return { ...problem, ...lineAndColumn(text, match.index) };
  }
  return problem;
}

function same(written: string, name: string): boolean {
  try {
    return decodeURIComponent(written) === name;
  } catch {
    return false;
  }
}

function lineAndColumn(text: string, index: number): { line: number; column: number } {
  const before = text.slice(0, index).split("\n");
  return { line: before.length, column: before.at(-1)!.length + 1 };
}
