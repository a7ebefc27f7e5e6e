"""Whole datasets: recipes, filters, the statistics table, leakage; and fresh queries for an epoch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.mine.splits import SMALL, splits_of

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples, contains
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig, epoch_queries, mine, mine_split
from biqe.mine.leakage import gold_edges, query_signatures
from biqe.mine.statistics import split_statistics
from biqe.query.bound import KINDS, QuerySet
from biqe.query.tokens import tokens


def test_recipe_cq(splits, mined):
    assert list(mined.queries) == ["train", "valid", "test"]
    assert np.bincount(mined["train"].kinds).tolist() == [0, 60, 40]
    for split in ("valid", "test"):
        assert (mined[split].kinds == KINDS.index("dag")).all() and 0 < len(mined[split]) <= 30
    for split, queries in mined.queries.items():
        assert set(queries.filters) == {"split", "complete"}
        assert contains(splits[split].triples, gold_edges(queries, 3)).all()
        # What holds in a part of the graph holds in all of it.
        for part, whole in zip(queries.filters["split"], queries.filters["complete"], strict=True):
            assert set(part.tolist()) <= set(whole.tolist())


def test_depths_are_distinct_unless_told_otherwise(splits, mined):
    """And nothing but that: the same queries otherwise, with as many targets less as are given instead."""
    anyhow = mine_split(splits, "train", dataclasses.replace(SMALL, depths="any"))
    distinct = mined["train"]
    given = anyhow.nodes != distinct.nodes
    assert given.any() and np.array_equal(anyhow.gold, distinct.gold) and np.array_equal(anyhow.edges, distinct.edges)
    assert np.array_equal(distinct.nodes[given], distinct.gold[given])
    assert not any(tokens(query).twins for query in distinct) and any(tokens(query).twins for query in anyhow)


def test_recipe_paths_and_its_third_filter(splits):
    paths = mine(splits, dataclasses.replace(SMALL, recipe="paths"))
    for queries in paths.queries.values():
        assert (queries.kinds == KINDS.index("path")).all()
        assert set(queries.filters) == {"split", "complete", "reach"}
        for whole, prefix in zip(queries.filters["complete"], queries.filters["reach"], strict=True):
            assert set(whole.tolist()) <= set(prefix.tolist())


def test_both_recipes_share_their_walks(splits, mined):
    paths = mine_split(splits, "train", dataclasses.replace(SMALL, recipe="paths"))
    assert np.array_equal(query_signatures(paths), query_signatures(mined["train"])[:60])


def test_same_seed_same_set_and_splits_do_not_disturb_each_other(splits, mined):
    again = mine(splits, SMALL)
    for split, queries in mined.queries.items():
        for name in ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds"):
            assert np.array_equal(getattr(queries, name), getattr(again[split], name))
        for graph in queries.filters:
            assert np.array_equal(queries.filters[graph].values, again[split].filters[graph].values)
    fewer = mine_split(splits, "valid", dataclasses.replace(SMALL, paths=5, dags=2))
    assert np.array_equal(query_signatures(fewer), query_signatures(mined["valid"]))
    other = mine_split(splits, "valid", dataclasses.replace(SMALL, seed=1))
    assert not np.array_equal(query_signatures(other), query_signatures(mined["valid"]))


def test_training_filters_can_be_left_out(splits):
    plain = mine(splits, dataclasses.replace(SMALL, train_filters=False))
    assert not plain["train"].filters and set(plain["valid"].filters) == {"split", "complete"}


def test_a_graph_with_training_triples_alone(splits):
    alone = mine(splits_of(splits.train, entities=60), SMALL)
    assert list(alone.queries) == ["train"]
    with pytest.raises(InvalidOption, match="It has train"):
        alone["valid"]


def test_a_graph_without_walks_is_refused():
    with pytest.raises(EmptyResult, match="1 training triples"):
        mine(splits_of([(0, 0, 1)]), SMALL)


@pytest.mark.parametrize("dags", [0, 50])
def test_no_paths_leave_nothing_to_mine(splits, dags):
    with pytest.raises(EmptyResult, match="nothing to mine") as refused:
        mine(splits, MineConfig(paths=0, dags=dags))
    assert "--paths" in refused.value.hint


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("recipe", "dag"),
        ("depths", "same"),
        ("seed", -1),
        ("paths", -1),
        ("dags", -5),
        ("eval_paths", -1),
        ("eval_dags", -1),
        ("shortest", 1),
        ("longest", 17),
        ("longest", 1),
        ("three_share", 1.1),
        ("train_passes", 0),
        ("eval_passes", 0),
    ],
)
def test_bad_options_are_refused_with_their_value(option, value):
    with pytest.raises(InvalidOption) as refusal:
        MineConfig(**{option: value})
    assert str(value) in refusal.value.message


def test_a_number_of_threads_is_refused_before_anything_is_walked(splits):
    steps: list[str] = []
    with pytest.raises(InvalidOption, match="threads must be 1 or more. Got 0"):
        mine(splits, SMALL, threads=0, on_step=steps.append)
    assert steps == []


def test_unknown_options_are_refused():
    assert MineConfig.from_dict(SMALL.to_dict()) == SMALL
    with pytest.raises(InvalidOption, match="walks"):
        MineConfig.from_dict({"walks": 3})


@pytest.mark.data
def test_wn18rr_gives_as_many_dags_as_the_paper_reports(benchmark_data):
    """Paper, table "Dataset Statistics": 112 and 95 DAGs with 5.13 and 4.91 masks from WN18RR's dev and test."""
    graph = read_graph([benchmark_data("WN18RR")]).splits
    for split, dags, masks in (("valid", 112, 5.13), ("test", 95, 4.91)):
        found = split_statistics(mine_split(graph, split, MineConfig(depths="any")), graph.vocabulary)
        assert abs(found.dags - dags) < 20 and abs(found.average_masks - masks) < 0.4


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
