// The page: a question on top, its answers below, and why on a click. It opens with a question that the server chose.
import * as api from "./api";
import { type Answer, type Parsed, type Question, Refusal, type Row } from "./api";
import { createTable, PAGE } from "./answers";
import { byId, el, refill } from "./dom";
import { asCsv, asJson, save } from "./download";
import { draw } from "./drawing";
import { cardOf } from "./card";
import { createDrawer } from "./drawer";
import { createEditor } from "./editor";
import { reasonsOf } from "./explanation";
import { showFacts } from "./facts";
import { DEFAULTS, fromHash, toHash, within } from "./link";
import { listMissing } from "./missing";
import { entityAt } from "./names";
import { nothing, refused, waiting } from "./notices";
import { pictureOf } from "./picture";
import { placed } from "./place";
import { count, probability, seconds } from "./numbers";
import { createSketch } from "./sketch";

const LOADED = 500;
/** Missing facts that a card has at first. */
const OFFERED = 4;
/** Milliseconds without a key before the query is drawn, and then before it is complained about. */
const PAUSE = 160;
const PATIENCE = 1200;
const AGAIN = 1000;
/** The address of an empty page. */
const NEW = "#new";
const MISSING = "#missing";

const form = byId<HTMLFormElement>("ask");
const summary = byId("summary");
const host = byId("table");
const editor = createEditor(byId("editor"), { change: soon, ask: () => void askNow() });
const table = createTable(host, { open: why, more: (status) => void loadMore(status) });
const drawer = createDrawer(byId<HTMLDialogElement>("why"));

createSketch(byId("drawing"), { read: () => editor.text, write: (text) => editor.write(text) });

let examples: api.GraphFacts["examples"] = [];
let shown: { question: Question; answer: Answer } | null = null;
let asking = new AbortController();
let parsing = new AbortController();
let parsed: Parsed | null = null;
let hasModel = false;
let timer = 0;
let complaint = 0;

// The question as the form says it.

function question(): Question {
  const field = (id: string) => byId<HTMLInputElement>(id).value;
  return {
    query: editor.text,
    mode: (new FormData(form).get("mode") ?? DEFAULTS.mode) as Question["mode"],
    top: within(field("top"), 1, 1000, DEFAULTS.top, Math.round),
    min_probability: within(field("min"), 0, 1, DEFAULTS.min_probability),
    model: byId<HTMLSelectElement>("model").value || null,
  };
}

function write(wanted: Question): void {
  editor.write(wanted.query);
  for (const radio of form.querySelectorAll<HTMLInputElement>("[name=mode]")) radio.checked = radio.value === wanted.mode;
  byId<HTMLInputElement>("top").value = String(wanted.top);
  byId<HTMLInputElement>("min").value = String(wanted.min_probability);
  const model = byId<HTMLSelectElement>("model");
  const name = wanted.model ?? "";
  if (name && ![...model.options].some((option) => option.value === name)) model.append(el("option", { value: name }, name));
  model.value = name;
}

// While typing: the query's graph, and what is wrong with it.

function soon(): void {
  clearTimeout(timer);
  clearTimeout(complaint);
  timer = window.setTimeout(() => void parseNow(), PAUSE);
}

async function parseNow(again = 5): Promise<void> {
  parsing.abort();
  parsing = new AbortController();
  const { signal } = parsing;
  if (!editor.text.trim()) return showParsed({ graph: { nodes: [], edges: [] }, targets: [], errors: [], known_only: false });
  try {
    const found = await api.parse(editor.text, signal);
    if (!signal.aborted) showParsed(found);
  } catch {
    // A server that is busy is asked again; what else is wrong, asking will tell.
    if (!signal.aborted && again > 0) timer = window.setTimeout(() => void parseNow(again - 1), AGAIN);
  }
}

function showParsed(found: Parsed): void {
  parsed = found;
  // All of SPARQL is answered from the graph; only where predictions alone are wanted, a text must be of the subset.
  const fits = found.known_only && question().mode !== "predicted";
  const problems = fits ? [] : found.known_only ? found.errors.map(orKnown) : found.errors;
  clearTimeout(complaint);
  // What is wrong while a word is being typed is often right when it is done.
  if (problems.length === 0) showProblems([]);
  else complaint = window.setTimeout(() => showProblems(problems), PATIENCE);
  drawQuery();
}

const orKnown = (problem: api.Problem): api.Problem => ({ ...problem, hint: "It can be answered from the graph: choose Rows: both, or known." });

