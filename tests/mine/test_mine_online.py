"""Fresh queries every epoch."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.leakage import query_signatures
from biqe.mine.online import epoch_queries
from biqe.query.queryset import KINDS, QuerySet


def graph_of(triples, entities, relations) -> Graph:
    return Graph(
        Vocabulary((f"e{i}" for i in range(entities)), (f"r{i}" for i in range(relations))), as_triples(triples)
    )


def random_graph(seed: int, entities=12, relations=3, triples=40) -> Graph:
    rng = np.random.default_rng(seed)
    return graph_of(rng.integers(0, [entities, relations, entities], (triples, 3)), entities, relations)


def test_an_epoch_has_what_was_asked_for_and_depends_on_seed_and_epoch_only():
    graph = random_graph(1, entities=200, relations=5, triples=3_000)

    def epoch(seed: int, number: int, share: float = 0.0) -> QuerySet:
        return epoch_queries(graph, paths=300, dags=200, seed=seed, epoch=number, inverse_share=share)

    one = epoch(3, 1)
    assert np.bincount(one.kinds).tolist() == [0, 300, 200]
    assert not one.filters
    assert np.array_equal(query_signatures(one), query_signatures(epoch(3, 1)))
    for other in (epoch(3, 2), epoch(4, 1)):
        assert np.isin(query_signatures(one), query_signatures(other)).mean() < 0.2
    mixed = epoch(3, 1, 0.5)
    assert np.bincount(mixed.kinds).tolist() == [0, 300, 200]
    backward = mixed.edges[:, 1] >= graph.relation_count
    assert 0.15 < backward.mean() < 0.35  # half of the queries, half of whose steps go back
    assert (one.edges[:, 1] < graph.relation_count).all()


def test_an_epoch_of_paths_or_of_dags_alone():
    graph = random_graph(1, entities=200, relations=5, triples=3_000)
    assert np.unique(epoch_queries(graph, paths=0, dags=50, seed=0, epoch=0).kinds).tolist() == [KINDS.index("dag")]
    assert np.unique(epoch_queries(graph, paths=50, dags=0, seed=0, epoch=0).kinds).tolist() == [KINDS.index("path")]
    assert len(epoch_queries(graph, paths=0, dags=0, seed=0, epoch=0)) == 0


def test_an_epoch_of_a_graph_without_walks_is_empty():
    assert len(epoch_queries(graph_of([(0, 0, 1)], 2, 1), paths=5, dags=5, seed=0, epoch=0, inverse_share=0.5)) == 0
    assert len(epoch_queries(graph_of([], 2, 1), paths=5, dags=5, seed=0, epoch=0, inverse_share=0.5)) == 0


@pytest.mark.parametrize("options", [{"paths": -1}, {"dags": -2}, {"seed": -1}, {"epoch": -1}, {"inverse_share": -0.1}])
def test_an_epoch_refuses_bad_options(options):
    with pytest.raises(InvalidOption):
        epoch_queries(random_graph(0), **({"paths": 1, "dags": 1, "seed": 0, "epoch": 0} | options))
