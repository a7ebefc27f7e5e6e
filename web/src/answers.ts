// The answers in two sections, known and predicted, each a table that is sorted and turned by page here.
import type { Answer, Row } from "./api";
import { type Child, el, put, refill } from "./dom";
import { entityAt, named } from "./names";
import { count, counted, probability } from "./numbers";

export const PAGE = 20;
const NARROW = matchMedia("(max-width: 60rem)");
const COLLATE = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export type Status = Row["status"];
/** A column to sort by: the number of a variable, or the probability. */
type Column = number | "probability";

/** One section: its rows as they came, and how they are shown. */
interface Section {
  status: Status;
  rows: Row[];
  ordered: Row[];
  /** Rows of this status in the whole answer. */
  total: number;
  sorted: { column: Column; descending: boolean } | null;
  page: number;
  /** Known rows above predicted ones are cut to a few until somebody wants them all. */
  isFolded: boolean;
  current: number;
}

export interface Table {
  show(answer: Answer, mode: string): void;
  /** Add rows that came later. */
  extend(rows: Row[]): void;
  /** Rows in the order shown, known ones first. */
  readonly rows: Row[];
  focusRow(index: number): void;
}

/** Known rows that are shown above or beside predicted ones, until somebody wants all. */
const few = () => (NARROW.matches ? 3 : 10);