function drawQuery(): void {
  const place = byId("drawing");
  if (parsed === null) return;
  const { nodes, edges } = parsed.graph;
  // A text that is wrong for a moment keeps its last picture, faded.
  place.classList.toggle("stale", nodes.length === 0 && parsed.errors.length > 0 && !parsed.known_only);
  if (nodes.length > 0) refill(place, draw(nodes, edges, place.clientWidth - 32, "The query as a graph"));
  else if (parsed.known_only || parsed.errors.length === 0 || place.childElementCount === 0) {
    const isEmpty = !editor.text.trim();
    refill(place, el("p", { class: "about" }, isEmpty ? "The question is drawn here while you type. Or draw it: add links below." : "This query is more than a pattern of links, so there is no picture of it."));
  }
}

function showProblems(found: api.Problem[]): void {
  const problems = found.map((problem) => placed(editor.text, problem));
  editor.mark(problems);
  const place = byId("problem");
  place.classList.toggle("none", problems.length === 0);
  refill(place, ...problems.map((problem) => {
    const at = problem.line !== null && problem.column !== null ? { line: problem.line, column: problem.column } : null;
    const message = problem.message.replace(/^line \d+, column \d+: /, "");
    return el("div", {},
      at && el("button", { type: "button", class: "at", click: () => editor.goTo(at.line, at.column) }, `line ${at.line}, column ${at.column}`),
      el("span", { class: "message" }, message), problem.hint && el("span", { class: "hint" }, problem.hint));
  }));
}

// Asking.

async function askNow(remember = true): Promise<void> {
  const wanted = question();
  if (!wanted.query.trim()) {
    editor.focus();
    return;
  }
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  if (remember && toHash(wanted) !== location.hash) history.pushState(null, "", toHash(wanted));
  busy(true);
  summary.textContent = "Asking …";
  byId("downloads").hidden = true;
  // Answers that are there already stay, faded, until the new ones come: the page does not jump.
  host.classList.add("stale");
  if (shown === null) refill(host, waiting("Asking"));
  try {
    const first = await api.ask(wanted, LOADED, 0, signal);
    // Predicted rows come behind the known ones, however many these are.
    const behind = first.predicted > 0 && first.known > first.rows.length ? (await api.ask(wanted, LOADED, first.known, signal)).rows : [];
    const answer = { ...first, rows: [...first.rows, ...behind] };
    if (signal.aborted) return;
    showProblems([]);
    shown = { question: wanted, answer };
    showAnswer(wanted, answer);
  } catch (error) {
    if (!signal.aborted) showRefusal(error);
    else if (signal.reason === "stopped") stopped();
  } finally {
    if (!signal.aborted || signal.reason === "stopped") busy(false);
  }
}

function busy(is: boolean): void {
  host.setAttribute("aria-busy", String(is));
  if (!is) host.classList.remove("stale");
  byId("stop").hidden = !is;
  byId("go").classList.toggle("busy", is);
}

function stopped(): void {
  summary.textContent = "Stopped.";
  shown = null;
  refill(host, nothing("Stopped", "Nothing was answered. Ask again, or ask something else."));
}

function showAnswer(wanted: Question, answer: Answer): void {
  const parts = [];
  if (wanted.mode !== "predicted") parts.push(`${count(answer.known)} known`);
  if (wanted.mode !== "known") parts.push(`${count(answer.predicted)} predicted${answer.model ? ` by ${answer.model}` : ""}`);
  summary.textContent = `${parts.join(", ")} · ${seconds(answer.seconds)}${answer.why ? ` · ${answer.why}` : ""}`;
  byId("downloads").hidden = answer.rows.length === 0;
  void showPicture();
  if (answer.rows.length === 0) {
    if (answer.form === "ask") refill(host, verdict(answer));
    else refill(host, nothing("No rows", wanted.mode === "known" ? "The graph holds no answer to this. Ask for predicted rows too." : "Neither the graph nor the model has an answer to this."));
  } else {
    table.show(answer, wanted.mode);
    if (answer.form === "ask") host.prepend(verdict(answer));
  }
  const cut = answer.truncated ? [`There are more known rows than the ${count(answer.total)} that the server reads; they are not counted here.`] : [];
  for (const note of [...answer.notes, ...cut]) host.prepend(el("p", { class: "note" }, note));
}

/** The answer to ASK: yes from the graph, or as probable as the best row. */
function verdict(answer: Answer): HTMLElement {
  const best = answer.rows[0]?.probability ?? null;
  if (answer.holds) return nothing("Yes", "The graph holds it.");
  return best === null ? nothing("No", "The graph does not hold it.") : nothing(`Not in the graph; probability ${probability(best)}`, "The graph does not hold it, and this is how probable the model finds it.");
}

