"""What ``kb.find`` and ``kb.schema`` give: names and relations, which print as tables."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from biqe.answer.result import ResultRows, ResultTable, TextRow, TextTable, View, data_frame
from biqe.errors import InvalidOption
from biqe.exact.store import is_blank
from biqe.graph import search
from biqe.graph.knowledge_graph import Graph, counted
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import RDF_TYPE, relation_called
from biqe.query.bound import members
from biqe.query.nearest import local_part
from biqe.query.scan import in_query

if TYPE_CHECKING:
    import pandas

R = TypeVar("R")


class Listing(ResultRows[R]):
    """Rows of one kind, found in a graph; ``write`` gives them in every format of answers."""

    columns: tuple[str, ...]
    items: Sequence[R]

    @abstractmethod
    def cells(self, item: R) -> list[str]:
        """Cells of the row in a table for people."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Line above the table."""

    def __len__(self) -> int:
        return len(self.items)

    def row(self, number: int) -> R:
        """The row of this number."""
        return self.items[number]

    def __str__(self) -> str:
        return self.write("table").rstrip("\n")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title})"

    def as_table(self) -> ResultTable:
        """The rows as texts."""
        return ResultTable(self.columns, [tuple(self.cells(item)) for item in self])

    def as_text(self, view: View) -> TextTable:
        """The rows as texts, with the title above them."""
        return TextTable([self.title], self.columns, [TextRow(self.cells(item)) for item in self])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers."""
        return {"title": self.title, "rows": [asdict(item) for item in self]}  # type: ignore[call-overload]

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with the columns of the table."""
        return data_frame([self.cells(item) for item in self], self.columns)


# Names


@dataclass(frozen=True)
class Found:
    """An entity or a relation that was looked up."""

    name: str
    """Its name in the graph."""
    query: str
    """The name as a query writes it."""
    kind: str
    """``entity`` or ``relation``."""
    label: str | None = None
    description: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Finds(Listing[Found]):
    """What fits a text, relations first.

    >>> import biqe
    >>> print(biqe.open("atlas").find("flows in"))
    1 name for 'flows in'
    <BLANKLINE>
    query         kind      label  description
    :flows_into   relation
    """

    text: str
    items: Sequence[Found]
    columns = ("query", "kind", "label", "description")

    @property
    def title(self) -> str:
        return f"{counted(len(self), 'name')} for {self.text!r}"

    def cells(self, item: Found) -> list[str]:
        return [item.query, item.kind, item.label or "", item.description or ""]


def find(vocabulary: Vocabulary, prefixes: Mapping[str, str], text: str, limit: int) -> Finds:
    """Relations and entities whose name, label or alias fits ``text``, at most ``limit`` of each."""
    if not isinstance(text, str):
        raise InvalidOption(f"what to look for is a text. Got {type(text).__name__}")
    relations = [
        Found(vocabulary.relations[id_], in_query(vocabulary.relations, id_, prefixes), "relation")
        for id_ in search.find_relations(vocabulary, text, limit)
    ]
    entities = [
        Found(
            item.name,
            in_query(vocabulary.entities, item.entity, prefixes),
            "entity",
            vocabulary.labels.get(item.entity),
            vocabulary.descriptions.get(item.entity),
        )
        for item in search.find(vocabulary, text, limit)
    ]
    return Finds(text, [*relations, *entities])


# Relations

AMONG = 8
"""Entities with most triples among which an example is chosen."""


@dataclass(frozen=True)
class End:
    """The entities at one end of a relation."""

    entities: int
    """How many there are."""
    kinds: Mapping[str, int]
    """Each kind with how many of the entities are of it, most frequent first; empty in a graph without types."""
    example: str
    """An example: among the entities with most triples of the relation, the shortest name that is no number."""
    label: str
    """What stands in a table: the kinds, or the number of entities and the example."""


@dataclass(frozen=True)
class RelationEnds:
    """A relation, and what it joins."""

    relation: str
    """Its name in the graph."""
    query: str
    """The name as a query writes it."""
    triples: int
    subjects: End
    objects: End


@dataclass(frozen=True, eq=False, repr=False)
class Schema(Listing[RelationEnds]):
    """The relations of a graph, most frequent first.

    >>> import biqe
    >>> schema = biqe.open(Graph.from_triples([("Bonn", "on", "Rhine"), ("Bonn", "type", "City")])).schema()
    >>> print(schema)
    graph: 2 relations
    <BLANKLINE>
    relation  triples  subjects  objects
    :on       1        City 1    1, such as Rhine
    :type     1        City 1    1, such as City
    """

    name: str
    items: Sequence[RelationEnds]
    columns = ("relation", "triples", "subjects", "objects")

    @property
    def title(self) -> str:
        return f"{self.name}: {counted(len(self), 'relation')}"

    def cells(self, item: RelationEnds) -> list[str]:
        return [item.query, f"{item.triples:,}", item.subjects.label, item.objects.label]


def schema(name: str, graph: Graph, prefixes: Mapping[str, str]) -> Schema:
    """The relations of ``graph``. The kind of an entity is what its rdf:type (or type, or a) says."""
    index, vocabulary = graph.index, graph.vocabulary
    type_ = relation_called(RDF_TYPE, vocabulary)
    first, last = (0, 0) if type_ is None else index.relation_offsets[type_ : type_ + 2]
    typed, kinds = index.relation_subjects[first:last], index.relation_objects[first:last]
    kind_offsets = np.searchsorted(typed, np.arange(graph.entity_count + 1))

    def end(ids: NDArray[np.int32]) -> End:
        entities, counts = np.unique(ids, return_counts=True)
        found, numbers = np.unique(kinds[members(kind_offsets, entities)[1]], return_counts=True)
        order = np.argsort(-numbers, kind="stable")
        pairs = [(int(found[place]), int(numbers[place])) for place in order]
        most = entities[np.argsort(-counts, kind="stable")[:AMONG]].tolist()
        example = min(most, key=lambda entity: _plainness(_label(vocabulary, entity)))
        shown = [f"{_label(vocabulary, kind)} {count:,}" for kind, count in pairs]
        label = ", ".join(shown[:3]) + (f" and {len(shown) - 3:,} more" if len(shown) > 3 else "")
        return End(
            len(entities),
            {vocabulary.entities[kind]: count for kind, count in pairs},
            vocabulary.entities[example],
            label or _counted_with(len(entities), vocabulary, example),
        )

    sizes = np.diff(index.relation_offsets)
    rows = []
    for relation in (int(id_) for id_ in np.argsort(-sizes, kind="stable") if sizes[id_]):
        part = slice(*index.relation_offsets[relation : relation + 2])
        ends = end(index.relation_subjects[part]), end(index.relation_objects[part])
        query = in_query(vocabulary.relations, relation, prefixes)
        rows.append(RelationEnds(vocabulary.relations[relation], query, int(sizes[relation]), *ends))
    return Schema(name, rows)


def _counted_with(count: int, vocabulary: Vocabulary, example: int) -> str:
    """How many entities, with an example unless that has no name."""
    if is_blank(vocabulary.entities[example]):
        return f"{count:,} without a name"
    return f"{count:,}, such as {_label(vocabulary, example)}"


def _plainness(label: str) -> tuple[bool, int]:
    """Names before numbers, short ones first."""
    return not re.search(r"[^\W\d]", label), len(label)


def _label(vocabulary: Vocabulary, entity: int) -> str:
    """What people call an entity: its label, else the end of its name."""
    return vocabulary.labels.get(entity) or local_part(vocabulary.entities[entity])
