"""CQD against brute force over all assignments, at toy size."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models._complex import cubes
from biqe.models._cqd import beam, max_product
from biqe.models._cqd.continuous import _Vectors, climb_links
from biqe.models._cqd.links import KINDS, truth_of
from biqe.models._cqd.max_product import after_the_best, best
from biqe.models.cqd import CQD, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.orient import orient
from biqe.query.queryset import AnswerSets, QuerySet
from biqe.train.config import TrainConfig

ENTITIES, RELATIONS = 7, 3
EVERYTHING = ENTITIES**3
T, H = TARGET, HIDDEN
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

    entities, relations = complex_rows(model.predictor.entities), complex_rows(model.predictor.relations)
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
        asked = tuple(at[node] for node in variables if query.nodes[node] == TARGET)
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


def test_which_structures_are_trees():
    rings = {"ring", "ring of targets"}
    assert {name for name, query in SHAPES.items() if not model_structure(query).is_forest} == rings


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", ["2p", "pi", "two targets", "intersection of paths", "branches", "3i"])
def test_the_joint_beam_has_the_marginals_of_the_tree(shape, t_norm):
    model = make(seed=3, t_norm=t_norm)
    group = model.encoder(QuerySet.of([SHAPES[shape]])).groups[0]
    with torch.inference_mode():
        joint = beam.beam_marginals(group, model._links(), t_norm, EVERYTHING)
        tree = max_product.tree_marginals(group, model._links(), t_norm, ENTITIES)
    torch.testing.assert_close(joint, tree)


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


@pytest.mark.parametrize("link", KINDS)
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


@pytest.mark.parametrize("link", KINDS)
def test_truths_keep_the_order_of_scores_and_are_finite(link):
    scores_ = torch.tensor([[-300.0, -20.0, -1.0, 0.0, 2.0, 15.0], [4.0] * 6])
    truth = truth_of(scores_.clone(), link)
    assert torch.isfinite(truth).all() and (truth.diff(dim=1) >= 0).all()
    assert link == "raw" or (truth <= 0).all()


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("link", KINDS)
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


@pytest.mark.parametrize("decoding", ["beam", "continuous"])
@pytest.mark.parametrize("t_norm", ["product", "minimum"])
def test_batched_is_one_by_one(monkeypatch, t_norm, decoding):
    model = make(seed=4, t_norm=t_norm, beam=3, decoding=decoding, steps=2)
    rng = np.random.default_rng(0)
    queries = []
    for query in list(SHAPES.values()) * (2 if decoding == "beam" else 1):
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
    if decoding == "beam":
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


def test_entities_that_were_not_kept_come_last_in_their_own_order():
    order = torch.tensor([[5.0, 1.0, 4.0, 3.0, 2.0]])
    ranked = after_the_best(order, torch.tensor([[2, 4, 2]]), torch.tensor([[-9.0, -7.0, -8.0]]))
    assert ranked.argsort(descending=True).tolist() == [[4, 2, 0, 3, 1]]
    assert ranked[0, [4, 2]].tolist() == [-7.0, -8.0] and torch.isfinite(ranked).all()
    ranked = after_the_best(order, torch.tensor([[2, 4]]), torch.tensor([[-9.0, float("-inf")]]))
    assert ranked.argsort(descending=True).tolist() == [[2, 0, 3, 4, 1]]


@given(st.integers(1, 700), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_best_of_a_row_are_its_best(columns, count, rows, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    found, where = best(values, count)
    expected = values.sort(1, descending=True).values[:, :count]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(values.gather(1, where), expected, rtol=0, atol=0)


def test_the_best_of_a_long_row_with_equals():
    values = torch.zeros(2, 5000)
    values[1, 4321] = 1.0
    found, where = best(values, 3)
    assert found.tolist() == [[0.0] * 3, [1.0, 0.0, 0.0]]
    assert where[1, 0] == 4321 and all(len(set(row)) == 3 and max(row) < 5000 for row in where.tolist())


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", ["2p", "3p", "pi", "two targets", "ring"])
def test_continuous_decoding_ends_no_lower_than_it_starts(shape, t_norm):
    model = make(seed=6)
    group = model.encoder(QuerySet.of([SHAPES[shape]] * 3)).groups[0]
    with torch.inference_mode():
        climb = climb_links(group, model.predictor, t_norm, steps=30, rate=0.05, n3=0.01)
    assert (climb.end >= climb.start).all() and (climb.end > climb.start).any()
    # What is returned is the point that has this value.
    value = _Vectors(group, model.predictor, t_norm).truth(climb.variables) - 0.01 * cubes(climb.variables).sum(1)
    torch.testing.assert_close(value, climb.end)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_continuous_decoding_of_links_without_hidden_variables_ranks_by_their_sigmoids():
    model = make(seed=7, decoding="continuous", link="sigmoid", steps=3)
    for shape in ("1p", "2i", "3i"):
        np.testing.assert_allclose(
            scores(model, SHAPES[shape]), scores(model.solving(decoding="beam"), SHAPES[shape]), rtol=1e-4, atol=1e-5
        )


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
    expected = model.predictor.loss(heads, relations, one_each, gold, n3=0.1, relation_weight=0.5)
    torch.testing.assert_close(loss, expected)
    (group,) = model.encoder(QuerySet.of([written_backwards])).groups
    assert group.relations.tolist() == [[1 + RELATIONS]] and group.structure.links[0].start == 1


def test_all_answers_of_a_link_are_learnt_at_once():
    queries = with_gold(QuerySet.of([SHAPES["1p"]] * 3))
    answers = AnswerSets(np.array([0, 2, 3, 6]), np.array([1, 4, 2, 0, 3, 5], np.int32))
    model = make(n3=0.0, relation_weight=0.0)
    loss = model.loss(model.encoder(queries.with_filters(train=answers)))
    logs = torch.log_softmax(model.predictor.scores(torch.tensor([3]), torch.tensor([1])), 1)[0]
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
        {"decoding": "greedy"},
        {"decoding": "continuous", "known": "one"},
        {"steps": 0},
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
    assert other.predictor is model.predictor and model.config.t_norm == "product"
    assert scores(other, SHAPES["1p"])[0, 0] == 0.0 > scores(model, SHAPES["1p"])[0, 0]
    with pytest.raises(InvalidOption, match="rank"):
        model.solving(rank=9)
    with pytest.raises(InvalidOption, match="tuples"):
        model.tuples(QuerySet.of([SHAPES["1p"]]), 0)


def test_training_defaults_are_options_of_training():
    assert TrainConfig(epochs=1, **CQD.train_defaults).optimizer == "adagrad"


@given(st.integers(0, 200), st.integers(1, 3), st.integers(1, 40))
def test_repeated_states_are_those_that_equal_an_earlier_one(seed, columns, states):
    drawn = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, (2, states, columns)))
    expected = [[row in rows[:place] for place, row in enumerate(rows)] for rows in drawn.tolist()]
    assert beam._repeated(drawn).tolist() == expected


def test_many_tuples_over_a_hidden_variable_take_no_table_of_all_pairs():
    """25,600 states are looked at; a truth value for each pair of them would be 655 MB."""
    torch.manual_seed(0)
    model = CQD(Config(rank=2, beam=4), 400, 2).eval()
    query = BoundQuery((3, T, HIDDEN, T), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3))
    (found,) = model.tuples(QuerySet.of([query]), 2**15, None, 64)
    assert len(found.rows) >= 400 and len(np.unique(found.rows, axis=0)) == len(found.rows)
