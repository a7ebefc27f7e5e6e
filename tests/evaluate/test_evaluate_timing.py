"""Milliseconds a query, alone and in batches."""

import json

import numpy as np
import pytest

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.timing import time_per_query

E = 12


def script(query, target):
    return np.random.default_rng([abs(hash((query.nodes, query.edges))), target]).random(E)


def shaped_set(make, count=20):
    rng = np.random.default_rng(0)
    rows = [[make.one_hop(n % E, n % 5)] if n % 2 else [make.two_hops(n % E, n % 5)] for n in range(count)]
    answers = [rng.choice(E, 4, replace=False) for _ in range(count)]
    return make.questions(
        rows, [1 - n % 2 for n in range(count)], ("1p", "2p"), answers=answers, hard=[part[:2] for part in answers]
    )


def test_time_per_query(make):
    found = time_per_query(make.Scripted(script, E), shaped_set(make), singles=5, repeats=2)
    assert (found.queries, found.targets, found.single_queries) == (20, 20, 5)
    assert 0 < found.single_median_ms <= found.single_p95_ms
    assert found.batched_queries_per_second == pytest.approx(1000 / found.batched_ms)
    assert {"allocator", "threads", "processor"} <= set(found.machine)
    assert json.loads(json.dumps(found.to_json()))["analysis"] == "timing"
    # Fewer queries than the warm-up needs are timed all the same.
    assert time_per_query(make.Scripted(script, E), shaped_set(make, 2).rows, repeats=1).single_queries == 1
    with pytest.raises(InvalidOption, match="at least 1"):
        time_per_query(make.Scripted(script, E), shaped_set(make), repeats=0)
    with pytest.raises(EmptyResult, match="tired"):
        time_per_query(make.Scripted(script, E, refuse=lambda query: "tired"), shaped_set(make))
