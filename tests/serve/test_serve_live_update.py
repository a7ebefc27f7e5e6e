"""SPARQL Update and uploads on a live graph: what they do, what they refuse, and that they do all or nothing."""

from __future__ import annotations

import gzip

import pyoxigraph
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biqe.errors import BadLine, BiqeError, EmptyResult, InvalidOption, SparqlSyntax, UnsupportedQuery
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live import Changes, LiveGraph, Statement, Text, Upload

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
EX = "http://ex.org/"
BOMB = (
    b'<!DOCTYPE r [ <!ENTITY a0 "lollollol">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 20) for n in range(1, 10))
    + b' ]><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://ex.org/">'
    b'<rdf:Description rdf:about="http://ex.org/a"><e:p>&a9;</e:p></rdf:Description></rdf:RDF>'
)
"""A few hundred bytes of RDF/XML that expand to terabytes."""


@pytest.fixture
def live(tmp_path) -> LiveGraph:
    vocabulary = Vocabulary(["Rhine", "Bonn", "New York"], ["located on", "near"], {1: "City of Bonn"})
    return LiveGraph(tmp_path / "live", Splits(vocabulary, as_triples([[1, 0, 0], [2, 1, 1]])))


def rows(live: LiveGraph) -> set[tuple[str, str, str]]:
    found = live.snapshot().store.query("SELECT ?s ?p ?o WHERE { ?s ?p ?o }")
    return {tuple(term.value for term in row) for row in found.rows}  # type: ignore[misc]


BEFORE = {("Bonn", "located on", "Rhine"), ("New York", "near", "Bonn")}


def test_insert_and_delete_data_by_the_graphs_own_names(live):
    receipt = live.apply("INSERT DATA { :Mainz :located_on :Rhine . :New_York :near :Mainz }")
    assert (receipt.version, receipt.inserted, receipt.new_entities, receipt.new_relations) == (1, 2, 1, 0)
    assert rows(live) == BEFORE | {("Mainz", "located on", "Rhine"), ("New York", "near", "Mainz")}
    assert live.apply("DELETE DATA { <New%20York> :near :Mainz . :Mainz :located_on :Rhine }").deleted == 2
    assert rows(live) == BEFORE
    assert live.snapshot().vocabulary.entities.find("Mainz") == 3  # ids are never given away again


def test_a_label_is_no_name_in_an_update(live):
    live.apply("INSERT DATA { :City_of_Bonn :near :Rhine }")
    assert ("City_of_Bonn", "near", "Rhine") in rows(live)


def test_operations_of_one_update_see_each_other(live):
    text = f"""PREFIX ex: <{EX}>
    INSERT DATA {{ ex:a ex:p ex:b , [ ex:p ex:c ] }} ;
    PREFIX other: <{EX}>
    DELETE {{ ?s other:p ?o }} INSERT {{ ?o ex:inverse ?s }} WHERE {{ ?s ex:p ?o FILTER(?o != ex:b) }} ;
    DELETE WHERE {{ ex:a ex:p ?gone }} ;"""
    receipt = live.apply(text)
    found = rows(live) - BEFORE
    assert receipt.version == 1 and receipt.inserted == 2 and receipt.deleted == 0
    (blank,) = {o for _, _, o in found if o.startswith("_:")} - {EX + "a"}
    assert found == {(blank, EX + "inverse", EX + "a"), (EX + "c", EX + "inverse", blank)}


def test_a_blank_node_is_new_in_every_update_and_keeps_its_name_afterwards(live):
    for _ in range(2):
        live.apply(f"INSERT DATA {{ _:b <{EX}p> :Bonn }}")
    named = {s for s, p, _ in rows(live) if p == EX + "p"}
    assert len(named) == 2 and all(name.startswith("_:v") for name in named)
    live.apply(f"INSERT {{ ?b <{EX}q> :Bonn }} WHERE {{ ?b <{EX}p> :Bonn }}")
    assert {s for s, p, _ in rows(live) if p == EX + "q"} == named
    live.compact()
    assert {s for s, p, _ in rows(LiveGraph(live.folder)) if p == EX + "q"} == named


