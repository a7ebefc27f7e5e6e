// The server's JSON API, in types and calls. Addresses are relative, so that a proxy may serve the page under a path.

export type Mode = "both" | "known" | "predicted";

export interface Question {
  query: string;
  mode: Mode;
  top: number;
  min_probability: number;
  model: string | null;
}

export interface Value {
  id: number | null;
  /** Name in the graph; null for what is no entity. */
  name: string | null;
  iri: string | null;
  label: string;
  term: string | null;
}

export interface Link {
  subject: string;
  predicate: string;
  object: string;
  /** Subject, predicate and object as they are shown. */
  labels: string[];
  probability: number | null;
}

export interface Row {
  values: Value[];
  /** Null for a number that is expected, not a row. */
  probability: number | null;
  status: "known" | "predicted";
  missing: Link[];
  /** Links of the row that the graph has, where they were asked for. */
  held: Link[];
  index: number;
}

export interface Answer {
  columns: { name: string; target: boolean }[];
  rows: Row[];
  /** Rows on all pages. */
  total: number;
  known: number;
  predicted: number;
  /** For ASK: whether the graph holds it. */
  holds: boolean | null;
  model: string | null;
  why: string;
  seconds: number;
  notes: string[];
  form: "select" | "ask" | "count" | "values";
  /** Whether there are known rows that the server did not read. */
  truncated: boolean;
}

export interface GraphNode {
  id: string;
  label: string;
  kind: "target" | "hidden" | "entity";
  /** Name of the entity, which leads to its card. */
  name?: string | null;
  /** How a query names it; null for what it cannot name. */
  term: string | null;
}

export interface GraphEdge {
  source: string;
  target: string;
  label: string;
}

export interface Problem {
  message: string;
  hint: string | null;
  line: number | null;
  column: number | null;
}

export interface Parsed {
  graph: { nodes: GraphNode[]; edges: GraphEdge[] };
  targets: string[];
  errors: Problem[];
  /** Whether the query is SPARQL that is answered in mode known only. */
  known_only: boolean;
}

export interface WitnessLink {
  subject: string;
  relation: string;
  object: string;
  stored: boolean;
  probability: number | null;
}

export interface Attention {
  unknowns: string[];
  tokens: string[];
  mean: number[][];
  last: number[][];
  by_layer: number[][][];
}

export interface Counterfactual {
  what: string;
  how: string;
  before: number | null;
  after: number | null;
  reason: string;
}

/** One end of a link, and who else might stand there. */
export interface Place {
  pattern: string;
  entity: string;
  rank: number;
  of: number;
  stored: number;
  rivals: { entity: string; probability: number; is_stored: boolean }[];
  embedding_rank: number | null;
}

export interface Reason {
  link: string;
  probability: number | null;
  sentence: string;
  rules: { text: string; hits: number; pairs: number; through: string[] }[];
  kinds: { text: string; speaks_for: boolean }[];
  places: Place[];
}

export type View = "witness" | "attention" | "counterfactual";

export interface Explanation {
  status: "known" | "predicted";
  probability: number | null;
  model: string | null;
  sentence: string;
  reasons: Reason[];
  witness: { nodes: GraphNode[]; links: WitnessLink[]; complete: boolean } | null;
  attention: Attention | null;
  counterfactual: Counterfactual[];
  skipped: Record<string, string>;
  text: string;
}

export interface Completion {
  insert: string;
  label: string;
  kind: "entity" | "relation" | "prefix";
  detail: string;
}

/** Facts of an entity with one relation. */
export interface FactGroup {
  relation: string;
  label: string;
  /** Whether the entity is their object. */
  inverse: boolean;
  count: number;
  values: Value[];
}

export interface EntityFacts {
  value: Value;
  classes: Value[];
  count: number;
  facts: FactGroup[];
  questions: { title: string; query: string }[];
}

/** A link that the graph does not hold, but the model expects. */
export interface Suggestion {
  subject: Value;
  predicate: string;
  /** The relation as it is shown. */
  label: string;
  object: Value;
  probability: number;
  why: string;
}

export interface Suggested {
  suggestions: Suggestion[];
  note: string;
  /** Whether they can be accepted and rejected. */
  writable: boolean;
}

export type Verdict = "accept" | "reject" | "undo";

export interface GraphFacts {
  name: string;
  entities: number;
  relations: { name: string; label: string; count: number }[];
  triples: number;
  prefixes: Record<string, string>;
  examples: { title: string; query: string }[];
  version: string | number | null;
  live: boolean;
}

export interface ModelFacts {
  name: string;
  kind: string;
  trained: string | null;
  metrics: Record<string, number>;
  calibrated: boolean;
  default: boolean;
}

/** What the server, or the way to it, says no with. */
export class Refusal extends Error {
  constructor(
    readonly type: string,
    message: string,
    readonly hint: string | null = null,
    readonly status = 0,
    readonly line: number | null = null,
    readonly column: number | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

const TOKEN = "biqe-token";

/** Keep the token for this tab only; an empty one is forgotten. */
export function useToken(token: string): void {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export const hasToken = (): boolean => sessionStorage.getItem(TOKEN) !== null;

async function call<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  const request: RequestInit = { headers, credentials: "same-origin" };
  if (signal) request.signal = signal;
  if (body !== undefined) {
    request.method = "POST";
    request.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let response: Response;
  try {
    response = await fetch(`./api/${path}`, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("Unreachable", "The server does not answer.", "Is biqe serve still running? Try again in a moment.");
  }
  const answer: unknown = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer as T;
  throw refusal(response, answer);
}

function refusal(response: Response, answer: unknown): Refusal {
  const told = (answer as { error?: Record<string, unknown> } | null)?.error ?? {};
  const word = (name: string) => (typeof told[name] === "string" ? told[name] : null);
  const number = (name: string) => (typeof told[name] === "number" ? told[name] : null);
  const wait = response.headers.get("Retry-After");
  return new Refusal(
    word("type") ?? "Failure",
    word("message") ?? `The server answered ${response.status} ${response.statusText}.`,
    word("hint") ?? (wait ? `Try again in ${wait} s.` : null),
    response.status,
    number("line"),
    number("column"),
    word("request_id"),
  );
}

export const ask = (question: Question, limit: number, offset: number, signal?: AbortSignal, facts = false) =>
  call<Answer>("ask", { ...question, limit, offset, facts }, signal);

export const entity = (name: string, options: Record<string, string>, signal?: AbortSignal) =>
  call<EntityFacts>(`entity?${new URLSearchParams({ name, ...options })}`, undefined, signal);

export const explain = (question: Question, row: number, views: View[], signal?: AbortSignal) =>
  call<Explanation>("explain", { ...question, row, views }, signal);

export const parse = (query: string, signal?: AbortSignal) => call<Parsed>("parse", { query }, signal);

/** What is completed stands after and before these words of the query: what fits them comes first. */
export interface Beside {
  before?: string;
  after?: string;
}

export const complete = (text: string, kind: string, limit: number, signal?: AbortSignal, beside: Beside = {}) =>
  call<Completion[]>(`complete?${new URLSearchParams({ text, kind, limit: String(limit), ...beside })}`, undefined, signal);

export const suggest = (options: Record<string, string>) => call<Suggested>(`suggest?${new URLSearchParams(options)}`);

export const decide = (decision: { subject: string; predicate: string; object: string; verdict: Verdict }) => call<unknown>("review", decision);

export const graph = () => call<GraphFacts>("graph");

export const models = () => call<ModelFacts[]>("models");
