"""The SPARQL 1.1 Protocol over a real socket: ways to ask, forms of answers, and what is refused with which status."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET

import pyoxigraph
import pytest

from biqe.answer.result import patterns
from biqe.serve.results import ROWS, TRIPLES

QUERY = "SELECT ?city WHERE { ?city :located_on :Rhine }"
RESULTS = "{http://www.w3.org/2005/sparql-results#}"


@pytest.fixture(scope="module")
def cities(atlas_kb) -> set[str]:
    return {f"urn:biqe:name:{row.city}" for row in atlas_kb.ask(QUERY, mode="known")}


def bindings(response) -> set[str]:
    assert response.status_code == 200, response.text
    return {row["city"]["value"] for row in response.json()["results"]["bindings"]}


def test_three_ways_to_ask_give_the_same(atlas, cities):
    assert len(cities) > 5
    assert bindings(atlas.get("/sparql", params={"query": QUERY})) == cities
    assert bindings(atlas.post("/sparql", data={"query": QUERY})) == cities
    direct = {"Content-Type": "application/sparql-query; charset=utf-8"}
    assert bindings(atlas.post("/sparql", content=QUERY, headers=direct)) == cities


def _cities(response, form: str) -> list[str]:
    if form == "csv":  # pyoxigraph does not read it, and it has no types
        return [line[0] for line in csv.reader(io.StringIO(response.text))][1:]
    kind = pyoxigraph.QueryResultsFormat.from_media_type(ROWS[form])
    return [row["city"].value for row in pyoxigraph.parse_query_results(response.content, format=kind)]


@pytest.mark.parametrize("form", ROWS)
def test_every_form_holds_the_same_rows(atlas, cities, form):
    for asked in ({"headers": {"Accept": ROWS[form]}}, {"params": {"format": form}}):
        response = atlas.post("/sparql", data={"query": QUERY}, **asked)
        assert response.headers["content-type"].partition(";")[0] == ROWS[form]
        assert set(_cities(response, form)) == cities


@pytest.mark.parametrize("form", TRIPLES)
def test_constructed_triples_can_be_read_in_every_form(atlas, cities, form):
    query = "CONSTRUCT { ?city <http://ex.org/on> :Rhine } WHERE { ?city :located_on :Rhine }"
    response = atlas.post("/sparql", data={"query": query}, headers={"Accept": TRIPLES[form]})
    assert response.headers["content-type"].partition(";")[0] == TRIPLES[form]
    triples = pyoxigraph.parse(response.content, format=pyoxigraph.RdfFormat.from_media_type(TRIPLES[form]))
    assert {quad.subject.value for quad in triples} == cities


def test_missing_links_are_weighed_only_for_clients_that_want_them(atlas, atlas_kb):
    asked = {"query": QUERY, "mode": "predicted"}
    plain = atlas.post("/sparql", data=asked).json()["results"]["bindings"]
    telling = atlas.post("/sparql", data={**asked, "extra": "missing"}).json()["results"]["bindings"]
    assert [row["city"] for row in plain] == [row["city"] for row in telling] and len(plain) > 5
    rows = atlas_kb.ask(QUERY, mode="predicted")
    assert [row["missing"]["value"] for row in telling] == [patterns(row.missing) for row in rows]


def test_triples_have_no_extra_columns(atlas):
    query = "CONSTRUCT { ?city <http://ex.org/on> :Rhine } WHERE { ?city :located_on :Rhine }"
    plain = atlas.post("/sparql", data={"query": query})
    extra = atlas.post("/sparql", data={"query": query, "extra": "probability"})
    assert plain.status_code == extra.status_code == 200 and plain.content == extra.content


def test_ask_and_describe(atlas):
    asked = {"query": "ASK { :Cologne :located_on :Rhine }"}
    assert atlas.get("/sparql", params=asked).json() == {"head": {}, "boolean": True}
    tree = ET.fromstring(atlas.get("/sparql", params={**asked, "format": "xml"}).content)
    assert tree.findtext(f"{RESULTS}boolean") == "true"
    described = atlas.get("/sparql", params={"query": "DESCRIBE :Cologne", "format": "nt"})
    assert "<urn:biqe:name:Cologne> <urn:biqe:name:located_on> <urn:biqe:name:Rhine> ." in described.text


def test_the_default_is_all_of_sparql_over_stored_triples(atlas, atlas_kb):
    query = """SELECT ?country (COUNT(DISTINCT ?city) AS ?n) WHERE {
        ?city :located_in ?country OPTIONAL { ?city :capital_of ?country } FILTER NOT EXISTS { ?city :on_sea ?sea }
    } GROUP BY ?country HAVING(COUNT(?city) > 3) ORDER BY DESC(?n) ?country LIMIT 7"""
    rows = atlas.get("/sparql", params={"query": query}).json()["results"]["bindings"]
    expected = atlas_kb.store.query(query, prefixes=atlas_kb.prefixes).rows
    assert [(row["country"]["value"], row["n"]["value"]) for row in rows] == [
        (f"urn:biqe:name:{country.value}", n.value) for country, n in expected
    ]


def test_iris_of_an_answer_can_be_asked_with(atlas, cities):
    for iri in sorted(cities)[:3]:
        assert atlas.get("/sparql", params={"query": f"ASK {{ <{iri}> :located_on :Rhine }}"}).json()["boolean"]


# Predictions by parameter and by header


def test_predicted_rows_are_those_of_ask(atlas, atlas_kb):
    options = {"mode": "both", "top": 7, "min-probability": 0.005, "extra": "probability,status"}
    by_parameter = atlas.get("/sparql", params={"query": QUERY, **options}).json()
    assert by_parameter["head"]["vars"] == ["city", "probability", "status"]
    found = [
        (row["city"]["value"], row["status"]["value"], float(row["probability"]["value"]))
        for row in by_parameter["results"]["bindings"]
    ]
    expected = atlas_kb.ask(QUERY, mode="both", top=7, min_probability=0.005)
    assert [(iri, status) for iri, status, _ in found] == [
        (f"urn:biqe:name:{row.city}", row.status) for row in expected
    ]
    assert [chance for *_, chance in found] == pytest.approx([row.probability for row in expected], abs=1e-6)
    headers = {f"X-Biqe-{name}": str(value) for name, value in options.items()}
    by_header = atlas.post("/sparql", data={"query": QUERY}, headers=headers).json()
    assert [row["city"]["value"] for row in by_header["results"]["bindings"]] == [iri for iri, *_ in found]


def test_extra_variables_only_where_asked_for(atlas):
    plain = atlas.get("/sparql", params={"query": QUERY, "mode": "both"}).json()
    assert plain["head"]["vars"] == ["city"]
    missing = atlas.get("/sparql", params={"query": QUERY, "mode": "predicted", "extra": "missing", "top": 1}).json()
    [row] = missing["results"]["bindings"]
    name = row["city"]["value"].removeprefix("urn:biqe:name:")
    assert row["missing"]["value"] == f"<{name}> <located_on> <Rhine>"
    known = atlas.get("/sparql", params={"query": QUERY, "extra": "status,probability"}).json()["results"]["bindings"]
    assert {(row["status"]["value"], row["probability"]["value"]) for row in known} == {("known", "1.0")}


def test_ask_tells_its_probability_beside_what_is_stored(atlas, atlas_kb):
    query = "ASK { :Stuttgart :located_on :Rhine }"
    response = atlas.get("/sparql", params={"query": query, "mode": "both"})
    assert response.json()["boolean"] is False
    expected = atlas_kb.ask(query, mode="both")[0].probability
    assert float(response.headers["X-Biqe-Probability"]) == pytest.approx(expected, abs=1e-6)


def test_a_count_is_one_number_unless_the_status_is_asked_for(atlas, atlas_kb):
    query = "SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine }"
    stored, more = (row.n for row in atlas_kb.ask(query, mode="both"))

    def numbers(**parameters):
        response = atlas.get("/sparql", params={"query": query, **parameters})
        rows = response.json()["results"]["bindings"]
        return [{name: term["value"] for name, term in row.items()} for row in rows], response.headers

    rows, headers = numbers(mode="both")
    assert rows == [{"n": str(stored)}] == numbers()[0]
    assert float(headers["X-Biqe-Expected"]) == pytest.approx(more, abs=1e-6)
    rows, _ = numbers(mode="both", extra="status,probability")
    assert [row["status"] for row in rows] == ["known", "predicted"]
    assert float(rows[1]["n"]) == pytest.approx(more, abs=1e-6)
    [row] = numbers(mode="predicted")[0]
    assert float(row["n"]) == pytest.approx(more, abs=1e-6)
    assert "X-Biqe-Expected" not in numbers()[1]
    block = "SELECT * { SERVICE <urn:biqe:predict> { SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine } } %s }"
    for rest, count in (("", 1), ("BIND(?status AS ?s)", 2)):
        response = atlas.get("/sparql", params={"query": block % rest})
        assert len(response.json()["results"]["bindings"]) == count


# Refusals


@pytest.mark.parametrize(
    ("method", "request_", "status"),
    [
        ("GET", {"params": {"query": "SELECT nonsense"}}, 400),
        ("GET", {"params": {"query": ""}}, 400),
        ("GET", {"params": [("query", QUERY), ("query", QUERY)]}, 400),
        ("GET", {"params": {"query": QUERY, "default-graph-uri": "http://ex.org/"}}, 400),
        ("GET", {"params": {"query": "SELECT * FROM <file:///etc/passwd> { ?s ?p ?o }"}}, 400),
        ("GET", {"params": {"query": "SELECT * { SERVICE <http://127.0.0.1:1/sparql> { ?s ?p ?o } }"}}, 400),
        ("GET", {"params": {"query": "INSERT DATA { :a :b :c }"}}, 400),
        ("GET", {"params": {"update": "INSERT DATA { :a :b :c }"}}, 405),
        ("GET", {"params": {"query": QUERY, "mode": "maybe"}}, 400),
        ("GET", {"params": {"query": QUERY, "mode": "both", "top": "many"}}, 400),
        ("GET", {"params": {"query": QUERY, "mode": "both", "top": "-1"}}, 400),
        ("GET", {"params": {"query": QUERY, "mode": "both", "top": "1000000"}}, 400),
        ("GET", {"params": {"query": QUERY, "mode": "both", "min-probability": "nan"}}, 400),
        ("GET", {"params": {"query": QUERY, "mode": "both", "model": "gpt"}}, 400),
        ("GET", {"params": {"query": QUERY, "extra": "colour"}}, 400),
        ("GET", {"params": {"mode": "maybe"}}, 400),
        ("GET", {"params": {"query": QUERY}, "headers": {"Accept": "image/png"}}, 406),
        ("GET", {"params": {"query": QUERY}, "headers": {"Accept": "text/turtle"}}, 406),
        ("POST", {"data": {"other": "x"}}, 400),
        ("POST", {"data": {"query": QUERY, "update": "INSERT DATA {}"}}, 400),
        ("POST", {"content": b"<xml/>", "headers": {"Content-Type": "text/xml"}}, 415),
        ("POST", {"content": b"\xff\xfe", "headers": {"Content-Type": "application/sparql-query"}}, 400),
        ("POST", {"content": b"query=%ff", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 400),
        ("POST", {"data": {"update": "INSERT DATA { :a :b :c }"}}, 403),
        ("PUT", {"data": {"query": QUERY}}, 405),
        ("DELETE", {}, 405),
    ],
    ids=repr,
)
def test_what_is_no_request_is_refused_with_its_status(atlas, method, request_, status):
    response = atlas.request(method, "/sparql", **request_)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["message"] and error["request_id"] == response.headers["X-Request-Id"]
    assert "Traceback" not in response.text and ".py" not in response.text


def test_errors_point_at_their_place(atlas):
    for mode in ("known", "both"):
        error = atlas.get("/sparql", params={"query": "SELECT ?x WHERE {\n  ?x ) ?y\n}", "mode": mode}).json()["error"]
        assert (error["type"], error["line"]) == ("SparqlSyntax", 2)


def test_an_answer_that_is_cut_says_so(serve, atlas_kb):
    from biqe.serve.config import Limits, ServeConfig

    with serve(atlas_kb, ServeConfig(limits=Limits(rows=5))) as client:
        response = client.get("/sparql", params={"query": "SELECT * { ?s ?p ?o }"})
        assert len(response.json()["results"]["bindings"]) == 5
        assert response.headers["X-Biqe-Truncated"] == "after 5 rows"
        assert (
            "X-Biqe-Truncated" not in client.get("/sparql", params={"query": "SELECT * { ?s ?p ?o } LIMIT 5"}).headers
        )


def test_a_limit_of_the_query_cuts_nothing_that_was_asked_for(serve, atlas_kb):
    from biqe.serve.config import Limits, ServeConfig

    with serve(atlas_kb, ServeConfig(limits=Limits(rows=5))) as client:
        for mode in ("known", "both"):
            for tail, is_cut in (
                ("LIMIT 3", False),
                ("LIMIT 5", False),
                ("LIMIT 6", True),
                ("", True),
                ("LIMIT 2 OFFSET 4", False),
            ):
                query = {"query": f"{QUERY} {tail}", "mode": mode}
                assert ("X-Biqe-Truncated" in client.get("/sparql", params=query).headers) is is_cut, query
                assert client.post("/api/ask", json=query).json()["truncated"] is is_cut, query


def test_a_long_list_of_values_is_answered_from_the_graph(atlas, atlas_kb, cities):
    names = sorted((name for name in atlas_kb.vocabulary.entities if name.isascii() and name.isalpha()), key=len)[:1550]
    listed = " ".join(f":{name}" for name in names)
    query = f"SELECT ?city {{ VALUES ?city {{ {listed} }} ?city :located_on :Rhine }}"
    assert len(names) == 1550 and len(query) < 20_000
    expected = {f"urn:biqe:name:{name}" for name in names} & cities
    assert expected and bindings(atlas.post("/sparql", data={"query": query})) == expected
    known = atlas.post("/api/ask", json={"query": query, "mode": "known"}).json()
    assert {row["values"][0]["iri"] for row in known["rows"]} == expected
    block = f"SELECT ?city {{ SERVICE <urn:biqe:predict> {{ ?city :located_on :Rhine VALUES ?city {{ {listed} }} }} }}"
    for refused in (
        atlas.post("/sparql", data={"query": query, "mode": "both"}),
        atlas.post("/sparql", data={"query": block}),
        atlas.post("/api/ask", json={"query": query}),
        atlas.post("/api/explain", json={"query": query, "row": 0}),
        atlas.post("/api/parse", json={"query": query}),
    ):
        assert refused.status_code == 413, refused.text
        assert "at most 1,500 are read where a model is asked" in refused.json()["error"]["message"]


def test_the_one_graph_may_be_named(atlas, cities):
    sd = "http://www.w3.org/ns/sparql-service-description#"
    found = atlas.get("/sparql", headers={"Accept": TRIPLES["nt"]}).content
    described = pyoxigraph.parse(found, pyoxigraph.RdfFormat.N_TRIPLES)
    [own] = [quad.object.value for quad in described if quad.predicate.value == f"{sd}defaultGraph"]
    for graph in ("", "urn:x-rdflib:default", own):
        assert bindings(atlas.get("/sparql", params={"query": QUERY, "default-graph-uri": graph})) == cities
        form = {"query": QUERY, "default-graph-uri": graph}
        assert bindings(atlas.post("/sparql", data=form)) == cities
    for fields in (
        [("default-graph-uri", own), ("default-graph-uri", "http://ex.org/")],
        [("default-graph-uri", "http://ex.org/"), ("default-graph-uri", own)],
        [("named-graph-uri", own)],
    ):
        refused = atlas.get("/sparql", params=[("query", QUERY), *fields])
        assert refused.status_code == 400 and fields[0][0] in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"params": {"query": "SELECT ?x { ?x nope:p ?y }"}}, "prefix 'nope:' is not declared"),
        ({"params": {"query": "PREFIX a: <a:> INSERT DATA { :a :b :c }"}}, "'update'"),
        ({"params": {"query": "DELETE WHERE { :a :b :c }", "mode": "both"}}, "'update'"),
        ({"params": {"query": QUERY, "mode": "both", "model": "gpt"}}, "model=auto"),
    ],
)
def test_errors_say_what_to_send_instead(atlas, request_, words):
    response = atlas.get("/sparql", **request_)
    error = response.json()["error"]
    assert response.status_code == 400 and words in f"{error['message']} {error['hint']}"
    assert "--" not in f"{error['message']} {error['hint']}"


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16", "nonsense", '"latin1"'])
def test_a_body_in_another_charset_is_refused(atlas, charset):
    for path, kind, body in (
        ("/sparql", "application/sparql-query", QUERY),
        ("/sparql", "application/x-www-form-urlencoded", "query=ASK+{}"),
        ("/api/ask", "application/json", '{"query": "ASK { :ü :b :c }"}'),
    ):
        content = body.encode("latin-1")
        response = atlas.post(path, content=content, headers={"Content-Type": f"{kind}; charset={charset}"})
        assert response.status_code == 415 and "UTF-8" in response.json()["error"]["message"]
    for charset in ("UTF-8", '"utf-8"', "us-ascii"):
        kind = f"application/sparql-query;charset={charset}"
        assert atlas.post("/sparql", content=QUERY, headers={"Content-Type": kind}).status_code == 200


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/sparql", "GET, HEAD, POST"),
        ("/update", "POST"),
        ("/health", "GET, HEAD"),
        ("/ready", "GET, HEAD"),
        ("/metrics", "GET"),
        ("/api/ask", "POST"),
        ("/api/graph", "GET"),
        ("/", "GET, HEAD"),
    ],
)
def test_the_methods_that_are_told_are_those_that_work(atlas, path, methods):
    refused = atlas.request("DELETE", path)
    assert (refused.status_code, refused.headers["Allow"]) == (405, methods)
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT"):
        assert (atlas.request(method, path).status_code == 405) is (method not in methods.split(", ")), method


def test_a_server_may_predict_by_default(serve, atlas_kb):
    from biqe.serve.config import ServeConfig

    with serve(atlas_kb, ServeConfig(mode="both")) as client:
        assert len(client.get("/sparql", params={"query": QUERY}).json()["results"]["bindings"]) > 20
        known = client.get("/sparql", params={"query": QUERY, "mode": "known"}).json()["results"]["bindings"]
        assert len(known) < 20
        block = "SELECT ?c { SERVICE <urn:biqe:predict?top=3> { ?c :located_on :Rhine } }"
        assert len(client.get("/sparql", params={"query": block}).json()["results"]["bindings"]) == len(known) + 3
        assert client.get("/sparql", params={"query": block, "mode": "both"}).status_code == 400
        assert client.get("/sparql", params={"query": "DESCRIBE :Cologne"}).status_code == 200
        # What no model predicts is answered from the graph.
        assert client.get("/sparql", params={"query": "DESCRIBE :Cologne", "mode": "both"}).status_code == 200


# The description


def test_the_service_describes_itself(atlas, atlas_kb):
    sd, void = "http://www.w3.org/ns/sparql-service-description#", "http://rdfs.org/ns/void#"
    found = set()
    for form, media_type in TRIPLES.items():
        response = atlas.get("/sparql", headers={"Accept": media_type})
        store = pyoxigraph.Store()
        store.load(response.content, format=pyoxigraph.RdfFormat.from_media_type(media_type))
        [row] = store.query(
            f"SELECT ?e ?n {{ ?s a <{sd}Service> ; <{sd}endpoint> ?e ; <{sd}supportedLanguage> <{sd}SPARQL11Query> ;"
            f" <{sd}defaultDataset>/<{sd}defaultGraph>/<{void}triples> ?n }}"
        )
        found.add((row["e"].value, row["n"].value, form in TRIPLES))
    assert found == {
        (f"{atlas.base_url}/sparql".replace("//sparql", "/sparql"), str(len(atlas_kb.graph.triples)), True)
    }


def test_head_gives_the_headers_of_get(atlas):
    response = atlas.head("/sparql", params={"query": QUERY})
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith(ROWS["json"])


# Names that are odd


def test_odd_names_come_back_as_they_were(odd, odd_kb):
    query = "SELECT ?x ?y { ?x :knows ?y }"
    names = {tuple(row.values.values()) for row in odd_kb.ask(query, mode="known")}
    rows = odd.get("/sparql", params={"query": query}).json()["results"]["bindings"]
    assert len(rows) == len(names) == 11
    again = set()
    for row in rows:
        if row["x"]["type"] == row["y"]["type"] == "uri":
            asked = f"ASK {{ <{row['x']['value']}> :knows <{row['y']['value']}> }}"
            assert odd.get("/sparql", params={"query": asked}).json()["boolean"], row
            again.add(row["x"]["value"])
    assert len(again) == 9
    for form in ("xml", "tsv", "csv"):
        text = odd.get("/sparql", params={"query": query, "format": form}).text
        assert "<script>" not in text, form


def test_a_json_answer_is_json_to_the_last_byte(odd):
    json.loads(odd.get("/sparql", params={"query": "SELECT * { ?s ?p ?o }"}).content)


# A graph that changes


@pytest.fixture(scope="module")
def changing(serve, atlas_kb, tmp_path_factory):
    from biqe.serve.start import open_live

    live = open_live(atlas_kb, tmp_path_factory.mktemp("changing") / "live", read_only=False)
    with serve(atlas_kb, live=live) as client:
        yield client


def test_an_update_is_seen_by_the_next_query(changing):
    asked = {"query": "ASK { :Atlantis :located_on :Rhine }"}
    assert changing.get("/sparql", params=asked).json()["boolean"] is False
    for path, sent in (
        ("/update", {"data": {"update": "INSERT DATA { :Atlantis :located_on :Rhine }"}}),
        ("/sparql", {"data": {"update": "INSERT DATA { :Atlantis :located_on :Rhine }"}}),
        (
            "/update",
            {
                "content": "INSERT DATA { :Atlantis :located_on :Rhine }",
                "headers": {"Content-Type": "application/sparql-update"},
            },
        ),
        (
            "/api/load",
            {"content": "Atlantis\tlocated_on\tRhine\n", "headers": {"Content-Type": "text/tab-separated-values"}},
        ),
    ):
        receipt = changing.post(path, **sent)
        assert receipt.status_code == 200, receipt.text
        assert receipt.json()["inserted"] == 1
        assert changing.get("/sparql", params=asked).json()["boolean"] is True
        assert changing.get("/api/graph").json()["version"] == receipt.json()["version"]
        gone = changing.post("/update", data={"update": "DELETE DATA { :Atlantis :located_on :Rhine }"})
        assert gone.json()["deleted"] == 1
        assert changing.get("/sparql", params=asked).json()["boolean"] is False


def test_a_relation_that_a_model_has_not_met_is_answered_and_reported(changing):
    facts = ":Atlantis :located_on :Rhine ; :twin_of :Bonn ; :population 7"
    changing.post("/update", data={"update": f"INSERT DATA {{ {facts} }}"})
    query = {"query": "SELECT ?twin { :Atlantis :twin_of ?twin }", "mode": "both"}
    response = changing.get("/sparql", params=query)
    assert [row["twin"]["value"] for row in response.json()["results"]["bindings"]] == ["urn:biqe:name:Bonn"]
    assert "not predictable yet" in response.headers["X-Biqe-Note"]
    [note] = changing.post("/api/ask", json=query).json()["notes"]
    assert "not predictable yet" in note
    mixed = "SELECT ?city ?n { SERVICE <urn:biqe:predict> { ?city :located_on :Rhine } ?city :population ?n }"
    [row] = changing.get("/sparql", params={"query": mixed}).json()["results"]["bindings"]
    assert (row["city"]["value"], row["n"]["value"]) == ("urn:biqe:name:Atlantis", "7")


def test_a_new_entity_is_predicted_about(changing):
    changing.post("/update", data={"update": "INSERT DATA { :Newtown :near :Bonn, :Cologne, :Essen, :Koblenz }"})
    asked = changing.get("/sparql", params={"query": "ASK { :Newtown :located_in :Germany }", "mode": "both"})
    probability = float(asked.headers["X-Biqe-Probability"])
    assert 0.0 < probability < 1.0 and "X-Biqe-Note" not in asked.headers
    rows = changing.post(
        "/api/ask", json={"query": "SELECT ?country { :Newtown :located_in ?country }", "top": 5}
    ).json()["rows"]
    assert rows[0]["values"][0]["label"] == "Germany" and rows[0]["probability"] == pytest.approx(probability)
    known = changing.get("/sparql", params={"query": "ASK { :Newtown :near :Bonn }", "mode": "both"})
    assert known.headers["X-Biqe-Probability"] == "1.0"
    changing.post("/update", data={"update": "DELETE WHERE { :Newtown ?p ?o }"})


def test_what_was_deleted_is_neither_counted_nor_offered(changing):
    def told() -> tuple[int, list[str], list[str], list[str]]:
        described = changing.get("/sparql", headers={"Accept": TRIPLES["nt"]}).text
        [counted] = [line.split('"')[1] for line in described.splitlines() if "void#entities" in line]
        offered = changing.get("/api/complete", params={"text": "Vanished", "limit": 5}).json()
        linked = changing.get("/api/complete", params={"text": "gone", "kind": "relation"}).json()
        graph = changing.get("/api/graph").json()
        assert int(counted) == graph["entities"]
        relations = [relation["name"] for relation in graph["relations"] if relation["name"] == "gone_by"]
        return (
            graph["entities"],
            [entry["insert"][:9] for entry in offered],
            [entry["insert"] for entry in linked],
            relations,
        )

    before = told()
    triples = " . ".join(f":Vanished{number} :gone_by :Rhine" for number in range(300))
    changing.post("/update", data={"update": f"INSERT DATA {{ {triples} }}"})
    assert told() == (before[0] + 300, 5 * [":Vanished"], [":gone_by"], ["gone_by"])
    changing.post(
        "/update", data={"update": f"DELETE DATA {{ {triples} . }} ; INSERT DATA {{ :Vanished299 :gone_by :Main }}"}
    )
    assert told() == (before[0] + 1, [":Vanished"], [":gone_by"], ["gone_by"])
    changing.post("/update", data={"update": "DELETE WHERE { ?gone :gone_by ?x }"})
    assert told() == before == (before[0], [], [], [])


def test_an_update_that_says_nothing_does_nothing(changing):
    before = changing.get("/api/graph").json()["version"]
    direct = {"Content-Type": "application/sparql-update"}
    for sent in (
        {"data": {"update": ""}},
        {"data": {"update": "PREFIX x: <urn:x:>"}},
        {"content": b"", "headers": direct},
        {"content": b"# no\n", "headers": direct},
    ):
        receipt = changing.post("/update", **sent)
        assert receipt.status_code == 200, receipt.text
        assert (receipt.json()["version"], receipt.json()["inserted"]) == (before, 0)


@pytest.mark.parametrize(
    ("path", "request_", "status"),
    [
        ("/update", {"data": {"update": "INSERT DATA { :a :b }"}}, 400),
        ("/update", {"data": {"update": "LOAD <http://127.0.0.1:1/x>"}}, 400),
        ("/update", {"data": {"update": "LOAD <file:///etc/passwd>"}}, 400),
        ("/update", {"data": {"update": "INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> {} }"}}, 400),
        ("/update", {"data": {"update": "CLEAR ALL"}}, 400),
        ("/update", {"data": {"query": QUERY}}, 400),
        ("/update", {"data": {"other": "x"}}, 400),
        ("/update", {"data": {"update": "INSERT DATA {}", "using-graph-uri": "http://ex.org/"}}, 400),
        ("/api/load", {"content": b"<a> <b", "headers": {"Content-Type": "text/turtle"}}, 400),
        ("/api/load", {"content": b"", "headers": {"Content-Type": "text/turtle"}}, 400),
        ("/api/load", {"content": b"\x1f\x8b broken", "headers": {"Content-Type": "text/csv"}}, 400),
        ("/api/load", {"content": b"x", "headers": {"Content-Type": "image/png"}}, 415),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_updates_that_are_refused_change_nothing(changing, path, request_, status):
    before = changing.get("/api/graph").json()["version"]
    response = changing.post(path, **request_)
    assert response.status_code == status, response.text
    assert "/tmp" not in response.text and ".py" not in response.text
    assert changing.get("/api/graph").json()["version"] == before
    assert changing.get("/update").status_code == 405