function showRefusal(error: unknown): void {
  const refusal = error instanceof Refusal ? error : new Refusal("Failure", "The page could not show this answer.", String(error));
  summary.textContent = "";
  shown = null;
  const problem = placed(editor.text, { message: refusal.message, hint: refusal.hint, line: refusal.line, column: refusal.column });
  if (refusal.status === 400 && problem.line !== null) {
    clearTimeout(complaint);
    showProblems([problem]);
    refill(host, nothing("Not answered", "What is wrong is marked in the question."));
  } else refill(host, refused(refusal, () => void start()));
}

/** The next rows of one status. */
async function loadMore(status: Row["status"]): Promise<void> {
  if (shown === null) return;
  const { question: wanted, answer } = shown;
  const there = answer.rows.filter((row) => row.status === status).length;
  const more = await api.ask(wanted, LOADED, status === "known" ? there : answer.known + there);
  if (shown?.answer !== answer) return;
  // The page may run on into rows of the other status, or into rows that are there already.
  const seen = new Set(answer.rows.map((row) => row.index));
  const rows = more.rows.filter((row) => !seen.has(row.index));
  // A graph may change between two pages; what does not come is not waited for.
  const all = [...answer.rows, ...rows].sort((a, b) => a.index - b.index);
  shown = { question: wanted, answer: { ...answer, rows: all, total: rows.length ? answer.total : all.length } };
  table.extend(rows);
}

function why(row: Row): void {
  if (shown) drawer.open(reasonsOf(shown.question, shown.answer, table.rows, row, (last) => table.focusRow(last.index)));
}

/** The card of the entity that was clicked on. */
function follow(event: Event): void {
  const name = entityAt(event);
  // While a link is being drawn, the nodes of the question are its ends.
  const isEnd = byId<HTMLDetailsElement>("sketch").open && byId("drawing").contains(event.target as Node);
  if (name === null || isEnd) return;
  event.preventDefault();
  const label = (event.target as Element).closest("[data-entity]")?.querySelector("title")?.textContent ?? (event.target as Element).textContent ?? name;
  drawer.open(cardOf(name, label, { ask: askAbout, missing: hasModel ? missingOf : () => null }));
}

function missingOf(entity: string): HTMLElement {
  const place = el("div", {});
  void listMissing(place, { entity }, OFFERED);
  return place;
}

// Facts that are likely missing, once somebody opens that section.

function offerRelations(relations: api.GraphFacts["relations"]): void {
  const choice = byId<HTMLSelectElement>("missing-relation");
  refill(choice, el("option", { value: "" }, "all relations"), ...relations.map(({ name, label }) => el("option", { value: name }, label)));
}

function showMissing(): void {
  const choice = byId<HTMLSelectElement>("missing-relation");
  void listMissing(byId("missing-facts"), choice.value ? { relation: choice.value } : {}, PAGE);
}

/** It begins with the relation that the answers above miss. */
function openMissing(): void {
  if (!byId<HTMLDetailsElement>("missing").open || byId("missing-facts").childElementCount > 0) return;
  byId<HTMLSelectElement>("missing-relation").value = shown?.answer.rows.find((row) => row.missing.length > 0)?.missing[0]?.predicate ?? "";
  showMissing();
}

function askAbout(query: string): void {
  drawer.close();
  write({ ...question(), query });
  void askNow();
}

// The answers as a picture, on request.

let drawing = new AbortController();

async function showPicture(): Promise<void> {
  drawing.abort();
  drawing = new AbortController();
  const { signal } = drawing;
  const place = byId("picture");
  const isWanted = byId("as-graph").getAttribute("aria-pressed") === "true";
  place.hidden = !isWanted || shown === null;
  if (place.hidden || shown === null) return refill(place);
  place.classList.add("stale");
  try {
    const picture = await pictureOf(shown.question, shown.answer, place.clientWidth, signal);
    if (!signal.aborted) refill(place, picture);
  } catch (error) {
    if (!signal.aborted && error instanceof Refusal) refill(place, refused(error, () => void showPicture()));
  } finally {
    if (!signal.aborted) place.classList.remove("stale");
  }
}

async function download(kind: "csv" | "json"): Promise<void> {
  try {
    while (shown && shown.answer.rows.length < shown.answer.total) {
      const known = shown.answer.rows.filter((row) => row.status === "known").length;
      await loadMore(known < shown.answer.known ? "known" : "predicted");
    }
  } catch (error) {
    return showRefusal(error);
  }
  if (shown === null) return;
  if (kind === "csv") save("answers.csv", "text/csv;charset=utf-8", asCsv(shown.answer));
  else save("answers.json", "application/json", asJson(shown.question, shown.answer));
}

// What is there before anything is asked.

