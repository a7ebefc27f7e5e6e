"""CQD against brute force over all assignments, at toy size."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links import beam, max_product
from biqe.links.truth import RULES
from biqe.models.cqd import CQD, Config
from biqe.query.bound import HIDDEN as H
from biqe.query.bound import TARGET as T
from biqe.query.bound import AnswerSets, BoundQuery, QuerySet
from biqe.query.dag import orient
from biqe.training.config import TrainConfig

ENTITIES, RELATIONS = 7, 3
EVERYTHING = ENTITIES**3
SHAPES = {
    "1p": BoundQuery((3, T), ((0, 1, 1),), (1,)),
    "2p": BoundQuery((3, H, T), ((0, 1, 1), (1, 2, 2)), (2,)),
    "3p": BoundQuery((3, H, H, T), ((0, 1, 1), (1, 2, 2), (2, 0, 3)), (3,)),
    "2i": BoundQuery((3, 5, T), ((0, 1, 2), (1, 2, 2)), (2,)),
    "3i": BoundQuery((3, 5, 1, T), ((0, 1, 3), (1, 2, 3), (2, 0, 3)), (3,)),
    "ip": BoundQuery((3, 5, H, T), ((0, 1, 2), (1, 2, 2), (2, 4, 3)), (3,)),
    "pi": BoundQuery((3, H, T, 5), ((0, 1, 1), (1, 2, 2), (3, 0, 2)), (2,)),
    "path of targets": BoundQuery((3, T, H, T), ((0, 1, 1), (1, 2, 2), (2, 0, 3)), (1, 3)),
    "two targets": BoundQuery((3, T, 5, T), ((0, 1, 1), (1, 2, 3), (2, 0, 3)), (1, 3)),
    "branches": BoundQuery((3, T, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3)), (1, 2, 3)),
    "hidden branch": BoundQuery((3, H, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3)), (2, 3)),
    "intersection of paths": BoundQuery((3, T, 5, T, T), ((0, 1, 1), (2, 0, 3), (1, 2, 4), (3, 1, 4)), (1, 3, 4)),
    "two edges": BoundQuery((3, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 2)), (1, 2)),
    "backwards": BoundQuery((T, H, 3), ((0, 1, 1), (1, 0, 2)), (0,)),
    "ring": BoundQuery((3, H, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3), (2, 1, 3)), (2, 3)),
    "ring of targets": BoundQuery((3, T, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3), (2, 1, 3)), (1, 2, 3)),
    "cycle": BoundQuery((3, T, T), ((0, 1, 1), (1, 2, 2), (2, 1, 1)), (1, 2)),
    "constants joined": BoundQuery((3, 5, T), ((0, 1, 1), (1, 2, 2)), (2,)),
}


def make(seed=0, entities=ENTITIES, **options):
    torch.manual_seed(seed)
    return CQD(Config(**{"rank": 4, "beam": EVERYTHING, "spread": 0.8, **options}), entities, RELATIONS).eval()


def graph_of(triples, entities=ENTITIES):
    names = [f"e{i}" for i in range(entities)]
    return Graph(Vocabulary(names, [f"r{i}" for i in range(RELATIONS)]), as_triples(triples))


def truths(model, known=(), counts=None):
    """(2R, E, E) logarithms of truths of all links, in numpy alone."""

    def complex_rows(rows):
        rows = rows.detach().double().numpy()
        return rows[:, : model.config.rank] + 1j * rows[:, model.config.rank :]

    entities, relations = complex_rows(model.links.entities), complex_rows(model.links.relations)
    scores = np.einsum("hk,rk,tk->rht", entities, relations, entities.conj()).real
    p = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    n = np.ones(scores.shape[:2]) if counts is None else np.maximum(counts, 1)
    low, high = scores.min(2, keepdims=True), scores.max(2, keepdims=True)
    found = {
        "softmax": p,
        "peak": p / p.max(2, keepdims=True),
        "counted": n[..., None] * p / (1 + n[..., None] * p),
        "sigmoid": 1 / (1 + np.exp(-scores)),
        "minmax": np.maximum((scores - low) / (high - low), np.finfo(np.float32).tiny),
        "raw": np.log1p(np.exp(scores)),
    }[model.config.link]
    found = np.log(found)
    for head, relation, tail in known:
        found[relation, head, tail] = found[relation + RELATIONS, tail, head] = 0.0
    return found


def brute_force(query, links, t_norm):
    """{assignment of the targets: truth of the best assignment of the hidden variables}."""
    query = orient(query, RELATIONS)
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    best_of = {}
    for values in itertools.product(range(ENTITIES), repeat=len(variables)):
        at = {**dict(enumerate(query.nodes)), **dict(zip(variables, values, strict=True))}
        each = [links[r, at[s], at[o]] for s, r, o in query.edges if query.nodes[s] < 0 or query.nodes[o] < 0]
        truth = sum(each) if t_norm == "product" else min(each)
        asked = tuple(at[node] for node in variables if query.nodes[node] == T)
        best_of[asked] = max(truth, best_of.get(asked, -np.inf))
    return best_of


def marginals(best_of, targets):
    found = np.full((targets, ENTITIES), -np.inf)
    for values, truth in best_of.items():
        for target, entity in enumerate(values):
            found[target, entity] = max(truth, found[target, entity])
    return found


def scores(model, *queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(queries))).numpy()


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_wide_beam_is_brute_force(shape, t_norm):
    query = SHAPES[shape]
    # A tree needs no more than all entities of each variable; a ring needs all assignments of its variables.
    tree = model_structure(query).is_forest
    model = make(t_norm=t_norm, beam=ENTITIES if tree else EVERYTHING)
    expected = marginals(brute_force(query, truths(model), t_norm), len(query.targets))
    np.testing.assert_allclose(scores(model, query), expected, rtol=1e-4, atol=1e-4)


def model_structure(query):
    return make().encoder(QuerySet.of([query])).groups[0].structure


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
def test_variables_that_only_a_constant_joins_are_separate_questions(t_norm):
    model = make(t_norm=t_norm)
    both = BoundQuery((3, T, T), ((0, 1, 1), (0, 2, 2)), (1, 2))
    alone = [BoundQuery((3, T), ((0, relation, 1),), (1,)) for relation in (1, 2)]
    np.testing.assert_allclose(scores(model, both), scores(model, *alone), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tuples_are_those_of_brute_force(shape, t_norm):
    query = SHAPES[shape]
    model = make(seed=1, t_norm=t_norm)
    expected = brute_force(query, truths(model), t_norm)
    (found,) = model.tuples(QuerySet.of([query]), 10)
    assert len(found.rows) == len(found.scores) == min(10, len(expected))
    assert len({tuple(row) for row in found.rows.tolist()}) == len(found.rows)
    np.testing.assert_allclose(found.scores, sorted(expected.values(), reverse=True)[:10], rtol=1e-4, atol=1e-4)
    own = [expected[tuple(row)] for row in found.rows.tolist()]
    np.testing.assert_allclose(found.scores, own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("link", RULES)
def test_truths_of_links_by_every_rule(link):
    model = make(seed=2, link=link)
    known = [(3, 1, 0), (3, 1, 2), (5, 2, 2)]
    model.use_graph(graph_of(known))
    counts = np.zeros((2 * RELATIONS, ENTITIES))
    for head, relation, tail in known:
        counts[relation, head] += 1
        counts[relation + RELATIONS, tail] += 1
    expected = truths(model, counts=counts)
    single = [BoundQuery((h, T), ((0, r, 1),), (1,)) for r in range(2 * RELATIONS) for h in range(ENTITIES)]
    np.testing.assert_allclose(scores(model, *single), expected.reshape(-1, ENTITIES), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("link", RULES)
def test_every_rule_solves_paths_as_brute_force_does(link, t_norm):
    model = make(seed=8, link=link, t_norm=t_norm)
    for shape in ("3p", "ring"):
        expected = marginals(brute_force(SHAPES[shape], truths(model), t_norm), len(SHAPES[shape].targets))
        np.testing.assert_allclose(scores(model, SHAPES[shape]), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("link", ["softmax", "counted"])
def test_known_links_are_sure(link, t_norm):
    known = [(3, 1, 0), (0, 2, 6), (5, 0, 6)]
    model = make(link=link, known="one", t_norm=t_norm)
    model.use_graph(graph_of(known))
    found = scores(model, SHAPES["1p"], SHAPES["2p"], SHAPES["pi"])
    assert found[0, 0] == found[1, 6] == found[2, 6] == 0.0
    assert (found < 0).sum() == found.size - 3
    counts = np.zeros((2 * RELATIONS, ENTITIES))
    for head, relation, tail in known:
        counts[relation, head] += 1
        counts[relation + RELATIONS, tail] += 1
    links = truths(model, known, counts)
    for row, shape in enumerate(("1p", "2p", "pi")):
        expected = marginals(brute_force(SHAPES[shape], links, t_norm), 1)[0]
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-4)


def test_without_a_graph_nothing_is_known():
    np.testing.assert_array_equal(scores(make(known="one"), SHAPES["2p"]), scores(make(), SHAPES["2p"]))
    model = make(known="one")
    model.use_graph(graph_of([]))
    np.testing.assert_array_equal(scores(model, SHAPES["2p"]), scores(make(), SHAPES["2p"]))


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
def test_batched_is_one_by_one(monkeypatch, t_norm):
    model = make(seed=4, t_norm=t_norm, beam=3)
    rng = np.random.default_rng(0)
    queries = []
    for query in list(SHAPES.values()) * 2:
        nodes = tuple(int(rng.integers(ENTITIES)) if value >= 0 else value for value in query.nodes)
        edges = tuple((s, int(rng.integers(2 * RELATIONS)), o) for s, _, o in query.edges)
        queries.append(BoundQuery(nodes, edges, query.targets))
    queries = [queries[i] for i in rng.permutation(len(queries))]
    together = scores(model, *queries)
    alone = np.concatenate([scores(model, query) for query in queries])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(max_product, "CHUNK_BYTES", 1)
    monkeypatch.setattr(beam, "CHUNK_BYTES", 1)
    np.testing.assert_allclose(scores(model, *queries), together, rtol=1e-4, atol=1e-5)
    joint = model.tuples(QuerySet.of(queries), 4)
    for query, found in zip(queries, joint, strict=True):
        (expected,) = model.tuples(QuerySet.of([query]), 4)
        np.testing.assert_array_equal(found.rows, expected.rows)


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_narrow_beam_ranks_all_and_never_overrates(shape, t_norm):
    query = SHAPES[shape]
    model = make(seed=5, t_norm=t_norm, beam=2)
    found = scores(model, query)
    assert found.shape == (len(query.targets), ENTITIES) and np.isfinite(found).all()
    exact = marginals(brute_force(query, truths(model), t_norm), len(query.targets))
    assert (found.max(1) <= exact.max(1) + 1e-4).all()


def with_gold(queries, seed=0):
    drawn = np.random.default_rng(seed).integers(0, ENTITIES, len(queries.nodes))
    return replace(queries, gold=np.where(queries.nodes < 0, drawn, queries.nodes).astype(np.int32))


def test_learns_from_links_in_either_direction():
    forward = BoundQuery((3, T), ((0, 1, 1),), (1,))
    written_backwards = BoundQuery((T, 3), ((0, 1, 1),), (0,))
    model = make(n3=0.1, relation_weight=0.5)
    loss = model.loss(model.encoder(with_gold(QuerySet.of([forward] * 4))))
    gold = torch.from_numpy(np.random.default_rng(0).integers(0, ENTITIES, 8)[1::2])
    heads, relations = torch.full((4,), 3), torch.full((4,), 1)
    one_each = torch.arange(5)
    expected = model.links.loss(heads, relations, one_each, gold, n3=0.1, relation_weight=0.5)
    torch.testing.assert_close(loss, expected)
    (group,) = model.encoder(QuerySet.of([written_backwards])).groups
    assert group.relations.tolist() == [[1 + RELATIONS]] and group.structure.links[0].start == 1


def test_all_answers_of_a_link_are_learnt_at_once():
    queries = with_gold(QuerySet.of([SHAPES["1p"]] * 3))
    answers = AnswerSets(np.array([0, 2, 3, 6]), np.array([1, 4, 2, 0, 3, 5], np.int32))
    model = make(n3=0.0, relation_weight=0.0)
    loss = model.loss(model.encoder(queries.with_filters(train=answers)))
    logs = torch.log_softmax(model.links.scores(torch.tensor([3]), torch.tensor([1])), 1)[0]
    expected = -logs[[1, 4, 2, 0, 3, 5]].mean()  # every link counts once
    torch.testing.assert_close(loss, expected)


def test_refuses_to_learn_from_longer_queries():
    model = make()
    for queries in ([SHAPES["2p"]], [SHAPES["1p"], SHAPES["2i"]], [SHAPES["constants joined"]]):
        with pytest.raises(UnsupportedQuery, match="triples alone"):
            model.loss(model.encoder(with_gold(QuerySet.of(queries))))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (BoundQuery((T, T), ((0, 1, 1),), (0, 1)), "constants"),
        (BoundQuery((3, T, T), ((0, 1, 1), (2, 0, 2)), (1, 2)), "itself"),
        (BoundQuery((3, T, 4, T), ((0, 1, 1), (2, 0, 3)), (1, 3)), "separate"),
        (BoundQuery((3, H), ((0, 1, 1),), ()), "asks for none"),
    ],
)
def test_refuses_with_a_reason(query, reason):
    model = make()
    answer = model.supports(query)
    assert not answer and reason in answer.reason and answer.hint
    with pytest.raises(UnsupportedQuery, match=reason):
        model.encode(QuerySet.of([query]))


def test_refuses_ids_and_graphs_of_others():
    model = make()
    with pytest.raises(VocabularyMismatch, match="entity"):
        model.encode(QuerySet.of([BoundQuery((ENTITIES, T), ((0, 0, 1),), (1,))]))
    with pytest.raises(VocabularyMismatch, match="relation"):
        model.encode(QuerySet.of([BoundQuery((0, T), ((0, 2 * RELATIONS, 1),), (1,))]))
    with pytest.raises(VocabularyMismatch, match="8 and 3"):
        model.use_graph(graph_of([], entities=8))


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 0},
        {"beam": 0},
        {"n3": -1},
        {"n3": float("nan")},
        {"spread": 0},
        {"t_norm": "min"},
        {"link": "tanh"},
        {"known": "yes"},
        {"link": "raw", "known": "one"},
    ],
)
def test_refuses_options(options):
    with pytest.raises(InvalidOption):
        Config(**options)


def test_solves_otherwise_with_the_same_weights():
    model = make(t_norm="product")
    model.use_graph(graph_of([(3, 1, 0)]))
    other = model.solving(t_norm="minimum", known="one")
    assert other.links is model.links and model.config.t_norm == "product"
    assert scores(other, SHAPES["1p"])[0, 0] == 0.0 > scores(model, SHAPES["1p"])[0, 0]
    with pytest.raises(InvalidOption, match="rank"):
        model.solving(rank=9)
    with pytest.raises(InvalidOption, match="tuples"):
        model.tuples(QuerySet.of([SHAPES["1p"]]), 0)


def test_training_defaults_are_options_of_training():
    assert TrainConfig(epochs=1, **CQD.train_defaults).optimizer == "adagrad"
