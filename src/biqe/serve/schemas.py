"""Types of the JSON API: requests are checked against them, and OpenAPI describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["both", "known", "predicted"]


class Shape(BaseModel):
    """A JSON object without unknown fields and without conversions of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ParseIn(Shape):
    """A query to parse, not to answer."""

    query: str = Field(description="SPARQL text", examples=["SELECT ?city WHERE { ?city :located_on :Rhine }"])


class QuestionIn(ParseIn):
    """A query and how to answer it."""

    mode: Mode = Field("both", description="Rows to return: known, predicted, or both.")
    top: int = Field(20, ge=0, le=1_000_000, description="Maximum number of predicted rows.")
    min_probability: float = Field(0.0, ge=0.0, le=1.0, description="Least probability of predicted rows.")
    model: str | None = Field(
        None, description="Name of one of several models; auto chooses the best one.", examples=["auto"]
    )


class AskIn(QuestionIn):
    """A query and the page of rows to return."""

    limit: int = Field(100, ge=0, le=10_000, description="Number of rows on this page.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Number of rows before this page.")
    facts: bool = Field(False, description="Whether each row lists the stored links that it rests on.")


class ExplainIn(QuestionIn):
    """A query and the row of its answer to explain."""

    row: int = Field(ge=0, le=10_000_000, description="Index of the row, as returned by ask.", examples=[0])
    views: list[Literal["witness", "attention", "counterfactual"]] = Field(
        ["witness"], min_length=1, max_length=3, description="Parts to return beside the reasons."
    )
    svg: bool = Field(False, description="Whether to draw the explanation.")


class Column(BaseModel):
    """A variable of the answer."""

    name: str
    target: bool = Field(description="Whether its values are entities that the query asks for.")


class Value(BaseModel):
    """Value of a variable in a row."""

    id: int | None = Field(description="Id of the entity; null if it is not an entity.")
    name: str | None = Field(description="Name in the graph; null if it is not an entity.")
    iri: str | None = Field(description="Absolute IRI; null for a literal.")
    label: str = Field(description="Text to show.")
    term: str | None = Field(description="How a query writes it; null if a query cannot name it.")


class LinkOut(BaseModel):
    """A pattern of the query with the row's entities in it."""

    subject: str = Field(description="Name in the graph; or a variable that no entity fills.")
    predicate: str
    object: str
    labels: list[str] = Field(description="Subject, predicate and object as text to show.")
    probability: float | None = Field(description="1 if the graph holds it.")


class Row(BaseModel):
    """One answer."""

    values: list[Value]
    probability: float | None = Field(description="1 for a known row; null for an expected count.")
    status: Literal["known", "predicted"]
    missing: list[LinkOut] = Field(description="Links that are not in the graph; with all of them it would be known.")
    held: list[LinkOut] = Field(description="Links that are in the graph; empty unless asked for.")
    index: int = Field(description="Index among all rows, from 0.")


class AskOut(BaseModel):
    """Answers: known rows first, then predicted ones by falling probability."""

    columns: list[Column]
    rows: list[Row]
    total: int = Field(description="Number of rows on all pages.")
    known: int
    predicted: int
    holds: bool | None = Field(description="For ASK: whether it is true in the graph.")
    model: str | None
    why: str = Field(description="Why this model answered, if there are several.")
    seconds: float
    notes: list[str]
    form: Literal["select", "ask", "count", "values"]
    truncated: bool = Field(description="Whether the server left out rows.")


class GraphNode(BaseModel):
    """A node of a drawing."""

    id: str
    label: str
    kind: Literal["target", "hidden", "entity"]
    name: str | None = Field(None, description="Name of the entity, if it is one.")
    term: str | None = Field(None, description="How a query writes it; null if a query cannot name it.")


class GraphEdge(BaseModel):
    """An edge of a drawing."""

    source: str
    target: str
    label: str


class Drawing(BaseModel):
    """A query as a graph."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]


class Problem(BaseModel):
    """An error in a query; lines and columns count from 1."""

    message: str
    hint: str | None
    line: int | None
    column: int | None


class ParseOut(BaseModel):
    """A query as a graph, and its errors."""

    graph: Drawing
    targets: list[str]
    errors: list[Problem]
    known_only: bool = Field(description="Whether the query is answered from the graph alone: nothing is predicted.")


class WitnessLink(BaseModel):
    """A pattern of the query filled with the row's entities."""

    subject: str = Field(description="Id of a node.")
    relation: str
    object: str
    stored: bool
    probability: float | None


class WitnessOut(BaseModel):
    """The facts that together give the row."""

    nodes: list[GraphNode]
    links: list[WitnessLink]
    complete: bool


class AttentionOut(BaseModel):
    """Attention weights: a row for each unknown, a column for each token."""

    unknowns: list[str]
    tokens: list[str]
    mean: list[list[float]]
    last: list[list[float]]
    by_layer: list[list[list[float]]]


