"""One fact has one number: in ASK, in the links of a row, in a row that lacks just that link, in COUNT, in explain."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import biqe
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links import probability
from biqe.models import store
from biqe.models.hybrid import Config, Hybrid

PEOPLE, CITIES = 60, 8
ENTITIES = PEOPLE + CITIES + 2


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    """People in cities of two countries; a third of the citizenships are unknown."""
    root = tmp_path_factory.mktemp("one_number")
    rng = np.random.default_rng(0)
    city = rng.integers(PEOPLE, PEOPLE + CITIES, PEOPLE)
    country = PEOPLE + CITIES + np.arange(CITIES) % 2
    citizens = [(p, 2, int(country[city[p] - PEOPLE])) for p in range(PEOPLE)]
    known = [(p, 0, int(city[p])) for p in range(PEOPLE)] + [(PEOPLE + c, 1, int(country[c])) for c in range(CITIES)]
    train, hidden = as_triples([*known, *citizens[: PEOPLE // 3]]), as_triples(citizens[PEOPLE // 3 : -20])
    vocabulary = Vocabulary([f"e{n}" for n in range(ENTITIES)], ["lives_in", "in", "citizen_of"])
    splits = Splits(vocabulary, train)
    folder.save(splits, root / "kg")
    torch.manual_seed(0)
    model = Hybrid(Config(width=16, layers=1, heads=2, feed_forward=16, rank=4), ENTITIES, 3)
    store.save(model, root / "model", vocabulary=vocabulary, graph_fingerprint=splits.fingerprint)
    probability.save(probability.fit(model.links, splits["train"], hidden), root / "model")
    return biqe.open(root / "model", graph=root / "kg")


QUESTIONS = [
    "SELECT ?c { :e45 :citizen_of ?c }",
    "SELECT ?p { ?p :citizen_of :e68 }",
    "SELECT ?p ?c { ?p :lives_in :e61 ; :citizen_of ?c }",
    "SELECT ?p { ?p :citizen_of ?c . :e61 :in ?c }",
    "SELECT ?p ?city { ?p :lives_in ?city ; :citizen_of :e69 . ?city :in :e69 }",
    "SELECT ?p { ?p :citizen_of :e68 FILTER(?p != :e40) }",
    "SELECT ?p { { ?p :citizen_of :e68 } UNION { ?p :citizen_of :e69 } }",
    "SELECT ?p ?q { ?p :citizen_of :e68 . ?q :citizen_of :e69 }",
]


@pytest.mark.parametrize("text", QUESTIONS)
def test_rows_are_sorted_and_never_more_probable_than_their_links(kb, text):
    rows = [row for row in kb.ask(text, mode="predicted", top=15)]
    chances = [row.probability for row in rows]
    assert rows and chances == sorted(chances, reverse=True)
    for row in rows:
        links = [link.probability for link in row.missing]
        assert links and row.probability == pytest.approx(np.prod(links), rel=1e-6)
        assert row.probability <= min(links) * (1 + 1e-6)
        for link in row.missing:
            verdict = kb.ask(f"ASK {{ :{link.subject} :{link.relation} :{link.object} }}")
            assert verdict[0].probability == pytest.approx(link.probability, rel=1e-6)


def test_a_fact_has_one_number_from_either_end_and_in_an_explanation(kb):
    (asked,) = kb.ask("ASK { :e45 :citizen_of :e69 }")
    by_object = {row.values["c"]: row for row in kb.ask("SELECT ?c { :e45 :citizen_of ?c }", mode="predicted", top=70)}
    by_subject = {row.values["p"]: row for row in kb.ask("SELECT ?p { ?p :citizen_of :e69 }", mode="predicted", top=70)}
    numbers = [asked.probability, by_object["e69"].probability, by_subject["e45"].probability]
    assert max(numbers) - min(numbers) < 1e-6 * max(numbers)
    answers = kb.ask("SELECT ?c { :e45 :citizen_of ?c }", mode="predicted")
    explained = kb.explain(answers[0])
    assert f"{answers[0].probability:.2f}" in explained.to_text()


def test_count_is_the_sum_of_the_rows(kb):
    rows = kb.ask("SELECT ?p { ?p :citizen_of :e68 }", mode="predicted", top=1_000)
    counted = kb.ask("SELECT (COUNT(*) AS ?n) { ?p :citizen_of :e68 }", mode="predicted")
    assert f"{sum(row.probability for row in rows):.2f}"[:3] in counted.write("table")


def test_hidden_facts_come_first_and_nothing_of_another_kind(kb):
    people = kb.ask("SELECT ?p { ?p :citizen_of :e68 }", mode="predicted", top=10)
    assert all(int(row.values["p"][1:]) < PEOPLE for row in people)
    (best, *_) = kb.ask("SELECT ?c { :e45 :citizen_of ?c }", mode="predicted")
    city = kb.ask("SELECT ?c { :e45 :lives_in ?city . ?city :in ?c }", mode="known")[0].values["c"]
    assert best.values["c"] == city and best.probability > 0.2
