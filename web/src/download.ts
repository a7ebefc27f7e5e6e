// The rows as a file of one's own.
import type { Answer, Question } from "./api";
import { el } from "./dom";

const CELL = /[",\r\n]/;
const cell = (value: string) => (CELL.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** RFC 4180: a line for each row, names of entities in the columns, then probability and status. */
export function asCsv(answer: Answer): string {
  const lines = [[...answer.columns.map((column) => column.name), "probability", "status"]];
  for (const row of answer.rows) {
    lines.push([...row.values.map((value) => value.iri ?? value.label), row.probability === null ? "" : String(row.probability), row.status]);
  }
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** The answer as the server gave it, with the question that it answers. */
export const asJson = (question: Question, answer: Answer): string => `${JSON.stringify({ question, ...answer }, null, 2)}\n`;

/** Hand a text to the browser as a file to save. */
export function save(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  // The browser reads it after this turn.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