terms = st.sampled_from([f"<{EX}{letter}>" for letter in "abc"])
literals = st.sampled_from(['"x"', '"x"@en', "5", '"; } INSERT {"', "true"])
triples = st.tuples(terms, st.sampled_from([f"<{EX}p>", f"<{EX}q>"]), terms | literals).map(" ".join)
data = st.lists(triples, min_size=1, max_size=4).map(" . ".join)
variables = st.sampled_from(["?x", "?y"])
patterns = st.tuples(terms | variables, st.sampled_from([f"<{EX}p>", f"<{EX}q>", "?p"]), terms | variables).map(
    " ".join
)
operations = st.one_of(
    data.map(lambda text: f"INSERT DATA {{ {text} }}"),
    data.map(lambda text: f"DELETE DATA {{ {text} }}"),
    patterns.map(lambda text: f"DELETE WHERE {{ {text} }}"),
    st.tuples(patterns, patterns, patterns).map(
        lambda t: f"DELETE {{ {t[0]} }} INSERT {{ {t[1]} }} WHERE {{ {t[2]} }}"
    ),
    st.tuples(patterns, patterns).map(lambda t: f"INSERT {{ {t[0]} }} WHERE {{ {t[1]} # INSERT {{\n }}"),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.lists(operations, min_size=1, max_size=3).map(" ; ".join), min_size=1, max_size=4))
def test_updates_do_what_pyoxigraph_does(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("live")
    live = LiveGraph(folder / "live", Splits(Vocabulary([EX + "a"], [EX + "p"]), as_triples([[0, 0, 0]])))
    store = pyoxigraph.Store()
    store.update(f"INSERT DATA {{ <{EX}a> <{EX}p> <{EX}a> }}")
    for text in texts:
        live.apply(text)
        store.update(text)
        mine = live.snapshot().store.store.query("CONSTRUCT WHERE { ?s ?p ?o }")
        assert set(mine) == set(store.query("CONSTRUCT WHERE { ?s ?p ?o }"))
    live.close()


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("LOAD <http://example.org/a.ttl>", (1, 1), "upload"),
        ("LOAD SILENT <file:///etc/passwd>", (1, 1), "upload"),
        ("INSERT DATA { :a :b :c } ;\nCLEAR ALL", (2, 1), "DELETE WHERE"),
        ("DROP GRAPH <urn:g>", (1, 1), "DELETE WHERE"),
        ("CREATE GRAPH <urn:g>", (1, 1), "one graph"),
        ("COPY DEFAULT TO <urn:g>", (1, 1), "one graph"),
        ("INSERT DATA { GRAPH <urn:g> { :a :b :c } }", (1, 15), "one graph"),
        ("WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", (1, 1), "one graph"),
        ("DELETE { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }", (1, 21), "one graph"),
        ("INSERT { ?s :b :c } WHERE { SERVICE <http://x.org/> { ?s ?p ?o } }", (1, 29), "no other server"),
        ("SELECT * WHERE { ?s ?p ?o }", (1, 1), "query"),
        ("INSERT DATA {\n  :a :b :c .\n  :d :e }", (3, 9), "INSERT DATA"),
        ("INSERT DATA { ?x :b :c }", (1, None), "INSERT DATA"),
        ("DELETE DATA { _:x :b :c }", (1, None), "INSERT DATA"),
        ("INSERT DATA { :a :b :c", (1, 13), "INSERT DATA"),
        ("INSERT DATA { :a :b :c } INSERT DATA { :d :e :f }", (1, None), ""),
        ("INSERT DATA { :a nope:b :c }", (1, 18), "PREFIX nope:"),
        ("INSERT DATA { :a :b '5'^^units:metre }", (1, 26), "PREFIX units:"),
        ("INSERT DATA { x:a :b :c } ; PREFIX x: <urn:x:> DELETE DATA { x:a :b :c }", (1, 15), "PREFIX x:"),
        ("INSERT DATA { :a :b 'x }", (1, 21), "INSERT DATA"),
        ("DELETE INSERT WHERE", (1, None), ""),
        ("PREFIX x <urn:x:> INSERT DATA { x:a x:b x:c }", (1, None), ""),
    ],
)
def test_what_is_refused_changes_nothing_and_is_shown_at_its_place(live, text, place, says):
    with pytest.raises(SparqlSyntax) as caught:
        live.apply(text)
    line, column = place
    assert caught.value.line == line and (column is None or caught.value.column == column)
    assert says in (caught.value.hint or "")
    assert "query" not in caught.value.message and "a query is" not in (caught.value.hint or "")
    assert live.version == 0 and rows(live) == BEFORE


