"""RDF in every format."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.graph.rivers import EXPECTED, NQUADS, NTRIPLES, RDFXML, TURTLE, E, named

from biqe.errors import BadLine, EmptyResult, UnreadableFile
from biqe.graph.read import read_graph

File = Callable[[str, str | bytes], Path]


TRIG = TURTLE.replace(":Köln :located_on :Rhine .", ":graph { :Köln :located_on :Rhine }")


@pytest.mark.parametrize(
    "change", [lambda text: text, lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n")]
)
@pytest.mark.parametrize(
    ("name", "content", "in_graphs"),
    [("g.nt", NTRIPLES, 0), ("g.nq", NQUADS, 9), ("g.ttl", TURTLE, 0), ("g.trig", TRIG, 1), ("g.rdf", RDFXML, 0)],
)
def test_one_graph_in_every_format(
    file: File, name: str, content: str, in_graphs: int, change: Callable[[str], str]
) -> None:
    data = change(content).encode()
    for path in (file(name, data), file(name + ".gz", gzip.compress(data))):
        graph = read_graph([path])
        assert named(graph) == EXPECTED
        labels = {graph.vocabulary.entities[entity]: label for entity, label in graph.vocabulary.labels.items()}
        assert labels == {E + "Rhine": "Rhine river", E + "Germany": "Deutschland"}
        aliases = [(graph.vocabulary.entities[entity], text) for entity, text in graph.vocabulary.aliases]
        assert aliases == [(E + "Rhine", text) for text in ("Rhein", "the Rhine", "Rhine again")]
        counts = graph.counts
        assert (counts.triples, counts.literals, counts.labels, counts.labels_unused) == (2, 7, 2, 1)
        assert counts.named_graph == in_graphs
        assert graph.prefixes[""] == E


def test_blank_nodes_are_entities_of_their_file(file: File) -> None:
    one = file("one.nt", "_:a <http://r/r> _:b .\n")
    two = file("two.nt", "_:a <http://r/r> <http://e/c> .\n")
    assert named(read_graph([one, two])) == {
        ("_:a", "http://r/r", "_:b"),
        ("_:-1-a", "http://r/r", "http://e/c"),
    }


def test_a_folder_of_splits_is_one_space_of_labels(file: File) -> None:
    file("g/train.nt", "_:a <http://r/r> _:b .\n")
    graph = read_graph([file("g/test.nt", "_:b <http://r/r> _:a .\n").parent])
    assert list(graph.vocabulary.entities) == ["_:a", "_:b"]


def test_nodes_without_a_label_get_the_same_names_at_every_reading(file: File) -> None:
    path = file("g.ttl", "@prefix : <http://e/> . :a :b [ :c :d ] . _:x :b :a . :l :m ( :a ) .")
    first, second = read_graph([path]), read_graph([path])
    assert first.splits.fingerprint == second.splits.fingerprint
    assert {"_:-1", "_:-2", "_:x"} <= set(first.vocabulary.entities)


def test_statements_about_statements_are_counted(file: File) -> None:
    nested = "<http://e/a> <http://r/r> <<( <http://e/a> <http://r/r> <http://e/b> )>> .\n"
    graph = read_graph([file("g.nt", nested + "<http://e/a> <http://r/r> <http://e/b> .\n")])
    assert (graph.counts.nested, graph.counts.triples) == (1, 1)


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("g.nt", "<http://a/b> <http://a/b> <http://a/b> .\n<http://a/b> <http://a/b> .\n", 2),
        ("g.nt", "<http://a/b> <http://a/b> <http://a/b>\n", 1),
        ("g.nt", "# x\n<http://a/b> <http://a/b> <http://a/b>\n\n<http://a/b> <http://a/b> <http://a/b> .\n", 2),
        ("g.nt", "\n\n<a> <http://a/b> <http://a/b> .\n", 3),
        ("g.nt", b"<http://a/b> <http://a/b> <http://a/\xff> .\n", 1),
        ("g.nt", "<http://a/b> <http://a/b> <http://a/b> <http://a/g> .\n", 1),
        ("g.nt", "<http://a/b> <http://a/b> <http://a/b> .\n\n" + 2 * "<http://a/b> <http://a/b> <http://a/b .\n", 3),
        ("g.nq", "<http://a/b> <http://a/b> <http://a/b> <http://a/g> .\n\n<http://a/b> <http://a/b> 1 .\n", 3),
        ("g.ttl", "@prefix : <http://e/> .\n:a :b\n :c d .\n", 3),
        ("g.ttl", "@prefix : <http://e/> .\n:a :b :c .\n:a :b x:c .\n", 3),
        ("g.rdf", RDFXML.replace("</rdf:RDF>", "</rdf:RD>"), 15),
        ("g.rdf", RDFXML[: RDFXML.index("</rdf:RDF>")], None),
        ("g.rdf", RDFXML[: RDFXML.index("<e:length>") + 3], None),
        ("g.rdf", RDFXML.replace("</rdf:RDF>", '<e:X rdf:about="http://e/a b"/>\n\n</rdf:RDF>'), 15),
        ("g.rdf", RDFXML.replace("</rdf:RDF>", "<x:X/>\n\n</rdf:RDF>"), 15),
        ("g.rdf", RDFXML.replace("</rdf:RDF>", "\n\n\n<e:X>\ntext</e:X>\n\n</rdf:RDF>"), 19),
        ("g.rdf", RDFXML.replace("UTF-8", "ISO-8859-1"), 1),
        ("g.ttl", TURTLE[:-30], None),
    ],
)
def test_bad_lines_are_named(file: File, name: str, content: str | bytes, line: int | None) -> None:
    path = file(name, content)
    with pytest.raises(UnreadableFile, match=name) as caught:
        read_graph([path])
    # One place, that in the file: the parser counts from where it was set to work.
    assert "Parser error" not in caught.value.message
    if line is not None:
        assert isinstance(caught.value, BadLine)
        assert caught.value.line == line


DOCTYPE = '<!DOCTYPE rdf:RDF [ <!ENTITY e "http://example.org/"> ]>\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (RDFXML.replace("<rdf:RDF", DOCTYPE + "<rdf:RDF", 1), 2),
        (DOCTYPE + RDFXML.partition("?>")[2], 1),
    ],
)
def test_a_doctype_is_refused_before_the_file_is_parsed(file: File, content: str, line: int) -> None:
    with pytest.raises(BadLine, match="DOCTYPE") as caught:
        read_graph([file("g.rdf", content)])
    assert caught.value.line == line and "xmllint" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (DOCTYPE.replace("DOCTYPE", "doctype") + RDFXML.partition("?>")[2], 1),
        ("\n\nnot XML yet\n" + DOCTYPE + RDFXML.partition("?>")[2], 3),
        (RDFXML.replace("</rdf:RDF>", DOCTYPE + "</rdf:RDF>"), 15),
        (RDFXML.replace("</rdf:RDF>", "<e:X>&e;</e:X></rdf:RDF>"), 15),
        (RDFXML.replace("</rdf:RDF>", "<!-- \x01 --></rdf:RDF>"), 15),
    ],
)
def test_what_is_no_xml_is_refused_before_the_rdf_parser_reads_on(file: File, content: str, line: int) -> None:
    with pytest.raises(BadLine, match="not valid rdfxml") as caught:
        read_graph([file("g.rdf", content)])
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<e:X><e:p>" * 100_000, "nested more than 256 deep"),
        ("<e:X><e:p>" + "x" * (20 << 20), "no element begins or ends"),
        ("<e:X e:p='" + "x" * (20 << 20), "no element begins or ends"),
        ("<!-- " + "x" * (20 << 20), "no element begins or ends"),
    ],
    ids=["nested", "text", "attribute", "comment"],
)
def test_xml_without_end_is_refused_before_it_is_parsed(file: File, content: str, says: str) -> None:
    path = file("g.rdf.gz", gzip.compress((RDFXML.rpartition("</rdf:RDF>")[0] + content).encode(), 1))
    start = time.process_time()
    with pytest.raises(BadLine, match=says) as caught:
        read_graph([path])
    assert caught.value.line in (14, 15) and time.process_time() - start < 5


def test_xml_may_be_nested_and_a_text_may_be_long(file: File) -> None:
    nested = "<e:X><e:p>" * 100 + "<e:X/>" + "</e:p></e:X>" * 100
    text = f"<e:X rdf:about='{E}x'><e:text>{'x' * (12 << 20)}</e:text></e:X>"
    graph = read_graph([file("g.rdf", RDFXML.replace("</rdf:RDF>", f"{nested}{text}</rdf:RDF>"))])
    assert named(graph) >= EXPECTED and graph.counts.triples >= 200


@pytest.mark.parametrize("content", ["<http://e/", "<http://e/a> <http://e/b> '", "<http://e/a> <http://e/b> '" + "''"])
def test_turtle_without_end_is_refused(file: File, content: str) -> None:
    with pytest.raises(UnreadableFile, match="of more than 16,777,216 bytes"):
        read_graph([file("g.ttl", content + "x" * (20 << 20))])


def test_a_doctype_in_a_comment_or_a_text_is_no_doctype(file: File) -> None:
    text = f"<!-- {DOCTYPE} -->\n<e:X rdf:about='{E}x'><e:html><![CDATA[{DOCTYPE}]]></e:html></e:X></rdf:RDF>"
    graph = read_graph([file("g.rdf", RDFXML.replace("</rdf:RDF>", text))])
    assert named(graph) >= EXPECTED


def test_relative_names_are_refused_with_a_hint(file: File) -> None:
    with pytest.raises(BadLine, match="No scheme") as caught:
        read_graph([file("g.ttl", "<a> <b> <c> .")])
    assert "base" in (caught.value.hint or "")


def test_literals_alone_make_no_graph(file: File) -> None:
    path = file("g.nt", '<http://e/a> <http://r/r> "x" .\n')
    with pytest.raises(EmptyResult, match="no triple between entities") as caught:
        read_graph([path])
    assert "1 statements have a literal" in (caught.value.hint or "")


def test_names_that_are_too_long(file: File) -> None:
    with pytest.raises(UnreadableFile, match="a name may have 65,535"):
        read_graph([file("g.nt", f"<http://a/{'x' * 70_000}> <http://a/b> <http://a/b> .\n")])
    long = "http://a/" + "x" * (65_535 - 9)
    graph = read_graph([file("h.nt", f"<{long}> <http://a/b> <http://a/b> .\n")])
    assert graph.vocabulary.entities[0] == long
