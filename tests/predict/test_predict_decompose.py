"""What must not hold and may hold after all: its complement counts, and no row is listed where it is stored."""

from __future__ import annotations

import pytest

import biqe


@pytest.fixture(scope="module")
def kb():
    return biqe.open("atlas")


NEGATED = "SELECT ?city WHERE { ?city :located_on :Rhine %s { ?city :located_in :Germany } }"


@pytest.mark.parametrize("word", ["FILTER NOT EXISTS", "MINUS"])
def test_a_predicted_row_has_the_product_of_its_links_and_of_the_complement(kb, word):
    plain = kb.ask("SELECT ?city WHERE { ?city :located_on :Rhine }", top=200, min_probability=0.0)
    chances = {row.city: row.probability for row in plain.predicted}
    found = kb.ask(NEGATED % word, top=30)
    assert len(found.predicted) >= 5
    for row in found.predicted:
        verdict = kb.ask(f"ASK {{ <{row.city}> :located_in :Germany }}")
        assert not verdict.holds
        said = verdict[0].probability if len(verdict) else 0.0
        if row.city in chances and said:
            assert row.probability == pytest.approx(chances[row.city] * (1 - said), rel=1e-4)
            assert [link.probability for link in row.against] == [pytest.approx(said, rel=1e-4)]
            assert (row.against[0].subject, row.against[0].object) == (row.city, "Germany")
    order = [row.probability for row in found.predicted]
    assert order == sorted(order, reverse=True)
    assert not {row.city for row in found} & {
        row.city for row in kb.ask("SELECT ?city { ?city :located_in :Germany }").known
    }


def test_known_rows_are_those_of_the_graph(kb):
    found = kb.ask(NEGATED % "MINUS", mode="known")
    on_rhine = {row.city for row in kb.ask("SELECT ?city { ?city :located_on :Rhine }", mode="known")}
    in_germany = {row.city for row in kb.ask("SELECT ?city { ?city :located_in :Germany }", mode="known")}
    assert {row.city for row in found} == on_rhine - in_germany and all(row.probability == 1.0 for row in found)


def test_an_explanation_and_the_table_say_what_counts_against_it(kb):
    found = kb.ask(NEGATED % "FILTER NOT EXISTS", top=5)
    row = found.predicted[0]
    assert "counts against it" in row.why and row.against[0].subject == row.city
    assert "against:" in found.write("table") and found.to_dict()["rows"][row.number]["against"]


def test_a_part_with_a_variable_of_its_own_counts_its_best_assignment(kb):
    text = "SELECT ?city { ?city :located_on :Rhine FILTER NOT EXISTS { ?city :located_in ?c . ?c :borders :Poland } }"
    row = kb.ask(text, top=3).predicted[0]
    country = f"ASK {{ <{row.city}> :located_in ?c . ?c :borders :Poland }}"
    assert row.against and row.against[0].probability == pytest.approx(kb.ask(country)[0].probability, rel=1e-4)


def test_ask_and_count_take_the_complement_too(kb):
    plain = kb.ask("ASK { :Mainz :located_on :Rhine }")[0].probability
    against = kb.ask("ASK { :Mainz :located_on :Danube }")[0].probability
    both = kb.ask("ASK { :Mainz :located_on :Rhine FILTER NOT EXISTS { :Mainz :located_on :Danube } }")
    assert both[0].probability == pytest.approx(plain * (1 - against), rel=1e-4)
