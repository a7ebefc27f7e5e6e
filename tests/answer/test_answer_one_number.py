"""One fact has one number: in ASK, in the links of a row, in a row that lacks just that link, in COUNT, in explain."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import biqe
from biqe.errors import InvalidOption, NotPredictableYet
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links import fit, knowledge
from biqe.models import store
from biqe.models.hybrid import Config, Hybrid

PEOPLE, CITIES = 60, 8
ENTITIES = PEOPLE + CITIES + 2
NEW, NEW_CITY = ENTITIES, ENTITIES + 1
RELATIONS = ["lives_in", "in", "citizen_of"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """People in cities of two countries; a third of the citizenships are unknown. And the same graph grown: with a
    person and a city that came after training, and a new relation."""
    root = tmp_path_factory.mktemp("one_number")
    rng = np.random.default_rng(0)
    city = rng.integers(PEOPLE, PEOPLE + CITIES, PEOPLE)
    country = PEOPLE + CITIES + np.arange(CITIES) % 2
    citizens = [(p, 2, int(country[city[p] - PEOPLE])) for p in range(PEOPLE)]
    known = [(p, 0, int(city[p])) for p in range(PEOPLE)] + [(PEOPLE + c, 1, int(country[c])) for c in range(CITIES)]
    train, hidden = as_triples([*known, *citizens[: PEOPLE // 3]]), as_triples(citizens[PEOPLE // 3 : -20])
    names = [f"e{n}" for n in range(ENTITIES)]
    splits = Splits(Vocabulary(names, RELATIONS), train)
    folder.save(splits, root / "kg")
    more = [(NEW, 0, PEOPLE), (NEW, 3, 5), (NEW_CITY, 1, PEOPLE + CITIES), (3, 0, NEW_CITY)]
    grown = Vocabulary([*names, "newcomer", "newtown"], [*RELATIONS, "fan_of"])
    folder.save(Splits(grown, as_triples([*train.tolist(), *more])), root / "grown")
    torch.manual_seed(0)
    model = Hybrid(Config(width=16, layers=1, heads=2, feed_forward=16, rank=4), ENTITIES, 3)
    store.save(model, root / "model", vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)
    knowledge.save(fit.fit(model.links, splits["train"], hidden), root / "model")
    return SimpleNamespace(
        kb=biqe.open(root / "model", graph=root / "kg"), grown=biqe.open(root / "model", graph=root / "grown")
    )


@pytest.fixture(scope="module")
def kb(world):
    return world.kb


TEMPLATES = [
    "?x { :%(p)s :citizen_of ?x }",
    "?x { ?x :citizen_of :%(c)s }",
    "?x { :%(p)s :lives_in ?h . ?h :in ?x }",
    "?x { ?x :lives_in :%(t)s ; :citizen_of :%(c)s }",
    "?x { ?x :lives_in ?h . ?h :in :%(c)s }",
    "?x ?y { ?x :lives_in :%(t)s ; :citizen_of ?y }",
    "?x ?y { :%(p)s :lives_in ?x . ?x :in ?y }",
    "?x ?y { ?x :citizen_of :%(c)s . ?y :in :%(c)s }",
    "?x { ?x :citizen_of ?h . :%(t)s :in ?h . ?x :lives_in :%(t)s }",
    "?x { ?x :citizen_of :%(c)s FILTER(?x != :%(p)s) }",
    "?x { { ?x :citizen_of :%(c)s } UNION { ?x :lives_in :%(t)s } }",
]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(TEMPLATES),
    st.integers(0, PEOPLE),
    st.integers(PEOPLE, PEOPLE + CITIES),
    st.integers(PEOPLE + CITIES, ENTITIES - 1),
)
def test_any_question_has_one_number_for_one_fact(world, template, person, town, country):
    """The last person and the last town of the grown graph came after training."""
    kb = world.grown
    names = {"p": "newcomer" if person == PEOPLE else f"e{person}", "c": f"e{country}"}
    names["t"] = "newtown" if town == PEOPLE + CITIES else f"e{town}"
    text = "SELECT " + template % names
    answers = kb.ask(text, mode="predicted", top=12)
    chances = [row.probability for row in answers]
    assert chances == sorted(chances, reverse=True)
    for row in answers[:2]:
        assert row.missing and row.probability <= min(link.probability for link in row.missing) * (1 + 1e-9)
        assert row.probability == pytest.approx(np.prod([link.probability for link in row.missing]), rel=1e-6)
        explained = kb.explain(row)
        assert explained.probability == row.probability and f"{row.probability:.3f}" in explained.to_text()
        assert {round(each.probability, 9) for each in explained.reasons} == {
            round(link.probability, 9) for link in row.missing
        }
        assert row.why == explained.sentence != ""
        for link in row.missing:
            number = pytest.approx(link.probability, rel=1e-6)
            (verdict,) = kb.ask(f"ASK {{ :{link.subject} :{link.relation} :{link.object} }}")
            assert verdict.probability == number
            by_object = kb.ask(f"SELECT ?x {{ :{link.subject} :{link.relation} ?x }}", mode="predicted", top=80)
            assert [one.probability for one in by_object if one.x == link.object] == [number]
            by_subject = kb.ask(f"SELECT ?x {{ ?x :{link.relation} :{link.object} }}", mode="predicted", top=80)
            assert [one.probability for one in by_subject if one.x == link.subject] == [number]
    count = "COUNT(*)" if "?y" in template else "COUNT(DISTINCT ?x)"
    _, pattern = text.split(" {", 1)
    counted = kb.ask(f"SELECT ({count} AS ?n) {{{pattern}", mode="predicted")
    every = kb.ask(text, mode="predicted", top=1_000)
    assert counted[0].n == pytest.approx(sum(row.probability for row in every), rel=1e-6)


def test_what_came_after_training_is_predicted_by_links(world):
    kb = world.grown
    (best, *_) = kb.ask("SELECT ?c { :newcomer :citizen_of ?c }", mode="predicted")
    assert best.c == "e68" and best.probability > 0.2 and best.missing[0].subject == "newcomer"
    assert "e60" in best.why  # where the newcomer lives
    everybody = kb.ask("SELECT ?p { ?p :citizen_of :e68 }", mode="predicted", top=70)
    assert [row.probability for row in everybody if row.p == "newcomer"] == [pytest.approx(best.probability)]
    assert kb.ask("SELECT ?h { :e3 :lives_in ?h }", mode="known").known[-1].h == "newtown"
    assert kb.ask("SELECT ?c { :newcomer :citizen_of ?c }").note == ""


def test_of_a_new_relation_nothing_is_known(world):
    found = world.grown.ask("SELECT ?x { :newcomer :fan_of ?x }")
    assert [row.x for row in found] == ["e5"] and "relation 'fan_of': not predictable yet" in found.note
    with pytest.raises(NotPredictableYet, match="relation 'fan_of'"):
        world.grown.ask("SELECT ?x { :newcomer :fan_of ?x }", mode="predicted")


def test_a_question_that_names_no_entity_has_the_same_numbers(kb):
    found = kb.ask("SELECT ?p ?c { ?p :citizen_of ?c }", top=10)
    assert found.known and len(found.predicted) == 10 and "names no entity" in found.note
    for row in found.predicted:
        asked = kb.ask(f"ASK {{ :{row.p} :citizen_of :{row.c} }}")
        assert asked[0].probability == pytest.approx(row.probability, rel=1e-6)
    chances = [row.probability for row in found.predicted]
    assert chances == sorted(chances, reverse=True)
    assert not {(row.p, row.c) for row in found.predicted} & {(row.p, row.c) for row in found.known}


def test_known_and_predicted_rows_by_themselves(kb):
    answers = kb.ask("SELECT ?p { ?p :citizen_of :e68 }", top=5)
    assert [*answers.known, *answers.predicted] == list(answers)
    assert {row.status for row in answers.known} == {"known"} and len(answers.predicted) == 5
    assert answers.known[0].why == "the graph holds every fact that it needs"


def test_an_answer_set_holds_the_rows_from_its_threshold_on(kb):
    text = "SELECT ?p { ?p :citizen_of :e68 }"
    every = kb.ask(text, mode="predicted", top=500)
    threshold = every[9].probability
    record = kb.predictor.links.knowledge.record
    object.__setattr__(record, "coverage", {"0.9": threshold, "0.5": 0.999})
    found = kb.ask(text, mode="predicted", top=1, coverage=0.9)
    assert [row.p for row in found] == [row.p for row in every if row.probability >= threshold]
    assert len(kb.ask(text, mode="predicted", coverage=0.5)) == 0
    assert len(kb.ask(text, mode="predicted", coverage=0.7)) == len(found), "the least that is as large"
    assert found.known == [] and kb.ask(text, coverage=0.9).known_count > 0
    with pytest.raises(InvalidOption, match="coverage of 0.95 was not measured"):
        kb.ask(text, coverage=0.95)
    for other in ("ASK { :e45 :citizen_of :e68 }", "SELECT (COUNT(*) AS ?n) { ?p :citizen_of :e68 }"):
        with pytest.raises(InvalidOption, match="coverage is for rows"):
            kb.ask(other, coverage=0.9)


def test_hidden_facts_come_first_and_nothing_of_another_kind(kb):
    people = kb.ask("SELECT ?p { ?p :citizen_of :e68 }", mode="predicted", top=10)
    assert all(int(row.values["p"][1:]) < PEOPLE for row in people)
    (best, *_) = kb.ask("SELECT ?c { :e45 :citizen_of ?c }", mode="predicted")
    city = kb.ask("SELECT ?c { :e45 :lives_in ?city . ?city :in ?c }", mode="known")[0].values["c"]
    assert best.values["c"] == city and best.probability > 0.2
