"""TSV and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import BadLine, EmptyResult, UnreadableFile
from biqe.graph.read import ReadGraph, read_graph

File = Callable[[str, str | bytes], Path]


def named(graph: ReadGraph, split: str = "train") -> set[tuple[str, str, str]]:
    """The triples of a split in names."""
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return {(entities[s], relations[r], entities[o]) for s, r, o in graph.splits[split].triples.tolist()}


EXPECTED = {("Rhine", "flows_through", "Germany"), ("Köln", "located_on", "Rhine")}


@pytest.mark.parametrize(
    "content",
    [
        "Rhine\tflows_through\tGermany\nKöln\tlocated_on\tRhine\n",
        "Rhine\tflows_through\tGermany\r\nKöln\tlocated_on\tRhine",
        "\ufeff# rivers\n\nRhine\tflows_through\tGermany\n   \nKöln\tlocated_on\tRhine\n\n",
        "Head\tRelation\tTail\nRhine\tflows_through\tGermany\nKöln\tlocated_on\tRhine\n",
        "# first\nobject\tsource\tsubject\tpredicate\nGermany\tx\tRhine\tflows_through\nRhine\t\tKöln\tlocated_on\n",
    ],
)
def test_tsv_forms(file: File, content: str) -> None:
    assert named(read_graph([file("g.tsv", content)])) == EXPECTED


@pytest.mark.parametrize(
    "content",
    [
        "Rhine,flows_through,Germany\nKöln,located_on,Rhine\n",
        '"Rhine","flows_through","Germany"\r\nKöln,"located_on",Rhine\r\n',
        "\ufeffsubject,predicate,object\n# note\n\nRhine,flows_through,Germany\nKöln,located_on,Rhine",
        "tail,head,relation\nGermany,Rhine,flows_through\nRhine,Köln,located_on\n",
    ],
)
def test_csv_forms(file: File, content: str) -> None:
    assert named(read_graph([file("g.csv", content)])) == EXPECTED


HEADER_ROWS = [
    "h r t",
    "s p o",
    "S R O",
    "source relation target",
    "FROM Rel To",
    "head relation tail",
    "Head rel Tail",
    "subject predicate object",
    "Subject Relation Object",
    "Subject Property Value",
    "head predicate target",
]


@pytest.mark.parametrize("header", HEADER_ROWS)
@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.parquet"])
def test_a_header_is_told_from_facts_in_every_table(file: File, name: str, header: str) -> None:
    columns = dict(zip(header.split(), [["Rhine"], ["flows_through"], ["Germany"]], strict=True))
    columns = {"note": ["x"], **dict(reversed(columns.items()))}
    path = file(name, b"")
    if name == "g.parquet":
        pq.write_table(pa.table(columns), path)
    else:
        mark = "\t" if name == "g.tsv" else ","
        path.write_text("\n".join([mark.join(columns), mark.join(cell for (cell,) in columns.values())]))
    graph = read_graph([path])
    assert named(graph) == {("Rhine", "flows_through", "Germany")}
    assert graph.counts.ignored_columns == ["note"]
    assert graph.counts.headers == ([] if name == "g.parquet" else [f"{name}: {', '.join(columns)}"])


@pytest.mark.parametrize("row", ["s r t", "source p to", "h h t", "relation target sources", "head subject object"])
def test_words_that_make_no_header_are_a_fact(file: File, row: str) -> None:
    assert named(read_graph([file("g.tsv", row.replace(" ", "\t"))])) == {tuple(row.split())}


LITERALS = [
    '"Rhein"@de',
    '"x"@de-CH-1996',
    '"1"^^<http://www.w3.org/2001/XMLSchema#integer>',
    '"1"^^xsd:int',
    '"say \\"hi\\""@en',
    '"he "said" so"@en',
    '""@en',
    '"' + "x" * 70_000 + '"@en',
]


@pytest.mark.parametrize("literal", LITERALS)
def test_literals_in_tsv_are_no_entities(file: File, literal: str) -> None:
    graph = read_graph([file("g.tsv", f"a\tr\tb\na\tname\t{literal}\r\nb\tr\ta\n")])
    assert named(graph) == {("a", "r", "b"), ("b", "r", "a")}
    assert (graph.counts.literals, len(graph.vocabulary.relations)) == (1, 1)


@pytest.mark.parametrize("name", ['"Rhine"', '"', '""', '"a"b', 'x"1"@en', '"a"@', '"a"^^int', '"a"@en '])
def test_other_quotation_marks_in_tsv_are_part_of_a_name(file: File, name: str) -> None:
    graph = read_graph([file("g.tsv", f"a\tr\tb\na\tr\t{name}\n")])
    assert named(graph) == {("a", "r", "b"), ("a", "r", name)}


@pytest.mark.parametrize("relation", ["rdfs:label", "<http://www.w3.org/2000/01/rdf-schema#label>"])
def test_labels_in_tsv(file: File, relation: str) -> None:
    text = f'a\tr\tb\na\t{relation}\t"Rh\\u00edn"@es\nb\t{relation}\t"the  \\"B\\""@en\n'
    assert dict(read_graph([file("g.tsv", text)]).vocabulary.labels) == {0: "Rhín", 1: 'the "B"'}


def test_a_literal_in_csv_is_quoted_once_more(file: File) -> None:
    graph = read_graph([file("g.csv", 'a,r,b\na,name,"""Rhein, der""@de"\n')])
    assert (named(graph), graph.counts.literals) == ({("a", "r", "b")}, 1)


