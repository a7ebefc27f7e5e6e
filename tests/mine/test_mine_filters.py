"""True values of every target, against trying every match."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mine.splits import SMALL, random_splits

from biqe.errors import InvalidOption
from biqe.mine.dataset import MineConfig, mine_split
from biqe.mine.filters import check_gold, holds, reach_sets, with_filters
from biqe.query.bound import AnswerSets, QuerySet


def matches(triples: list[tuple[int, int, int]], query) -> list[dict[int, int]]:
    """Every way to map the nodes of a query so that all its edges are triples, by trying triple after triple."""
    found = [{node: value for node, value in enumerate(query.nodes) if value >= 0}]
    for subject, relation, object_ in query.edges:
        found = [
            one | {subject: s, object_: o}
            for one in found
            for s, r, o in triples
            if r == relation and one.get(subject, s) == s and one.get(object_, o) == o
        ]
    return found


def brute_force(triples, queries: QuerySet) -> list[list[int]]:
    sets = []
    for query in queries:
        found = matches([tuple(row) for row in triples.tolist()], query)
        sets += [sorted({one[target] for one in found}) for target in query.targets]
    return sets


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_filters_are_what_trying_every_match_gives(seed):
    graph = random_splits(seed)
    for split in ("train", "valid"):
        queries = mine_split(graph, split, dataclasses.replace(SMALL, paths=12, dags=8, eval_paths=30, eval_dags=8))
        filtered = with_filters(graph, split, queries, threads=1)
        assert [s.tolist() for s in filtered.filters["split"]] == brute_force(graph[split].triples, queries)
        assert [s.tolist() for s in filtered.filters["complete"]] == brute_force(graph["complete"].triples, queries)
        for answers in filtered.filters.values():
            assert holds(answers, queries.gold[queries.target_nodes]).all()


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_reach_heeds_only_the_way_to_the_target(seed):
    graph = random_splits(seed)
    queries = mine_split(graph, "train", MineConfig(recipe="paths", paths=12))
    sets = iter(reach_sets(graph["complete"], queries, threads=1))
    triples = graph["complete"].triples.tolist()
    for query in queries:
        front = {query.nodes[0]}
        for _, relation, _ in query.edges:
            front = {o for s, r, o in triples if s in front and r == relation}
            assert next(sets).tolist() == sorted(front)
    assert next(sets, None) is None


def test_reach_is_for_paths_only(splits):
    dags = mine_split(splits, "valid", SMALL)
    with pytest.raises(InvalidOption, match="path queries only"):
        reach_sets(splits["valid"], dags)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), unique=True), st.integers(0, 9)), max_size=20))
def test_holds(rows):
    sets = [sorted(values) for values, _ in rows]
    answers = AnswerSets(
        np.cumsum([0, *map(len, sets)]).astype(np.int64), np.array([v for s in sets for v in s], np.int32)
    )
    asked = np.array([entity for _, entity in rows], np.int32)
    assert holds(answers, asked).tolist() == [entity in values for values, entity in rows]


def test_gold_outside_its_filter_is_noticed(splits, mined):
    queries = mined["valid"]
    check_gold(queries, queries.filters["split"])
    first = int(queries.target_nodes[0])
    wrong = queries.gold.copy()
    wrong[first] = next(e for e in range(60) if e not in queries.filters["complete"][0])
    with pytest.raises(InvalidOption, match="1 of"):
        check_gold(dataclasses.replace(queries, gold=wrong), queries.filters["complete"])
