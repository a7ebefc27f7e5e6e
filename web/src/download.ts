// The rows as a file of one's own.
import type { Answer, Question, Row } from "./api";
import { el } from "./dom";

const CELL = /[",\r\n]/;
const cell = (value: string) => (CELL.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** What the graph calls an entity; a literal is its own text. */
const nameOf = (value: Row["values"][number]) => value.name ?? value.iri ?? value.label;

/**
 * RFC 4180: a line for each row. Values are labels; where a variable has labels that are not names, the names are in a
 * column of their own. Then probability, status and missing links with their probabilities.
 */
export function asCsv(answer: Answer): string {
  const places = answer.columns.map((_, place) => place);
  const named = places.filter((place) => answer.rows.some((row) => row.values[place]!.label !== nameOf(row.values[place]!)));
  const column = (place: number) => answer.columns[place]!.name;
  const lines = [[...places.map(column), ...named.map((place) => `${column(place)} name`), "probability", "status", "missing links"]];
  for (const row of answer.rows) {
    const missing = row.missing.map((link) => `${link.labels.join(" ")}${link.probability === null ? "" : ` (${link.probability.toPrecision(3)})`}`);
    lines.push([
      ...places.map((place) => row.values[place]!.label),
      ...named.map((place) => nameOf(row.values[place]!)),
      row.probability === null ? "" : String(row.probability),
      row.status,
      missing.join("; "),
    ]);
  }
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** The answer as the server gave it, with the question that it answers. */
export function asJson(question: Question, answer: Answer): string {
  return `${JSON.stringify({ question, ...answer }, null, 2)}\n`;
}

/** Hand a text to the browser as a file to save. */
export function save(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  // The browser reads it after this turn.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
