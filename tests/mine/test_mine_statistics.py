"""The dataset table, counted by hand and by the tokens that a model reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mine.splits import SMALL, random_splits, splits_of

from biqe.mine.dataset import MineConfig, epoch_queries, mine_split
from biqe.mine.intersect import distinct_depths
from biqe.mine.statistics import branch_lengths, split_statistics, statistics_rows
from biqe.query.bound import KINDS, TARGET, concatenate
from biqe.query.tokens import MASK, token_table, tokens


def test_statistics_by_hand():
    # 0 -> 2 <- 1, 2 -> 3 -> 4: walks 0,1 -> 2 -> 3 and on to 4; DAGs at 2 and at 3.
    graph = splits_of([(0, 0, 2), (1, 1, 2), (2, 0, 3), (3, 0, 4)], entities=5, relations=2)
    queries = mine_split(graph, "train", MineConfig(paths=100, dags=100, depths="any"))
    found = split_statistics(queries, graph.vocabulary, graph.train)
    # Walks of 2 edges: 0-2-3, 1-2-3, 2-3-4; of 3: 0-2-3-4, 1-2-3-4.
    assert (found.triples, found.paths, found.path_lengths) == (4, 5, {"2": 3, "3": 2})
    # Branches into 2: 0-2 and 1-2. Into 3: 2-3, 0-2-3, 1-2-3 (walks on to 4). Sets of two and of three of them.
    dags = queries.take(np.flatnonzero(queries.kinds == KINDS.index("dag")))
    at_two = dags.take(np.flatnonzero(dags.gold[dags.node_offsets[1:] - 2] == 2))
    assert len(at_two) == 1 and found.dags == 1 + 4
    # At 2: two paths of two masks, five tokens each. At 3: pairs (2-3, 0-2-3), (2-3, 1-2-3), (0-2-3, 1-2-3), and all.
    masks = 4 * 1 + (3 * 2 + 2 * 3) + 4 + ((2 + 3) + (2 + 3) + (3 + 3) + (2 + 3 + 3))
    targets = 4 * 1 + (3 * 2 + 2 * 3) + 2 + (3 + 3 + 4 + 4)
    length = 4 * 3 + (3 * 5 + 2 * 7) + 10 + ((5 + 7) + (5 + 7) + (7 + 7) + (5 + 7 + 7))
    assert found.average_masks == pytest.approx(masks / 14)
    assert found.average_targets == pytest.approx(targets / 14)
    assert found.average_length == pytest.approx(length / 14)
    # "[MASK]-#-r0-#-e0" has 16 characters: two names of two letters each, and a mask.
    assert split_statistics(queries.take(np.zeros(0, int)), graph.vocabulary, graph.train).average_characters == 16
    assert found.branches == {"2": 4, "3": 1}
    assert found.branch_lengths == {"1": 5, "2": 6}
    assert statistics_rows({"train": found})[:3] == [("Triples", [4]), ("Paths", [5]), ("DAGs", [5])]


def paths_as_text(query, vocabulary):
    """Each path as the authors' files write it, one token after the other."""
    read = tokens(query)
    for path in sorted(set(read.paths)):
        names = []
        for kind, number, own in zip(read.kinds, read.ids, read.paths, strict=True):
            if own == path and kind == "mask":
                names.append("[MASK]")
            elif own == path:
                known = vocabulary.entities if kind == "entity" else vocabulary.relations
                names.append(known[number % len(known)])
        yield "-#-".join(names)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.booleans())
def test_masks_and_lengths_are_those_of_the_tokens_that_a_model_reads(seed, distinct):
    graph = random_splits(seed)["train"]
    queries = epoch_queries(graph, paths=20, dags=20, seed=seed, epoch=0)
    if distinct:
        dags = queries.take(np.flatnonzero(queries.kinds == KINDS.index("dag")))
        queries = concatenate(
            [queries.take(np.flatnonzero(queries.kinds != KINDS.index("dag"))), distinct_depths(dags)]
        )
    table = token_table(queries, graph.entity_count)
    found = split_statistics(queries, graph.vocabulary)
    assert found.average_masks * len(queries) == pytest.approx((table.tokens == MASK).sum())
    assert found.average_length * len(queries) == pytest.approx(len(table.tokens))
    assert found.average_targets * len(queries) == pytest.approx((queries.nodes == TARGET).sum())
    written = [text for query in queries for text in paths_as_text(query, graph.vocabulary)]
    assert found.average_characters * len(queries) == pytest.approx(sum(map(len, written)))
    edges = np.diff(queries.edge_offsets)[queries.kinds == KINDS.index("dag")]
    assert branch_lengths(queries).sum() == (edges - 1).sum()


def test_statistics_of_nothing():
    empty = mine_split(splits_of([(0, 0, 1)]), "train", SMALL)
    found = split_statistics(empty, splits_of([(0, 0, 1)]).vocabulary)
    assert (found.paths, found.dags, found.average_masks) == (0, 0, 0.0)
