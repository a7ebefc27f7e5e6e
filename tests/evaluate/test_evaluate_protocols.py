"""Protocol cq: who counts how often, by hand."""

import numpy as np
import pytest

from biqe.errors import EmptyResult
from biqe.evaluate.protocols import cq
from biqe.evaluate.ranks import Ranks
from biqe.query.queryset import KINDS, ROLES

TAIL, INTERSECTION, BRANCH = (ROLES.index(role) for role in ("tail", "intersection", "branch"))
DAG, PATH = KINDS.index("dag"), KINDS.index("path")


def figures(**options):
    # Query 4: a DAG with tail at rank 1, intersection at rank 2 and a branch at rank 4. Query 7: a path whose only
    # target, its tail, has rank 10. No ties. Numbers of queries need not start at 0.
    rank = np.array([1, 2, 4, 10])
    ranks = Ranks(rank, rank.astype(float), rank, np.full(4, 50))
    return cq(
        ranks,
        np.array([4, 4, 4, 7]),
        np.array([TAIL, INTERSECTION, BRANCH, TAIL]),
        np.array([DAG, DAG, DAG, PATH]),
        **options,
    )


def mrr_of(summary):
    return summary.metrics["realistic"]["mrr"]


def test_each_target_counts_once():
    found = figures()
    assert mrr_of(found.overall) == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10) / 4)
    assert found.overall.metrics["realistic"]["hits@3"] == pytest.approx(2 / 4)
    assert (found.overall.queries, found.overall.targets) == (2, 4)


def test_macro_counts_each_query_once():
    found = figures()
    assert mrr_of(found.macro) == pytest.approx(((1 + 1 / 2 + 1 / 4) / 3 + 1 / 10) / 2)
    assert (found.macro.queries, found.macro.targets) == (2, 4)


def test_groups():
    found = figures()
    assert {name: mrr_of(part) for name, part in found.by_position.items()} == pytest.approx(
        {"tail": (1 + 1 / 10) / 2, "intersection": 1 / 2, "branch": 1 / 4}
    )
    assert {name: mrr_of(part) for name, part in found.by_kind.items()} == pytest.approx(
        {"dag": (1 + 1 / 2 + 1 / 4) / 3, "path": 1 / 10}
    )
    assert {name: part.targets for name, part in found.by_targets.items()} == {"1": 1, "3": 3}
    assert found.by_position["tail"].queries == 2


def test_intervals_are_there_when_asked_for():
    found = figures(draws=50)
    for part in (found.overall, found.macro, *found.by_position.values(), *found.by_kind.values()):
        for metric, (low, high) in part.intervals.items():
            assert low <= part.metrics["realistic"][metric] <= high
    assert figures(draws=0).overall.intervals == {}


def test_nothing_ranked_is_refused():
    none = np.zeros(0, np.int64)
    with pytest.raises(EmptyResult):
        cq(Ranks.join([]), none, none, none)