def test_an_update_changes_so_many_statements_at_once_and_the_rest_in_parts(live, monkeypatch):
    live.apply("INSERT DATA { :a :b :c, :d, :e, :f, :g }")
    for module in ("update", "upload"):
        monkeypatch.setattr(f"biqe.serve.live.{module}.MAX_STATEMENTS", 2)
    before = live.version
    with pytest.raises(InvalidOption, match="more than 2 statements") as refused:
        live.apply("DELETE { ?s :b ?o } WHERE { ?s :b ?o }")
    assert "SELECT" in refused.value.hint
    with pytest.raises(InvalidOption, match="more than 2 statements"):
        live.apply(Upload(b"a\tb\tx\na\tb\ty\na\tb\tz\n", "tsv"))
    assert live.version == before
    parts = "DELETE { ?s :b ?o } WHERE { { SELECT ?s ?o { ?s :b ?o } LIMIT 2 } }"
    assert [live.apply(parts).deleted for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("kind", ["tsv", "csv", "ntriples", "turtle", "rdfxml"])
def test_an_upload_of_too_many_statements_is_refused_before_it_is_read_to_its_end(kind):
    head, line, end = {
        "tsv": (b"", b"a%d\tr\tb\n", b""),
        "csv": (b"", b"a%d,r,b\n", b""),
        "ntriples": (b"", b"<u:a%d> <u:r> <u:b> .\n", b""),
        "turtle": (b"@prefix : <u:> .\n", b":a%d :r :b .\n", b""),
        "rdfxml": (
            b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="u:x#">\n',
            b'<a rdf:about="u:%d"/>\n',
            b"</rdf:RDF>\n",
        ),
    }[kind]
    many = head + b"".join(line % number for number in range(1_200_000)) + (b"" if kind == "rdfxml" else b"\0\n") + end
    with pytest.raises(InvalidOption, match="more than 100,000 statements"):
        Upload(gzip.compress(many, 1), kind).read()


@pytest.mark.parametrize("text", ["", " \n", "# nothing", "PREFIX x: <urn:x:>", "BASE <urn:x> PREFIX x: <urn:x:>"])
def test_an_update_may_say_nothing(live, text):
    receipt = live.apply(text)
    assert (receipt.version, receipt.inserted, receipt.deleted, receipt.unchanged) == (0, 0, 0, 0)
    assert rows(live) == BEFORE


@pytest.mark.parametrize(
    "changes",
    [
        Changes(inserted=(Statement("fine", "near", "Bonn"), Statement("", "near", "Bonn"))),
        Changes(inserted=(Statement("fine", "near", "Bonn"), Statement("x" * 70_000, "near", "Bonn"))),
        Changes(inserted=(Statement("fine", "near", "Bonn"), Statement("half \ud800", "near", "Bonn"))),
        Changes(inserted=(Statement("fine", "near", "Bonn"), Statement("a", "b", Text("t", None, "no language")))),
        Changes(inserted=(Statement("fine", "near", "Bonn"), Statement("a", "b", Text("t", "no datatype")))),
    ],
)
def test_an_update_is_done_whole_or_not_at_all(live, changes):
    with pytest.raises(InvalidOption):
        live.apply(changes)
    assert live.version == 0 and rows(live) == BEFORE
    assert LiveGraph(live.folder).version == 0


def test_a_statement_about_a_statement_is_refused(live):
    with pytest.raises(UnsupportedQuery, match="statements about statements"):
        live.apply("INSERT DATA { :a :b :c . :x :says <<( :a :b :c )>> }")
    assert live.version == 0


def test_usual_prefixes_need_no_declaration(live):
    live.apply("INSERT DATA { :Rhine :length '1233'^^xsd:integer ; rdfs:label 'Rhein' }")
    assert {("Rhine", "length", "1233"), ("Rhine", "http://www.w3.org/2000/01/rdf-schema#label", "Rhein")} <= rows(live)
    (found,) = live.snapshot().store.query("SELECT ?o { ?s <length> ?o }").rows
    assert found[0].datatype == "http://www.w3.org/2001/XMLSchema#integer"


def test_literals_are_seen_by_sparql_and_are_no_entities(live):
    receipt = live.apply("INSERT DATA { :Bonn :population 300000 ; :motto 'Freude'@de . :Ghost :population 0 }")
    view = live.snapshot()
    assert receipt.literals == 3 and receipt.new_entities == 0
    assert view.vocabulary.entities.find("Ghost") is None and view.vocabulary.relations.find("population") is None
    assert view.literal_relations == {"population", "motto"}
    found = view.store.query("SELECT ?c WHERE { ?c :population ?n FILTER(?n > 5) }", prefixes={"": ""})
    assert [row[0].value for row in found.rows] == ["Bonn"]
    live.compact()
    again = LiveGraph(live.folder).snapshot()
    assert again.literal_relations == view.literal_relations
    live.apply("DELETE WHERE { ?s :population ?n }")
    assert live.snapshot().literal_relations == {"motto"} and view.literal_relations == {"population", "motto"}


def test_labels_follow_the_rule_of_import_and_deleting_one_brings_back_the_one_before(live):
    bonn = live.snapshot().vocabulary.entity_id("Bonn")

    def label() -> str:
        assert LiveGraph(live.folder).snapshot().vocabulary.label(bonn) == live.snapshot().vocabulary.label(bonn)
        return live.snapshot().vocabulary.label(bonn)

    assert label() == "City of Bonn"
    live.apply(f"INSERT DATA {{ :Bonn <{LABEL}> 'Bonn am Rhein'@de , 'Bonn on the  Rhine'@en }}")
    assert label() == "Bonn on the Rhine"
    live.compact()
    assert label() == "Bonn on the Rhine"
    live.apply(f"DELETE DATA {{ :Bonn <{LABEL}> 'Bonn on the  Rhine'@en }}")
    assert label() == "Bonn am Rhein"
    live.apply(f"DELETE WHERE {{ :Bonn <{LABEL}> ?text }}")
    assert label() == "City of Bonn"
    live.apply(f"INSERT DATA {{ :Newtown <{LABEL}> 'New Town' }}")
    live.apply("INSERT DATA { :Newtown :near :Bonn }")
    vocabulary = live.snapshot().vocabulary
    assert vocabulary.label(vocabulary.entity_id("Newtown")) == "New Town"


TURTLE = f"""@prefix ex: <{EX}> . @prefix n: <urn:biqe:name:> .
n:Bonn ex:twin ex:Oxford ; <{LABEL}> "Bonn!"@en . _:x ex:p [ ex:q n:Bonn ] ."""


@pytest.mark.parametrize(
    ("content", "format", "inserted"),
    [
        (TURTLE, "text/turtle; charset=utf-8", 4),
        (TURTLE, "ttl", 4),
        (f'<{EX}a> <{EX}p> <{EX}b> .\n<{EX}a> <{EX}p> "one" .\n', "application/n-triples", 2),
        (f"<{EX}a> <{EX}p> <{EX}b> <{EX}g> .\n", "nquads", 1),
        ("Bonn\tnear\tMainz\nMainz\tnear\tBonn\n", "tsv", 2),
        ("head,relation,tail\nBonn,near,Mainz\n", "text/csv", 1),
    ],
)
def test_uploads_are_read_by_the_graphs_own_readers(live, content, format, inserted):
    receipt = live.apply(Upload(content.encode(), format))
    assert (receipt.version, receipt.inserted) == (1, inserted)
    assert len(rows(live)) == len(BEFORE) + inserted
    assert receipt.named_graph == (1 if "nquads" in format else 0)
    assert LiveGraph(live.folder).version == 1


def test_an_upload_may_be_a_file_and_packed(live, tmp_path):
    (tmp_path / "facts.gz").write_bytes(gzip.compress(b"Bonn\tnear\tMainz\n"))
    assert live.apply(Upload(tmp_path / "facts.gz", "tsv")).inserted == 1


@pytest.mark.parametrize(
    ("content", "format", "error"),
    [
        (b"Bonn\tnear\tMainz\nBonn\tnear\n", "tsv", BadLine),
        (f"<{EX}a> <{EX}p> <{EX}b> .\nnonsense\n".encode(), "nt", BadLine),
        (b"@prefix ex: <http://ex.org/> . ex:a ex:p", "turtle", BadLine),
        (BOMB, "rdfxml", BadLine),
        (b"# nothing here\n", "tsv", EmptyResult),
        (b"", "tsv", BiqeError),
        (b"\xff\xfe\x00", "tsv", BiqeError),
    ],
)
def test_a_malformed_upload_changes_nothing_and_tells_no_path(live, content, format, error):
    with pytest.raises(error) as caught:
        live.apply(Upload(content, format))
    assert "/tmp" not in str(caught.value) and "the upload" in str(caught.value)
    assert live.version == 0


def test_an_upload_of_another_format_is_refused():
    with pytest.raises(InvalidOption, match="text/html"):
        Upload(b"<p>", "text/html")
    with pytest.raises(InvalidOption):
        Upload(b"PAR1", "parquet")
