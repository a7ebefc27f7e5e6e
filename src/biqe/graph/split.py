"""A graph cut into train, valid and test so that nothing has to be predicted about what was never seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph, Splits


def split(graph: Graph, valid: float = 0.05, test: float = 0.05, seed: int = 0) -> Splits:
    """Random shares of the triples as valid and test; every entity and every relation keeps a triple in train.

    For each entity and each relation one random triple is set aside for train; valid and test are drawn from the
    others. A sparse graph may have too few others: then both come out smaller, in the asked proportion.
    """
    for name, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise InvalidOption(f"the {name} share must be in [0, 1). Got {share}")
    if valid + test >= 1:
        raise InvalidOption(f"valid and test shares must leave something for train. Got {valid} + {test}")
    triples = graph.triples
    shuffled = np.random.default_rng(seed).permutation(len(triples))
    free = shuffled[~_needed(triples[shuffled])]
    valid_count, test_count = round(len(triples) * valid), round(len(triples) * test)
    if valid_count + test_count > len(free):
        valid_count = round(len(free) * valid / (valid + test))
        test_count = len(free) - valid_count
    part = np.zeros(len(triples), np.int8)
    part[free[:valid_count]] = 1
    part[free[valid_count : valid_count + test_count]] = 2
    # A mask keeps the rows in order, so each part stays sorted.
    return Splits(graph.vocabulary, triples[part == 0], triples[part == 1], triples[part == 2])


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
