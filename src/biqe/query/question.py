"""A question in names: a disjunction of conjunctions, and what is wanted of its rows.

``{A} UNION {B}`` is two branches. Each branch is a conjunctive query with conditions, and every branch has every
selected variable, so that all rows have the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from biqe.query.ast import Pattern, Query, Variable
from biqe.query.expression import Condition

SELECT, ASK, COUNT = "SELECT", "ASK", "COUNT"
PROBABILITY = Variable("probability")
"""What ORDER BY may name beside the selected variables: how probable a row is."""


@dataclass(frozen=True)
class Branch:
    """Patterns that hold together, and conditions on their variables."""

    patterns: tuple[Pattern, ...]
    filters: tuple[Condition, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in order of first appearance in the patterns."""
        return Query((), self.patterns).variables

    def __str__(self) -> str:
        filters = [f"FILTER({condition})" for condition in self.filters]
        return " ".join([" . ".join(map(str, self.patterns)), *filters])


@dataclass(frozen=True)
class Order:
    """One key of ORDER BY."""

    variable: Variable
    descending: bool = False

    def __str__(self) -> str:
        return f"DESC({self.variable})" if self.descending else str(self.variable)


@dataclass(frozen=True)
class Question:
    """What a SPARQL text of the subset asks."""

    form: str
    """SELECT, ASK or COUNT."""
    targets: tuple[Variable, ...]
    """The selected variables; for COUNT DISTINCT the counted ones; empty for ASK and for a COUNT of all matches."""
    branches: tuple[Branch, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    counted_as: Variable | None = None
    """The variable that COUNT gives its number to."""

    @property
    def conjunctive(self) -> Query | None:
        """The plain conjunctive query that this question is; None where it is more than that."""
        branch, *more = self.branches
        if self.form != SELECT or more or branch.filters or self.order or self.offset:
            return None
        return Query(self.targets, branch.patterns, self.limit)

    def __str__(self) -> str:
        if self.form == ASK:
            head = "ASK"
        elif self.form == COUNT:
            counted = "*" if len(self.targets) != 1 else str(self.targets[0])
            counted = f"DISTINCT {counted}" if self.targets else counted
            head = f"SELECT (COUNT({counted}) AS {self.counted_as}) WHERE"
        else:
            head = f"SELECT {' '.join(map(str, self.targets))} WHERE"
        if len(self.branches) == 1:
            body = f"{{ {self.branches[0]} }}"
        else:
            body = "{ " + " UNION ".join(f"{{ {branch} }}" for branch in self.branches) + " }"
        tail = f" ORDER BY {' '.join(map(str, self.order))}" if self.order else ""
        tail += "" if self.limit is None else f" LIMIT {self.limit}"
        tail += f" OFFSET {self.offset}" if self.offset else ""
        return f"{head} {body}{tail}"
