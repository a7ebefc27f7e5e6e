"""A question in ids: each branch of it bound, and its conditions checked against the graph's names."""

from __future__ import annotations

from dataclasses import dataclass

from biqe.graph.vocabulary import Vocabulary
from biqe.query.ast import Entity, Query
from biqe.query.bind import bind, find_entity
from biqe.query.bound import BoundQuery
from biqe.query.question import (
    ASK,
    COUNT,
    Branch,
    Condition,
    NameOf,
    Operand,
    Order,
    Question,
    map_operands,
    variables,
)


@dataclass(frozen=True)
class BoundBranch:
    """One conjunction of a question."""

    query: BoundQuery
    """Its targets are the selected variables."""
    wide: BoundQuery
    """The same query with the hidden variables of conditions as further targets, so that its rows can be filtered."""
    filters: tuple[Condition, ...] = ()
    """Their entities are spelt as the graph spells them."""

    @property
    def is_plain(self) -> bool:
        """Whether every match is a row: there are no conditions."""
        return not self.filters


@dataclass(frozen=True)
class BoundQuestion:
    """A question over the ids of one vocabulary."""

    form: str
    columns: tuple[str, ...]
    """Names of the selected variables."""
    branches: tuple[BoundBranch, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    counted_as: str = ""


def bind_question(question: Question, vocabulary: Vocabulary) -> BoundQuestion:
    """The question over the ids of ``vocabulary``. Refused: what ``bind`` refuses, in patterns and in conditions."""
    # LIMIT of a plain conjunctive query is known to the query itself, so that no more rows than that are looked for.
    plain = question.conjunctive
    limit = plain.limit if plain is not None else None
    branches = tuple(_branch(question, branch, vocabulary, limit) for branch in question.branches)
    return BoundQuestion(
        question.form,
        tuple(target.name for target in question.targets),
        branches,
        question.order,
        question.limit,
        question.offset,
        question.counted_as.name if question.counted_as else "",
    )


def _branch(question: Question, branch: Branch, vocabulary: Vocabulary, limit: int | None) -> BoundBranch:
    targets = question.targets
    if question.form == COUNT and not targets:
        targets = branch.variables
    closed = question.form == ASK or not targets
    query = bind(Query(targets, branch.patterns, limit), vocabulary, closed=closed)
    filters = tuple(_resolved(condition, vocabulary) for condition in branch.filters)
    judged = [variable for condition in filters for variable in variables(condition) if variable not in targets]
    if not judged:
        return BoundBranch(query, query, filters)
    wide = bind(Query((*targets, *dict.fromkeys(judged)), branch.patterns), vocabulary)
    return BoundBranch(query, wide, filters)


def _resolved(condition: Condition, vocabulary: Vocabulary) -> Condition:
    """The condition with every entity spelt as the graph spells it; UnknownName for one that it does not have."""

    def spelt(operand: Operand) -> Operand:
        term = operand.term if isinstance(operand, NameOf) else operand
        if not isinstance(term, Entity):
            return operand
        entity = Entity(vocabulary.entities[find_entity(term.name, vocabulary)])
        return NameOf(entity) if isinstance(operand, NameOf) else entity

    return map_operands(condition, spelt)