function showExamples(): void {
  const choice = byId<HTMLSelectElement>("examples");
  choice.append(...examples.map((example, place) => el("option", { value: place }, example.title)));
  choice.addEventListener("change", () => {
    const example = examples[Number(choice.value)];
    if (choice.value === "" || !example) return;
    write({ ...question(), query: example.query });
    choice.value = "";
    void askNow();
  });
}

function welcome(): void {
  const card = (example: { title: string; query: string }) =>
    el("li", {}, el("button", { type: "button", class: "example", click: () => (write({ ...question(), query: example.query }), void askNow()) },
      el("span", { class: "example-title" }, example.title), el("code", {}, example.query)));
  refill(host, el("p", { class: "about" }, "Nothing asked yet. Write a SPARQL query above, or begin with one of these."), el("ul", { class: "example-list" }, ...examples.slice(0, 6).map(card)));
}

/** An empty page with examples. */
function begin(): void {
  asking.abort();
  busy(false);
  shown = null;
  write(DEFAULTS);
  summary.textContent = "";
  byId("downloads").hidden = true;
  void showPicture();
  welcome();
  editor.focus();
}

async function start(): Promise<void> {
  try {
    const [graph, models] = await Promise.all([api.graph(), api.models()]);
    if (examples.length === 0) {
      examples = graph.examples;
      showExamples();
    }
    showFacts(byId("facts"), byId("graph-line"), graph, models);
    document.title = `${graph.name} · biqe`;
    offerModels(models);
    offerRelations(graph.relations);
    hasModel = models.length > 0;
    byId("missing").hidden = byId("to-missing").hidden = !hasModel;
  } catch (error) {
    return showRefusal(error);
  }
  const wanted = fromHash(location.hash);
  if (wanted) {
    write(wanted);
    await askNow(false);
  } else if (editor.text.trim()) await askNow(false);
  else if (examples[0] && location.hash !== NEW) {
    write({ ...question(), query: examples[0].query });
    await askNow(false);
  } else welcome();
  if (location.hash === MISSING && hasModel) {
    byId<HTMLDetailsElement>("missing").open = true;
    byId("missing").scrollIntoView();
  }
}

function offerModels(models: api.ModelFacts[]): void {
  const choice = byId<HTMLSelectElement>("model");
  const before = choice.value;
  const several = models.length > 1 ? [el("option", { value: "auto" }, "best for the query"), ...models.map((model) => el("option", { value: model.name }, model.name))] : [];
  const usual = models.length > 1 ? "as the server chooses" : (models[0]?.name ?? "none");
  refill(choice, el("option", { value: "" }, usual), ...several);
  choice.value = before;
  choice.disabled = models.length === 0;
}

for (const radio of form.querySelectorAll("[name=mode]")) radio.addEventListener("change", () => parsed && showParsed(parsed));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  void askNow();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented && !byId<HTMLDialogElement>("why").open) {
    event.preventDefault();
    void askNow();
  }
});
byId("stop").addEventListener("click", () => asking.abort("stopped"));
byId("missing").addEventListener("toggle", openMissing);
byId("missing-relation").addEventListener("change", showMissing);
byId("to-missing").addEventListener("click", () => (byId<HTMLDetailsElement>("missing").open = true));
byId("as-graph").addEventListener("click", () => {
  const button = byId("as-graph");
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  void showPicture();
});
document.addEventListener("click", follow);
document.addEventListener("keydown", (event) => {
  // Names in pictures are no buttons of HTML, which would do this by themselves.
  if ((event.key === "Enter" || event.key === " ") && event.target instanceof SVGElement) follow(event);
});
byId("download-csv").addEventListener("click", () => void download("csv"));
byId("download-json").addEventListener("click", () => void download("json"));
window.addEventListener("popstate", () => {
  const wanted = fromHash(location.hash);
  if (wanted) {
    write(wanted);
    void askNow(false);
  } else if (location.hash === NEW) begin();
});
let drawnAt = 0;
new ResizeObserver(([entry]) => {
  // Only another width asks for another picture; a picture changes the height itself.
  if (entry && Math.round(entry.contentRect.width) !== drawnAt) {
    drawnAt = Math.round(entry.contentRect.width);
    drawQuery();
  }
}).observe(byId("drawing"));

// On a narrow screen the picture and the settings make way for the answers.
if (matchMedia("(max-width: 40rem)").matches) for (const fold of document.querySelectorAll<HTMLDetailsElement>("details.fold")) fold.open = false;
void parseNow();
// Told before the first answer arrives: from here on the page can be used.
performance.mark("interactive");
document.documentElement.dataset.ready = "";
void start();