def test_csv_fields_that_are_no_names_may_be_long_and_run_over_lines(file: File) -> None:
    text = 'head,relation,tail,note\na,r,b,"one\ntwo"\nb,r,a,' + "x" * 200_000 + "\n"
    assert named(read_graph([file("g.csv", text)])) == {("a", "r", "b"), ("b", "r", "a")}


def test_csv_quoting_keeps_commas_quotes_and_hashes(file: File) -> None:
    graph = read_graph([file("g.csv", '"a,b","says ""hi""",c#d\n"#x",r,c#d\n')])
    assert named(graph) == {("a,b", 'says "hi"', "c#d"), ("#x", "r", "c#d")}
    assert graph.counts.comments == 0


NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8)


TRIPLES = st.lists(st.tuples(NAME, NAME, NAME), min_size=1, max_size=12)


@settings(max_examples=60)
@given(TRIPLES)
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, triples: list) -> None:
    text = io.StringIO(newline="")
    # A header, so that no first row can be taken for one; quotes, so that no name starts a comment.
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("head", "relation", "tail"), *triples])
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_bytes(text.getvalue().encode())
    graph = read_graph([path])
    assert named(graph) == set(triples)
    assert graph.counts.duplicates == len(triples) - len(set(triples))


BAD = [
    ("g.tsv", "a\tr\tb\na\tr\n", 2, "2 columns where 3"),
    ("g.tsv", "a\tr\tb\n\n#c\na\tr\tb\td\n", 4, "4 columns where 3"),
    ("g.tsv", "a r b\n", 1, "1 column where 3"),
    ("g.tsv", "a\tr\tb\na\t\tb\n", 2, "the relation is empty"),
    ("g.tsv", "a\tr\tb\n\tr\tb\n", 2, "the subject is empty"),
    ("g.tsv", b"a\tr\tb\nb\tr\t\xff\n", 2, "0xff is not valid UTF-8"),
    ("g.tsv", b"a\tr\tb\nb\0\tr\ta\n", 2, "NUL"),
    ("g.tsv", "a\tr\tb\na\rb\tr\tb\n", 2, "carriage return"),
    ("g.tsv", "a\tr\tb\n" + "x" * 70_000 + "\tr\tb\n", 2, "the subject has 70,000 bytes"),
    ("g.csv", "a,r,b\na,r\n", 2, "2 columns where 3"),
    ("g.csv", 'a,r,b\nb,r,a\n"a,r,b\nb,r,a\n', 3, "end of the line|not valid CSV"),
    ("g.csv", 'a,r,b\n"a"x,r,b\n', 2, "not valid CSV"),
    ("g.csv", "a,r,b\na,,b\n", 2, "the relation is empty"),
    ("g.csv", "head,relation,tail,x\na,r,b\n", 2, "3 columns where 4"),
    ("g.csv", "a,r,b\n" + "x" * 200_000 + ",r,b\n", 2, "the subject has 200,000 bytes"),
    ("g.csv", 'a,r,b\n"a\nc",r,b\n', 2, "the subject runs over the end of the line"),
    ("g.tsv", 'a\tr\tb\n\tr\t"1"^^<http://e/int>\n', 2, "the subject is empty"),
]


