"""FILTER, VALUES, UNION, ORDER BY, COUNT and ASK; cycles and separate parts: all against enumeration."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import biqe
from biqe.answer.answers import Answers
from biqe.answer.execute import count, select_rows, verdict
from biqe.errors import InvalidOption, SparqlSyntax, UnknownName, UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import Support
from biqe.predict.config import AskConfig
from biqe.predict.predictor import Predictor
from biqe.query.bind import bind_question
from biqe.query.dag import analyse
from biqe.query.sparql import parse_question

SIZE = 5
STORED = [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, 1, 3), (3, 1, 4), (4, 1, 0), (2, 0, 2)]


@pytest.fixture(scope="module")
def world(toy) -> SimpleNamespace:
    """Five entities, two relations, a model that knows a joint distribution; ``strict`` reads what BiQE can."""
    graph = toy.graph_of(STORED, SIZE, 2, {4: "Eve"})

    class Strict(toy.FactorModel):
        """Refuses cycles and separate parts, as a model that reads root-to-leaf paths does."""

        def supports(self, query, *, strict=True):
            dag = analyse(query)
            if not dag.is_acyclic:
                return Support(False, "this query has a cycle")
            return Support(dag.is_connected, "this query has separate parts")

    model = toy.random_model(5, SIZE, 2)
    return SimpleNamespace(graph=graph, model=model, strict=Strict(model.weights), toy=toy)


def asked(graph: Graph, text: str):
    return bind_question(parse_question(text), graph.vocabulary)


def rows(world, text: str, *, strict: bool = False, **options) -> Answers:
    question = asked(world.graph, text)
    config = AskConfig(**{"top": 200, "width": 200, **options})
    predictor = Predictor(world.strict if strict else world.model)
    found = select_rows(world.graph, question, predictor, config)
    query = question.branches[0].query
    return Answers(text, query, world.graph, found, config, "factor", "toy", 0.1, question.branches, question.form)


def known(answers: Answers) -> list[tuple[int, ...]]:
    return [row.ids for row in answers if row.status == "known"]


def predicted(answers: Answers) -> dict[tuple[int, ...], float]:
    return {row.ids: row.probability for row in answers if row.status == "predicted"}


def chances(world, text: str) -> dict[tuple[int, ...], float]:
    """Probability of every row of a conjunctive query under the model."""
    return world.model.every_tuple(asked(world.graph, text).branches[0].query)


NAMES = [f"e{number}" for number in range(SIZE)]
FILTERS = {
    "?x != ?y": lambda x, y: x != y,
    "?x = :e1 || ?y = :e3": lambda x, y: x == 1 or y == 3,
    "?x NOT IN (:e0, :e1)": lambda x, y: x not in (0, 1),
    "regex(?x, '[02]$')": lambda x, y: x in (0, 2),
    "contains(?y, 'Eve') && str(?x) <= 'e2'": lambda x, y: y == 4 and x <= 2,
    "str(?x) < str(?y)": lambda x, y: x < y,
    "!(?x = ?y) && ?x IN (:e0, :e2, :e3)": lambda x, y: x != y and x in (0, 2, 3),
    "?x IN ()": lambda x, y: False,
}


@pytest.mark.parametrize("condition", FILTERS)
def test_rows_that_pass_a_filter(world, condition):
    plain = "SELECT ?x ?y { ?x :r0 ?y . ?y :r1 :e3 "
    answers = rows(world, f"{plain} FILTER({condition}) }}")
    everything = rows(world, f"{plain} }}")
    passes = FILTERS[condition]
    assert known(answers) == [row for row in known(everything) if passes(*row)]
    expected = {row: chance for row, chance in predicted(everything).items() if passes(*row)}
    found = predicted(answers)
    assert found.keys() == expected.keys()
    for row in expected:
        assert found[row] == pytest.approx(expected[row], rel=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(row.missing for row in answers if row.status == "predicted")


def test_a_filter_on_a_hidden_variable(world):
    answers = rows(world, "SELECT ?x { ?x :r0 ?y . ?y :r1 ?z FILTER(?y != ?z && ?y != :e2) }")
    stored = set(STORED)
    true = {
        (x,)
        for x, y, z in product(range(SIZE), repeat=3)
        if (x, 0, y) in stored and (y, 1, z) in stored and y not in (z, 2)
    }
    assert set(known(answers)) == true
    joint = chances(world, "SELECT ?x ?y ?z { ?x :r0 ?y . ?y :r1 ?z }")
    for row, chance in predicted(answers).items():
        best = max(p for (x, y, z), p in joint.items() if x == row[0] and y not in (z, 2))
        assert chance == pytest.approx(best, rel=1e-4)
    for row in answers:
        # What a row rests on passes the condition too.
        assert not any(link.subject == "e2" and link.relation == "r1" for link in (*row.held, *row.missing))


def test_values_are_a_filter(world):
    values = rows(world, "SELECT ?x ?y { ?x :r0 ?y VALUES (?x ?y) { (:e0 UNDEF) (:e1 :e4) } }")
    filtered = rows(world, "SELECT ?x ?y { ?x :r0 ?y FILTER(?x = :e0 || (?x = :e1 && ?y = :e4)) }")
    assert known(values) == known(filtered) and predicted(values) == predicted(filtered)
    assert {row[0] for row in known(values)} == {0}


@pytest.mark.parametrize(
    ("condition", "constants"),
    [
        ("VALUES ?y { :e3 :e1 }", ["e3", "e1"]),
        ("FILTER(?y IN (:e3, :e1))", ["e3", "e1"]),
        ("FILTER(?y = :e4)", ["e4"]),
        ("FILTER(?y = :e4 && ?x != :e2)", ["e4"]),
    ],
)
@pytest.mark.parametrize("selected", ["?x", "?x ?y", "?y ?x"])
def test_constants_of_conditions_are_as_good_as_those_of_patterns(world, condition, constants, selected):
    """A query without any other constant is asked once for each, as the sides of a UNION are."""
    answers = rows(world, f"SELECT {selected} {{ ?x :r0 ?y {condition} }}")
    expected: dict[tuple, float] = {}
    sure = set()
    for name in constants:
        side = rows(world, f"SELECT ?x {{ ?x :r0 :{name} {'FILTER(?x != :e2)' if '!=' in condition else ''} }}")
        for row in side:
            values = {"?x": row.ids[0], "?y": int(name[1:])}
            key = tuple(values[variable] for variable in selected.split())
            if row.status == "known":
                sure.add(key)
            else:
                expected[key] = max(row.probability, expected.get(key, 0.0))
    expected = {key: chance for key, chance in expected.items() if key not in sure}
    assert set(known(answers)) == sure
    found = predicted(answers)
    assert found.keys() == expected.keys()
    for key, chance in expected.items():
        assert found[key] == pytest.approx(chance, rel=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    if "!=" not in condition:
        assert sum(answers.marginals["x"].values()) == pytest.approx(1.0, rel=1e-4)


def test_a_union_keeps_the_best_probability_and_no_row_twice(world):
    sides = ("?x :r0 :e3", "?x :r1 :e3", ":e0 :r0 ?x")
    answers = rows(world, f"SELECT ?x {{ {' UNION '.join(f'{{ {side} }}' for side in sides)} }}")
    single = [rows(world, f"SELECT ?x {{ {side} }}") for side in sides]
    true = {row for side in single for row in known(side)}
    assert set(known(answers)) == true and len(known(answers)) == len(true)
    found = predicted(answers)
    assert found.keys() == {(entity,) for entity in range(SIZE)} - true
    for row, chance in found.items():
        assert chance == max(predicted(side)[row] for side in single)
    best = next(row for row in answers if row.status == "predicted")
    side = max(range(3), key=lambda number: predicted(single[number])[best.ids])
    same = next(row for row in single[side] if row.ids == best.ids)
    assert best.missing == same.missing and best.held == same.held
    assert {entry.name for entry in answers.marginals["x"].best() if entry.status == "known"} == {
        NAMES[row[0]] for row in true
    }


def test_a_union_in_predicted_mode_proposes_nothing_known(world):
    text = "SELECT ?x { { ?x :r0 :e3 } UNION { ?x :r1 :e3 } }"
    answers = rows(world, text, mode="predicted")
    both = rows(world, text)
    assert known(answers) == []
    assert predicted(answers) == predicted(both)
    assert known(rows(world, text, mode="known")) == known(both)


def test_order_limit_and_offset(world):
    plain = "SELECT ?x ?y { ?x :r0 ?y }"
    everything = rows(world, plain)
    sequence = [row.ids for row in everything]
    for offset, limit in ((0, 2), (3, 4), (2, 100), (100, 5), (4, 0)):
        cut = rows(world, f"{plain} LIMIT {limit} OFFSET {offset}")
        assert [row.ids for row in cut] == sequence[offset : offset + limit]
        assert cut.known_complete == (offset == 0 and limit >= len(known(everything)))
    down = rows(world, f"{plain} ORDER BY DESC(?y) ?x")
    label = ["e0", "e1", "e2", "e3", "eve"]
    for status in ("known", "predicted"):
        expected = [row.ids for row in everything if row.status == status]
        expected.sort(key=lambda row: label[row[0]])
        expected.sort(key=lambda row: label[row[1]], reverse=True)
        assert [row.ids for row in down if row.status == status] == expected
    rising = rows(world, f"{plain} ORDER BY ?probability")
    assert list(predicted(rising).values()) == sorted(predicted(everything).values())
    assert known(rising) == known(everything)


def test_counts_are_exact_for_known_and_expected_for_predicted(world):
    predictor = Predictor(world.model)
    config = AskConfig(width=200)
    everything = count(world.graph, asked(world.graph, "SELECT (COUNT(*) AS ?n) { ?x :r0 ?y }"), predictor, config)
    joint = chances(world, "SELECT ?x ?y { ?x :r0 ?y }")
    stored = {(s, o) for s, r, o in STORED if r == 0}
    assert everything.known == len(stored)
    assert everything.expected == pytest.approx(sum(p for row, p in joint.items() if row not in stored), rel=1e-4)
    distinct = asked(world.graph, "SELECT (COUNT(DISTINCT ?x) AS ?n) { { ?x :r0 ?y } UNION { ?y :r0 ?x } }")
    counted = count(world.graph, distinct, predictor, config)
    ends = {end for pair in stored for end in pair}
    assert counted.known == len(ends)
    one, other = (chances(world, f"SELECT ?x {{ {side} }}") for side in ("?x :r0 ?y", "?y :r0 ?x"))
    expected = sum(max(one[entity,], other[entity,]) for entity in range(SIZE) if entity not in ends)
    assert counted.expected == pytest.approx(expected, rel=1e-4)
    assert count(world.graph, distinct, None, config).expected is None


def share(world, link: tuple[int, int, int]) -> float:
    subject, relation, object_ = link
    return float(world.model.weights[relation, subject, object_] / world.model.weights[relation, subject].sum())


def test_counting_asks_for_no_link(world, monkeypatch):
    def asked_for_links(*_, **__):
        raise AssertionError("the probabilities of single links are not needed to count")

    monkeypatch.setattr(Predictor, "link_probabilities", asked_for_links)
    for text in (
        "SELECT (COUNT(*) AS ?n) { ?x :r0 :e3 }",
        "SELECT (COUNT(DISTINCT ?x) AS ?n) { { ?x :r0 :e3 } UNION { ?x :r1 :e4 } }",
    ):
        found = count(world.graph, asked(world.graph, text), Predictor(world.model), AskConfig())
        assert found.known > 0 and found.expected > 0


def test_ask_without_variables_is_the_product_of_its_links(world):
    question = asked(world.graph, "ASK { :e0 :r0 :e1 . :e1 :r0 :e2 . :e3 :r1 :e0 }")
    found = verdict(world.graph, question, Predictor(world.model), AskConfig())
    assert len(found.known) == 0 and found.predicted.shape == (1, 0)
    assert found.probabilities[0] == pytest.approx(share(world, (1, 0, 2)) * share(world, (3, 1, 0)), rel=1e-4)
    assert set(found.evidence[0].held) == {(0, 0, 1)}
    assert set(found.evidence[0].missing) == {(1, 0, 2), (3, 1, 0)}


def test_ask_with_variables_is_its_best_row(world):
    text = "{ ?x :r0 :e3 . ?x :r1 ?y FILTER(?y != :e3) }"
    found = verdict(world.graph, asked(world.graph, f"ASK {text}"), Predictor(world.model), AskConfig(width=200))
    stored = set(STORED)

    def chance(links):
        return float(np.prod([1.0 if link in stored else share(world, link) for link in links]))

    ways = [[(x, 0, 3), (x, 1, y)] for x, y in product(range(SIZE), repeat=2) if y != 3]
    assert found.probabilities[0] == pytest.approx(max(map(chance, ways)), rel=1e-4)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ASK { :e0 :r0 :e1 }", True),
        ("ASK { :e0 :r0 :e4 }", False),
        ("ASK { ?x :r1 ?x }", False),
        ("ASK { ?x :r0 ?x FILTER(?x = :e2) }", True),
        ("ASK { ?x :r0 ?x FILTER(?x != :e2) }", False),
    ],
)
@pytest.mark.parametrize("mode", ["both", "known", "predicted"])
def test_ask_tells_known_from_predicted(world, text, holds, mode):
    question = asked(world.graph, text)
    found = verdict(world.graph, question, Predictor(world.model), AskConfig(mode=mode))
    assert len(found.known) == holds  # in every mode: what the graph holds is true
    assert len(found.predicted) == (not holds and mode != "known")
    answers = Answers(
        text,
        question.branches[0].query,
        world.graph,
        found,
        AskConfig(mode=mode),
        "factor",
        "toy",
        0.1,
        question.branches,
        question.form,
    )
    assert answers.variables == () and answers.holds == holds
    for row in answers:
        assert bool(row.missing) == (row.status == "predicted")
    for form in ("table", "json", "sparql-json", "csv", "tsv", "xml"):
        assert answers.write(form)


# What a model cannot read in one piece


def test_separate_parts_are_joined_by_product(world):
    text = "SELECT ?a ?b { ?a :r0 :e3 . ?b :r1 :e4 . :e0 :r0 :e1 }"
    answers = rows(world, text, strict=True)
    left, right = (rows(world, f"SELECT ?x {{ {side} }}", strict=True) for side in ("?x :r0 :e3", "?x :r1 :e4"))
    one, other = ({row.ids[0]: row.probability for row in side} for side in (left, right))
    sure = {(a, b) for (a,) in known(left) for (b,) in known(right)}
    assert set(known(answers)) == sure
    found = predicted(answers)
    assert found.keys() == {*product(range(SIZE), repeat=2)} - sure
    for (a, b), chance in found.items():
        assert chance == pytest.approx(one[a] * other[b], rel=1e-6)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert [row.ids for row in rows(world, text, strict=True, top=3)] == [row.ids for row in answers][: len(sure) + 3]


@pytest.mark.parametrize("most", [100_000, 1])
def test_separate_parts_leave_out_all_that_is_known_however_few_rows_are_wanted(world, monkeypatch, most):
    monkeypatch.setattr("biqe.predict.decompose.EXCLUDED", most)
    text = "SELECT ?a ?b { ?a :r0 ?h . ?b :r1 ?k }"
    everything = predicted(rows(world, text, strict=True))
    for top in (1, 2, 3):
        few = predicted(rows(world, text, strict=True, mode="predicted", top=top))
        assert list(few.values()) == pytest.approx(list(everything.values())[:top], rel=1e-6)
        assert few.keys() <= everything.keys()


def test_separate_parts_find_known_halves_that_pass_a_filter_among_many_that_do_not(world, monkeypatch):
    monkeypatch.setattr("biqe.answer.execute.LISTED_ROWS", 10)
    names = [f"n{number:03}" for number in range(40)]
    graph = world.toy.graph_of([(number, 0, 0) for number in range(1, 30)], names, ["on"])
    model = world.toy.random_model(3, len(names), 1)

    class Strict(type(model)):
        def supports(self, query, *, strict=True):
            return Support(analyse(query).is_connected, "this query has separate parts")

    question = asked(graph, "SELECT ?a ?b { ?a :on :n000 . ?b :on :n001 FILTER(?a = :n029) }")
    found = select_rows(graph, question, Predictor(Strict(model.weights)), AskConfig(mode="predicted", top=3))
    assert len(found.predicted) == 3 and (found.predicted[:, 0] == 29).all()


def test_a_part_without_targets_weighs_all_rows(world):
    alone = predicted(rows(world, "SELECT ?a { ?a :r0 :e3 }", strict=True))
    answers = rows(world, "SELECT ?a { ?a :r0 :e3 . ?h :r1 :e2 }", strict=True)
    assert known(answers) == []
    found = predicted(answers)
    best = max(share(world, (h, 1, 2)) for h in range(SIZE))
    for row, chance in alone.items():
        assert found[row] == pytest.approx(chance * best, rel=1e-4)
    # With the other part missing, rows that the graph holds for this one are predictions too.
    assert found.keys() == {(entity,) for entity in range(SIZE)}


def test_a_cycle_is_broken_and_checked(world):
    text = "SELECT ?x ?y { ?x :r0 ?y . ?y :r1 ?x }"
    answers = rows(world, text, strict=True)
    stored = set(STORED)
    assert set(known(answers)) == {
        (x, y) for x, y in product(range(SIZE), repeat=2) if (x, 0, y) in stored and (y, 1, x) in stored
    }
    rest = chances(world, "SELECT ?x ?y { ?x :r0 ?y }")
    found = predicted(answers)
    assert len(found) == SIZE**2 - len(known(answers))
    for (x, y), chance in found.items():
        link = (y, 1, x)
        weight = 1.0 if link in stored else share(world, link)
        assert chance == pytest.approx(rest[x, y] * weight, rel=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_a_hidden_end_of_a_left_out_pattern_is_guessed(world):
    answers = rows(world, "SELECT ?x { ?x :r0 ?h . ?h :r1 ?h }", strict=True)
    rest = chances(world, "SELECT ?x ?h { ?x :r0 ?h }")
    stored = set(STORED)
    for (x,), chance in predicted(answers).items():
        best = max(rest[x, h] * (1.0 if (h, 1, h) in stored else share(world, (h, 1, h))) for h in range(SIZE))
        assert chance == pytest.approx(best, rel=1e-4)
    assert len(predicted(answers)) == SIZE


def test_a_pattern_that_is_nothing_but_a_loop_is_refused_with_the_reason(world):
    with pytest.raises(UnsupportedQuery, match="factor cannot predict this query: this query has a cycle"):
        rows(world, "SELECT ?x { ?x :r0 ?x }", strict=True)


def test_targets_that_a_model_cannot_tell_apart_are_asked_one_by_one(world):
    class Single(world.toy.FactorModel):
        def supports(self, query, *, strict=True):
            return Support(len(query.targets) == 1, "it predicts one target at a time")

    text = "SELECT ?x ?y { ?x :r0 :e3 . ?y :r0 :e3 }"
    question = asked(world.graph, text)
    found = select_rows(world.graph, question, Predictor(Single(world.model.weights)), AskConfig(top=100))
    one = chances(world, "SELECT ?x { ?x :r0 :e3 . ?y :r0 :e3 }")
    for row, chance in zip(found.predicted.tolist(), found.probabilities[found.known_count :], strict=True):
        assert chance == pytest.approx(one[row[0],] * one[row[1],], rel=1e-4)
    assert len(found.predicted) == SIZE**2 - 1
    said = "?x and ?y were asked for one by one and their probabilities multiplied, because factor cannot predict them"
    for pattern in ("{ ?x :r0 :e3 . ?y :r0 :e3 }", "{ { ?x :r0 :e3 . ?y :r0 :e3 } UNION { ?x :r0 :e3 . ?x :r1 ?y } }"):
        question = asked(world.graph, f"SELECT ?x ?y {pattern}")
        found = select_rows(world.graph, question, Predictor(Single(world.model.weights)), AskConfig(top=3))
        query = question.branches[0].query
        answers = Answers(text, query, world.graph, found, AskConfig(), "factor", remark="and more")
        assert answers.note == f"{said} together; and more" and f"note: {said}" in str(answers)
        assert answers.to_dict()["note"] == answers.note
    counted = count(
        world.graph,
        asked(world.graph, "SELECT (COUNT(*) AS ?n) { ?x :r0 :e3 . ?y :r0 :e3 }"),
        Predictor(Single(world.model.weights)),
        AskConfig(),
    )
    assert counted.note == f"{said} together"
    assert rows(world, text).note == ""


def test_marginals_are_a_mapping(world):
    answers = rows(world, "SELECT ?x ?y { ?x :r0 ?y }")
    share_of = answers.marginals["x"]
    assert len(share_of) == SIZE and set(share_of) == set(NAMES)
    assert sum(share_of.values()) == pytest.approx(1, rel=1e-4)
    assert list(share_of.values()) == sorted(share_of.values(), reverse=True)
    assert share_of["e3"] == pytest.approx(
        sum(p for row, p in chances(world, "SELECT ?x ?y { ?x :r0 ?y }").items() if row[0] == 3), rel=1e-3
    )
    with pytest.raises(KeyError):
        share_of["nobody"]
    assert repr(share_of).startswith("{'e")
    assert len(rows(world, "SELECT ?x { ?x :r0 ?y }", mode="known").marginals["x"]) == 0


# Links


def test_a_missing_link_is_as_probable_as_the_row_of_its_own_question(world):
    """Asked for the objects of e1 and r1 the model lists rows; the link to one of them is that row."""
    predictor = Predictor(world.model)
    listed = select_rows(world.graph, asked(world.graph, "SELECT ?x { :e3 :r1 ?x }"), predictor, AskConfig(top=99))
    links = [(3, 1, int(row[0])) for row in listed.predicted]
    chances = listed.probabilities[listed.known_count :]
    np.testing.assert_allclose(predictor.link_probabilities(links), chances, rtol=1e-5)
    for row, chance in zip(listed.predicted.tolist(), chances, strict=True):
        found = verdict(world.graph, asked(world.graph, f"ASK {{ :e3 :r1 :e{row[0]} }}"), predictor, AskConfig())
        assert found.probabilities[0] == pytest.approx(chance, rel=1e-5)


def test_a_question_of_one_link_is_asked_once(world):
    model = world.toy.FactorModel(world.model.weights)
    question = asked(world.graph, "SELECT ?x { :e3 :r1 ?x }")
    found = select_rows(world.graph, question, Predictor(model), AskConfig(top=99))
    assert model.calls == 1
    for row, evidence in zip(found.predicted.tolist(), found.evidence[found.known_count :], strict=True):
        (link,) = evidence.missing
        assert found.link_probabilities[link] == pytest.approx(share(world, (3, 1, row[0])), rel=1e-4)


REPEATING = [
    "SELECT ?x { :e0 :r0 ?x }",
    "SELECT ?y { :e0 :r0 ?h . ?h :r1 ?y }",
    "SELECT ?y { :e0 :r0 ?y . :e3 :r1 ?y }",
    "SELECT ?x ?y { :e0 :r0 ?x . ?x :r1 ?y }",
    "SELECT ?x ?y ?z { :e0 :r0 ?x . ?x :r1 ?y . ?x :r0 ?z }",
    "SELECT ?x ?y { :e0 :r0 ?x . ?x :r1 ?y FILTER(?x != :e4) }",
    "SELECT ?x { :e0 :r0 ?h . ?h :r1 ?x FILTER(?h NOT IN (:e1)) }",
    "SELECT ?a ?b { :e0 :r0 ?a . :e2 :r1 ?b }",
]


@pytest.mark.parametrize("text", REPEATING)
@pytest.mark.parametrize("kept", [4_000_000, 2 * SIZE])
def test_what_was_said_is_remembered_and_changes_nothing(world, monkeypatch, text, kept):
    monkeypatch.setattr("biqe.predict.predictor.REMEMBERED", kept)

    def asked_of(model) -> tuple[Answers, list]:
        heard: list = []
        plain = type(model).scores
        monkeypatch.setattr(model, "scores", lambda queries: heard.extend(queries) or plain(model, queries))
        question = asked(world.graph, text)
        rows_ = select_rows(world.graph, question, Predictor(model), AskConfig(top=200, width=200))
        return rows_, [(query.nodes, query.edges) for query in heard if len(query.nodes) == 2]

    with_memory, heard = asked_of(world.toy.FactorModel(world.model.weights))
    if kept > 100:
        assert len(heard) == len(set(heard)), "a link was asked about twice"
    monkeypatch.setattr(Predictor, "for_question", lambda self: self)
    without, _ = asked_of(world.toy.FactorModel(world.model.weights))
    assert with_memory.predicted.tolist() == without.predicted.tolist()
    assert with_memory.probabilities == pytest.approx(without.probabilities, rel=1e-6)
    assert with_memory.evidence == without.evidence
    assert with_memory.link_probabilities == pytest.approx(without.link_probabilities, rel=1e-6)


@pytest.mark.parametrize(
    "body", ["?x :r0 ?y . ?y :r1 ?z", "?x :r0 :e3 . ?y :r1 :e4 . ?z :r0 :e3", "?x :r0 ?y . ?y :r1 ?z . ?z :r0 ?x"]
)
def test_injective_rows_are_those_of_all_rows_without_an_entity_twice(world, body):
    text = f"SELECT ?x ?y ?z {{ {body} }}"
    everything = predicted(rows(world, text, strict=True))
    found = predicted(rows(world, text, strict=True, injective=True))
    assert found == {row: chance for row, chance in everything.items() if len(set(row)) == 3}
    assert 0 < len(found) < len(everything)
    few = predicted(rows(world, text, strict=True, injective=True, top=5))
    assert list(few.values()) == pytest.approx(list(found.values())[:5])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?x ?y { ?x :r0 ?y . ?y :r1 :e4 }",
        "SELECT ?x { ?x :r0 ?h . ?h :r1 :e4 }",
        "SELECT ?x { { ?x :r0 :e3 } UNION { ?x :r1 :e4 } }",
        "SELECT ?x ?y { ?x :r0 ?y FILTER(?x != ?y) } ORDER BY DESC(?x) OFFSET 2",
        "SELECT ?x ?y ?z { ?x :r0 ?y . ?y :r1 ?z . ?z :r0 ?x }",
    ],
)
def test_rows_without_links_are_the_same_rows_and_still_name_what_they_lack(world, text):
    with_links = rows(world, text, strict=True)
    without = rows(world, text, strict=True, links=False)
    assert [row.ids for row in without] == [row.ids for row in with_links]
    assert predicted(without) == pytest.approx(predicted(with_links), rel=1e-6)
    assert any(row.status == "predicted" for row in without)
    for row in without:
        assert (row.missing == ()) == (row.status == "known")
        assert all(link.probability is None for link in row.missing)


def test_without_links_the_model_is_asked_for_the_rows_alone(world):
    text = "SELECT ?x { ?x :r0 ?h . ?h :r1 :e4 }"

    def heard(**options) -> list[tuple]:
        """Patterns of all queries that the model was asked."""
        model = world.toy.FactorModel(world.model.weights)
        told, scores = [], model.scores

        def listening(batch):
            told.extend(batch[number].edges for number in range(len(batch)))
            return scores(batch)

        model.scores = listening
        select_rows(world.graph, asked(world.graph, text), Predictor(model), AskConfig(top=5, **options))
        return told

    assert {len(edges) for edges in heard(links=False)} == {2}
    assert 1 in {len(edges) for edges in heard()}


def test_known_rows_are_complete_where_matches_are_too_many_to_list() -> None:
    """Two separate variables have nine million matches; a condition leaves few of them."""
    kb = biqe.open("atlas")
    cities = len(kb.ask("SELECT ?a { ?a a :City }", mode="known"))
    pair = kb.ask("SELECT ?a ?b { ?a a :City . ?b a :City FILTER(?a = :Yerevan && ?b = :Bonn) }", mode="known")
    assert [(row.a, row.b) for row in pair] == [("Yerevan", "Bonn")]
    beside = kb.ask("SELECT ?a { ?a a :City . ?b a :City FILTER(?b = :Bonn) }", mode="known")
    assert (len(beside), beside.known_complete) == (cities, True)
    assert not kb.ask("ASK { ?a a :City . ?b a :City FILTER(?a = ?b && ?a = :Rhine) }", mode="known")


def test_rows_of_values_are_asked_one_by_one() -> None:
    kb = biqe.open("atlas")
    text = "SELECT ?x ?r {{ ?x :located_on ?r VALUES (?x ?r) {{ {} }} }}"
    both = kb.ask(text.format("(:Bonn :Rhine) (:Mainz :Rhine)"), mode="predicted")
    alone = [kb.ask(text.format(pair), mode="predicted")[0] for pair in ("(:Bonn :Rhine)", "(:Mainz :Rhine)")]
    assert {(row.x, row.r): row.probability for row in both} == pytest.approx(
        {(row.x, row.r): row.probability for row in alone}
    )
    some = kb.ask(text.format("(:Bonn :Rhine) (UNDEF :Moselle)"), mode="predicted", top=6)
    assert {(row.x, row.r) for row in some} > {("Bonn", "Rhine")}
    assert all(row.r == "Moselle" or (row.x, row.r) == ("Bonn", "Rhine") for row in some)


def test_pages_of_limit_and_offset_are_of_one_list() -> None:
    kb = biqe.open("atlas")
    text = "SELECT ?x { ?x :located_in :Germany }"
    whole = [row.x for row in kb.ask(text, mode="known")]
    pages = [row.x for first in range(0, 30, 7) for row in kb.ask(f"{text} LIMIT 7 OFFSET {first}", mode="known")]
    assert pages == whole[: len(pages)]
    assert len(pages) == 35 or pages == whole
    rhine = "SELECT ?x { ?x :located_on :Rhine }"
    listed = [row.x for row in kb.ask(rhine, mode="predicted", top=25)]
    assert [row.x for row in kb.ask(f"{rhine} LIMIT 5 OFFSET 20", mode="predicted")] == listed[20:]


def test_what_the_graph_holds_is_true_in_every_mode() -> None:
    kb = biqe.open("atlas")
    for mode in ("known", "predicted", "both"):
        (row,) = kb.ask("ASK { :Cologne :located_on :Rhine }", mode=mode)
        assert (row.status, row.probability) == ("known", 1.0)


def test_count_counts_a_match_of_two_sides_twice() -> None:
    kb = biqe.open("atlas")
    side = "{ ?x :located_on :Rhine }"
    one, two, distinct = (
        kb.ask(f"SELECT (COUNT({what}) AS ?n) {body}", mode="known")[0].n
        for what, body in (
            ("*", side),
            ("*", f"{{ {side} UNION {side} }}"),
            ("DISTINCT ?x", f"{{ {side} UNION {side} }}"),
        )
    )
    assert (two, distinct) == (2 * one, one)
    assert len(kb.ask(f"SELECT (COUNT(*) AS ?n) {side} LIMIT 0", mode="known")) == 0


def test_options_of_other_types_are_refused() -> None:
    kb = biqe.open("atlas")
    ask = "ASK { :Cologne :located_on :Rhine }"
    with pytest.raises(InvalidOption, match="whole number"):
        kb.ask(ask, top=2.5)
    with pytest.raises(InvalidOption, match="text"):
        kb.ask(None)
    with pytest.raises(UnknownName, match="nope"):
        kb.ask(ask, mode="known", model="nope")


def test_a_faulty_regular_expression_is_pointed_at() -> None:
    with pytest.raises(SparqlSyntax, match=r"line 1, column \d+: .*regular expression"):
        biqe.open("atlas").ask("SELECT ?x { ?x a :City FILTER(regex(?x, '(')) }")


@pytest.mark.parametrize(
    ("tail", "mode", "capped"),
    [
        ("", "known", True),
        ("LIMIT 3", "known", False),
        ("LIMIT 5 OFFSET 2", "known", True),
        ("LIMIT 9", "both", True),
        ("", "predicted", False),
    ],
)
def test_rows_beyond_what_is_read_are_told_from_those_that_limit_leaves_out(monkeypatch, tail, mode, capped):
    monkeypatch.setattr("biqe.answer.execute.KNOWN_ROWS", 5)
    kb = biqe.open("atlas")
    for pattern in ("{ ?x :located_in :Germany }", "{ { ?x :located_in :Germany } UNION { ?x :located_in :France } }"):
        assert kb.ask(f"SELECT ?x {pattern} {tail}", mode=mode).rows.known_capped == capped
    assert not kb.ask(
        f"SELECT ?x {{ ?x :flows_through :Germany, :France, :Belgium }} {tail}", mode=mode
    ).rows.known_capped
