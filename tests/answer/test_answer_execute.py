"""Merging: known rows first and complete, no row twice, missing links right, all against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.exact.answers import tuples
from biqe.predict.config import AskConfig
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

ENTITIES, RELATIONS = 4, 2

triples = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=14
)


@st.composite
def queries(draw, hidden: bool = True):
    """Connected queries of up to four edges over one or two constants, targets and hidden variables."""
    values = [draw(st.integers(0, ENTITIES - 1)), TARGET]
    values += draw(st.lists(st.sampled_from([0, 1, TARGET, HIDDEN] if hidden else [0, 1, TARGET]), max_size=2))
    edges = []
    for node in range(1, len(values)):
        other = draw(st.integers(0, node - 1))
        pair = (node, other) if draw(st.booleans()) else (other, node)
        edges.append((pair[0], draw(st.integers(0, RELATIONS - 1)), pair[1]))
    if draw(st.booleans()):
        ends = st.integers(0, len(values) - 1)
        edges.append((draw(ends), draw(st.integers(0, RELATIONS - 1)), draw(ends)))
    targets = [node for node, value in enumerate(values) if value == TARGET]
    return BoundQuery(
        tuple(values),
        tuple(edges),
        tuple(draw(st.permutations(targets))),
        tuple("" if value >= 0 else f"v{node}" for node, value in enumerate(values)),
        draw(st.none() | st.integers(0, 12)),
    )


@given(triples, queries(), st.integers(0, 20), st.integers(0, 30), st.sampled_from(["beam", "product"]))
def test_merging(toy, stored, query, seed, top, joint):
    graph = toy.graph_of(stored, ENTITIES, RELATIONS)
    model = toy.random_model(seed, ENTITIES, RELATIONS)
    everything = sorted(map(tuple, tuples(graph, query).tolist()))
    answers = toy.ask(graph, query, model, top=top, joint=joint, width=64)
    rows = [row.ids for row in answers]
    assert len(set(rows)) == len(rows), "a row never comes twice"
    statuses = [row.status for row in answers]
    assert statuses == sorted(statuses), "known rows come first"
    known = [row.ids for row in answers if row.status == "known"]
    limit = query.limit
    if limit is None or limit >= len(everything):
        assert sorted(known) == everything, "known rows are complete"
        assert answers.known_complete
    else:
        assert len(known) == limit
        assert set(known) <= set(everything)
        assert not answers.known_complete
    room = ENTITIES ** len(query.targets) - len(everything)
    wanted = min(top, room) if limit is None else min(top, room, max(0, limit - len(known)))
    predicted = answers[len(known) :]
    assert len(predicted) == wanted
    assert all(row.status == "predicted" and row.ids not in everything for row in predicted)
    assert all(row.probability == 1.0 and row.missing == () for row in answers[: len(known)])
    chances = [row.probability for row in predicted]
    assert chances == sorted(chances, reverse=True)
    if joint == "beam":
        truth = model.every_tuple(query)
        np.testing.assert_allclose(chances, [truth[row.ids] for row in predicted], rtol=1e-3)


@given(triples, queries(), st.integers(0, 5))
def test_missing_links(toy, stored, query, seed):
    graph = toy.graph_of(stored, ENTITIES, RELATIONS)
    model = toy.random_model(seed, ENTITIES, RELATIONS)
    names = {name: number for number, name in enumerate(graph.vocabulary.entities)}
    answers = toy.ask(graph, query, model, top=12)
    for row in answers:
        ids = [
            [(names.get(link.subject), int(link.relation[1:]), names.get(link.object)) for link in links]
            for links in (row.held, row.missing)
        ]
        assert all(link in stored for link in ids[0]), "what is called held is in the graph"
        assert not any(link in stored for link in ids[1]), "what is called missing is not"
        nodes, held, missing = row.evidence.nodes, row.evidence.held, row.evidence.missing
        links = {(nodes[subject], relation, nodes[object_]) for subject, relation, object_ in query.edges}
        assert links == {*held, *missing}, "each pattern is one or the other"
        assert len({*held, *missing}) == len(held) + len(missing), "each link is listed once"
        for link, (subject, relation, object_) in zip(row.missing, ids[1], strict=True):
            share = model.weights[relation, subject, object_] / model.weights[relation, subject].sum()
            assert link.probability == pytest.approx(share, rel=1e-4)
        assert (row.status == "known") == (not row.missing)


@given(triples, queries())
def test_modes(toy, stored, query):
    graph = toy.graph_of(stored, ENTITIES, RELATIONS)
    model = toy.random_model(7, ENTITIES, RELATIONS)
    query = BoundQuery(query.nodes, query.edges, query.targets, query.names)
    both = toy.ask(graph, query, model)
    known = toy.ask(graph, query, None, mode="known")
    predicted = toy.ask(graph, query, model, mode="predicted")
    assert [row.ids for row in both] == [row.ids for row in known] + [row.ids for row in predicted]
    assert {row.status for row in known} <= {"known"}
    assert {row.status for row in predicted} <= {"predicted"}
    assert {variable: len(shares) for variable, shares in known.marginals.items()} == dict.fromkeys(known.variables, 0)


@given(triples, queries(), st.integers(0, 8))
def test_known_rows_beyond_the_cap_never_turn_into_predictions(toy, stored, query, cap):
    graph = toy.graph_of(stored, ENTITIES, RELATIONS)
    model = toy.random_model(3, ENTITIES, RELATIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("biqe.answer.execute.KNOWN_ROWS", cap)
        answers = toy.ask(graph, query, model, top=10)
    everything = set(map(tuple, tuples(graph, query).tolist()))
    assert answers.known_count <= cap
    assert answers.known_complete == (len(everything) <= min(cap, query.limit if query.limit is not None else cap))
    assert not {row.ids for row in answers if row.status == "predicted"} & everything


def test_min_probability(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, min_probability=0.1)
    everything = toy.ask(rivers.graph, rivers.query, rivers.model, top=49)
    assert [row.ids for row in answers if row.status == "predicted"] == [
        row.ids for row in everything if row.status == "predicted" and row.probability >= 0.1
    ]
    assert answers.predicted_count == 1


def test_the_paper_question_in_small(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    assert [str(row) for row in answers] == [
        "Elbe   Dresden        known",
        "Rhine  Cologne        known",
        "Rhine  Bonn am Rhein  predicted  0.27",
    ]
    bonn = answers[2]
    assert (bonn.river, bonn["?city"], bonn.status) == ("Rhine", "Bonn", "predicted")
    assert [str(link) for link in bonn.held] == ["Rhine flows_through Germany"]
    assert [str(link) for link in bonn.missing] == ["Bonn located_on Rhine"]
    assert bonn.missing[0].probability == pytest.approx(0.8 / 0.95)


def test_known_rows_are_alphabetical_by_label(toy):
    labels = {1: "ceres", 2: "Apollo", 3: "bacchus"}
    graph = toy.graph_of([(0, 0, 1), (0, 0, 2), (0, 0, 3)], ["a", "x", "y", "z"], ["r"], labels)
    answers = toy.ask(graph, BoundQuery((0, TARGET), ((0, 0, 1),), (1,), ("", "god")), None, mode="known")
    assert [row.labels["god"] for row in answers] == ["Apollo", "bacchus", "ceres"]


def test_the_likeliest_witness_is_shown(toy):
    # e0 -r0-> ?h -r1-> ?x; the graph holds two values of ?h, the model prefers the second.
    weights = np.full((2, 4, 4), 1.0)
    weights[1, 2, 3] = 50.0
    graph = toy.graph_of([(0, 0, 1), (0, 0, 2)], 4, 2)
    query = BoundQuery((0, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,), ("", "h", "x"))
    row = toy.ask(graph, query, toy.FactorModel(weights), top=1)[0]
    assert row.x == "e3"
    assert [str(link) for link in row.held] == ["e0 r0 e2"]
    assert [str(link) for link in row.missing] == ["e2 r1 e3"]


def test_a_hidden_variable_that_nothing_fills_is_what_the_model_finds_likely(toy):
    graph = toy.graph_of([(3, 0, 3)], 4, 2)
    query = BoundQuery((0, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,), ("", "h", "x"))
    model = toy.random_model(0, 4, 2)
    shares = model.weights / model.weights.sum(axis=2, keepdims=True)
    row = toy.ask(graph, query, model, top=1)[0]
    (best,) = row.ids
    h = int((shares[0, 0] * shares[1, :, best]).argmax())
    assert [str(link) for link in row.missing] == [f"e0 r0 e{h}", f"e{h} r1 {row.x}"]
    assert [link.probability for link in row.missing] == pytest.approx([shares[0, 0, h], shares[1, h, best]], rel=1e-4)


def test_a_leaf_that_nothing_fills_is_filled_by_the_model(toy):
    # ?x r0 e0 . ?x r1 ?h: some rows have an ?h in the graph, some have none.
    graph = toy.graph_of([(1, 1, 2), (3, 0, 0)], 5, 2)
    query = BoundQuery((TARGET, 0, HIDDEN), ((0, 0, 1), (0, 1, 2)), (0,), ("x", "", "h"))
    model = toy.random_model(4, 5, 2)
    answers = toy.ask(graph, query, model, top=5)
    assert model.calls == 3  # for the rows; for the leaves of all rows; for the other missing links of all rows
    shares = model.weights / model.weights.sum(axis=2, keepdims=True)
    for row in answers:
        (x,) = row.ids
        links = {link.relation: link for link in row.missing}
        assert ("r1" in links) == (x != 1)
        if x != 1:
            assert links["r1"].object == f"e{shares[1, x].argmax()}"
            assert links["r1"].probability == pytest.approx(shares[1, x].max(), rel=1e-4)


def test_a_query_that_the_model_refuses(toy, rivers):
    model = toy.FactorModel(rivers.model.weights, refuses="it has a cycle")
    # In no way: neither whole, nor without a pattern, nor one target at a time.
    for mode in ("both", "predicted"):
        with pytest.raises(UnsupportedQuery, match="factor cannot predict this query: it has a cycle"):
            toy.ask(rivers.graph, rivers.query, model, mode=mode)
    assert len(toy.ask(rivers.graph, rivers.query, model, mode="known")) == 2


def test_a_limit_that_known_rows_fill_costs_no_prediction(toy, rivers):
    model = toy.FactorModel(rivers.model.weights)
    query = BoundQuery(*(getattr(rivers.query, name) for name in ("nodes", "edges", "targets", "names")), limit=2)
    assert toy.ask(rivers.graph, query, model).predicted_count == 0
    assert model.calls == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "all"}, "'mode' must be one of both, known, predicted. Got 'all'"),
        ({"joint": "greedy"}, "'joint' must be one of links, beam, product. Got 'greedy'"),
        ({"top": -1}, "'top' must be at least 0. Got -1"),
        ({"width": 0}, "'width' must be at least 1. Got 0"),
        ({"coverage": 1.0}, r"'coverage' must be in \(0, 1\). Got 1.0"),
        ({"min_probability": 1.5}, r"'min_probability' must be in \[0, 1\]. Got 1.5"),
        ({"min_probability": float("nan")}, r"'min_probability' must be in \[0, 1\]. Got nan"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InvalidOption, match=message):
        AskConfig(**options)


def test_marginals_are_the_models_own_and_say_what_is_known(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model)
    truth = rivers.model.every_tuple(rivers.query)
    for column, variable in enumerate(answers.variables):
        entries = answers.marginals[variable].best()
        assert [entry.probability for entry in entries] == sorted((e.probability for e in entries), reverse=True)
        for entry in entries:
            entity = rivers.graph.vocabulary.entity_id(entry.name)
            expected = sum(chance for row, chance in truth.items() if row[column] == entity)
            assert entry.probability == pytest.approx(expected, rel=1e-3)
    known = {entry.name for entry in answers.marginals["city"].best() if entry.status == "known"}
    assert known == {"Cologne", "Dresden"}
