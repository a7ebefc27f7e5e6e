"""Predicted rows beside literals, and for unknown relations: against the question of links alone, joined by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from biqe.answer.terms import TermTable
from biqe.errors import InvalidOption, UnknownName
from biqe.graph.read import read_graph
from biqe.knowledge_base import KnowledgeBase
from biqe.predict.predictor import Predictor

EX = "http://ex.org/"
PEOPLE = {"ann": 34, "bob": 60, "carl": 7.5, "dora": 41, "emil": 34}
GERMAN = {"ann": "Anna", "bob": "Robert", "dora": "Dora"}
LINKS = (
    "ann knows bob . bob knows carl . carl knows dora . dora knows emil . "
    "ann lives Bonn . bob lives Bonn . carl lives Ulm"
)


@pytest.fixture(scope="module")
def kb(toy, tmp_path_factory) -> KnowledgeBase:
    lines = [f"<{EX}{s}> <{EX}{r}> <{EX}{o}> ." for s, r, o in (link.split() for link in LINKS.split(" . "))]
    lines += [
        f'<{EX}{name}> <{EX}age> "{age}"^^<http://www.w3.org/2001/XMLSchema#decimal> .' for name, age in PEOPLE.items()
    ]
    for name, text in GERMAN.items():
        label = "<http://www.w3.org/2000/01/rdf-schema#label>"
        lines += [f'<{EX}{name}> {label} "{text}"@de .', f'<{EX}{name}> {label} "{name.title()}"@en .']
    lines.append(f'<{EX}alone> <{EX}age> "99"^^<http://www.w3.org/2001/XMLSchema#decimal> .')
    path = tmp_path_factory.mktemp("people") / "people.nt"
    path.write_text("\n".join(lines), encoding="utf-8")
    splits = read_graph([path]).splits
    weights = np.random.default_rng(4).random((2, splits["train"].entity_count, splits["train"].entity_count)) + 0.1
    kb = KnowledgeBase(
        "people",
        splits,
        model_folder=Path("model"),
        prefixes={"": EX},
        literal_relations=frozenset(splits.literals.relations),
    )
    kb._loaded[Path("model")] = Predictor(toy.FactorModel(weights))
    return kb


def links(kb, text: str) -> dict[tuple[str, ...], float]:
    """Predicted rows of a question of links."""
    found = kb.ask(text, mode="predicted", top=1000)
    return {tuple(short(value) for value in row.values.values()): row.probability for row in found}


def short(value: object) -> object:
    return value.removeprefix(EX) if isinstance(value, str) else value


def predicted(found: TermTable) -> dict[tuple[object, ...], float]:
    assert isinstance(found, TermTable)
    return {tuple(map(short, row.values.values())): row.probability for row in found if row.status == "predicted"}


def known(found: TermTable) -> list[tuple[object, ...]]:
    return [tuple(map(short, row.values.values())) for row in found if row.status == "known"]


def best(rows) -> dict:
    found: dict = {}
    for key, chance in rows:
        found[key] = max(chance, found.get(key, 0.0))
    return found


def test_a_condition_on_a_number(kb):
    found = kb.ask("SELECT ?x { ?x :lives :Bonn . ?x :age ?a FILTER(?a > 30 && ?a < 50) }", top=1000)
    assert known(found) == [("ann",)]
    wanted = {row: chance for row, chance in links(kb, "SELECT ?x { ?x :lives :Bonn }").items() if row[0] in PEOPLE}
    wanted = {row: chance for row, chance in wanted.items() if 30 < PEOPLE[row[0]] < 50}
    assert predicted(found) == pytest.approx(wanted) and wanted
    assert [str(link) for link in found[1].missing] == [f"{found[1]['x']} {EX}lives {EX}Bonn"]


def test_literals_are_columns_and_put_rows_in_order(kb):
    text = (
        'SELECT ?x ?l ?a { ?x :lives ?c . ?x :age ?a . ?x rdfs:label ?l FILTER(lang(?l) = "de") } ORDER BY DESC(?a) ?l'
    )
    found = kb.ask(text, top=1000)
    assert known(found) == [("bob", "Robert", 60.0), ("ann", "Anna", 34.0)]
    wanted = {
        (x, GERMAN[x], float(PEOPLE[x])): chance
        for (x,), chance in best(((x,), p) for (x, _), p in links(kb, "SELECT ?x ?c { ?x :lives ?c }").items()).items()
        if x in GERMAN and x not in ("ann", "bob")
    }
    assert predicted(found).keys() == wanted.keys()
    ages = [row["a"] for row in found if row.status == "predicted"]
    assert ages == sorted(ages, reverse=True)


def test_a_join_of_two_entities_by_their_numbers(kb):
    found = kb.ask("SELECT ?x ?y { ?x :knows ?y . ?x :age ?a . ?y :age ?b FILTER(?a < ?b) }", top=1000)
    pairs = links(kb, "SELECT ?x ?y { ?x :knows ?y }")
    wanted = {
        pair: chance
        for pair, chance in pairs.items()
        if set(pair) <= PEOPLE.keys() and PEOPLE[pair[0]] < PEOPLE[pair[1]]
    }
    assert set(known(found)) == {("ann", "bob"), ("carl", "dora")}
    assert predicted(found) == pytest.approx(wanted) and wanted


def test_a_literal_that_is_named(kb):
    found = kb.ask('SELECT ?y { ?x :knows ?y . ?x rdfs:label "Anna"@de }', top=1000)
    assert known(found) == [("bob",)]
    assert predicted(found) == pytest.approx(links(kb, "SELECT ?y { :ann :knows ?y }"))


def test_counting_and_asking(kb):
    number = kb.ask("SELECT (COUNT(DISTINCT ?x) AS ?n) { ?x :lives :Bonn . ?x :age ?a FILTER(?a > 30) }")
    rows = links(kb, "SELECT ?x { ?x :lives :Bonn }")
    wanted = sum(chance for (x,), chance in rows.items() if x in PEOPLE and PEOPLE[x] > 30)
    assert (number[0]["n"], number[1]["n"]) == (2, pytest.approx(wanted))
    everything = kb.ask("SELECT (COUNT(*) AS ?n) { ?x :lives :Bonn . ?x rdfs:label ?l }")
    wanted = 2 * sum(chance for (x,), chance in rows.items() if x in GERMAN)
    assert (everything[0]["n"], everything[1]["n"]) == (4, pytest.approx(wanted))
    assert kb.ask("ASK { ?x :lives :Bonn . ?x :age 60.0 }").holds
    maybe = kb.ask("ASK { ?x :lives :Ulm . ?x :age 60.0 }")
    assert not maybe.holds
    assert maybe.chances[0] == pytest.approx(links(kb, "SELECT ?x { ?x :lives :Ulm }")[("bob",)])
    assert not kb.ask("ASK { ?x :lives :Ulm . ?x :age 61 }").chances


def test_limit_and_offset_count_known_rows_first(kb):
    text = "SELECT ?x { ?x :lives :Bonn . ?x :age ?a } ORDER BY ?x"
    everything = kb.ask(text, top=1000)
    for start in range(len(everything)):
        page = kb.ask(f"{text} LIMIT 2 OFFSET {start}", top=1000)
        assert [(row["x"], row.status) for row in page] == [
            (row["x"], row.status) for row in everything[start : start + 2]
        ]


def test_a_variable_for_a_relation(kb):
    found = kb.ask("SELECT ?p { :ann ?p :Ulm }", top=1000)
    wanted = {}
    for relation in ("knows", "lives"):
        answer = kb.ask(f"ASK {{ :ann :{relation} :Ulm }}")
        wanted[(relation,)] = answer[0].probability
    top = max(wanted.values())
    assert predicted(found) == pytest.approx({row: chance for row, chance in wanted.items() if chance >= top / 100})
    objects = kb.ask("SELECT ?p ?o { :ann ?p ?o }", top=1000)
    assert set(known(objects)) >= {("knows", "bob"), ("lives", "Bonn"), ("age", 34.0)}
    for (relation, name), chance in predicted(objects).items():
        assert chance == pytest.approx(links(kb, f"SELECT ?o {{ :ann :{relation} ?o }}")[(name,)])
    only = kb.ask("SELECT ?p ?o { :ann ?p ?o FILTER(?p != :knows) }", top=1000)
    assert {row[0] for row in predicted(only)} == {"lives"}


def test_nothing_to_predict_is_told(kb):
    found = kb.ask("SELECT ?x ?a { ?x :age ?a FILTER(?a > 50) }")
    assert sorted(known(found)) == [("alone", 99.0), ("bob", 60.0)]
    assert "no pattern is one" in found.note
    two = kb.ask("SELECT ?x { ?x ?p ?y . ?y ?q :Ulm }")
    assert len(two) == two.known_count and "one variable for a relation" in two.note


def test_mistakes_are_told(kb):
    with pytest.raises(UnknownName, match="relation 'http://ex.org/live'"):
        kb.ask("SELECT ?x { ?x :live :Bonn . ?x :age ?a }")
    with pytest.raises(InvalidOption, match="--coverage"):
        kb.ask("SELECT ?x { ?x :lives :Bonn . ?x :age ?a }", coverage=0.9)


def test_every_format(kb):
    found = kb.ask('SELECT ?x ?l { ?x :lives :Bonn . ?x rdfs:label ?l FILTER(lang(?l) = "en") }', top=5)
    assert '"Ann"@en' in found.write("tsv")
    for form in ("csv", "json", "sparql-json", "xml", "table", "tsv"):
        assert "predicted" in found.write(form)
    last = found.to_dict()["rows"][-1]
    assert last["probability"] == found[-1].probability and last["missing"][0]["object"] == f"{EX}Bonn"
    assert "missing" not in found.to_dict()["rows"][0]
    frame = found.to_pandas()
    assert list(frame.columns) == ["x", "l", "status", "probability", "missing"]
    assert frame["probability"].iloc[-1] == found[-1].probability and frame["missing"].iloc[0] == ()
    first = found.with_known(1)
    assert first.known_count == 1


def test_a_predicted_row_says_why_as_the_links_that_it_rests_on_do(kb, monkeypatch):
    monkeypatch.setattr(
        KnowledgeBase, "explain", lambda self, row: SimpleNamespace(sentence=f"because {row.missing[0]}")
    )
    found = kb.ask("SELECT ?x ?a { ?x :lives :Bonn . ?x :age ?a }", top=1000)
    for row in found.predicted:
        assert row.why == f"because {row.missing[0]}" and row.rests_on["x"] == row["x"]
        assert row.missing[0].object == f"{EX}Bonn"
    assert {row.why for row in found.known} == {"the graph holds every fact that it needs"}
    number = kb.ask("SELECT (COUNT(?x) AS ?n) { ?x :lives :Bonn . ?x :age ?a }")
    assert "sum of the probabilities" in number.predicted[0].why and number.known[0].missing == ()


def test_values_links_and_names_in_a_notebook(kb):
    found = kb.ask("SELECT ?x ?p ?a { ?x :lives :Bonn ; ?p ?a FILTER(isLiteral(?a)) }")
    row = next(row for row in found if row["x"] == f"{EX}ann")
    assert row.labels["x"] == "Ann" and row.labels["p"] in (":age", "rdfs:label")
    html = row._repr_html_()
    assert "<td>?x</td><td>Ann</td>" in html and "<td>known</td>" in html
    assert "Ann" in found.write("table") and EX not in found.write("table")
    guess = kb.ask("SELECT ?x ?a { ?x :lives :Bonn . ?x :age ?a }", top=1000).predicted[0]
    assert "<td>probability</td>" in guess._repr_html_() and "<td>missing</td>" in guess._repr_html_()


def test_relations_that_an_entity_s_kind_rules_out_are_not_tried(kb, monkeypatch):
    asked = []
    judge = SimpleNamespace(is_of_kind=lambda entity, direction: bool(asked.append((entity, direction))))
    monkeypatch.setattr(kb.predictor, "links", judge)
    nothing = kb.ask("SELECT ?p { :ann ?p :Ulm }")
    entities, relations = kb.vocabulary.entities, kb.vocabulary.relations
    ann, backwards = entities.find(f"{EX}ann"), len(relations)
    assert not nothing.predicted and set(asked) == {(ann, relation) for relation in range(backwards)}
