"""What splits must not share: none in mined sets, found where it is planted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.mine.splits import SMALL, splits_of

from biqe.errors import InvalidOption
from biqe.mine.dataset import mine
from biqe.mine.leakage import leakage, query_signatures, refuse_leakage
from biqe.query.bound import KINDS, TARGET, QuerySet, concatenate


def test_mined_sets_do_not_leak(mined):
    assert set(mined.leakage.foreign.values()) == {0}
    assert set(mined.leakage.held_out_in_train.values()) == {0}
    assert mined.leakage.answerable_from_train == {"valid": 0, "test": 0}
    assert mined.leakage.same_as_train == {"valid": 0, "test": 0}
    assert mined.leakage.same_as_valid == {"test": 0}


def test_planted_leakage_is_counted_and_refused(splits, mined):
    train, valid = mined["train"], mined["valid"]
    planted = concatenate([train.take(np.arange(10)), valid.take(np.arange(3))])
    found = leakage(splits, {"train": planted, "valid": valid, "test": valid.take(np.arange(2))})
    assert found.foreign == {"train": 3, "valid": 0, "test": 2}
    assert found.held_out_in_train == {"valid": 3, "test": 0}
    assert found.same_as_train == {"valid": 3, "test": 2}
    assert found.same_as_valid == {"test": 2}
    with pytest.raises(InvalidOption, match="3 training queries contain triples of valid"):
        refuse_leakage(found)
    answerable = leakage(splits, {"train": train, "valid": train.take(np.arange(5))})
    assert answerable.answerable_from_train == {"valid": 5}


def test_overlapping_splits_are_refused(splits):
    overlapping = splits_of(splits.train, splits.valid, splits.train[:200], entities=60)
    with pytest.raises(InvalidOption, match="overlap"):
        mine(overlapping, SMALL)


def test_the_order_of_branches_does_not_make_another_query_but_structure_does():
    # Both DAGs have the same gold edges: 0-5, 3-5, 5-3, 3-5, and the tail 5-3, hung together differently.
    def dag(branches: list[list[int]]) -> QuerySet:
        nodes, edges, gold, roles = [], [], [], []
        centre = sum(len(branch) - 1 for branch in branches)
        for branch in branches:
            for place, entity in enumerate(branch[:-1]):
                following = centre if place == len(branch) - 2 else len(nodes) + 1
                edges.append((len(nodes), 0 if branch[place + 1] == 5 else 1, following))
                nodes.append(entity if place == 0 else TARGET)
                gold.append(entity)
                roles.append(0 if place == 0 else 3)
        edges.append((centre, 1, centre + 1))
        offsets = np.array([0, len(nodes) + 2], np.int64)
        return QuerySet(
            offsets,
            np.array([*nodes, TARGET, TARGET], np.int32),
            np.array([*gold, 5, 3], np.int32),
            np.array([*roles, 2, 1], np.int8),
            np.array([0, len(edges)], np.int64),
            np.array(edges, np.int32),
            np.array([KINDS.index("dag")], np.int8),
        )

    long_zero, turned, long_three = (
        dag([[0, 5, 3, 5], [3, 5]]),
        dag([[3, 5], [0, 5, 3, 5]]),
        dag([[3, 5, 3, 5], [0, 5]]),
    )
    keys = [query_signatures(one)[0] for one in (long_zero, turned, long_three)]
    assert keys[0] == keys[1] != keys[2]
