"""Which rows of a query pass its conditions.

Rows are columns of entity ids. Each condition is evaluated once for each entity that occurs, not for each row; and
regular expressions go through RE2, which takes time in proportion to the text, whatever the expression.

``filtered_rows`` finds the rows that pass without listing all the matches that do not. Conditions on a single variable
restrict its entities before anything is joined. Where there are few matches, they are listed and filtered. Where there
are many, the search branches on the values of one variable, so that each value gives a smaller query. Once all selected
variables of a row have values, one match that passes is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.exact.adjacency import adjacency, numpy_join
from biqe.exact.answers import answers, holds, tuples
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind import negated_part
from biqe.query.bound import BoundQuery
from biqe.query.conditions import as_re2
from biqe.query.question import (
    Absent,
    AllOf,
    Among,
    AnyOf,
    Compare,
    Condition,
    Entity,
    Expression,
    Holds,
    IsIri,
    Matches,
    NameOf,
    Not,
    OneOf,
    Operand,
    Variable,
)
from biqe.query.question import variables as variables_of

Columns = Mapping[str, NDArray[np.integer]]
"""Entity ids by variable; all of one length."""
Passed = NDArray[np.bool_]
Rows = NDArray[np.int32]

LISTED = 1_000_000
"""Largest table of matches that is made at once."""
JUDGED = 20_000_000
"""Largest number of matches that are tested for one query."""
FIRST = 1_000
"""Matches of a row that are tested before its whole table is made."""
FEW = 16
"""A variable with at most so many values is branched on before the selected variables."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}


