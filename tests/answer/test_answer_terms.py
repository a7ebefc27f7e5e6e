"""Known mode against pyoxigraph on generated queries; names that survive the way to the store and back; COUNT rows."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
import xml.etree.ElementTree as ET
from collections import Counter

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.answer.answers import Answers
from biqe.answer.terms import TermTable
from biqe.errors import BiqeError, InvalidOption, SparqlSyntax
from biqe.exact.store import ExactStore, Term, iri_of, name_of, node_of
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.knowledge_base import KnowledgeBase
from biqe.query.sparql import parse_question

EX = "http://ex.org/"
ENTITIES = [f"{EX}{letter}{number}" for letter in "abc" for number in range(8)]
RELATIONS = [f"{EX}{letter}" for letter in "pqr"]


@pytest.fixture(scope="module")
def kb() -> KnowledgeBase:
    rng = random.Random(3)
    triples = {(rng.randrange(24), rng.randrange(3), rng.randrange(24)) for _ in range(110)}
    splits = Splits(Vocabulary(ENTITIES, RELATIONS), as_triples(sorted(triples)))
    return KnowledgeBase("generated", splits, prefixes={"": EX})


@pytest.fixture(scope="module")
def oracle(kb) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    for s, r, o in kb.graph.triples.tolist():
        store.add(pyoxigraph.Quad(*map(pyoxigraph.NamedNode, (ENTITIES[s], RELATIONS[r], ENTITIES[o]))))
    return store


def entity(rng: random.Random) -> str:
    return ":" + rng.choice(ENTITIES).removeprefix(EX)


def patterns(rng: random.Random, variables: str, count: int) -> str:
    """Joined patterns over these variables and some constants."""
    found = []
    for number in range(count):
        ends = [
            f"?{variables[min(number, len(variables) - 1)]}",
            rng.choice([f"?{rng.choice(variables)}", entity(rng)]),
        ]
        if rng.random() < 0.5:
            ends.reverse()
        found.append(f"{ends[0]} :{rng.choice('pqr')} {ends[1]}")
    return " . ".join(found)


def condition(rng: random.Random, variable: str) -> str:
    return rng.choice(
        [
            f"?{variable} != {entity(rng)}",
            f"?{variable} IN ({entity(rng)}, {entity(rng)}, {entity(rng)})",
            f"?{variable} NOT IN ({entity(rng)}, {entity(rng)})",
            f'regex(str(?{variable}), "[a-b][0-{rng.randrange(9)}]$")',
            f'strstarts(str(?{variable}), "{EX}{rng.choice("abc")}") || ?{variable} = {entity(rng)}',
            f'!(contains(str(?{variable}), "{rng.randrange(9)}")) && isIRI(?{variable})',
            f'str(?{variable}) < "{EX}b{rng.randrange(9)}"',
        ]
    )


def inside(rng: random.Random) -> str:
    """A query of the subset."""
    body = patterns(rng, "xyz"[: rng.randrange(1, 4)], rng.randrange(1, 4)) + " . ?x :p ?w"
    if rng.random() < 0.5:
        body += f" FILTER({condition(rng, rng.choice('xw'))})"
    if rng.random() < 0.3:
        absent = f"?x :{rng.choice('pqr')} {rng.choice([entity(rng), '?w', '?own', '?own . ?own :q ?w'])}"
        body += f" {rng.choice(['FILTER NOT EXISTS', 'MINUS'])} {{ {absent} }}"
    if rng.random() < 0.3:
        body += f" VALUES ?w {{ {' '.join(dict.fromkeys(entity(rng) for _ in range(rng.randrange(7))))} }}"
    if rng.random() < 0.4:
        body = f"{{ {body} }} UNION {{ ?x :{rng.choice('pqr')} {entity(rng)} . ?x :q ?w }}"
    kind = rng.randrange(6)
    if kind == 0:
        return f"ASK {{ {body} }}"
    if kind == 1:
        return f"SELECT (COUNT(*) AS ?n) {{ {body} }}"
    if kind == 2:
        return f"SELECT (COUNT(DISTINCT ?x) AS ?n) {{ {body} }}"
    return f"SELECT DISTINCT {rng.choice(['?x', '?x ?w', '?w'])} {{ {body} }}"


def beyond(rng: random.Random) -> str:
    """A query that only the store answers."""
    first = patterns(rng, "xy", 2)
    return rng.choice(
        [
            f"SELECT ?x ?z {{ {first} OPTIONAL {{ ?x :{rng.choice('pqr')} ?z }} }}",
            f"SELECT ?x {{ {first} MINUS {{ ?x :{rng.choice('pqr')} ?m FILTER(?m != {entity(rng)}) }} }}",
            f"SELECT ?x (COUNT(*) AS ?n) {{ {first} }} GROUP BY ?x HAVING(COUNT(*) > 1)",
            f"SELECT ?x ?e {{ ?x :p+ ?e . ?e (:q|^:r) {entity(rng)} }}",
            f"SELECT ?p ?o {{ {entity(rng)} ?p ?o }}",
            f"SELECT ?x ?l {{ {first} BIND(STRLEN(STR(?x)) AS ?l) FILTER(?l > 15) }}",
            f"CONSTRUCT {{ ?x :new ?y }} WHERE {{ ?x :p ?y . ?y :{rng.choice('pqr')} ?h }}",
            f"DESCRIBE {entity(rng)}",
            f"ASK {{ {entity(rng)} !:p ?x }}",
            f"SELECT ?x {{ {{ SELECT ?x {{ {first} }} LIMIT 1000 }} FILTER EXISTS {{ ?x :p ?q }} }}",
            f"SELECT ?x ?u {{ {{ ?x :p {entity(rng)} }} UNION {{ ?u :q {entity(rng)} }} }}",
        ]
    )


def expected(oracle: pyoxigraph.Store, text: str) -> object:
    found = oracle.query(f"PREFIX : <{EX}>\n{text}")
    if isinstance(found, pyoxigraph.QueryBoolean):
        return bool(found)
    if isinstance(found, pyoxigraph.QueryTriples):
        return Counter(tuple(term.value for term in (t.subject, t.predicate, t.object)) for t in found)
    names = [variable.value for variable in found.variables]
    return Counter(tuple(None if row[name] is None else row[name].value for name in names) for row in found)


def ours(answers: Answers | TermTable) -> object:
    if isinstance(answers, TermTable):
        if answers.holds is not None:
            return answers.holds
        return Counter(tuple(None if term is None else term.value for term in row) for row in answers.terms)
    if answers.form == "ASK":
        return answers.holds
    return Counter(tuple(row.values.values()) for row in answers)


@pytest.mark.parametrize("seed", range(13))
def test_known_mode_equals_pyoxigraph(kb, oracle, seed):
    """13 times 20 queries, of which three in five are within the subset and go through our own engine."""
    rng = random.Random(seed)
    for number in range(20):
        text = inside(rng) if number % 5 < 3 else beyond(rng)
        answers = kb.ask(text, mode="known")
        assert ours(answers) == expected(oracle, text), text
        if number % 5 < 3:
            parse_question(text, prefixes=kb.prefixes)
        else:
            with pytest.raises(SparqlSyntax):
                parse_question(text, prefixes=kb.prefixes)


def test_a_text_beyond_the_subset_is_answered_from_the_graph_unless_predictions_are_wanted(kb):
    text = "SELECT ?x { ?x :p ?y BIND(?y AS ?z) }"
    assert ours(kb.ask(text)) == ours(kb.ask(text, mode="known"))
    with pytest.raises(SparqlSyntax, match="BIND is outside the supported subset") as caught:
        kb.ask(text, mode="predicted")
    assert "--mode known" in str(caught.value.hint)


def test_a_name_that_the_graph_lacks_is_told(kb):
    found = kb.ask("SELECT ?x { ?x :p|:no ?y . ?y :q :nobody }")
    assert (len(found), found.note) == (0, "not in this graph: :no, :nobody")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT ?x { SERVICE <http://a.org/> { ?x :p ?y } }", "line 1, column 13: SERVICE is not answered"),
        ("SELECT ?x\nFROM <http://a.org/> { ?x :p ?y }", "line 2, column 1: FROM is not answered"),
        ("INSERT DATA { :a :p :b }", "line 1, column 1: INSERT is not answered"),
        ("DROP ALL", "line 1, column 1: DROP is not answered"),
        ("SELECT ?x {\n  OPTIONAL { } ?x :p :a1 :a2 }", "line 2, column 31: this is no SPARQL"),
        ("SELECT ?x {\n  ?x :p :a1 :a2 OPTIONAL { } }", "line 2, column 13: ':a2' is not expected here"),
        ("SELECT ?x { OPTIONAL { } ?x nope:p ?y }", "this is no SPARQL"),
        ("SELECT ?x { ?x nope:p ?y OPTIONAL { } }", "line 1, column 16: prefix 'nope:' is not declared"),
        ("SELECT ?x { OPTIONAL { ?x :p ?y }", "line 1, column 11: '{' is not closed"),
    ],
)
def test_what_the_store_refuses(kb, text, message):
    with pytest.raises(SparqlSyntax) as caught:
        kb.ask(text, mode="known")
    assert message in caught.value.message


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    [
        "New York",
        "100%",
        "%41",
        "/m/027rn",
        "a:b",
        "urn:biqe:name:x",
        "http://e.org/a b",
        "a#b#c",
        "[x]",
        "_:b 1",
        "\x00",
    ]
)


@given(names)
def test_a_name_comes_back_from_its_iri(name):
    assert name_of(iri_of(name).value) == name
    node = node_of(name)
    assert isinstance(node, pyoxigraph.BlankNode) or name_of(node.value) == name


@given(st.lists(names, min_size=2, max_size=4, unique=True))
def test_names_in_the_store(entities):
    graph = Graph(Vocabulary(entities, ["rel ation"]), as_triples([(0, 0, 1)]))
    found = ExactStore(graph).query("SELECT ?s ?p ?o { ?s ?p ?o }")
    assert [term.value for term in found.rows[0]] == [entities[0], "rel ation", entities[1]]


def test_names_of_a_query_for_the_store():
    town = Vocabulary(["New York", "Łódź", "City", "Bonn"], ["located in", "type"], {3: "Bonn am Rhein"})
    store = ExactStore(Graph(town, as_triples([(0, 0, 1), (3, 1, 2), (1, 0, 3)])))
    for text in (
        "SELECT ?o { :New_York :located_in ?o }",
        "SELECT ?o { <New%20York> <located%20in> ?o }",
        "SELECT ?o { ?s <located%20in> ?o FILTER(?s = :New_York || ?s = :Nowhere) }",
        "SELECT ?o { ?o :located_in <Bonn%20am%20Rhein> }",
    ):
        found = store.query(text)
        assert [row[0] for row in found.rows] == [Term("uri", "Łódź")], text
    assert store.query("ASK { :Bonn a :City }") is True
    assert store.query("ASK { :Nobody a :City }") is False
    assert store.query("ASK { <%C5%81%C3%B3d%C5%BA> ?p :Bonn }") is True


def test_no_more_rows_than_asked_for(kb):
    found = kb.store.query("SELECT * { ?a ?b ?c . ?d ?e ?f }", prefixes=kb.prefixes, max_rows=50)
    assert len(found.rows) == 50 and not found.complete


def test_errors_point_into_the_users_text(kb):
    for filler in ("", ":a1 ", "<a1> ", "# a comment\n"):
        text = f"SELECT ?x {{ ?x ?p {filler or ':a1 '}. ?x ?p ?y OPTIONAL {{ ?x ?p ) }} }}"
        if filler.startswith("#"):
            text = f"{filler}SELECT ?x {{ ?x ?p :a1 . ?x ?p ?y OPTIONAL {{ ?x ?p , }} }}"
        with pytest.raises(SparqlSyntax) as caught:
            kb.ask(text, mode="known")
        assert caught.value.line == 1 + filler.count("\n")
        assert 1 <= caught.value.column <= len(text.splitlines()[caught.value.line - 1]) + 1


# Rows of terms


def test_a_count(kb):
    answers = kb.ask("SELECT (COUNT(*) AS ?n) { ?x :p ?y }", mode="known")
    assert isinstance(answers, TermTable) and len(answers) == 1
    row = answers[0]
    stored = sum(1 for _, r, _ in kb.graph.triples.tolist() if r == 0)
    assert row.n == row["n"] == row["?n"] == stored
    assert (row.status, row.probability, row.missing) == ("known", 1.0, ())
    assert json.loads(answers.to_json())["rows"][0]["values"] == {"n": stored}
    with pytest.raises(AttributeError, match="no variable 'm'; it has n"):
        _ = row.m
    with pytest.raises(InvalidOption, match="only rows of entities can be explained"):
        kb.explain(row)


def test_known_and_expected_counts():
    table = TermTable.of_count("SELECT", "n", 5, 1.7321, model="factor", source="toy", seconds=0.25)
    assert [(row.n, row.status, row.probability) for row in table] == [(5, "known", 1.0), (1.7321, "predicted", None)]
    assert table.write("table") == "toy: 5 stored, about 2 more expected by factor, 0.25 s\n"
    assert table.write("csv") == "n,status\r\n5,known\r\n1.7321,predicted\r\n"
    assert table.write("csv", known_rows=1) == "n,status\r\n5,known\r\n"
    for form, kind in STANDARD.items():
        rows = pyoxigraph.parse_query_results(table.write(form).encode(), format=kind)
        assert [(float(row["n"].value), row["status"].value) for row in rows] == [(5, "known"), (1.7321, "predicted")]
    named_alike = TermTable.of_count("SELECT", "status", 5, 1.7321, model="factor", source="toy", seconds=0.25)
    assert named_alike.write("tsv").splitlines()[0] == "?status\t?status_"
    # Where there is one kind only, there is nothing to tell apart.
    assert TermTable.of_count("SELECT", "n", 5, None, source="toy", seconds=0.25).write("csv") == "n\r\n5\r\n"


def test_rows_of_values_have_what_rows_of_entities_have(kb):
    table = TermTable.of_count("SELECT", "n", 5, 1.7321, model="factor", source="toy", seconds=0.25)
    assert (table.known_count, table.predicted_count, dict(table.marginals)) == (1, 1, {})
    found = kb.ask("SELECT ?x (COUNT(*) AS ?n) { ?x :p ?y } GROUP BY ?x", mode="known")
    assert isinstance(found, TermTable) and len(found) > 1
    assert (found.known_count, found.predicted_count, dict(found.marginals)) == (len(found), 0, {})


STANDARD = {
    "sparql-json": pyoxigraph.QueryResultsFormat.JSON,
    "xml": pyoxigraph.QueryResultsFormat.XML,
    "tsv": pyoxigraph.QueryResultsFormat.TSV,
}


def check_standard_formats(entities: list[str], relation: str) -> None:
    """What the store answers can be read by an independent parser, which takes nothing but absolute IRIs."""
    kb = KnowledgeBase("hostile", Splits(Vocabulary(entities, [relation]), as_triples([(0, 0, 1)])))
    nodes = [node_of(entities[0]), iri_of(relation), node_of(entities[1])]
    texts = ["SELECT ?s ?p ?o { ?s ?p ?o }", "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"]
    if not isinstance(nodes[0], pyoxigraph.BlankNode):
        texts.append(f"DESCRIBE {nodes[0]}")
    for text in texts:
        found = kb.ask(text, mode="known")
        for form, kind in STANDARD.items():
            (row,) = pyoxigraph.parse_query_results(found.write(form).encode(), format=kind)
            assert list(row) == nodes
        with io.StringIO(found.write("csv"), newline="") as stream:
            (cells,) = list(csv.reader(stream))[1:]
        assert cells == [str(node) if isinstance(node, pyoxigraph.BlankNode) else node.value for node in nodes]
        # Our own schema keeps the graph's names.
        assert list(json.loads(found.write("json"))["rows"][0]["values"].values()) == [
            entities[0],
            relation,
            entities[1],
        ]


@pytest.mark.parametrize(
    "name", ["Basel", "New York", 'a "b" c', "/m/027rn", "Łódź", "<script>alert(1)</script>", "_:b0", "http://e.org/x"]
)
def test_the_standard_formats_can_be_read(name):
    check_standard_formats([name, f"{name}2"], f"rel {name}")


@given(st.lists(names, min_size=3, max_size=3, unique=True))
def test_the_standard_formats_can_be_read_whatever_the_names(given_names):
    check_standard_formats(given_names[:2], given_names[2])


TERMS = TermTable(
    "SELECT",
    ("a", "b"),
    (
        (Term("uri", "http://e.org/x"), Term("literal", 'quo"te\n<&>', "http://www.w3.org/2001/XMLSchema#string")),
        (Term("bnode", "_:b1"), None),
        (Term("literal", "chat", None, "fr"), Term("literal", "7", "http://www.w3.org/2001/XMLSchema#integer")),
    ),
    ("known",) * 3,
)


def test_terms_in_every_format():
    bindings = json.loads(TERMS.write("sparql-json"))["results"]["bindings"]
    assert bindings[0]["b"] == {"type": "literal", "value": 'quo"te\n<&>'}
    assert bindings[1] == {"a": {"type": "bnode", "value": "b1"}}
    assert bindings[2]["a"] == {"type": "literal", "value": "chat", "xml:lang": "fr"}
    with io.StringIO(TERMS.write("csv"), newline="") as stream:
        assert list(csv.reader(stream))[1:] == [["http://e.org/x", 'quo"te\n<&>'], ["_:b1", ""], ["chat", "7"]]
    lines = TERMS.write("tsv").split("\n")
    assert lines[0] == "?a\t?b" and lines[1] == '<http://e.org/x>\t"quo\\"te\\n<&>"'
    assert lines[3] == '"chat"@fr\t7'
    root = ET.fromstring(TERMS.write("xml"))
    spaces = {"s": "http://www.w3.org/2005/sparql-results#"}
    assert len(root.findall(".//s:result", spaces)) == 3
    assert root.findall(".//s:literal", spaces)[0].text == 'quo"te\n<&>'
    assert TERMS.write("table").splitlines()[0] == "3 rows, 0.00 s"
    assert "… and 2 more rows" in TERMS.write("table", known_rows=1)
    assert len(json.loads(TERMS.write("json", known_rows=1))["rows"]) == 1
    assert (TERMS[2].b, TERMS[1].b) == (7, None)
    assert TERMS[-1] == TERMS[2] and len({*TERMS, *TERMS}) == 3
    with pytest.raises(BiqeError, match="'format' must be one of"):
        TERMS.write("yaml")


def test_an_ask_of_the_store(kb):
    answers = kb.ask("ASK { ?x !:p ?y }", mode="known")
    assert answers.holds is True and len(answers) == 0
    assert json.loads(answers.write("sparql-json")) == {"head": {}, "boolean": True}
    assert ET.fromstring(answers.write("xml")).find("{http://www.w3.org/2005/sparql-results#}boolean").text == "true"
    assert answers.write("csv") == "boolean\r\ntrue\r\n" and answers.write("tsv") == "?boolean\ntrue\n"
    assert "yes, the graph holds it" in str(answers)


def test_terms_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidOption, match="needs the package 'pandas'"):
        TERMS.to_pandas()


def test_the_str_of_a_blank_node_is_an_error_as_in_sparql():
    names = [f"{EX}a", f"{EX}b", "_:c", f"{EX}d/e"]
    triples = [(s, 0, o) for s in range(4) for o in range(4) if s != o]
    kb = KnowledgeBase("blank", Splits(Vocabulary(names, [f"{EX}p"]), as_triples(triples)), prefixes={"": EX})
    conditions = [
        'contains(str(?x), "/")',
        '!contains(str(?x), "/")',
        'regex(str(?x), "c")',
        '!(regex(str(?x), "c"))',
        'str(?x) < "z"',
        "str(?x) != str(?y)",
        f'str(?x) IN ("{EX}a", "q")',
        f'str(?x) NOT IN ("{EX}a", "q")',
        'str(?x) = "q" || ?y = :a',
        'str(?x) != "q" || ?y = :a',
        '!(str(?x) = "q" && ?y = :a)',
        "!isIRI(?x)",
        '!(str(?x) = "q" || str(?y) = "q")',
        f'str(?x) IN (str(?y), "{EX}b")',
    ]
    for condition in conditions:
        text = f"SELECT DISTINCT ?x ?y {{ ?x :p ?y FILTER({condition}) }}"
        solutions = kb.store.query(text, prefixes=kb.prefixes)
        stored = Counter(tuple(term.value for term in row) for row in solutions.rows)
        assert Counter(tuple(row.values.values()) for row in kb.ask(text, mode="known")) == stored, condition


def test_an_entity_without_a_label_has_no_empty_one():
    vocabulary = Vocabulary(["ab", "b"], ["p"], {1: "Bee"})
    kb = KnowledgeBase("labels", Splits(vocabulary, as_triples([(0, 0, 1), (1, 0, 1)])))
    for condition, found in {
        'regex(?x, "^[^a]*$")': ["b"],
        'regex(?x, "^$")': [],
        'regex(?x, "^Bee$")': ["b"],
        'contains(?x, "")': ["ab", "b"],
    }.items():
        assert [row.x for row in kb.ask(f"SELECT ?x {{ ?x :p :b FILTER({condition}) }}", mode="known")] == found


def test_what_there_is_to_know_about_a_count_is_in_the_table_and_in_json():
    table = TermTable.of_count(
        "SELECT", "n", 5, 1.7, model="factor", source="toy", seconds=0.25, why="best on 1p", note="3 entities are newer"
    )
    assert table.write("table").splitlines()[1:3] == ["model factor: best on 1p", "note: 3 entities are newer"]
    document = json.loads(table.write("json"))
    assert (document["why"], document["note"]) == ("best on 1p", "3 entities are newer")
    expected = TermTable.of_count("SELECT", "n", None, 0.17, model="factor", source="toy", seconds=0.25)
    assert expected.write("table").startswith("toy: about 0.17 expected by factor, ")


def test_tabs_and_lines_of_texts_have_the_escapes_of_tsv(kb):
    found = kb.ask("SELECT ('a\\tb\\nc\\rd' AS ?s) { ?x :p ?y } LIMIT 1", mode="known")
    assert found.write("tsv") == '?s\n"a\\tb\\nc\\rd"\n'
