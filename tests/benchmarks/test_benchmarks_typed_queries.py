"""Questions of GQE's types on a small typed graph, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from biqe.benchmarks.typed_queries import TYPES, TypedConfig, training_questions, typed_questions
from biqe.errors import EmptyResult, InvalidOption
from biqe.exact.answers import answers
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.split import split
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.shapes import shape_of

GENES, DISEASES, SIGNS = range(0, 15), range(15, 35), range(35, 60)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("biqe.benchmarks.typed_queries._CHUNK", 512)


@pytest.fixture(scope="module")
def types() -> np.ndarray:
    return np.repeat(np.arange(3), [15, 20, 25]).astype(np.int8)


@pytest.fixture(scope="module")
def splits() -> Splits:
    rng = np.random.default_rng(0)
    rows = [(rng.choice(GENES), 0, rng.choice(DISEASES)) for _ in range(60)]
    rows += [(rng.choice(DISEASES), 1, rng.choice(SIGNS)) for _ in range(90)]
    rows += [(sign, 2, rng.choice(SIGNS)) for sign in SIGNS]
    graph = Graph(Vocabulary([f"e{entity}" for entity in range(60)], ["causes", "presents", "is_a"]), as_triples(rows))
    return split(graph, 0.15, 0.15, seed=1)


CONFIG = TypedConfig(train=60, valid=25, test=25, negatives=6)


def union_graph(splits: Splits, *parts: str) -> Graph:
    return Graph(splits.vocabulary, as_triples(np.concatenate([getattr(splits, part) for part in parts])))


@pytest.mark.parametrize("which", ["valid", "test"])
def test_every_set_is_what_plain_asking_gives(which, splits, types):
    questions = typed_questions(splits, types, which, CONFIG)
    assert questions.shapes == tuple(TYPES)
    before = union_graph(splits, "train") if which == "valid" else union_graph(splits, "train", "valid")
    upto = union_graph(splits, "train", "valid") if which == "valid" else splits["complete"]
    for place, query in enumerate(questions.rows):
        kind = questions.shapes[questions.shape[place]]
        gold = int(questions.rows.gold[questions.rows.target_nodes[place]])
        known, true = set(answers(before, query)[0].tolist()), set(answers(upto, query)[0].tolist())
        complete = set(answers(splits["complete"], query)[0].tolist())
        assert shape_of(query) == TYPES[kind]
        assert gold not in query.nodes and gold in true - known
        assert set(questions.answers[place].tolist()) == true
        assert set(questions.hard[place].tolist()) == true - known
        alike = {entity for entity in range(60) if types[entity] == types[gold]}
        negatives = questions.negatives[place].tolist()
        assert set(negatives) <= alike - complete
        assert len(negatives) == len(set(negatives)) == min(6, len(alike - complete))
        hard = questions.hard_negatives[place].tolist()
        part_way = partial(splits["complete"], query, TYPES[kind]) & alike - complete
        assert set(hard) <= part_way and len(hard) == len(set(hard)) == min(6, len(part_way))
        assert (len(hard) > 0) == ("inter" in kind)


def partial(graph: Graph, query, shape: str) -> set[int]:
    """Entities that fulfil the question with one of the edges into its intersection left out."""
    meeting = {"2i": 2, "3i": 3, "pi": 3, "ip": 2}.get(shape)
    if meeting is None:
        return set()
    found: set[int] = set()
    branches = [edge for edge in query.edges if edge[2] == meeting]
    for kept in branches:
        edges = tuple(edge for edge in query.edges if edge not in branches or edge == kept)
        used = {node for subject, _, object_ in edges for node in (subject, object_)}
        # Parts that no edge leads to any more would ask for anything at all.
        edges = tuple(edge for edge in edges if reaches(edges, edge[0], query.targets[0]))
        nodes = tuple(value if node in used or value >= 0 else 0 for node, value in enumerate(query.nodes))
        found |= set(answers(graph, replace(query, nodes=nodes, edges=edges))[0].tolist())
    return found


def reaches(edges, start: int, end: int) -> bool:
    return start == end or any(reaches(edges, edge[2], end) for edge in edges if edge[0] == start)


def test_questions_are_asked_once_and_by_the_seed(splits, types):
    questions = typed_questions(splits, types, "test", CONFIG)
    for kind in questions.shapes:
        rows = questions.of_shape(kind).rows
        asked = [(query.nodes, query.edges) for query in rows]
        assert len(set(asked)) == len(asked) > 5
    again, other = (typed_questions(splits, types, "test", replace(CONFIG, seed=seed)) for seed in (0, 1))
    for kind in ("answers", "hard", "negatives", "hard_negatives"):
        np.testing.assert_array_equal(getattr(questions, kind).values, getattr(again, kind).values)
    assert not np.array_equal(questions.rows.nodes, other.rows.nodes)


def test_training_questions_are_answered_by_training_triples(splits):
    questions = training_questions(splits, CONFIG)
    assert questions.shapes == tuple(TYPES) and questions.answers is None
    single = questions.of_shape("1-chain")
    pairs = {(int(h), int(r)) for h, r, _ in splits.train} | {(int(t), int(r) + 3) for _, r, t in splits.train}
    assert {(query.nodes[0], query.edges[0][1]) for query in single.rows} == pairs and len(single) == len(pairs)
    for kind in list(TYPES)[1:]:
        some = questions.of_shape(kind)
        assert len(some) == CONFIG.train
        for place, query in enumerate(some.rows):
            assert some.rows.gold[some.rows.target_nodes[place]] in answers(splits["train"], query)[0]


def test_a_graph_without_such_questions_gives_what_it_has(types):
    names = Vocabulary("abcd", "r")
    small = Splits(names, as_triples([(0, 0, 1), (2, 0, 1), (3, 0, 1)]), as_triples([(0, 0, 3)]))
    found = typed_questions(small, np.zeros(4, np.int8), "valid", TypedConfig(valid=50, negatives=3))
    single = found.of_shape("1-chain")
    assert sorted((query.nodes[0], query.edges[0][1]) for query in single.rows) == [(0, 0), (3, 1)]
    with pytest.raises(EmptyResult, match="no question"):
        typed_questions(small, np.zeros(4, np.int8), "test", TypedConfig(test=5))
    with pytest.raises(EmptyResult):
        training_questions(Splits(names, as_triples([])))


def test_options_are_checked(splits, types):
    with pytest.raises(InvalidOption, match="one for each of 60 entities"):
        typed_questions(splits, types[:5], "valid")
    with pytest.raises(InvalidOption, match="split must be"):
        typed_questions(splits, types, "train")
    for options in ({"negatives": 0}, {"train": -1}, {"seed": -1}):
        with pytest.raises(InvalidOption):
            TypedConfig(**options)
