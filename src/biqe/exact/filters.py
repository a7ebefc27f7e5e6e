"""Which rows pass the conditions of a query.

Rows are columns of entity ids. Each condition is evaluated once for each entity that occurs, not for each row; and
regular expressions go through RE2, which takes time in proportion to the text, whatever the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.graph.vocabulary import Vocabulary
from biqe.query.ast import Entity, Variable
from biqe.query.bound import BoundQuery
from biqe.query.conditions import as_re2
from biqe.query.question import AllOf, AnyOf, Compare, Condition, Holds, IsIri, Matches, NameOf, Not, OneOf, Operand
from biqe.query.question import variables as variables_of

Columns = Mapping[str, NDArray[np.integer]]
"""Entity ids by variable; all of one length."""
Passed = NDArray[np.bool_]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}


class Filters:
    """The conditions of one branch of a question, over the entities of one graph."""

    def __init__(self, conditions: Sequence[Condition], vocabulary: Vocabulary) -> None:
        self.conditions = tuple(conditions)
        self._vocabulary = vocabulary
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
                return [Filters((*others, part), self._vocabulary) for part in condition.parts]
        return [self]

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