export function createTable(host: HTMLElement, on: { open(row: Row): void; more(status: Status): void }): Table {
  let answer: Answer | null = null;
  let sections: Section[] = [];

  function section(status: Status, total: number, isFolded: boolean): Section {
    return { status, rows: [], ordered: [], total, sorted: null, page: 0, isFolded, current: 0 };
  }

  function add(rows: Row[]): void {
    for (const one of sections) {
      one.rows.push(...rows.filter((row) => row.status === one.status));
      order(one);
    }
  }

  function order(one: Section): void {
    one.ordered = [...one.rows];
    if (one.sorted === null) return;
    const { column, descending } = one.sorted;
    const sign = descending ? -1 : 1;
    // Sorting is stable: equals stay in the order of the answer.
    one.ordered.sort((a, b) => sign * compare(a, b, column));
  }

  function sortBy(one: Section, column: Column): void {
    const first = column === "probability";
    if (one.sorted?.column !== column) one.sorted = { column, descending: first };
    else if (one.sorted.descending === first) one.sorted = { column, descending: !first };
    else one.sorted = null;
    one.page = one.current = 0;
    order(one);
    render();
    host.querySelector<HTMLElement>(`.${one.status} [data-column="${column}"]`)?.focus();
  }

  function head(one: Section, column: Column, label: Child, className = ""): HTMLElement {
    const direction = one.sorted?.column === column ? (one.sorted.descending ? "descending" : "ascending") : "none";
    const mark = direction === "none" ? "↕" : direction === "ascending" ? "↑" : "↓";
    return el(
      "th",
      { scope: "col", "aria-sort": direction, class: className },
      el("button", { type: "button", class: "sort", "data-column": column, click: () => sortBy(one, column) }, label, " ", el("span", { class: "mark", "aria-hidden": "true" }, mark)),
    );
  }

  function line(one: Section, row: Row, place: number): HTMLElement {
    // Rows of values have something behind them where they rest on missing links.
    const isExplained = answer?.form === "select" || answer?.form === "ask" || (answer?.form === "values" && row.missing.length > 0);
    return el(
      "tr",
      isExplained ? { tabindex: place === one.current ? 0 : -1, "data-row": row.index, "aria-haspopup": "dialog", click: (event: Event) => entityAt(event) === null && on.open(row), focus: () => (one.current = place) } : {},
      ...row.values.map((value) => el("td", { class: "value", title: value.iri ?? "" }, named(value.name, value.label, true))),
      one.status === "predicted" && el("td", { class: "probability" }, bar(row.probability, row.status)),
      one.status === "predicted" && el("td", { class: "missing-links" }, el("div", { class: "linked" }, el("div", {}, ...links(row)), isExplained && el("button", { type: "button", class: "quiet small", tabindex: -1 }, "Why?"))),
    );
  }

  /** Rows of a section that are on the screen. */
  const visible = (one: Section) => (one.isFolded ? one.ordered.slice(0, few()) : one.ordered.slice(one.page * PAGE, (one.page + 1) * PAGE));

  function drawn(one: Section): HTMLElement {
    const shown = visible(one);
    const columns = answer?.columns ?? [];
    const isPredicted = one.status === "predicted";
    const heading = el("h3", { id: `${one.status}-title` }, badge(one.status), " ", el("span", { class: "about" }, about(one)), one.status === "predicted" && one.total > 0 && el("span", { class: "about long" }, ", the most probable first"));
    const title = el("div", { class: "part-title" }, heading, fold(one));
    const part = el("section", { class: `part ${one.status}`, "aria-labelledby": `${one.status}-title` }, title);
    if (shown.length === 0 || (columns.length === 0 && !isPredicted)) return part;
    const table = el(
      "table",
      { class: "rows", "aria-labelledby": `${one.status}-title`, "aria-rowcount": one.total + 1 },
      el("thead", {}, el("tr", {},
        ...columns.map((column, place) => head(one, place, `?${column.name}`)),
        isPredicted && head(one, "probability", el("span", {}, el("span", { class: "long" }, "Probability"), el("span", { class: "short", "aria-hidden": "true" }, "Prob.")), "probability"),
        isPredicted && el("th", { scope: "col", class: "missing-links" }, "Missing links"),
      )),
      el("tbody", { keydown: (event: KeyboardEvent) => move(one, event) }, ...shown.map((row, place) => line(one, row, place))),
    );
    table.style.setProperty("--columns", String(Math.max(1, columns.length)));
    put(part, el("div", { class: "table-frame" }, table), pager(one));
    return part;
  }

  function about(one: Section): string {
    if (one.status === "known") return one.total === 0 ? "none in the graph" : `${count(one.total)} in the graph${answer?.truncated ? ", or more" : ""}`;
    return one.total === 0 ? "none" : `${count(one.total)}${answer?.model ? ` by ${answer.model}` : ""}`;
  }

  function pager(one: Section): HTMLElement | null {
    const loaded = one.ordered.length;
    const nav = el("nav", { class: "pager", "aria-label": `Pages of ${one.status} rows` });
    const pages = Math.ceil(loaded / PAGE);
    const isMore = one.total > loaded;
    const turn = (by: number) => () => {
      one.page += by;
      one.current = 0;
      render();
      host.querySelector<HTMLElement>(`.${one.status} [data-turn="${by}"]:not(:disabled), .${one.status} [data-turn]:not(:disabled)`)?.focus();
    };
    if (pages > 1 || isMore) {
      put(
        nav,
        el("button", { type: "button", class: "quiet", "data-turn": -1, disabled: one.page === 0, click: turn(-1) }, "← Previous"),
        el("span", { class: "where", role: "status" }, `${count(one.page * PAGE + 1)}–${count(Math.min(loaded, (one.page + 1) * PAGE))} of ${count(one.total)}`),
        el("button", { type: "button", class: "quiet", "data-turn": 1, disabled: one.page >= pages - 1, click: turn(1) }, "Next →"),
        isMore && el("button", { type: "button", class: "quiet more", click: () => on.more(one.status) }, `Load more than ${count(loaded)}`),
      );
    }
    return nav.childElementCount && !one.isFolded ? nav : null;
  }

  /** The button between a few known rows and all of them. */
  function fold(one: Section): HTMLElement | null {
    if (one.status !== "known" || sections.length < 2 || one.total <= few()) return null;
    const turned = () => {
      one.isFolded = !one.isFolded;
      one.page = one.current = 0;
      render();
      host.querySelector<HTMLElement>("[data-fold]")?.focus();
    };
    return el("button", { type: "button", class: "quiet", "data-fold": "", "aria-expanded": String(!one.isFolded), click: turned }, one.isFolded ? `Show all ${count(one.total)}` : "Show fewer");
  }

  /** Arrow keys go from row to row and from name to name, Enter or Space opens: a table is one stop of the Tab key. */
  function move(one: Section, event: KeyboardEvent): void {
    const lines = [...host.querySelectorAll<HTMLElement>(`.${one.status} tbody tr[data-row]`)];
    const place = lines.indexOf((event.target as HTMLElement).closest("tr")!);
    if (place < 0) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      // Within a row: from name to name, and back to the row itself.
      const stops = [lines[place]!, ...lines[place]!.querySelectorAll<HTMLElement>("button")];
      const at = stops.indexOf(event.target as HTMLElement) + (event.key === "ArrowRight" ? 1 : -1);
      event.preventDefault();
      return stops[Math.min(stops.length - 1, Math.max(0, at))]!.focus();
    }
    if (event.target !== lines[place] && (event.key === "Enter" || event.key === " ")) return;
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      const line = lines[Math.min(lines.length - 1, Math.max(0, next))]!;
      for (const other of lines) other.tabIndex = other === line ? 0 : -1;
      line.focus();
    } else if ((event.key === "Enter" || event.key === " ") && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      on.open(visible(one)[place]!);
    }
  }

  function render(): void {
    const beside = sections.length > 1 && (answer?.columns.length ?? 0) <= 3;
    refill(host, el("div", { class: beside ? "parts beside" : "parts" }, ...sections.map(drawn)));
  }

  return {
    show(given, mode) {
      answer = given;
      // What is counted, or computed from values, is known; only questions of the subset have predicted rows.
      const both = mode === "both" && given.form !== "values" && given.model !== null;
      sections = [];
      if (mode !== "predicted" || given.known > 0) sections.push(section("known", given.known, both));
      if (both || given.predicted > 0) sections.push(section("predicted", given.predicted, false));
      add(given.rows);
      render();
    },
    extend(rows) {
      add(rows);
      render();
    },
    get rows() {
      return sections.flatMap((one) => one.ordered);
    },
    focusRow(index) {
      for (const one of sections) {
        const place = one.ordered.findIndex((row) => row.index === index);
        if (place < 0) continue;
        one.isFolded &&= place < few();
        one.page = one.isFolded ? 0 : Math.floor(place / PAGE);
        one.current = place % PAGE;
      }
      render();
      host.querySelector<HTMLElement>(`tr[data-row="${index}"]`)?.focus();
    },
  };
}

