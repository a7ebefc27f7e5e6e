"""Predict blocks: their rows join with stored ones as if they had been written into the query by hand."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BiqeError, SparqlSyntax
from biqe.serve.federate import blocks


def rows(client, query: str, **params) -> list[tuple[str, ...]]:
    response = client.post("/sparql", data={"query": query}, params=params)
    assert response.status_code == 200, response.text
    answer = response.json()
    names = answer["head"]["vars"]
    return [tuple(row[name]["value"] if name in row else "" for name in names) for row in answer["results"]["bindings"]]


def iri(name: str) -> str:
    return f"urn:biqe:name:{name}"


def test_a_block_alone_gives_what_ask_gives(atlas, atlas_kb):
    found = rows(
        atlas, "SELECT ?city ?probability ?status { SERVICE <urn:biqe:predict?top=9> { ?city :located_on :Rhine } }"
    )
    expected = atlas_kb.ask("SELECT ?city { ?city :located_on :Rhine }", mode="both", top=9)
    assert {(city, status) for city, _, status in found} == {(iri(row.city), row.status) for row in expected}
    chances = {iri(row.city): row.probability for row in expected}
    for city, chance, _ in found:
        assert float(chance) == pytest.approx(chances[city], abs=1e-6)


def test_joined_rows_are_those_joined_by_hand(atlas, atlas_kb):
    query = """SELECT ?river ?city ?sea ?probability ?status WHERE {
      ?river :flows_into ?sea .
      SERVICE <urn:biqe:predict?mode=both&top=40> { ?river :flows_through :Germany, :France . ?city :located_on ?river }
      ?city :located_in ?country FILTER(?country != :France)
    }"""
    names, relations = atlas_kb.vocabulary.entities, atlas_kb.vocabulary.relations
    objects = defaultdict(list)
    for subject, relation, object_ in atlas_kb.graph.triples.tolist():
        objects[names[subject], relations[relation]].append(names[object_])
    block = atlas_kb.ask(
        "SELECT ?river ?city { ?river :flows_through :Germany, :France . ?city :located_on ?river }", top=40
    )
    by_hand = [
        (iri(row.river), iri(row.city), iri(sea), row.status)
        for row in block
        for sea in objects[row.river, "flows_into"]
        for country in objects[row.city, "located_in"]
        if country != "France"
    ]
    found = rows(atlas, query)
    assert sorted((river, city, sea, status) for river, city, sea, _, status in found) == sorted(by_hand)
    assert len(by_hand) > 3


def test_conditions_on_a_probability_may_stand_in_the_block_or_outside(atlas):
    inside = rows(
        atlas,
        """SELECT ?city { SERVICE <urn:biqe:predict?mode=predicted&top=30> {
             ?city :located_on :Rhine FILTER(?probability > 0.02 && ?city != :Ulm) } }""",
    )
    outside = rows(
        atlas,
        """SELECT ?city { SERVICE <urn:biqe:predict?mode=predicted&top=30> { ?city :located_on :Rhine }
             FILTER(?probability > 0.02) FILTER(?city != :Ulm) }""",
    )
    assert sorted(inside) == sorted(outside)
    assert 0 < len(inside) < 30


def test_a_condition_on_entities_is_the_models_to_read(atlas, atlas_kb):
    found = rows(
        atlas,
        """SELECT ?city { SERVICE <urn:biqe:predict?mode=predicted&top=3> {
             ?city :located_on :Rhine FILTER(?city != :Stuttgart) } }""",
    )
    expected = atlas_kb.ask(
        "SELECT ?city { ?city :located_on :Rhine FILTER(?city != :Stuttgart) }", mode="predicted", top=3
    )
    assert sorted(found) == sorted((iri(row.city),) for row in expected)


def test_a_sub_select_hides_variables_and_takes_the_best(atlas, atlas_kb):
    text = "SELECT ?city {} WHERE {{ ?river :flows_through :Germany . ?city :located_on ?river }} LIMIT 60"
    found = rows(
        atlas, f"SELECT ?city ?probability {{ SERVICE <urn:biqe:predict> {{ {text.format('?probability')} }} }}"
    )
    expected = atlas_kb.ask(text.format(""), mode="both")
    assert sorted(city for city, _ in found) == sorted(iri(row.city) for row in expected)


def test_a_limit_of_the_block_is_no_limit_of_the_server(atlas, atlas_kb):
    text = "SELECT ?city WHERE { ?city :located_on :Rhine } LIMIT 10"
    query = f"SELECT ?city WHERE {{ SERVICE <urn:biqe:predict> {{ {text} }} }}"
    expected = atlas_kb.ask(text, mode="both")
    assert len(expected) == 10 and not expected.known_complete
    assert sorted(rows(atlas, query)) == sorted((iri(row.city),) for row in expected)
    skipped = query.replace("LIMIT 10", "OFFSET 3")
    expected = atlas_kb.ask(text.replace("LIMIT 10", "OFFSET 3"), mode="both")
    assert sorted(rows(atlas, skipped)) == sorted((iri(row.city),) for row in expected)


def test_a_block_with_more_rows_than_the_server_joins_is_refused(serve, atlas_kb):
    from biqe.serve.config import Limits, ServeConfig

    query = "SELECT ?city { SERVICE <urn:biqe:predict> { SELECT ?city { ?city :located_in :Germany } %s } }"
    with serve(atlas_kb, ServeConfig(limits=Limits(rows=5))) as client:
        assert client.post("/sparql", data={"query": query % ""}).status_code == 413
        assert client.post("/sparql", data={"query": query % "LIMIT 6"}).status_code == 413
        assert len(rows(client, query % "LIMIT 5")) == 5


@pytest.mark.parametrize(
    ("prologue", "service", "probability"),
    [
        ("PREFIX p: <urn:biqe:>", "p:predict", "p:probability"),
        ("PREFIX p: <urn:biqe:>", "SILENT p:predict", "p:probability"),
        ("PREFIX : <urn:biqe:predict>", ":", "<urn:biqe:probability>"),
        ("PREFIX p: <urn:biqe:>", r"p:predict\?top\=20", "p:probability"),
        ("BASE <urn:biqe:>", "<predict>", "<probability>"),
        ("BASE <urn:biqe:> PREFIX p: <predict>", "p:", "<probability>"),
        ("BASE <urn:biqe:predict>", "<?top=20>", "<urn:biqe:probability>"),
    ],
)
def test_the_iri_of_a_block_is_that_of_its_prologue(atlas, prologue, service, probability):
    n = "urn:biqe:name:"
    query = "%s SELECT ?city ?p { SERVICE %s { ?city <%slocated_on> <%sRhine> BIND(%s AS ?p) } }"
    plain = query % ("", "<urn:biqe:predict>", n, n, "<urn:biqe:probability>")
    assert sorted(rows(atlas, query % (prologue, service, n, n, probability))) == sorted(rows(atlas, plain))


@pytest.mark.parametrize(
    "service", ["<http://ex.org/>", "SILENT <http://ex.org/>", "?somewhere", "p:predict", "<predict>"]
)
def test_any_other_service_is_refused_and_told_which_is_not(atlas, service):
    query = f"PREFIX p: <http://ex.org/> SELECT * {{ SERVICE {service} {{ ?s ?p ?o }} }}"
    response = atlas.post("/sparql", data={"query": query})
    assert response.status_code == 400
    error = response.json()["error"]
    assert "<urn:biqe:predict>" in error["message"] and error["column"] == 39


def test_two_blocks_need_two_names_for_their_probabilities(atlas):
    query = """SELECT ?city ?p ?q {
      SERVICE <urn:biqe:predict?top=5> { ?city :located_on :Rhine BIND(<urn:biqe:probability> AS ?p) }
      SERVICE <urn:biqe:predict?top=5> { ?city :located_in :Germany BIND(<urn:biqe:probability> AS ?q) }
    }"""
    found = rows(atlas, query)
    assert (iri("Cologne"), "1.0", "1.0") in {(city, *map(lambda n: f"{float(n):.1f}", more)) for city, *more in found}
    clash = (
        query.replace("BIND(<urn:biqe:probability> AS ?p)", "")
        .replace("AS ?q", "AS ?r")
        .replace("?p ?q", "?probability")
    )
    assert rows(atlas, clash)
    both = clash.replace("BIND(<urn:biqe:probability> AS ?r)", "")
    response = atlas.post("/sparql", data={"query": both})
    assert response.status_code == 400 and "two predict blocks" in response.json()["error"]["message"]


def test_blocks_stand_wherever_a_group_does(atlas):
    optional = rows(
        atlas,
        """SELECT ?city ?status { VALUES ?city { :Stuttgart :Tokyo }
             OPTIONAL { SERVICE <urn:biqe:predict?top=30> { ?city :located_on :Rhine } } }""",
    )
    assert set(optional) == {(iri("Stuttgart"), "predicted"), (iri("Tokyo"), "")}
    counted = rows(
        atlas,
        """SELECT ?status (COUNT(*) AS ?n) {
             { SERVICE <urn:biqe:predict?top=7> { ?city :located_on :Rhine } } UNION { ?city :capital_of :Germany }
           } GROUP BY ?status ORDER BY ?status""",
    )
    assert [status for status, _ in counted] == ["", "known", "predicted"]
    assert counted[2] == ("predicted", "7")


def test_blocks_in_construct_and_ask(atlas):
    query = """CONSTRUCT { ?city <http://ex.org/maybe> ?probability } WHERE {
      SERVICE <urn:biqe:predict?mode=predicted&top=4> { ?city :located_on :Rhine } }"""
    response = atlas.post("/sparql", data={"query": query}, headers={"Accept": "application/n-triples"})
    assert len(response.text.splitlines()) == 4
    asked = "ASK { SERVICE <urn:biqe:predict?mode=predicted> { ?city :located_on :Rhine } FILTER(?probability > %s) }"
    for least, holds in ((0.0, True), (1.0, False)):
        assert atlas.post("/sparql", data={"query": asked % least}).json()["boolean"] is holds


def test_prefixes_of_the_query_hold_in_the_block(atlas):
    plain = rows(atlas, "SELECT ?c { SERVICE <urn:biqe:predict> { ?c :located_on :Rhine } }")
    declared = rows(
        atlas,
        """# a comment with SERVICE <urn:biqe:predict> { nothing }
           PREFIX g: <urn:biqe:name:> SELECT ?c { SERVICE <urn:biqe:predict> { ?c g:located_on g:Rhine } }""",
    )
    assert sorted(plain) == sorted(declared)


@pytest.mark.parametrize(
    ("query", "place", "words"),
    [
        ("SELECT ?c { SERVICE <urn:biqe:predict> { ?c :located_on ?r ?c } }", (1, 60), "not expected"),
        ("SELECT ?c {\nSERVICE <urn:biqe:predict?colour=red> { ?c :located_on ?r } }", (2, 9), "colour"),
        ("SELECT ?c {\nSERVICE <urn:biqe:predict?top=many> { ?c :located_on ?r } }", (2, 9), "number"),
        ("SELECT ?c { SERVICE <urn:biqe:predict> { } }", (1, 40), "no pattern"),
        ("SELECT ?c { SERVICE <urn:biqe:predict> { ?c :p ?d SERVICE <urn:x> { ?d :p ?e } } }", (1, 51), "SERVICE"),
        ("SELECT ?c { SERVICE <urn:biqe:predict> { ?c :located_on :Rhine } OPTIONAL ?x }", (1, 75), ""),
        ("SELECT ?c { SERVICE <http://ex.org/> { ?c ?p ?o } }", (1, 13), "SERVICE"),
        ("SELECT ?c { SERVICE ?somewhere { ?c ?p ?o } }", (1, 13), "SERVICE"),
    ],
)
def test_errors_stand_at_their_place_in_the_whole_query(atlas, query, place, words):
    response = atlas.post("/sparql", data={"query": query})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["line"], error["column"]) == place, error
    assert words in error["message"]


def test_silent_turns_an_error_into_a_row_without_values(atlas):
    query = "SELECT ?s ?c { :Rhine :flows_through ?s SERVICE %s <urn:biqe:predict> { ?c :no_such_relation :Rhine } }"
    assert atlas.post("/sparql", data={"query": query % ""}).status_code == 400
    found = rows(atlas, query % "SILENT")
    assert found and {c for _, c in found} == {""}


def test_a_mode_beside_blocks_is_refused(atlas):
    query = "SELECT ?c { SERVICE <urn:biqe:predict> { ?c :located_on :Rhine } }"
    assert atlas.post("/sparql", data={"query": query, "mode": "both"}).status_code == 400


def test_a_block_without_a_model_gives_known_rows(odd):
    found = rows(odd, "SELECT ?x ?status { SERVICE <urn:biqe:predict> { ?x :knows <a%20b> } }")
    assert [status for _, status in found] == ["known"]


def test_a_blank_node_in_a_block_is_refused_rather_than_joined_with_everything(odd):
    response = odd.post("/sparql", data={"query": "SELECT ?x { SERVICE <urn:biqe:predict> { ?x :knows ?y } }"})
    assert response.status_code == 400
    assert "_:b0" in response.json()["error"]["message"]


# Reading blocks out of texts

PIECES = st.sampled_from(
    """SERVICE SILENT <urn:biqe:predict> <urn:biqe:predict?top=3> { } ( ) ?x :p . FILTER ?probability BIND AS
    <urn:biqe:probability> ' " # SELECT WHERE \\u0041 < >""".split()
    + ["\n"]
)


@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_any_text_is_read_or_refused(text):
    try:
        found = blocks(text)
    except BiqeError as error:
        assert isinstance(error, SparqlSyntax)
        return
    for block in found:
        places = [block.open, *block.taken]
        assert all(start < end for start, end in places)
        assert all(end <= start for (_, end), (start, _) in zip(places, places[1:], strict=False))
