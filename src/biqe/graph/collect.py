"""What the readers fill: interned triples of every split, labels, prefixes, and counts of all that was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.blocks import MAX_NAME_BYTES, Advance
from biqe.graph.literals import Interner, LiteralBook
from biqe.graph.triples import Triples

if TYPE_CHECKING:
    import pyoxigraph

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
XSD = "http://www.w3.org/2001/XMLSchema#"
SHOWN_BAD_LINES = 5
"""Bad lines whose messages are kept where bad lines are skipped."""
_BATCH = 1 << 16
"""Triples that are interned at once."""


@dataclass
class Counts:
    """Counts of what was read, and of what was left out of the graph."""

    triples: int = 0
    """Triples between entities, duplicates included."""
    duplicates: int = 0
    """Triples that repeat one of the same split."""
    literals: int = 0
    """Statements whose object is a literal; rdfs:label among them."""
    nested: int = 0
    """Statements about statements (RDF 1.2 triple terms)."""
    named_graph: int = 0
    """Statements that stood in a named graph; its name is dropped."""
    comments: int = 0
    """Comment lines of TSV and CSV files."""
    labels: int = 0
    """Entities with a label."""
    labels_unused: int = 0
    """Labels of names that are no entity of the graph."""
    bad_lines: int = 0
    """Lines that could not be read and were skipped."""
    bad_line_messages: list[str] = field(default_factory=list)
    """Messages about the first few bad lines."""
    headers: list[str] = field(default_factory=list)
    """Header lines that were recognised, with their files."""
    tables: list[str] = field(default_factory=list)
    """How unusual tables were read: those with a row an entity, or with another separator."""
    other_encoding: int = 0
    """Lines that are not UTF-8 and were read in another encoding."""
    ignored_columns: list[str] = field(default_factory=list)
    """Named columns beside the three of a triple."""
    ignored_files: list[str] = field(default_factory=list)
    """Files of the given folders that were not read."""


class LabelBook:
    """The best label of each name: English before untagged before any other language; else the first.

    The others are kept, too, for looking up.
    """

    def __init__(self) -> None:
        self._best: dict[str, tuple[int, str]] = {}
        self._others: dict[str, dict[str, None]] = {}
        self.descriptions: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._best)

    def add(self, name: str, label: str, language: str | None = None) -> None:
        """A label from rdfs:label; an empty one is no label."""
        tag = (language or "").lower()
        rank = 1 if not tag else 0 if tag == "en" or tag.startswith("en-") else 2
        self._keep(name, label, rank)

    def set(self, name: str, label: str, description: str = "") -> None:
        """A label from a labels file; it stands above any rdfs:label."""
        self._keep(name, label, -1)
        if description:
            self.descriptions[name] = description

    def others(self) -> Iterator[tuple[str, str]]:
        """Names and the labels that are not their best, each once."""
        for name, texts in self._others.items():
            yield from ((name, text) for text in texts if text != self._best[name][1])

    def _keep(self, name: str, label: str, rank: int) -> None:
        if not label:
            return
        known = self._best.get(name)
        # A labels file may correct itself: of two labels in it, the last stands.
        if known is None or rank < known[0] or rank < 0:
            self._best[name] = (rank, label)
        if known is not None and known[1] != label:
            self._others.setdefault(name, {}).update({known[1]: None, label: None})

    def items(self) -> list[tuple[str, str]]:
        return [(name, label) for name, (_, label) in self._best.items()]


@dataclass
class Collector:
    """What was read so far."""

    entities: Interner = field(default_factory=Interner)
    relations: Interner = field(default_factory=Interner)
    labels: LabelBook = field(default_factory=LabelBook)
    counts: Counts = field(default_factory=Counts)
    prefixes: dict[str, str] = field(default_factory=dict)
    anonymous: dict[tuple[int, str], str] = field(default_factory=dict)
    """Names given to blank nodes without a label, by scope and the parser's own random name."""
    advance: Advance | None = None
    encoding: str | None = None
    """In which lines of tables are read that are not UTF-8; None refuses them."""
    skip_bad: bool = False
    """Whether lines that cannot be read are counted and left out."""
    values: bool = True
    """Whether numbers and dates of tables are values; else they are names."""
    literals: LiteralBook = field(default_factory=LiteralBook)
    """Statements with a literal as object."""
    _counting: Lock = field(default_factory=Lock, repr=False)
    """Lines may be refused by the thread that reads ahead, too."""
    parts: dict[str, list[Triples]] = field(default_factory=lambda: {"train": [], "valid": [], "test": []})

    def decoded(self) -> None:
        """A line was read in another encoding than UTF-8."""
        self.counts.other_encoding += 1

    def refuse(self, error: UnreadableFile) -> None:
        """A line that cannot be read: raise its error, or count it where bad lines are skipped."""
        if not self.skip_bad:
            raise error
        with self._counting:
            self.counts.bad_lines += 1
            if len(self.counts.bad_line_messages) < SHOWN_BAD_LINES:
                self.counts.bad_line_messages.append(error.message)

    def add_triples(
        self,
        split: str,
        triples: Iterator[tuple[str, str, str]],
        check_sizes: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Triples in names, one after the other. Where names are long, ``check_sizes`` is called with some of them."""
        while True:
            # Three lists of names: a list of tuples would keep the garbage collector busy.
            columns: tuple[list[str], list[str], list[str]] = [], [], []
            subjects, relations, objects = columns
            for subject, relation, object_ in islice(triples, _BATCH):
                subjects.append(subject)
                relations.append(relation)
                objects.append(object_)
            if not subjects:
                return
            for column in columns:
                if check_sizes is not None and max(map(len, column)) > MAX_NAME_BYTES // 4:
                    check_sizes(column)
            self.add(split, *columns)

    def add_literal(self, subject: str, relation: str, literal: pyoxigraph.Literal) -> None:
        """A statement with a literal as object; with the relation rdfs:label it is a label, too."""
        self.counts.literals += 1
        if relation == LABEL:
            self.labels.add(subject, " ".join(literal.value.split()), literal.language)
        self.literals.add(subject, relation, str(literal))

    def add(self, split: str, subjects: list[str], relations: list[str], objects: list[str]) -> None:
        """Triples in names, columns of equal length."""
        ends: list[str] = [""] * (2 * len(subjects))
        # Interleaved, so that ids follow the order in which names stand in the file.
        ends[0::2] = subjects
        ends[1::2] = objects
        rows = np.empty((len(subjects), 3), np.int32)
        ids = self.entities.ids(ends)
        rows[:, 0], rows[:, 1], rows[:, 2] = ids[0::2], self.relations.ids(relations), ids[1::2]
        self.add_rows(split, rows)

    def add_rows(self, split: str, rows: NDArray[np.int32]) -> None:
        """Triples in ids of this collector."""
        if len(rows):
            self.parts[split].append(rows)
            self.counts.triples += len(rows)
