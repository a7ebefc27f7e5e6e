"""The JSON API: shapes, pages, explanations, completion; and every route under generated requests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

QUERY = "SELECT ?river ?city WHERE { ?river :flows_through :Germany, :France . ?city :located_on ?river }"


def post(client, path: str, **body):
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_ask_gives_the_rows_of_the_knowledge_base(atlas, atlas_kb):
    answer = post(atlas, "ask", query=QUERY, top=5)
    expected = atlas_kb.ask(QUERY, top=5)
    assert answer["columns"] == [{"name": "river", "target": True}, {"name": "city", "target": True}]
    assert (answer["known"], answer["predicted"], answer["total"]) == (expected.known_count, 5, len(expected))
    for row, other in zip(answer["rows"], expected, strict=True):
        assert [value["id"] for value in row["values"]] == list(other.ids)
        assert [value["label"] for value in row["values"]] == list(other.labels.values())
        assert (row["status"], row["index"]) == (other.status, other.number)
        assert row["probability"] == pytest.approx(other.probability, abs=1e-6)
        assert [(link["subject"], link["predicate"], link["object"]) for link in row["missing"]] == [
            link[:3] for link in other.missing
        ]


def test_pages_together_are_the_whole(atlas):
    whole = post(atlas, "ask", query=QUERY, top=7)["rows"]
    pages = [post(atlas, "ask", query=QUERY, top=7, limit=4, offset=offset)["rows"] for offset in range(0, 40, 4)]
    strip = [
        [(row["index"], row["values"]) for row in page] for page in (whole, [row for page in pages for row in page])
    ]
    assert strip[0] == strip[1]
    assert post(atlas, "ask", query=QUERY, top=7, limit=0)["rows"] == []


def test_a_value_can_be_asked_with(atlas):
    [value] = post(atlas, "ask", query="SELECT ?c { ?c :located_on :Rhine } LIMIT 1", top=0)["rows"][0]["values"]
    for name in (value["term"], f"<{value['iri']}>"):
        assert post(atlas, "ask", query=f"ASK {{ {name} :located_on :Rhine }}")["holds"] is True


def test_forms_of_answers(atlas):
    assert post(atlas, "ask", query=QUERY)["form"] == "select"
    asked = post(atlas, "ask", query="ASK { :Stuttgart :located_on :Rhine }")
    assert (asked["form"], asked["holds"], asked["rows"][0]["status"]) == ("ask", False, "predicted")
    counted = post(atlas, "ask", query="SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine }")
    assert counted["form"] == "count" and [row["status"] for row in counted["rows"]] == ["known", "predicted"]
    assert re.fullmatch(r"[\d.]{3,8}", counted["rows"][1]["values"][0]["label"])  # no sixteen digits
    values = post(atlas, "ask", query="SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p", mode="known")
    assert values["form"] == "values" and values["total"] == 16
    mixed = post(
        atlas, "ask", query="SELECT ?c ?probability { SERVICE <urn:biqe:predict?top=3> { ?c :located_on :Rhine } }"
    )
    assert [column["name"] for column in mixed["columns"]] == ["c", "probability"]


def test_explain_tells_why(atlas, atlas_kb):
    answers = atlas_kb.ask(QUERY, top=5)
    number = answers.known_count
    views = ["witness", "attention", "counterfactual"]
    quick = post(atlas, "explain", query=QUERY, top=5, row=number)
    assert (quick["attention"], quick["counterfactual"], quick["svg"], quick["skipped"]) == (None, [], None, {})
    told = post(atlas, "explain", query=QUERY, top=5, row=number, views=views, svg=True)
    expected = json.loads(json.dumps(atlas_kb.explain(answers[number], views=views).to_json()))
    assert (told["sentence"], told["reasons"]) == (expected["sentence"], expected["reasons"])
    assert quick["reasons"] == told["reasons"] and told["reasons"][0]["rules"]
    assert told["status"] == "predicted"
    links = told["witness"]["links"]
    assert [(link["subject"], link["relation"], link["object"], link["stored"]) for link in links] == [
        (link["subject"], link["relation"], link["object"], link["stored"]) for link in expected["witness"]["links"]
    ]
    nodes = {node["id"] for node in told["witness"]["nodes"]}
    assert {end for link in links for end in (link["subject"], link["object"])} <= nodes
    attention = told["attention"]
    assert len(attention["mean"]) == len(attention["unknowns"]) == 2
    assert all(
        len(row) == len(attention["tokens"]) and sum(row) == pytest.approx(1, abs=1e-4) for row in attention["mean"]
    )
    assert [change["after"] for change in told["counterfactual"]] == pytest.approx(
        [entry["share"] for part in ("patterns", "triples") for entry in expected["counterfactual"][part]], abs=1e-6
    )
    assert told["svg"].startswith("<svg") and told["text"]


def test_a_row_that_is_not_there_is_refused(atlas):
    response = atlas.post("/api/explain", json={"query": QUERY, "top": 0, "row": 9999})
    assert response.status_code == 400 and "9999" in response.json()["error"]["message"]


def test_parse_draws_the_query(atlas):
    found = post(atlas, "parse", query=QUERY)
    assert found["errors"] == [] and found["targets"] == ["?river", "?city"]
    assert {(node["label"], node["kind"]) for node in found["graph"]["nodes"]} == {
        ("?river", "target"),
        ("?city", "target"),
        ("Germany", "entity"),
        ("France", "entity"),
    }
    ids = {node["id"] for node in found["graph"]["nodes"]}
    assert len(found["graph"]["edges"]) == 3
    assert all({edge["source"], edge["target"]} <= ids for edge in found["graph"]["edges"])


@pytest.mark.parametrize(
    ("query", "place", "known_only"),
    [
        ("SELECT ?x {\n ?x :p ?y ?z }", (2, 11), False),
        ("SELECT ?x { ?x :p ?y\n  FILTER EXISTS { ?y :q ?z } }", (2, 10), True),
        ("SELECT ?x { SERVICE <urn:biqe:predict> { ?x :located_on :Rhine } }", (1, 13), True),
        ("", (1, 1), False),
    ],
)
def test_parse_tells_errors_with_their_place(atlas, query, place, known_only):
    found = post(atlas, "parse", query=query)
    [error] = found["errors"]
    assert (error["line"], error["column"]) == place
    assert not error["message"].startswith("line ")
    assert found["known_only"] is known_only


@pytest.mark.parametrize("head", ["ASK", "SELECT (COUNT(*) AS ?n)", "CONSTRUCT { :a :b ?v0 } WHERE", "DESCRIBE ?v0"])
def test_parse_reads_what_would_take_for_ever_to_answer(atlas, head):
    lists = " ".join(f"VALUES ?v{i} {{ {' '.join(map(str, range(200)))} }}" for i in range(5))
    query = f"{head} {{ {lists} FILTER(?v0 + ?v1 + ?v2 + ?v3 + ?v4 < 0) }}"
    assert post(atlas, "parse", query=query)["known_only"] is True
    assert post(atlas, "parse", query=query.replace("< 0", "< "))["known_only"] is False


def test_completion_is_by_name_and_label(atlas):
    def complete(**params):
        response = atlas.get("/api/complete", params=params)
        assert response.status_code == 200, response.text
        return response.json()

    assert complete(text="Germ")[0] == {"insert": ":Germany", "label": "Germany", "kind": "entity", "detail": ""}
    assert complete(text=":germ")[0]["insert"] == ":Germany"
    assert [entry["insert"] for entry in complete(text="fl", kind="relation")] == [":flows_into", ":flows_through"]
    assert len(complete(text="", kind="relation", limit=200)) == 16
    assert complete(text="", kind="entity") == []
    assert complete(text="", kind="prefix")[0]["insert"] == ":"
    # What the relation before it leads to comes first: rivers, not cities.
    rivers = [entry["label"] for entry in complete(text="", after=":located_on", limit=5)]
    assert rivers[0] == "Nile" and len(rivers) == 5
    assert complete(text="Danu", after=":located_on")[0]["label"] == "Danube"
    assert complete(text="Germ", after=":no_such_relation")[0]["insert"] == ":Germany"
    for entry in complete(text="a", limit=25):
        assert post(atlas, "parse", query=f"SELECT ?x {{ ?x :near {entry['insert']} }}")["errors"] == []


def test_facts_of_the_graph_and_its_models(atlas, atlas_kb):
    graph = atlas.get("/api/graph").json()
    assert (graph["entities"], graph["triples"]) == (atlas_kb.graph.entity_count, len(atlas_kb.graph.triples))
    assert sum(relation["count"] for relation in graph["relations"]) == graph["triples"]
    for example in graph["examples"]:
        assert post(atlas, "ask", query=example["query"], top=3)["known"] > 0
    [model] = atlas.get("/api/models").json()
    assert model["default"] and model["calibrated"] and model["metrics"]["mrr"] > 0


def test_odd_names_are_data_and_nothing_else(odd):
    answer = odd.post("/api/ask", json={"query": "SELECT ?x { ?x <is%20a> :thing }"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>alert(1)</script>" in {row["values"][0]["label"] for row in answer.json()["rows"]}
    refused = odd.post("/api/ask", json={"query": "SELECT ?x { ?x :<script>alert(1)</script> :y }"})
    assert refused.status_code == 400 and refused.headers["content-type"] == "application/json"
    row = next(row for row in answer.json()["rows"] if "<script>" in row["values"][0]["label"])
    told = post(odd, "explain", query="SELECT ?x { ?x <is%20a> :thing }", row=row["index"], svg=True)
    assert "<script>" not in told["svg"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"query": 3}',
        b'{"query": "SELECT", "colour": 1}',
        b'{"query": "x", "top": -1}',
        b"null",
        b'{"query": "x", "mode": "maybe"}',
        b'{"query": "\\ud800"}',
        b'{"query": "x", "min_probability": 1e999}',
        b'{"query": "x", "limit": 1e30}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_malformed_bodies_are_400(atlas, body):
    response = atlas.post("/api/ask", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) >= {"type", "message", "hint", "request_id"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "'query' is missing"),
        (b'{"query": 5}', "'query': input should be a valid string"),
        (b'{"query": "x", "top": -1}', "'top': "),
        (b'{"query": "x", "colour": 1}', "'colour': "),
        (b"{", "the body is not JSON"),
        (b'{"query": "\xff"}', "the body cannot be read as JSON in UTF-8"),
        (b"[" * 100_000, "the body cannot be read as JSON in UTF-8"),
        (b"[]", "the body must be a JSON object"),
        (b"", "the body is missing"),
    ],
)
def test_what_is_wrong_with_a_body_is_named(atlas, body, words):
    response = atlas.post("/api/ask", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and words in response.json()["error"]["message"]


def test_what_is_wrong_with_a_parameter_is_named(atlas):
    response = atlas.get("/api/complete", params={"limit": "many"})
    assert response.status_code == 400 and response.json()["error"]["message"].startswith("'limit': ")


def test_a_body_that_is_not_json_is_415_and_the_document_says_so(atlas):
    document = atlas.get("/api/openapi.json").json()
    for path in ("/api/ask", "/api/explain", "/api/parse", "/api/load"):
        assert "415" in document["paths"][path]["post"]["responses"]
    for path in ("/api/ask", "/api/explain", "/api/parse"):
        for sent in (
            {"data": {"query": QUERY}},
            {"content": b'{"query": "x"}'},
            {"content": b"{}", "headers": {"Content-Type": "text/json"}},
        ):
            response = atlas.post(path, **sent)
            assert response.status_code == 415 and "application/json" in response.json()["error"]["hint"]


def test_explain_without_asking_the_model_does_not_say_that_there_is_none(atlas, odd):
    told = post(atlas, "explain", query=QUERY, row=0, mode="known", views=["attention", "counterfactual"])
    assert set(told["skipped"]) == {"attention", "counterfactual"}
    assert all("mode known asks no model" in reason for reason in told["skipped"].values())
    assert "no model, so" not in told["text"]
    without = post(odd, "explain", query="SELECT ?x { ?x <is%20a> :thing }", row=0, mode="known", views=["attention"])
    assert all("there is no model" in reason for reason in without["skipped"].values())


def test_hints_of_parse_name_no_options_of_the_command_line(atlas):
    [error] = post(atlas, "parse", query="SELECT ?x { ?x :p ?y FILTER EXISTS { ?y :q ?z } }")["errors"]
    assert "mode=known" in error["hint"] and "--" not in error["hint"]


@pytest.mark.slow
def test_generated_requests_find_nothing_undocumented(odd, tmp_path):
    """schemathesis reads the OpenAPI document and tries what it allows, and what it does not.

    One check is left out: a document cannot say which texts are SPARQL, so most generated texts are refused.
    """
    program = Path(sys.executable).parent / "schemathesis"
    command = [
        program,
        "run",
        f"{odd.base_url}/api/openapi.json".replace("//api", "/api"),
        "--workers",
        "2",
        "--phases",
        "examples,coverage",
        "--suppress-health-check",
        "all",
        "--no-color",
        "--exclude-checks",
        "positive_data_acceptance",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_document_describes_every_route(odd):
    document = odd.get("/api/openapi.json").json()
    assert {"/sparql", "/update", "/api/ask", "/api/explain", "/api/parse", "/api/load"} <= set(document["paths"])
    assert "422" not in json.dumps(document["paths"])


def test_a_manifest_of_a_model_that_says_anything_is_shown_without_it(tmp_path):
    from biqe.serve.api import _model

    for text in ("[]", "[" * 100_000, '{"trained": 5, "model": {}}', '{"trained": {"mrr": [], "budget": null}}'):
        (tmp_path / "manifest.json").write_text(text)
        told = _model("m", tmp_path, None, None)
        assert told.metrics == {} and not told.calibrated
    (tmp_path / "manifest.json").write_text('{"model": "gqe", "trained": {"mrr": 0.5, "budget": "5 minutes"}}')
    told = _model("m", tmp_path, tmp_path, None)
    assert (told.kind, told.trained, told.metrics, told.default) == ("gqe", "5 minutes", {"mrr": 0.5}, True)


@pytest.mark.parametrize(
    ("query", "is_drawn", "wrong"),
    [
        ("SELECT ?p ?x { :Bonn ?p ?x }", True, ""),
        ("SELECT ?p ?x { :Bonn ?p ?x . ?x :locatd_on :Rhine }", True, "'locatd_on'"),
        ("SELECT ?p ?x { :Bonn ?p ?x . ?x :located_on :Rhne }", True, "'Rhne'"),
        ("SELECT ?x { ?x :located_on :Rhine . ?x :near ?n FILTER(strlen(str(?n)) > 4) }", True, ""),
    ],
)
def test_what_mode_both_answers_is_no_mistake(atlas, query, is_drawn, wrong):
    found = post(atlas, "parse", query=query)
    assert bool(found["graph"]["edges"]) is is_drawn and found["known_only"] is False
    assert [wrong in error["message"] for error in found["errors"]] == ([True] if wrong else [])


def test_relations_to_literals_are_no_mistake():
    from biqe.graph.vocabulary import Vocabulary
    from biqe.serve.page_metadata import parsed

    vocabulary = Vocabulary(["Alien", "Scott"], ["by"], {})
    text = "SELECT ?f ?y { ?f :by :Scott ; :year ?y }"
    assert [error.message for error in parsed(text, {"": ""}, vocabulary).errors] != []
    assert parsed(text, {"": ""}, vocabulary, "year".__eq__).errors == []


def test_rows_of_values_are_explained_and_their_names_are_short(atlas):
    query = "SELECT ?p ?river { :Bonn ?p ?river . ?river a :River }"
    found = post(atlas, "ask", query=query)
    row = next(row for row in found["rows"] if row["status"] == "predicted")
    assert found["form"] == "values" and row["missing"][0]["labels"][0] == "Bonn"
    why = post(atlas, "explain", query=query, row=row["index"])
    assert why["status"] == "predicted" and why["probability"] == pytest.approx(row["probability"])
    values = post(atlas, "ask", query="SELECT ?t { BIND(xsd:date AS ?t) }", mode="known")
    assert values["rows"][0]["values"][0]["label"] == "xsd:date"
