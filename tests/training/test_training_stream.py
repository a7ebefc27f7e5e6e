"""What a model learns from: epochs by seed, varied targets, batches without padding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import EmptyResult
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.mine.dataset import epoch_queries
from biqe.models import _catalogue
from biqe.query.bound import HIDDEN, TARGET
from biqe.training.config import TrainConfig
from biqe.training.queries import triple_queries, vary_targets
from biqe.training.stream import Stream, cut_batches

_spec = importlib.util.spec_from_file_location("train_town", Path(__file__).with_name("conftest.py"))
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
SPLITS = _module.town()
TRAIN = SPLITS["train"]


def holds(graph: Graph, subject: int, relation: int, object_: int) -> bool:
    if relation >= graph.relation_count:
        subject, relation, object_ = object_, relation - graph.relation_count, subject
    return [subject, relation, object_] in graph.triples.tolist()


@given(st.floats(0, 1), st.integers(0, 50))
def test_every_triple_is_asked_once_from_one_end(share, seed):
    queries = triple_queries(TRAIN, np.random.default_rng(seed), share)
    back = []
    for row in range(len(queries)):
        source, tail = queries.gold[queries.node_offsets[row] : queries.node_offsets[row + 1]].tolist()
        relation = int(queries.edges[row, 1])
        assert queries[row].nodes == (source, TARGET)
        back.append((source, relation, tail) if relation < 4 else (tail, relation - 4, source))
    assert np.array_equal(as_triples(back), TRAIN.triples)
    if share == 0:
        assert (queries.edges[:, 1] < 4).all()


@given(st.integers(0, 20))
def test_varied_queries_keep_a_target_and_stay_true(seed):
    mined = epoch_queries(TRAIN, paths=60, dags=60, seed=seed, epoch=0, inverse_share=0.5)
    varied = vary_targets(mined, np.random.default_rng(seed), 0.4, 0.4)
    assert np.array_equal(varied.gold, mined.gold) and np.array_equal(varied.edges, mined.edges)
    assert (np.diff(varied.target_offsets) >= 1).all()
    changed = varied.nodes != mined.nodes
    assert (mined.nodes[changed] == TARGET).all()
    revealed = changed & (varied.nodes >= 0)
    assert np.array_equal(varied.nodes[revealed], mined.gold[revealed])
    assert (varied.nodes == HIDDEN).any() and revealed.any()
    owner = np.repeat(np.arange(len(varied)), np.diff(varied.node_offsets))
    assert not set(owner[varied.nodes == HIDDEN]) & set(owner[revealed]), (
        "a query is hidden in or revealed in, not both"
    )


@given(st.lists(st.integers(1, 12), min_size=1, max_size=200), st.integers(1, 40), st.integers(1, 9), st.integers(0, 9))
def test_batches_cover_all_in_one_size_within_the_budget(sizes, tokens, queries, seed):
    sizes = np.array(sizes)
    batches = cut_batches(sizes, tokens, queries, np.random.default_rng(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    for batch in batches:
        assert len(set(sizes[batch].tolist())) == 1
        assert len(batch) == 1 or (len(batch) <= queries and sizes[batch].sum() <= tokens)


def stream(**more):
    model = _catalogue.build("biqe", {"width": 8, "layers": 1, "heads": 2, "feed_forward": 8}, 72, 4)
    return Stream(TRAIN, model, TrainConfig(epochs=1, paths=50, dags=50, **more))


def test_an_epoch_depends_on_seed_and_number_only():
    first, again, other, next_ = stream().epoch(3), stream().epoch(3), stream(seed=1).epoch(3), stream().epoch(4)
    assert np.array_equal(first.encoded.table.tokens, again.encoded.table.tokens)
    assert all(np.array_equal(a, b) for a, b in zip(first.batches, again.batches, strict=True))
    assert not np.array_equal(first.encoded.table.tokens, other.encoded.table.tokens)
    assert not np.array_equal(first.encoded.table.tokens, next_.encoded.table.tokens)


def test_every_query_of_an_epoch_is_true_of_the_training_graph():
    epoch = stream(hide_share=0.0, reveal_share=0.0)
    mined = epoch._mined(0)
    for row in range(len(mined)):
        gold = mined.gold[mined.node_offsets[row] : mined.node_offsets[row + 1]]
        for subject, relation, object_ in mined[row].edges:
            assert holds(TRAIN, int(gold[subject]), relation, int(gold[object_]))


def test_batches_have_no_padding():
    epoch = stream().epoch(0)
    assert all(batch.padding is None for _, batch in epoch.from_batch(0))


def test_an_empty_graph_is_refused():
    model = _catalogue.build("biqe", {"width": 8, "layers": 1, "heads": 2, "feed_forward": 8}, 72, 4)
    with pytest.raises(EmptyResult):
        Stream(Graph(SPLITS.vocabulary, as_triples([])), model, TrainConfig(epochs=1))