class Filters:
    """The conditions of one branch of a question, over the entities of one graph."""

    def __init__(self, conditions: Sequence[Condition], graph: Graph) -> None:
        self.conditions = tuple(conditions)
        self._graph, self._vocabulary = graph, graph.vocabulary
        self._held: dict[Absent, Rows] = {}
        """Matches of each negated part, found once."""
        self._last: tuple[NDArray[np.integer], tuple[_Texts, _Texts]] | None = None

    def passes(self, columns: Columns, count: int) -> Passed:
        """(count,) whether each row passes all conditions."""
        passed = np.ones(count, bool)
        for condition in self.conditions:
            passed &= self._holds(condition, columns, count)
        return passed

    def allowed(self, variable: str) -> Passed | None:
        """(E,) the entities that this variable can have, whatever the others are; None where it can have all."""
        return self._left(AllOf(self.conditions), variable)

    def alternatives(self, most: int) -> list[Filters]:
        """The conditions, once for each part of a disjunction such as the rows of VALUES.

        The disjunction must have at most ``most`` parts, each of which fixes a variable; else the conditions stay as
        they are.
        """
        for number, condition in enumerate(self.conditions):
            if isinstance(condition, AnyOf) and 1 < len(condition.parts) <= most and all(map(_fixes, condition.parts)):
                others = self.conditions[:number] + self.conditions[number + 1 :]
                return [Filters((*others, part), self._graph) for part in condition.parts]
        return [self]

    def negated_parts(self) -> list[BoundQuery]:
        """The parts that must not hold, as queries of their own whose targets are what they share with the rest."""
        return [negated_part(each, self._vocabulary) for each in self.conditions if isinstance(each, Absent)]

    def _absent(self, condition: Absent, columns: Columns, count: int) -> Passed:
        """(count,) whether the graph does not hold the negated part for the row."""
        part = negated_part(condition, self._vocabulary)
        if not part.targets:
            return np.full(count, not holds(self._graph, part))
        if condition not in self._held:
            self._held[condition] = tuples(self._graph, part)
        held = self._held[condition]
        rows = np.stack([columns[part.names[node]] for node in part.targets], 1)
        _, number = np.unique(np.concatenate([held, rows]), axis=0, return_inverse=True)
        number = number.ravel()
        return ~np.isin(number[len(held) :], number[: len(held)])

    def _left(self, condition: Condition, variable: str) -> Passed | None:
        """(E,) the entities with which the condition can hold, by those parts of it that have no other variable."""
        names = {found.name for found in variables_of(condition)}
        if variable not in names:
            return None
        if names == {variable}:
            entities = np.arange(len(self._vocabulary.entities))
            return self._holds(condition, {variable: entities}, len(entities))
        if not isinstance(condition, AllOf | AnyOf):
            return None
        parts = [self._left(part, variable) for part in condition.parts]
        found = [part for part in parts if part is not None]
        if isinstance(condition, AllOf):
            return np.logical_and.reduce(found) if found else None
        return np.logical_or.reduce(found) if len(found) == len(parts) else None

    def _holds(self, condition: Condition, columns: Columns, count: int) -> Passed:
        """(count,) whether the condition holds of each row."""
        return self._judged(condition, columns, count)[0]

    def _judged(self, condition: Condition, columns: Columns, count: int) -> tuple[Passed, Passed]:
        """(count,) whether the condition holds of each row, and whether it does not; neither is SPARQL's type error,
        which the STR of a blank node is."""
        if isinstance(condition, AllOf | AnyOf):
            parts = [self._judged(part, columns, count) for part in condition.parts]
            # Any part that fails makes all of them fail; any part that holds is enough for any of them.
            all_, any_ = (0, 1) if isinstance(condition, AllOf) else (1, 0)
            every = np.logical_and.reduce([np.ones(count, bool), *(part[all_] for part in parts)])
            some = np.logical_or.reduce([np.zeros(count, bool), *(part[any_] for part in parts)])
            return (every, some) if isinstance(condition, AllOf) else (some, every)
        if isinstance(condition, Not):
            return self._judged(condition.part, columns, count)[::-1]
        if isinstance(condition, OneOf):
            found, is_other = np.zeros(count, bool), np.ones(count, bool)
            for option in condition.options:
                holds, fails = self._judged(Compare(condition.term, "=", option), columns, count)
                found, is_other = found | holds, is_other & fails
            return (is_other, found) if condition.negated else (found, is_other)
        if isinstance(condition, Among):
            among = np.zeros(len(self._vocabulary.entities), bool)
            among[list(condition.entities)] = True
            passed = among[columns[condition.text.name]]
            return passed, ~passed
        assert not isinstance(condition, Expression), "only the exact store can judge it"
        if isinstance(condition, Absent):
            absent = self._absent(condition, columns, count)
            return absent, ~absent
        has_text = ~np.logical_or.reduce([np.zeros(count, bool), *self._textless(condition, columns, count)])
        if isinstance(condition, Compare):
            passed = self._compared(condition.left, condition.operator, condition.right, columns, count)
            return passed & has_text, ~passed & has_text
        term = condition.text
        of = self._judge(condition)
        passed = self._by_entity(self._ids(term.term if isinstance(term, NameOf) else term, columns, count), of)
        return passed & has_text, ~passed & has_text

    def _textless(self, condition: Compare | Matches | Holds | IsIri, columns: Columns, count: int) -> list[Passed]:
        """For each STR of the condition, (count,) where it is that of a blank node."""
        if isinstance(condition, Compare):
            operands: tuple[Operand, ...] = (condition.left, condition.right)
        else:
            operands = (condition.text,)
        named = [operand.term for operand in operands if isinstance(operand, NameOf)]
        return [self._by_entity(self._ids(term, columns, count), self._are_blank) for term in named]

    def _are_blank(self, ids: NDArray[np.integer]) -> Passed:
        return np.array([name.startswith("_:") for name in self._read(ids)[0].plain], bool)

    def _compared(self, left: Operand, operator: str, right: Operand, columns: Columns, count: int) -> Passed:
        if isinstance(left, Variable | Entity) and isinstance(right, Variable | Entity):
            same = self._ids(left, columns, count) == self._ids(right, columns, count)
            return same if operator == "=" else ~same
        compare = _OPERATORS[operator]
        names = (self._texts(left, columns, count), self._texts(right, columns, count))
        return np.fromiter((compare(one, other) for one, other in zip(*names, strict=True)), bool, count)

    def _ids(self, term: Variable | Entity, columns: Columns, count: int) -> NDArray[np.integer]:
        if isinstance(term, Variable):
            return columns[term.name]
        return np.full(count, self._vocabulary.entity_id(term.name))

    def _texts(self, operand: Operand, columns: Columns, count: int) -> Sequence[str]:
        if not isinstance(operand, NameOf):
            return [operand.value if not isinstance(operand, Variable | Entity) else operand.name] * count
        ids, places = np.unique(self._ids(operand.term, columns, count), return_inverse=True)
        names = [self._vocabulary.entities[int(entity)] for entity in ids]
        return [names[place] for place in places.tolist()]

    def _by_entity(self, ids: NDArray[np.integer], judge: Callable[[NDArray[np.integer]], Passed]) -> Passed:
        unique, places = np.unique(ids, return_inverse=True)
        return judge(unique)[places]

    def _judge(self, condition: Matches | Holds | IsIri) -> Callable[[NDArray[np.integer]], Passed]:
        """A function from entities to whether the condition holds for each."""
        if isinstance(condition, IsIri):
            return lambda ids: ~self._are_blank(ids)
        found = _found(condition)

        def judge(ids: NDArray[np.integer]) -> Passed:
            names, labels = self._read(ids)
            passed = found(names)
            # A bare variable stands for what people call the entity, too.
            return passed if isinstance(condition.text, NameOf) else passed | found(labels)

        return judge

    def _read(self, ids: NDArray[np.integer]) -> tuple[_Texts, _Texts]:
        """Names of entities, and what is shown for them; kept for the next condition, often on the same entities."""
        if self._last is None or not np.array_equal(self._last[0], ids):
            entities, vocabulary = ids.tolist(), self._vocabulary
            names = _Texts([vocabulary.entities[entity] for entity in entities])
            self._last = ids, (names, _Texts([vocabulary.label(entity) for entity in entities]))
        return self._last[1]


