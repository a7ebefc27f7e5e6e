"""Statements whose object is a literal: kept beside the links of a graph, for what SPARQL asks of them.

Models learn from links alone. Texts, numbers, dates and labels, with their languages and types, are answered by the
exact store; a graph without them has no file of them, and pays nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Names

if TYPE_CHECKING:
    import pyoxigraph


class Interner:
    """Gives each distinct name the next id, in order of first appearance."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        """Names, by id."""
        return iter(self._ids)

    def id(self, name: str) -> int:
        """Id of a name; one not seen before gets the next free id."""
        return self._ids.setdefault(name, len(self._ids))

    def ids(self, names: list[str]) -> NDArray[np.int32]:
        """Id of each name."""
        known = self._ids
        return np.fromiter((known.setdefault(name, len(known)) for name in names), np.int32, len(names))

    def names(self) -> Names:
        """All names, by id."""
        return Names.of(self._ids)


@dataclass(frozen=True)
class Literals:
    """Statements with a literal as object, each once; the arrays may be memory-mapped.

    A subject is told by name, since one that has nothing but literals is no entity of the graph.
    """

    subjects: Names
    relations: Names
    values: Names
    """Literals as N-Triples writes them: ``"Rhein"@de``."""
    rows: NDArray[np.int32]
    """(n, 3): places of subject, relation and value; sorted, without duplicates."""

    def __len__(self) -> int:
        return len(self.rows)

    def terms(self) -> list[pyoxigraph.Literal]:
        """The values as pyoxigraph has them."""
        from pyoxigraph import RdfFormat, parse

        lines = "".join(f"<x:> <x:> {value} .\n" for value in self.values)
        return [quad.object for quad in parse(lines, RdfFormat.N_TRIPLES)]  # type: ignore[misc]

    def statements(self) -> Iterator[tuple[str, str, pyoxigraph.Literal]]:
        """Subject, relation and literal of each."""
        subjects, relations, values = list(self.subjects), list(self.relations), self.terms()
        for subject, relation, value in self.rows.tolist():
            yield subjects[subject], relations[relation], values[value]


@dataclass
class LiteralBook:
    """Literal statements while they are read."""

    subjects: Interner = field(default_factory=Interner)
    relations: Interner = field(default_factory=Interner)
    values: Interner = field(default_factory=Interner)
    _rows: array[int] = field(default_factory=lambda: array("i"))

    def add(self, subject: str, relation: str, value: str) -> None:
        """A statement; ``value`` is written as N-Triples writes it."""
        self._rows.extend((self.subjects.id(subject), self.relations.id(relation), self.values.id(value)))

    def __len__(self) -> int:
        return len(self._rows) // 3

    def statements(self) -> Iterator[tuple[str, str, pyoxigraph.Literal]]:
        """Subject, relation and literal of each."""
        found = self.finished()
        return iter(()) if found is None else found.statements()

    def finished(self) -> Literals | None:
        """All of them; None where there are none."""
        if not self._rows:
            return None
        rows = as_triples(np.frombuffer(self._rows, np.int32).reshape(-1, 3))
        return Literals(self.subjects.names(), self.relations.names(), self.values.names(), rows)
