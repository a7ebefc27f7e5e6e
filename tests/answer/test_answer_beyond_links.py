"""Predicted rows beside literals, and for unknown relations: against the question of links alone, joined by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from biqe.answer.beyond_links import LIKELY
from biqe.answer.terms import TermTable
from biqe.errors import InvalidOption, SparqlSyntax, UnknownName, UnsupportedQuery
from biqe.graph.read import read_graph
from biqe.knowledge_base import KnowledgeBase
from biqe.knowledge_base import open as open_knowledge_base
from biqe.predict.predictor import Predictor
from biqe.query.sparql import parse_question

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


# OPTIONAL


BALTIC = "SELECT ?city ?country { ?city :on_sea :Baltic_Sea OPTIONAL { ?city :located_in ?country } }"


@pytest.fixture(scope="module")
def atlas():
    return open_knowledge_base("atlas")


def test_known_rows_of_optional_are_those_of_the_exact_store(atlas):
    found = atlas.ask(BALTIC, top=40)
    exact = atlas.ask(BALTIC, mode="known")
    assert [row.values for row in found.known] == [row.values for row in exact]
    assert any(row.country is None for row in found.known), "a known row is kept though nothing is stored"
    assert all(row.probability == 1.0 and row.missing == () and row.filled == () for row in found.known)


def test_a_row_that_is_kept_has_the_chance_of_what_is_not_optional(atlas):
    """Two roads: the parts asked one by one, and the question whole."""
    found = atlas.ask(BALTIC, top=40, mode="predicted")
    plain = {row.city: row.probability for row in atlas.ask("SELECT ?city { ?city :on_sea :Baltic_Sea }", top=60)}
    stored = {}
    for row in atlas.ask("SELECT ?city ?country { ?city :located_in ?country }", mode="known"):
        stored.setdefault(row.city, set()).add(row.country)
    kinds = set()
    for row in found:
        likely = {} if row.city in stored else beside(atlas, row.city)
        if row.filled:
            assert row.filled == ("country",) and likely[row.country] >= LIKELY
            assert row.probability == pytest.approx(plain[row.city] * likely[row.country], rel=1e-4)
            assert (row.city, "located_in", row.country) in {link[:3] for link in row.missing}
        else:
            assert row.probability == pytest.approx(plain[row.city], rel=1e-4)
            assert row.country in stored.get(row.city, {None})
            assert max(likely.values(), default=0.0) < LIKELY, "what is likely is filled in"
        kinds.add((bool(row.filled), row.country is None, plain[row.city] == 1.0))
    assert kinds >= {(True, False, True), (True, False, False), (False, False, False)}


def beside(atlas, city):
    """Countries of a city by their chance."""
    found = atlas.ask(f"SELECT ?country {{ <{city}> :located_in ?country }}", mode="predicted")
    return {row.country: row.probability for row in found}


def test_what_is_filled_in_is_marked_and_explained(atlas):
    found = atlas.ask(BALTIC, top=40)
    row = next(row for row in found.predicted if row.filled)
    assert f"{row.country} (predicted)" in found.write("table")
    entry = found.to_dict()["rows"][row.number]
    assert entry["filled"] == ["country"] and entry["missing"][0]["probability"] == row.missing[0].probability
    why = atlas.explain(BALTIC, row=row.number, top=40)
    assert row.city in why.sentence or row.country in why.sentence
    assert atlas.explain(row).sentence == why.sentence
    with pytest.raises(UnsupportedQuery, match="values, not entities"):
        atlas.explain(BALTIC, row=0, top=40)


def test_optional_beside_a_negation_counts_what_is_against_it(atlas):
    text = "SELECT ?c ?k { ?c :located_on :Rhine OPTIONAL { ?c :located_in ?k } FILTER NOT EXISTS { ?c :on_sea ?s } }"
    found = atlas.ask(text, top=20)
    plain = atlas.ask("SELECT ?c { ?c :located_on :Rhine FILTER NOT EXISTS { ?c :on_sea ?s } }", top=60)
    chances = {row.c: row for row in plain.predicted}
    kept = [row for row in found.predicted if not row.filled]
    assert kept and all(row.probability == pytest.approx(chances[row.c].probability) for row in kept)
    assert all(row.against == chances[row.c].against for row in kept) and "against:" in found.write("table")
    assert all(entry["against"] for entry in found.to_dict()["rows"][found.known_count :])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k } FILTER(?k != :Poland) }",
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k } ?k :borders :Poland }",
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k } OPTIONAL { ?k :borders ?c } }",
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k OPTIONAL { ?k :borders ?m } } }",
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?m :located_in ?k } }",
        "SELECT ?c ?k { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k } FILTER NOT EXISTS { ?k :borders ?m } }",
        "SELECT (COUNT(?c) AS ?n) { ?c :on_sea :Baltic_Sea OPTIONAL { ?c :located_in ?k } }",
    ],
)
def test_other_uses_of_optional_are_answered_from_the_graph(atlas, text):
    found, exact = atlas.ask(text), atlas.ask(text, mode="known")
    assert found.note.startswith("from the graph alone") and "not predicted" in found.note
    assert [row.values for row in found] == [row.values for row in exact]


def test_ask_does_not_depend_on_what_is_optional(atlas):
    text = "ASK { :Bonn :located_on :Rhine %s }"
    assert atlas.ask(text % "OPTIONAL { :Bonn :located_in ?k . :Bonn :located_on ?r }").note.startswith(
        "from the graph"
    )
    whole = atlas.ask("ASK { ?c :located_on :Rhine OPTIONAL { ?c :capital_of :Spain } }")
    assert whole.holds and whole[0].status == "known"


def test_the_text_of_an_optional_question_reads_back():
    text = "SELECT ?x ?z WHERE { ?x <p> ?y OPTIONAL { ?y <q> ?z . ?z <p> <a> } FILTER(?x != <b>) }"
    question = parse_question(text, wide=True)
    assert str(question) == text and parse_question(str(question), wide=True) == question
    with pytest.raises(SparqlSyntax, match="OPTIONAL is outside"):
        parse_question(text)


def test_a_predicted_row_says_why_as_the_links_that_it_rests_on_do(kb, monkeypatch):
    monkeypatch.setattr(
        KnowledgeBase, "explain", lambda self, row: SimpleNamespace(sentence=f"because {row.missing[0]}")
    )
    found = kb.ask("SELECT ?x ?a { ?x :lives :Bonn . ?x :age ?a }", top=1000)
    for row in found.predicted:
        assert row.why == f"because {row.missing[0]}" and row.rests_on[0]["x"] == row["x"]
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