def columns_of(query: BoundQuery, rows: NDArray[np.integer]) -> dict[str, NDArray[np.integer]]:
    """The entities of (n, targets) rows by variable."""
    return {query.names[node]: rows[:, column] for column, node in enumerate(query.targets)}


def _fixes(condition: Condition) -> bool:
    """Whether the condition gives some variable one entity."""
    if isinstance(condition, AllOf):
        return any(map(_fixes, condition.parts))
    if not isinstance(condition, Compare) or condition.operator != "=":
        return False
    sides = condition.left, condition.right
    return any(isinstance(side, Variable) for side in sides) and any(isinstance(side, Entity) for side in sides)


class _Texts:
    """Texts, as they are and as Arrow has them."""

    def __init__(self, plain: list[str]) -> None:
        self.plain = plain

    @cached_property
    def arrow(self) -> Any:
        import pyarrow

        return pyarrow.array(self.plain, pyarrow.string())


def _found(condition: Matches | Holds) -> Callable[[_Texts], Passed]:
    """A function from texts to whether the condition finds what it looks for in each."""
    if isinstance(condition, Holds):
        part = condition.part
        test: Callable[[str], bool] = {
            "CONTAINS": lambda text: part in text,
            "STRSTARTS": lambda text: text.startswith(part),
            "STRENDS": lambda text: text.endswith(part),
        }[condition.function]
        return lambda texts: np.array([test(text) for text in texts.plain], bool)
    from pyarrow import compute

    pattern = as_re2(condition.pattern, condition.flags)

    def search(texts: _Texts) -> Passed:
        found = compute.match_substring_regex(texts.arrow, pattern, ignore_case="i" in condition.flags)
        return np.asarray(found.to_numpy(zero_copy_only=False), bool)

    return search