class Counterfactual(BaseModel):
    """A change of the query or the graph, and the row's share before and after it."""

    what: str
    how: str
    before: float | None
    after: float | None
    reason: str


class RuleReason(BaseModel):
    """A rule that speaks for a link."""

    text: str
    hits: int = Field(description="Pairs of entities that such paths join and that have the link.")
    pairs: int = Field(description="Pairs of entities that such paths join.")
    through: list[str] = Field(description="Entities in the middle of the paths.")


class KindReason(BaseModel):
    """How one end of a link fits its relation."""

    text: str
    speaks_for: bool


class Rival(BaseModel):
    """Another entity for one end of a link."""

    entity: str
    probability: float
    is_stored: bool


class Place(BaseModel):
    """One end of a link, and who else might stand there."""

    pattern: str
    entity: str
    rank: int = Field(description="Among the entities that are not stored there, by probability.")
    of: int
    stored: int
    rivals: list[Rival]
    embedding_rank: int | None


class Reason(BaseModel):
    """What speaks for one missing link and against it."""

    link: str
    probability: float | None
    sentence: str
    rules: list[RuleReason]
    kinds: list[KindReason]
    places: list[Place]


class ExplainOut(BaseModel):
    """Why a row is an answer."""

    status: Literal["known", "predicted"]
    probability: float | None
    model: str | None
    sentence: str = Field(description="Why, in one sentence.")
    reasons: list[Reason] = Field(description="One for each missing link.")
    witness: WitnessOut | None
    attention: AttentionOut | None
    counterfactual: list[Counterfactual]
    skipped: dict[str, str] = Field(description="For each part that is not available, why.")
    text: str
    svg: str | None


class Completion(BaseModel):
    """A completion of a word."""

    insert: str
    label: str
    kind: Literal["entity", "relation", "prefix"]
    detail: str


class RelationOut(BaseModel):
    """A relation and its number of triples."""

    name: str
    label: str
    count: int


class Example(BaseModel):
    """An example query."""

    title: str
    query: str


class GraphOut(BaseModel):
    """Counts, relations and prefixes of the graph."""

    name: str
    entities: int
    relations: list[RelationOut]
    triples: int
    prefixes: dict[str, str]
    examples: list[Example]
    version: int | str | None
    live: bool


class FactGroup(BaseModel):
    """The facts of an entity with one relation."""

    relation: str
    label: str
    term: str = Field(description="How a query writes the relation.")
    inverse: bool = Field(description="Whether the entity is the object of these facts.")
    count: int
    values: list[Value] = Field(description="The first of the entities at the other end.")


class EntityOut(BaseModel):
    """An entity and what the graph says of it."""

    value: Value
    classes: list[Value]
    count: int = Field(description="Number of its facts.")
    facts: list[FactGroup]
    questions: list[Example] = Field(description="Questions about it that have known answers.")


class SuggestionOut(BaseModel):
    """A link that the graph does not hold, but the model expects."""

    subject: Value
    predicate: str
    label: str = Field(description="The relation as text to show.")
    object: Value
    probability: float
    why: str = Field(description="What speaks most for it, in one sentence.")


class SuggestOut(BaseModel):
    """The likeliest missing links, the most probable first."""

    suggestions: list[SuggestionOut]
    model: str | None
    note: str
    seconds: float
    writable: bool = Field(description="Whether this server lets suggestions be accepted and rejected.")


class ReviewIn(Shape):
    """What is to become of a suggested link. Names as in the suggestion."""

    subject: str = Field(min_length=1, max_length=2_000)
    predicate: str = Field(min_length=1, max_length=2_000)
    object: str = Field(min_length=1, max_length=2_000)
    verdict: Literal["accept", "reject", "undo"] = Field(
        description="Insert it into the graph; never suggest it again; or take back what was decided."
    )


class ReviewOut(BaseModel):
    """What was decided about, and the version of the graph if it changed."""

    subject: str
    predicate: str
    object: str
    version: int | None


class ModelOut(BaseModel):
    """A model and its validation results."""

    name: str
    kind: str
    trained: str | None
    metrics: dict[str, float]
    calibrated: bool
    default: bool


class Fault(BaseModel):
    """An error."""

    type: str
    message: str
    hint: str | None
    line: int | None = None
    column: int | None = None
    request_id: str


class FaultOut(BaseModel):
    """The body of every error response."""

    error: Fault


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": FaultOut, "description": about}
    for status, about in {
        400: "The request, or the query in it, is not valid.",
        401: "A token is needed.",
        403: "Not allowed with this token, from this site, or on this server.",
        408: "The body did not arrive in time.",
        413: "The request is larger than allowed.",
        414: "The address is too long.",
        431: "The headers are too long.",
        500: "Internal error; the server's log has details.",
        503: "Busy, or not done in time; try again after Retry-After seconds.",
    }.items()
}
"""Errors that every address may return, as OpenAPI describes them."""
