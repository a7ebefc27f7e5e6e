"""A query in names: triple patterns over constants and variables.

The SELECT list is the set of free variables of the paper's equation (1), here called targets; every other
variable is hidden (existentially quantified). Any conjunctive pattern is a query; what a model cannot answer
is refused by the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# SPARQL's IRIREF allows none of these between < and >; a percent sign would be read as the start of a code.
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


def written(name: str) -> str:
    """A name as SPARQL text that ``sparql.parse`` reads back as the same name.

    >>> written("New York"), written("100%"), written("http://ex.org/a%20b")
    ('<New%20York>', '<100%25>', '<http://ex.org/a%20b>')
    """
    if not is_absolute(name):
        name = name.replace("%", "%25")
    return f"<{_NOT_IN_IRI.sub(lambda found: f'%{ord(found[0]):02X}', name)}>"


def is_absolute(iri: str) -> bool:
    """Whether an IRI names its scheme, so that no base and no prefix can change what it means."""
    return _ABSOLUTE.match(iri) is not None


@dataclass(frozen=True, order=True)
class Variable:
    """A variable, without its question mark."""

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"


@dataclass(frozen=True, order=True)
class Entity:
    """A constant: the name of an entity, as the graph spells it."""

    name: str

    def __str__(self) -> str:
        return written(self.name)


Term = Variable | Entity


@dataclass(frozen=True)
class Pattern:
    """One triple pattern: subject, relation name, object."""

    subject: Term
    relation: str
    object: Term

    def __str__(self) -> str:
        return f"{self.subject} {written(self.relation)} {self.object}"


@dataclass(frozen=True)
class Query:
    """A conjunctive query. ``targets`` are the projected variables, in SELECT order.

    >>> x, y = Variable("x"), Variable("y")
    >>> query = Query((x,), (Pattern(x, "flows_through", Entity("Germany")), Pattern(y, "located_on", x)), limit=3)
    >>> print(query)
    SELECT ?x WHERE { ?x <flows_through> <Germany> . ?y <located_on> ?x } LIMIT 3
    >>> query.hidden
    (Variable(name='y'),)
    """

    targets: tuple[Variable, ...]
    patterns: tuple[Pattern, ...]
    limit: int | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in order of first appearance in the patterns."""
        return tuple(dict.fromkeys(term for term in self._terms() if isinstance(term, Variable)))

    @property
    def hidden(self) -> tuple[Variable, ...]:
        """Variables that are not projected."""
        return tuple(variable for variable in self.variables if variable not in self.targets)

    def _terms(self) -> Iterator[Term]:
        for pattern in self.patterns:
            yield pattern.subject
            yield pattern.object

    def __str__(self) -> str:
        head = " ".join(map(str, self.targets))
        body = " . ".join(map(str, self.patterns))
        tail = "" if self.limit is None else f" LIMIT {self.limit}"
        return f"SELECT {head} WHERE {{ {body} }}{tail}"