def filtered_rows(
    graph: Graph, query: BoundQuery, filters: Filters, width: int, *, limit: int, judged: int = JUDGED
) -> tuple[Rows, bool]:
    """(n, targets) matches that pass all filters, sorted, one for each distinct row of the first ``width`` targets; and
    whether these are all such rows. At most ``limit`` are returned, and about ``judged`` matches are tested."""
    search = _Search(graph, query, filters, width, limit, judged)
    search.look({})
    rows = search.rows()
    return rows[:limit], search.complete and len(rows) <= limit


@dataclass
class _Search:
    graph: Graph
    query: BoundQuery
    filters: Filters
    width: int
    limit: int
    left: int
    """Matches that may still be tested."""
    complete: bool = True
    _found: list[Rows] = field(default_factory=list)
    _count: int = 0
    """Rows in ``_found``, duplicates included."""

    @cached_property
    def allowed(self) -> dict[int, NDArray[np.bool_]]:
        """For each node that conditions restrict by themselves, (E,) whether an entity is allowed."""
        found = {node: self.filters.allowed(self.query.names[node]) for node in self.query.targets}
        return {node: passed for node, passed in found.items() if passed is not None}

    def look(self, pinned: dict[int, int]) -> None:
        """Collect the matches that pass, with the columns in ``pinned`` fixed to these entities."""
        if self._is_over():
            return
        free = [column for column in range(len(self.query.targets)) if column not in pinned]
        query = self._with(pinned)
        if not free or free[0] >= self.width:  # every selected variable is fixed: one match is enough
            if self._judge(tuples(self.graph, query, limit=FIRST), pinned, free, most=1) or not free:
                return
        rows = numpy_join(adjacency(self.graph), query, query.targets, LISTED, self.allowed)
        if rows is not None:
            self._judge(rows, pinned, free)
            return
        values = dict(zip(free, map(self._left, query.targets, answers(self.graph, query)), strict=True))
        # Selected variables first: then one match is enough for all values of the others.
        few = [column for column in free if len(values[column]) <= FEW]
        selected = few or [column for column in free if column < self.width] or free
        column = min(selected, key=lambda column: len(values[column]))
        for entity in values[column].tolist():
            self.look({**pinned, column: entity})

    def _left(self, node: int, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """The values of a node that its own conditions allow."""
        return values[self.allowed[node][values]] if node in self.allowed else values

    def _judge(self, rows: Rows, pinned: dict[int, int], free: list[int], most: int | None = None) -> bool:
        """Keep the rows that pass, at most ``most`` of them; return whether there were any."""
        self.left -= len(rows)
        whole = np.empty((len(rows), len(self.query.targets)), np.int32)
        whole[:, free] = rows
        for column, entity in pinned.items():
            whole[:, column] = entity
        passed = whole[self.filters.passes(columns_of(self.query, whole), len(whole))][:most]
        if len(passed):
            passed = self._distinct(passed)
            self._found.append(passed)
            self._count += len(passed)
            if self._count > self.limit:  # duplicates may be among them
                self._found = [self.rows()]
                self._count = len(self._found[0])
        return len(passed) > 0

    def rows(self) -> Rows:
        """What was found so far."""
        none = np.empty((0, len(self.query.targets)), np.int32)
        return self._distinct(np.concatenate([none, *self._found]))

    def _distinct(self, rows: Rows) -> Rows:
        if self.width == 0:
            return rows[:1]
        _, first = np.unique(rows[:, : self.width], axis=0, return_index=True)
        return rows[first]

    def _is_over(self) -> bool:
        if self._count > self.limit:
            return True
        self.complete = self.complete and self.left > 0
        return not self.complete

    def _with(self, pinned: dict[int, int]) -> BoundQuery:
        """The query with constants in place of the pinned columns."""
        nodes = list(self.query.nodes)
        for column, entity in pinned.items():
            nodes[self.query.targets[column]] = entity
        free = [node for column, node in enumerate(self.query.targets) if column not in pinned]
        return replace(self.query, nodes=tuple(nodes), targets=tuple(free))
