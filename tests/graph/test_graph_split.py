"""Random splits that leave every entity and relation in train."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.split import split
from biqe.graph.triples import as_triples, contains, union
from biqe.graph.vocabulary import Vocabulary


def graph_of(rows: list) -> Graph:
    return Graph(Vocabulary(map(str, range(9)), map(str, range(4))), as_triples(rows))


ROWS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.integers(0, 8)), max_size=60)
SHARES = st.tuples(st.floats(0, 0.49), st.floats(0, 0.49))


@given(ROWS, SHARES, st.integers(0, 5))
def test_split_is_a_partition_that_keeps_all_names_in_train(rows: list, shares: tuple, seed: int) -> None:
    graph = graph_of(rows)
    parts = split(graph, *shares, seed=seed)
    np.testing.assert_array_equal(union(parts.train, parts.valid, parts.test), graph.triples)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == len(graph.triples)
    assert set(parts.train[:, [0, 2]].ravel()) == set(graph.triples[:, [0, 2]].ravel())
    assert set(parts.train[:, 1]) == set(graph.triples[:, 1])
    for part in (parts.train, parts.valid, parts.test):
        np.testing.assert_array_equal(part, as_triples(part))
    wanted = [max(round(len(graph.triples) * share), len(graph.triples) * share >= 0.5) for share in shares]
    assert len(parts.valid) <= wanted[0] or sum(wanted) > len(parts.valid) + len(parts.test)
    assert len(parts.valid) + len(parts.test) <= sum(wanted)


def test_dense_graphs_get_the_exact_shares() -> None:
    graph = graph_of([(s, r, o) for s in range(9) for r in range(4) for o in range(9)])
    parts = split(graph, 0.1, 0.2, seed=3)
    assert (len(parts.valid), len(parts.test)) == (32, 65)
    again, other = split(graph, 0.1, 0.2, seed=3), split(graph, 0.1, 0.2, seed=4)
    assert parts.fingerprint == again.fingerprint != other.fingerprint
    assert not contains(parts.valid, parts.test).any()


def test_a_chain_has_nothing_to_spare() -> None:
    parts = split(graph_of([(0, 0, 1), (2, 1, 3), (4, 2, 5)]), 0.3, 0.3)
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (3, 0, 0)


@given(ROWS, st.integers(0, 5))
def test_valid_is_empty_only_where_no_triple_can_be_spared(rows: list, seed: int) -> None:
    graph = graph_of(rows)
    triples = graph.triples
    uses = [sum(entity in (s, o) for s, _, o in triples.tolist()) for entity in range(9)]
    relation_uses = np.bincount(triples[:, 1], minlength=4)
    spare = [row for row in triples.tolist() if min(uses[row[0]], uses[row[2]], relation_uses[row[1]]) > 1]
    if len(triples) >= 10:
        assert (len(split(graph, 0.05, 0.05, seed=seed).valid) > 0) == bool(spare)


def test_ten_triples_give_one_each() -> None:
    graph = graph_of([(i % 5, 0, (i * 3 + i // 5) % 5) for i in range(10)])
    assert len(graph.triples) == 10
    parts = split(graph, 0.05, 0.05)
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (8, 1, 1)


def test_impossible_seed() -> None:
    with pytest.raises(InvalidOption, match="seed must be 0 or more. Got -1"):
        split(graph_of([(0, 0, 1)]), seed=-1)


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0), (0, 1), (0.5, 0.5), (float("nan"), 0)])
def test_impossible_shares(valid: float, test: float) -> None:
    with pytest.raises(InvalidOption, match="share"):
        split(graph_of([(0, 0, 1)]), valid, test)
