"""A graph split into train, valid and test so that every entity and relation occurs in train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph, Splits

_EXAMPLE = "for example: --split 0.05,0.05"


def check_seed(seed: int) -> None:
    """InvalidOption if ``seed`` is negative."""
    if seed < 0:
        raise InvalidOption(
            f"seed must be 0 or more. Got {seed}", hint="the default is 0; any other number splits anew"
        )


def split(graph: Graph, valid: float = 0.05, test: float = 0.05, seed: int = 0) -> Splits:
    """Random shares of the triples as valid and test; every entity and every relation keeps a triple in train.

    For each entity and each relation one random triple is set aside for train; valid and test are drawn from the
    others. A sparse graph may have too few others: then both come out smaller, in the asked proportion. A share of
    half a triple or more comes out as one at least, where one can be spared; valid comes before test.
    """
    for name, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise InvalidOption(f"the {name} share must be in [0, 1). Got {share}", hint=_EXAMPLE)
    if valid + test >= 1:
        raise InvalidOption(
            f"valid and test shares must leave something for train. Got {valid} + {test}", hint=_EXAMPLE
        )
    check_seed(seed)
    triples = graph.triples
    shuffled = np.random.default_rng(seed).permutation(len(triples))
    free = shuffled[~_needed(triples[shuffled])]
    valid_count, test_count = (_count(len(triples), share) for share in (valid, test))
    least = (valid_count > 0) + (test_count > 0)
    if len(free) < least:
        spare = shuffled[_spare(triples[shuffled], least)]
        free = spare if len(spare) > len(free) else free
    if valid_count + test_count > len(free):
        valid_count = max(round(len(free) * valid / (valid + test)), min(len(free), valid_count, 1))
        test_count = len(free) - valid_count
    part = np.zeros(len(triples), np.int8)
    part[free[:valid_count]] = 1
    part[free[valid_count : valid_count + test_count]] = 2
    # A mask keeps the rows in order, so each part stays sorted.
    return Splits(graph.vocabulary, triples[part == 0], triples[part == 1], triples[part == 2], graph.literals)


def _count(triples: int, share: float) -> int:
    return max(round(triples * share), int(triples * share >= 0.5))


def _spare(rows: NDArray[np.int32], count: int) -> list[int]:
    """Places of ``count`` rows, or fewer, that can leave together: every entity and relation keeps a row."""
    if len(rows) == 0:
        return []
    loops = rows[rows[:, 0] == rows[:, 2], 0]
    size = int(rows[:, [0, 2]].max()) + 1
    uses = np.bincount(rows[:, [0, 2]].ravel(), minlength=size) - np.bincount(loops, minlength=size)
    relation_uses = np.bincount(rows[:, 1])
    found: list[int] = []
    likely = (uses[rows[:, 0]] > 1) & (uses[rows[:, 2]] > 1) & (relation_uses[rows[:, 1]] > 1)
    for place in np.flatnonzero(likely).tolist():
        if len(found) == count:
            break
        subject, relation, object_ = rows[place].tolist()
        ends = {subject, object_}
        if relation_uses[relation] > 1 and all(uses[end] > 1 for end in ends):
            found.append(place)
            relation_uses[relation] -= 1
            uses[list(ends)] -= 1
    return found


def _needed(rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Rows that together hold every entity and every relation: the first row of each."""
    needed = np.zeros(len(rows), bool)
    if len(rows) == 0:
        return needed
    ends = rows[:, [0, 2]].ravel()
    needed[_first_places(ends) // 2] = True
    kept_relations = np.zeros(rows[:, 1].max() + 1, bool)
    kept_relations[rows[needed, 1]] = True
    first = _first_places(rows[:, 1])
    needed[first[~kept_relations[rows[first, 1]]]] = True
    return needed


def _first_places(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Place of the first occurrence of each distinct value."""
    first = np.full(values.max() + 1, -1, np.int64)
    # Assigned backwards, so that the earliest place is the one that stays.
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    return first[first >= 0]