@pytest.mark.parametrize(("name", "content", "line", "message"), BAD)
def test_bad_lines_are_named(file: File, name: str, content: str | bytes, line: int, message: str) -> None:
    path = file(name, content)
    with pytest.raises(BadLine, match=message) as caught:
        read_graph([path])
    assert caught.value.line == line
    assert str(path) in str(caught.value)


GOOD_AND_BAD = {
    "g.tsv": (b"a\tr\tb\nnonsense\nb\tr\t\xff\n\tr\tb\na\rb\tr\tb\nb\tr\tc\n", [2, 3, 4, 5]),
    "g.csv": (b'a,r,b\nb,r\n"x"y,r,b\n"a\nc",r,b\nb\0,r,b\nb,r,c\n', [2, 3, 4, 6]),
    "g.nt": (
        b"<http://e/a> <http://e/r> <http://e/b> .\n<http://e/a> <http://e/r>\n<relative> <http://e/r> <http://e/b> .\n"
        b'<http://e/a> <http://e/r> "\xff" .\n<http://e/a> <http://e/r> "open .\n'
        b"<http://e/" + b"x" * 70_000 + b"> <http://e/r> <http://e/b> .\n<http://e/b> <http://e/r> <http://e/c> .\n",
        [2, 3, 4, 5, None],
    ),
    "g.nq": (
        b"<http://e/a> <http://e/r> <http://e/b> <http://e/g> .\n<http://e/a> <http://e/r> <http://e/b>\n"
        b"<http://e/b> <http://e/r> <http://e/c> .\n",
        [2],
    ),
}


@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_bad_lines_can_be_skipped(file: File, name: str) -> None:
    content, lines = GOOD_AND_BAD[name]
    path = file(name, content)
    with pytest.raises(UnreadableFile):
        read_graph([path])
    graph = read_graph([path], skip_bad=True)
    assert {(s[-1], r[-1], o[-1]) for s, r, o in named(graph)} == {("a", "r", "b"), ("b", "r", "c")}
    assert graph.counts.bad_lines == len(lines)
    messages = sorted(graph.counts.bad_line_messages)
    assert all(any(f", line {line}:" in text for text in messages) for line in lines if line is not None), messages


def test_of_many_bad_lines_the_first_are_told(file: File) -> None:
    graph = read_graph([file("g.tsv", "a\tr\tb\n" + "bad\n" * 1_000)], skip_bad=True)
    assert (graph.counts.bad_lines, len(graph.counts.bad_line_messages)) == (1_000, 5)
    with pytest.raises(EmptyResult):
        read_graph([file("h.tsv", "bad\n" * 10)], skip_bad=True)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ('a,r,b\n"a,r,b\nb,r,c\n', [2]),
        ('a,r,b\na,"r,b\nb,r,c\n', [2]),
        ('a,r,b\n#c\nx,"y,z\n#d\nb,r,c\nx,"y,z\nx\nb,r,c\n', [3, 6, 7]),
    ],
)
def test_a_quotation_mark_that_is_never_closed_takes_no_good_line_with_it(file: File, content: str, lines) -> None:
    graph = read_graph([file("g.csv", content)], skip_bad=True)
    assert {tuple(fact) for fact in named(graph)} == {("a", "r", "b"), ("b", "r", "c")}
    assert [int(re.search(r"line (\d+):", text)[1]) for text in graph.counts.bad_line_messages] == lines


def test_turtle_with_an_error_is_refused_all_the_same(file: File) -> None:
    with pytest.raises(BadLine):
        read_graph([file("g.ttl", "<http://e/a> <http://e/r> .")], skip_bad=True)


def test_a_file_full_of_unclosed_quotation_marks_is_given_up(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("biqe.graph.read_table.MAX_TAKEN_BACK", 100)
    with pytest.raises(BadLine, match="never closed"):
        read_graph([file("g.csv", "a,r,b\n" + 'a,"r,b\nb,r,c\nb,r,d\n' * 100)], skip_bad=True)
