"""A conjunction in two: the links that models predict, and the rest, which the graph alone decides.

The rest are patterns with literals, and conditions that only the exact store can judge. Both parts share variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from biqe.query.question import (
    Absent,
    Branch,
    Condition,
    Expression,
    Literal,
    Optional,
    Pattern,
    Question,
    Variable,
    variables,
)
from biqe.query.subset import OUTSIDE


@dataclass(frozen=True)
class Divided:
    """One conjunction in two."""

    links: Branch
    """Patterns between entities, maybe with variables for relations, and the conditions on their entities."""
    rest: tuple[Pattern, ...]
    """Patterns with literals."""
    checks: tuple[Condition, ...]
    """Conditions on the whole."""
    optional: tuple[Optional, ...] = ()
    """What the graph or a prediction may add."""
    predictable: tuple[Optional, ...] = ()
    """Those of them that are links."""

    @property
    def relations(self) -> tuple[Variable, ...]:
        """Variables that stand for relations."""
        found = (pattern.relation for pattern in self.links.patterns)
        return tuple(dict.fromkeys(relation for relation in found if isinstance(relation, Variable)))

    @property
    def entities(self) -> tuple[Variable, ...]:
        """Variables that stand for entities of links."""
        return _ends(self.links.patterns)

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but links."""
        return not (self.rest or self.checks or self.relations or self.optional)

    @property
    def text(self) -> str:
        """The rest as SPARQL."""
        checks = (f"FILTER({check})" for check in self.checks)
        return " ".join([*(f"{pattern} ." for pattern in self.rest), *map(str, self.optional), *checks])

    def restricting(self, variable: Variable) -> str | None:
        """SPARQL of what the rest alone says of an entity; None where it says nothing."""
        bound = Branch(self.rest).variables
        if variable not in bound:
            return None
        checks = [check for check in self.checks if set(variables(check)) <= set(bound)]
        return Divided(self.links, self.rest, tuple(checks)).text


def _ends(patterns: tuple[Pattern, ...]) -> tuple[Variable, ...]:
    ends = (end for pattern in patterns for end in (pattern.subject, pattern.object))
    return tuple(dict.fromkeys(end for end in ends if isinstance(end, Variable)))


def divided(question: Question, of_literals: Callable[[str], bool]) -> list[Divided]:
    """Each conjunction of a question in two. ``of_literals`` tells whether a relation leads to literals alone.

    Raised is the reason why a condition on entities cannot hold, where one can only be a mistake.
    """
    return [_divided(branch, of_literals) for branch in question.branches]


def _divided(branch: Branch, of_literals: Callable[[str], bool]) -> Divided:
    def is_rest(pattern: Pattern) -> bool:
        is_of_literals = isinstance(pattern.relation, str) and of_literals(pattern.relation)
        return isinstance(pattern.object, Literal) or is_of_literals

    rest = tuple(pattern for pattern in branch.patterns if is_rest(pattern))
    links = tuple(pattern for pattern in branch.patterns if pattern not in rest)
    entities = set(_ends(links))
    judged, checks = list[Condition](), list[Condition]()
    for condition in branch.filters:
        is_of_entities = set(variables(condition)) <= entities
        if isinstance(condition, Expression) and is_of_entities and OUTSIDE not in condition.refusal.message:
            raise condition.refusal
        is_stored = isinstance(condition, Expression) or (
            isinstance(condition, Absent) and any(is_rest(pattern) for pattern in condition.patterns)
        )
        (judged if is_of_entities and not is_stored else checks).append(condition)
    predictable = tuple(
        each
        for each in branch.optional
        if not any(is_rest(pattern) or isinstance(pattern.relation, Variable) for pattern in each.patterns)
    )
    return Divided(Branch(links, tuple(judged)), rest, tuple(checks), branch.optional, predictable)
