"""Whole datasets: recipes, filters, the statistics table, leakage."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import Splits
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples, contains
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig, MinedSet, mine, mine_split
from biqe.mine.filters import check_gold, holds, reach_sets, with_filters
from biqe.mine.leakage import gold_edges, leakage, query_signatures, refuse_leakage
from biqe.mine.online import epoch_queries
from biqe.mine.statistics import branch_lengths, split_statistics, statistics_rows
from biqe.query.bound import TARGET
from biqe.query.queryset import KINDS, AnswerSets, QuerySet, concatenate
from biqe.query.token_table import MASK, token_table

SMALL = MineConfig(paths=60, dags=40, eval_paths=40, eval_dags=30)


def splits_of(train, valid=(), test=(), entities=10, relations=3) -> Splits:
    vocabulary = Vocabulary([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    return Splits(vocabulary, *(as_triples(list(part)) for part in (train, valid, test)))


def random_splits(seed: int, entities=12, relations=3, train=18, held_out=12) -> Splits:
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, [entities, relations, entities], (train + 2 * held_out, 3)), axis=0)
    rows = rng.permutation(rows)
    return splits_of(
        rows[2 * held_out :], rows[:held_out], rows[held_out : 2 * held_out], entities=entities, relations=relations
    )


@pytest.fixture(scope="module")
def splits() -> Splits:
    return random_splits(4, entities=60, train=400, held_out=150)


@pytest.fixture(scope="module")
def mined(splits) -> MinedSet:
    return mine(splits, SMALL)


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


def test_statistics_by_hand():
    # 0 -> 2 <- 1, 2 -> 3 -> 4: walks 0,1 -> 2 -> 3 and on to 4; DAGs at 2 and at 3.
    graph = splits_of([(0, 0, 2), (1, 1, 2), (2, 0, 3), (3, 0, 4)], entities=5, relations=2)
    queries = mine_split(graph, "train", MineConfig(paths=100, dags=100))
    found = split_statistics(queries, triples=4)
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
    assert found.branches == {"2": 4, "3": 1}
    assert found.branch_lengths == {"1": 5, "2": 6}
    assert statistics_rows({"train": found})[:3] == [("Triples", [4]), ("Paths", [5]), ("DAGs", [5])]


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_masks_and_lengths_are_those_of_the_tokens_that_a_model_reads(seed):
    graph = random_splits(seed)["train"]
    queries = epoch_queries(graph, paths=20, dags=20, seed=seed, epoch=0)
    table = token_table(queries, graph.entity_count)
    found = split_statistics(queries)
    assert found.average_masks * len(queries) == pytest.approx((table.tokens == MASK).sum())
    assert found.average_length * len(queries) == pytest.approx(len(table.tokens))
    assert found.average_targets * len(queries) == pytest.approx((queries.nodes == TARGET).sum())
    edges = np.diff(queries.edge_offsets)[queries.kinds == KINDS.index("dag")]
    assert branch_lengths(queries).sum() == (edges - 1).sum()


def test_statistics_of_nothing():
    empty = mine_split(splits_of([(0, 0, 1)]), "train", SMALL)
    found = split_statistics(empty)
    assert (found.paths, found.dags, found.average_masks) == (0, 0, 0.0)


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


@pytest.mark.data
def test_wn18rr_gives_as_many_dags_as_the_paper_reports(benchmark_data):
    """Paper, table "Dataset Statistics": 112 and 95 DAGs with 5.13 and 4.91 masks from WN18RR's dev and test."""
    graph = read_graph([benchmark_data("WN18RR")]).splits
    for split, dags, masks in (("valid", 112, 5.13), ("test", 95, 4.91)):
        found = split_statistics(mine_split(graph, split, MineConfig()))
        assert abs(found.dags - dags) < 20 and abs(found.average_masks - masks) < 0.4