function compare(a: Row, b: Row, column: Column): number {
  if (column === "probability") return (a.probability ?? -1) - (b.probability ?? -1);
  return COLLATE.compare(a.values[column]?.label ?? "", b.values[column]?.label ?? "");
}

/** Known and predicted differ in sign and word, not in colour alone. */
export function badge(status: Status): HTMLElement {
  return el("span", { class: `badge ${status}` }, el("span", { class: "dot", "aria-hidden": "true" }), status);
}

/** A probability as a bar and a number. */
export function bar(value: number | null, status: string): HTMLElement {
  const fill = el("span", { class: "fill" });
  fill.style.inlineSize = `${100 * (value ?? 0)}%`;
  return el("span", { class: `bar ${status}` }, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "figure" }, probability(value)));
}

/** An end of a link; a variable that no entity fills leads nowhere. */
const end = (name: string, label = name) => named(name.startsWith("?") ? null : name, label, true);

function links(row: Row): HTMLElement[] {
  const shown = row.missing.slice(0, 2).map((link) => {
    const [subject, predicate, object] = link.labels;
    // A row that lacks one link is as probable as that link.
    const own = row.missing.length > 1 && el("span", { class: "own" }, ` ${probability(link.probability)}`);
    return el("span", { class: "link" }, end(link.subject, subject), " ", el("span", { class: "relation" }, predicate), " ", end(link.object, object), own);
  });
  if (row.missing.length > 2) shown.push(el("span", { class: "link" }, `and ${counted(row.missing.length - 2, "more", "more")}`));
  return shown;
}
