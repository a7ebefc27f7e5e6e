// The table of answers: sorted and turned by page here, so that neither needs the model again.
import type { Answer, Row } from "./api";
import { type Child, el, put, refill } from "./dom";
import { count, counted, probability } from "./numbers";

export const PAGE = 20;
const COLLATE = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** A column to sort by: the number of a variable, or one of the last two. */
type Column = number | "status" | "probability";

export interface Table {
  show(answer: Answer): void;
  /** Add rows that came later. */
  extend(rows: Row[]): void;
  /** Rows in the order shown. */
  readonly rows: Row[];
  focusRow(index: number): void;
}

export function createTable(host: HTMLElement, on: { open(row: Row): void; more(): void }): Table {
  let answer: Answer | null = null;
  let ordered: Row[] = [];
  let sorted: { column: Column; descending: boolean } | null = null;
  let page = 0;
  let current = 0;

  function order(): void {
    if (answer === null) return;
    ordered = [...answer.rows];
    if (sorted === null) return;
    const { column, descending } = sorted;
    const sign = descending ? -1 : 1;
    // Sorting is stable: equals stay in the order of the answer.
    ordered.sort((a, b) => sign * compare(a, b, column));
  }

  function sortBy(column: Column): void {
    const first = column === "probability";
    if (sorted?.column !== column) sorted = { column, descending: first };
    else if (sorted.descending === first) sorted = { column, descending: !first };
    else sorted = null;
    page = 0;
    current = 0;
    order();
    render();
    host.querySelector<HTMLElement>(`[data-column="${column}"]`)?.focus();
  }

  function head(column: Column, label: Child, className = ""): HTMLElement {
    const direction = sorted?.column === column ? (sorted.descending ? "descending" : "ascending") : "none";
    const mark = direction === "none" ? "↕" : direction === "ascending" ? "↑" : "↓";
    return el(
      "th",
      { scope: "col", "aria-sort": direction, class: className },
      el("button", { type: "button", class: "sort", "data-column": column, click: () => sortBy(column) }, label, " ", el("span", { class: "mark", "aria-hidden": "true" }, mark)),
    );
  }

  function line(row: Row, place: number): HTMLElement {
    const explained = answer?.form === "select";
    const cells = row.values.map((value) => el("td", { class: "value", title: value.iri ?? "" }, value.label));
    const tr = el(
      "tr",
      explained ? { tabindex: place === current ? 0 : -1, "data-row": row.index, "aria-haspopup": "dialog", click: () => on.open(row), focus: () => (current = place) } : {},
      el("td", { class: "number" }, count(row.index + 1)),
      ...cells,
      el("td", { class: "status" }, badge(row.status)),
      el("td", { class: "probability" }, bar(row.probability, row.status)),
      el("td", { class: "missing-links" }, ...links(row)),
    );
    return tr;
  }

  function render(): void {
    if (answer === null) return refill(host);
    const shown = ordered.slice(page * PAGE, (page + 1) * PAGE);
    const body = el("tbody", { keydown: move }, ...shown.map(line));
    const table = el(
      "table",
      { class: "rows", "aria-describedby": "summary", "aria-rowcount": answer.total + 1 },
      el("thead", {}, el("tr", {},
        el("th", { scope: "col", class: "number" }, el("span", { class: "unseen" }, "Number")),
        ...answer.columns.map((column, place) => head(place, `?${column.name}`)),
        head("status", "Status", "status"),
        head("probability", el("span", {}, el("span", { class: "long" }, "Probability"), el("span", { class: "short", "aria-hidden": "true" }, "Prob.")), "probability"),
        el("th", { scope: "col", class: "missing-links" }, "Missing links"),
      )),
      body,
    );
    refill(host, el("div", { class: "table-frame" }, table), pager());
  }

  function pager(): HTMLElement | null {
    const total = ordered.length;
    const pages = Math.ceil(total / PAGE);
    const isMore = answer !== null && answer.total > total;
    if (pages <= 1 && !isMore) return null;
    const turn = (by: number) => () => {
      page += by;
      current = 0;
      render();
      host.querySelector<HTMLElement>(`[data-turn="${by}"]:not(:disabled), [data-turn]:not(:disabled)`)?.focus();
    };
    const nav = el("nav", { class: "pager", "aria-label": "Pages of answers" });
    put(
      nav,
      el("button", { type: "button", class: "quiet", "data-turn": -1, disabled: page === 0, click: turn(-1) }, "← Previous"),
      el("span", { class: "where", role: "status" }, `${count(page * PAGE + 1)}–${count(Math.min(total, (page + 1) * PAGE))} of ${count(answer?.total ?? total)}`),
      el("button", { type: "button", class: "quiet", "data-turn": 1, disabled: page >= pages - 1, click: turn(1) }, "Next →"),
      isMore && el("button", { type: "button", class: "quiet", id: "more", click: () => on.more() }, `Load more than ${count(total)}`),
    );
    return nav;
  }

  /** Arrow keys go from row to row, Enter or Space opens one: the table is a single stop of the Tab key. */
  function move(event: KeyboardEvent): void {
    const lines = [...host.querySelectorAll<HTMLElement>("tbody tr[data-row]")];
    const place = lines.indexOf((event.target as HTMLElement).closest("tr")!);
    if (place < 0) return;
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      const line = lines[Math.min(lines.length - 1, Math.max(0, next))]!;
      for (const other of lines) other.tabIndex = other === line ? 0 : -1;
      line.focus();
    } else if ((event.key === "Enter" || event.key === " ") && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      on.open(ordered[page * PAGE + place]!);
    }
  }

  return {
    show(given) {
      answer = given;
      sorted = null;
      page = 0;
      current = 0;
      order();
      render();
    },
    extend(rows) {
      if (answer === null) return;
      answer = { ...answer, rows: [...answer.rows, ...rows] };
      order();
      render();
    },
    get rows() {
      return ordered;
    },
    focusRow(index) {
      const place = ordered.findIndex((row) => row.index === index);
      if (place < 0) return;
      page = Math.floor(place / PAGE);
      current = place % PAGE;
      render();
      host.querySelector<HTMLElement>(`tr[data-row="${index}"]`)?.focus();
    },
  };
}

function compare(a: Row, b: Row, column: Column): number {
  if (column === "probability") return (a.probability ?? -1) - (b.probability ?? -1);
  if (column === "status") return COLLATE.compare(a.status, b.status);
  return COLLATE.compare(a.values[column]?.label ?? "", b.values[column]?.label ?? "");
}

/** Known and predicted differ in sign and word, not in colour alone. */
export function badge(status: "known" | "predicted"): HTMLElement {
  return el("span", { class: `badge ${status}` }, el("span", { class: "dot", "aria-hidden": "true" }), status);
}

/** A probability as a bar and a number. */
export function bar(value: number | null, status: string): HTMLElement {
  const fill = el("span", { class: "fill" });
  fill.style.inlineSize = `${100 * (value ?? 0)}%`;
  return el("span", { class: `bar ${status}` }, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "figure" }, probability(value)));
}

function links(row: Row): HTMLElement[] {
  const shown = row.missing.slice(0, 2).map((link) =>
    el("span", { class: "link" }, `${link.subject} `, el("span", { class: "relation" }, link.predicate), ` ${link.object}`),
  );
  if (row.missing.length > 2) shown.push(el("span", { class: "link" }, `and ${counted(row.missing.length - 2, "more", "more")}`));
  return shown;
}
