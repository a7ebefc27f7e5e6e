"""Questions about held-out facts: each needs one, and none is answered by the training graph alone."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples, union
from biqe.graph.vocabulary import Vocabulary
from biqe.links.structures import SHAPES, StructuredQueries
from biqe.training.held_out_questions import questions_by_shape

ENTITIES, RELATIONS = 60, 4


@pytest.fixture(scope="module")
def splits():
    rng = np.random.default_rng(5)
    vocabulary = Vocabulary([f"e{n}" for n in range(ENTITIES)], [f"r{n}" for n in range(RELATIONS)], {})
    columns = [rng.integers(0, size, 400) for size in (ENTITIES, RELATIONS, ENTITIES)]
    triples = np.unique(np.stack(columns, 1), axis=0)
    triples = triples[triples[:, 0] != triples[:, 2]]
    is_valid = rng.random(len(triples)) < 0.15
    return Splits(vocabulary, as_triples(triples[~is_valid]), as_triples(triples[is_valid]), as_triples([]))


def test_every_shape_is_drawn_and_is_what_it_is_called(splits):
    found = questions_by_shape(splits, 40, seed=0)
    assert set(found) == set(SHAPES[:-1])
    for shape, queries in found.items():
        assert 20 <= len(queries) <= 40
        assert set(StructuredQueries(queries, ENTITIES, RELATIONS, "x").shapes()) == {shape}


def test_answers_need_a_held_out_fact_and_are_true_with_it(splits):
    train = splits["train"]
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    for queries in questions_by_shape(splits, 40, seed=1).values():
        gold = queries.gold[queries.target_nodes]
        before, after = answer_sets(train, queries), answer_sets(seen, queries)
        assert not any(answer in before[row] for row, answer in enumerate(gold))
        assert all(answer in after[row] for row, answer in enumerate(gold))
        assert np.array_equal(queries.filters["complete"].values, after.values)


def test_the_same_seed_draws_the_same_questions(splits):
    one, two, other = (questions_by_shape(splits, 10, seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(one[shape].nodes, two[shape].nodes) for shape in one)
    assert any(not np.array_equal(one[shape].nodes, other[shape].nodes) for shape in one)


def test_without_held_out_facts_there_are_none(splits):
    nothing = Splits(splits.vocabulary, splits.train, as_triples([]), as_triples([]))
    assert questions_by_shape(nothing, 10, seed=0) == {}
