"""Which rows pass the conditions of a query.

Rows are columns of entity ids. Each condition is evaluated once for each entity that occurs, not for each row; and
regular expressions go through RE2, which takes time in proportion to the text, whatever the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import SparqlSyntax
from biqe.graph.vocabulary import Vocabulary
from biqe.query.ast import Entity, Variable
from biqe.query.bound import BoundQuery
from biqe.query.expression import AllOf, AnyOf, Compare, Condition, Holds, IsIri, Matches, NameOf, Not, OneOf, Operand
from biqe.query.expression import variables as variables_of

Columns = Mapping[str, NDArray[np.integer]]
"""Entity ids by variable; all of one length."""
Passed = NDArray[np.bool_]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}


class Filters:
    """The conditions of one branch of a question, over the entities of one graph."""

    def __init__(self, conditions: Sequence[Condition], vocabulary: Vocabulary) -> None:
        self.conditions = tuple(conditions)
        self._vocabulary = vocabulary
        for condition in self.conditions:
            self._compile(condition)

    def passes(self, columns: Columns, count: int) -> Passed:
        """(count,) whether each row passes all conditions."""
        passed = np.ones(count, bool)
        for condition in self.conditions:
            passed &= self._holds(condition, columns, count)
        return passed

    def allowed(self, variable: str) -> Passed | None:
        """(E,) which entities the conditions on this variable alone leave; None where there are no such conditions."""
        # A conjunction constrains each of its variables by itself; taken apart, more of it can be used early.
        alone = [
            part
            for condition in self.conditions
            for part in _conjuncts(condition)
            if [v.name for v in variables_of(part)] == [variable]
        ]
        if not alone:
            return None
        entities = np.arange(len(self._vocabulary.entities))
        passed = np.ones(len(entities), bool)
        for condition in alone:
            passed &= self._holds(condition, {variable: entities}, len(entities))
        return passed

    def _holds(self, condition: Condition, columns: Columns, count: int) -> Passed:
        if isinstance(condition, AllOf | AnyOf):
            parts = [self._holds(part, columns, count) for part in condition.parts]
            return np.logical_and.reduce(parts) if isinstance(condition, AllOf) else np.logical_or.reduce(parts)
        if isinstance(condition, Not):
            return ~self._holds(condition.part, columns, count)
        if isinstance(condition, OneOf):
            found = np.zeros(count, bool)
            for option in condition.options:
                found |= self._compared(condition.term, "=", option, columns, count)
            return ~found if condition.negated else found
        if isinstance(condition, Compare):
            return self._compared(condition.left, condition.operator, condition.right, columns, count)
        term = condition.term if isinstance(condition, IsIri) else condition.text
        of = self._judge(condition)
        return self._by_entity(self._ids(term.term if isinstance(term, NameOf) else term, columns, count), of)

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

    def _by_entity(self, ids: NDArray[np.integer], judge: Callable[[list[int]], Passed]) -> Passed:
        unique, places = np.unique(ids, return_inverse=True)
        return judge(unique.tolist())[places]

    def _judge(self, condition: Matches | Holds | IsIri) -> Callable[[list[int]], Passed]:
        """A function from entities to whether the condition holds for each."""
        vocabulary = self._vocabulary
        if isinstance(condition, IsIri):
            return lambda ids: np.array([not vocabulary.entities[entity].startswith("_:") for entity in ids], bool)
        found = _found(condition)

        def judge(ids: list[int]) -> Passed:
            passed = found([vocabulary.entities[entity] for entity in ids])
            if not isinstance(condition.text, NameOf):
                # A bare variable stands for what people call the entity, too.
                passed = passed | found([vocabulary.labels.get(entity, "") for entity in ids])
            return passed

        return judge

    def _compile(self, condition: Condition) -> None:
        """Refuse a regular expression that cannot be read before any row is looked at."""
        if isinstance(condition, AllOf | AnyOf):
            for part in condition.parts:
                self._compile(part)
        elif isinstance(condition, Not):
            self._compile(condition.part)
        elif isinstance(condition, Matches):
            _found(condition)([""])


def columns_of(query: BoundQuery, rows: NDArray[np.integer]) -> dict[str, NDArray[np.integer]]:
    """The entities of (n, targets) rows by variable."""
    return {query.names[node]: rows[:, column] for column, node in enumerate(query.targets)}


def _conjuncts(condition: Condition) -> list[Condition]:
    if isinstance(condition, AllOf):
        return [inner for part in condition.parts for inner in _conjuncts(part)]
    return [condition]


def _found(condition: Matches | Holds) -> Callable[[list[str]], Passed]:
    """A function from texts to whether the condition finds what it looks for in each."""
    if isinstance(condition, Holds):
        part = condition.part
        test: Callable[[str], bool] = {
            "CONTAINS": lambda text: part in text,
            "STRSTARTS": lambda text: text.startswith(part),
            "STRENDS": lambda text: text.endswith(part),
        }[condition.function]
        return lambda texts: np.array([test(text) for text in texts], bool)
    # pyarrow takes a tenth of a second to load: only those who ask for a regular expression wait for it.
    import pyarrow
    from pyarrow import compute

    pattern = re.escape(condition.pattern) if "q" in condition.flags else condition.pattern
    flags = "".join(sorted(set(condition.flags) & set("sm")))
    pattern = f"(?{flags}){pattern}" if flags else pattern

    def search(texts: list[str]) -> Passed:
        try:
            found = compute.match_substring_regex(
                pyarrow.array(texts, pyarrow.string()), pattern, ignore_case="i" in condition.flags
            )
        except pyarrow.ArrowInvalid as error:
            reason = str(error).partition(": ")[2] or str(error)
            raise SparqlSyntax(
                f"{condition.pattern[:60]!r} is no regular expression that can be read: {reason[:120]}",
                hint="back references and look-around are not supported: matching takes time in proportion to the text",
            ) from error
        return np.asarray(found.to_numpy(zero_copy_only=False), bool)

    return search
