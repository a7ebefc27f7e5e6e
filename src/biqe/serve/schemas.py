"""Shapes of the JSON API: what OpenAPI documents, what is checked on the way in, and what goes out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["both", "known", "predicted"]


class Shape(BaseModel):
    """A JSON object without surprises."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ParseIn(Shape):
    """A query to look at, not to answer."""

    query: str = Field(description="SPARQL text", examples=["SELECT ?city WHERE { ?city :located_on :Rhine }"])


class QuestionIn(ParseIn):
    """A query, and how it is to be answered."""

    mode: Mode = Field("both", description="Rows wanted: what the graph holds, what the model predicts, or both.")
    top: int = Field(20, ge=0, le=1_000_000, description="Predicted rows, at most.")
    min_probability: float = Field(0.0, ge=0.0, le=1.0, description="Leave out predicted rows below this.")
    model: str | None = Field(
        None, description="Name of one of several models; auto for the best one.", examples=["auto"]
    )


class AskIn(QuestionIn):
    """A query, and the page of its rows that is wanted."""

    limit: int = Field(100, ge=0, le=10_000, description="Rows of this page.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Rows before this page.")


class ExplainIn(QuestionIn):
    """A query, and the row of its answer that is to be explained."""

    row: int = Field(ge=0, le=10_000_000, description="The row's index, as ask gave it.", examples=[0])


class Column(BaseModel):
    """A variable of the answer."""

    name: str
    target: bool = Field(description="Whether it stands for an entity that the query asks for.")


class Value(BaseModel):
    """What a variable stands for in a row."""

    id: int | None = Field(description="Number of the entity; null for what is none.")
    iri: str | None = Field(description="Absolute IRI; null for a literal.")
    label: str = Field(description="What to show.")
    term: str | None = Field(description="How a query names it; null for what it cannot name.")


class MissingLink(BaseModel):
    """A link that the graph would have to hold for the row to be known."""

    subject: str
    predicate: str
    object: str
    probability: float | None


class Row(BaseModel):
    """One answer."""

    values: list[Value]
    probability: float | None = Field(description="1 for a known row; null for a number that is expected, not a row.")
    status: Literal["known", "predicted"]
    missing: list[MissingLink]
    index: int = Field(description="Place among all rows, from 0.")


class AskOut(BaseModel):
    """Answers: known rows first, then predicted ones, likely first."""

    columns: list[Column]
    rows: list[Row]
    total: int = Field(description="Rows on all pages.")
    known: int
    predicted: int
    holds: bool | None = Field(description="For ASK: whether the graph holds it.")
    model: str | None
    why: str = Field(description="Why this model answered, where there was a choice.")
    seconds: float
    notes: list[str]
    form: Literal["select", "ask", "count", "values"]
    truncated: bool = Field(description="Whether rows are left out that the query asked for.")


class GraphNode(BaseModel):
    """A node of a drawing."""

    id: str
    label: str
    kind: Literal["target", "hidden", "entity"]
    term: str | None = Field(None, description="How a query names it; null for what it cannot name.")


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
    """What is wrong with a query, and where; lines and columns count from 1."""

    message: str
    hint: str | None
    line: int | None
    column: int | None


class ParseOut(BaseModel):
    """A query drawn, or what is wrong with it."""

    graph: Drawing
    targets: list[str]
    errors: list[Problem]
    known_only: bool = Field(description="Whether the query is SPARQL that is answered in mode known only.")


class WitnessLink(BaseModel):
    """A pattern of the query filled with the row's entities."""

    subject: str = Field(description="Id of a node.")
    relation: str
    object: str
    stored: bool
    probability: float | None


class WitnessOut(BaseModel):
    """The facts that together make the row."""

    nodes: list[GraphNode]
    links: list[WitnessLink]
    complete: bool


class AttentionOut(BaseModel):
    """Shares of attention: a row for each unknown, a column for each token."""

    unknowns: list[str]
    tokens: list[str]
    mean: list[list[float]]
    last: list[list[float]]
    by_layer: list[list[list[float]]]


class Counterfactual(BaseModel):
    """A change to the query or to what the model may use, and what became of the row's share."""

    what: str
    how: str
    before: float | None
    after: float | None
    reason: str


class ExplainOut(BaseModel):
    """Why a row is an answer."""

    status: Literal["known", "predicted"]
    probability: float | None
    model: str | None
    witness: WitnessOut | None
    attention: AttentionOut | None
    counterfactual: list[Counterfactual]
    skipped: dict[str, str] = Field(description="A sentence for each view that cannot be had.")
    text: str
    svg: str


class Completion(BaseModel):
    """A way to go on with a word."""

    insert: str
    label: str
    kind: Literal["entity", "relation", "prefix"]
    detail: str


class RelationOut(BaseModel):
    """A relation and how many triples it has."""

    name: str
    label: str
    count: int


class Example(BaseModel):
    """A query to begin with."""

    title: str
    query: str


class GraphOut(BaseModel):
    """Facts about the graph."""

    name: str
    entities: int
    relations: list[RelationOut]
    triples: int
    prefixes: dict[str, str]
    examples: list[Example]
    version: int | str | None
    live: bool


class ModelOut(BaseModel):
    """Facts about a model."""

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
    """What every refused request gets."""

    error: Fault


class ReceiptOut(BaseModel):
    """What a change of the graph came to; on disk before this is sent."""

    version: int = Field(description="Number of changes since the graph was first served.")
    inserted: int
    deleted: int
    unchanged: int
    new_entities: int
    new_relations: int
    literals: int = Field(
        description="Inserted statements about texts and numbers: SPARQL sees them, a model does not."
    )
    left_out: int
    named_graph: int
    seconds: float
