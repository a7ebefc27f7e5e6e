"""TSV, CSV, Parquet and labels files."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import BadLine, BiqeError, EmptyResult, InvalidOption, UnreadableFile
from biqe.graph.read import ReadGraph, read_graph

File = Callable[[str, str | bytes], Path]


def named(graph: ReadGraph, split: str = "train") -> set[tuple[str, str, str]]:
    """The triples of a split in names."""
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return {(entities[s], relations[r], entities[o]) for s, r, o in graph.splits[split].triples.tolist()}


EXPECTED = {("Rhine", "flows_through", "Germany"), ("Köln", "located_on", "Rhine")}


@pytest.mark.parametrize("fast", [False, True])
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
def test_tsv_forms(file: File, content: str, fast: bool) -> None:
    assert named(read_graph([file("g.tsv", content)], fast=fast)) == EXPECTED


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
    for fast in (False, True):
        graph = read_graph([path], fast=fast)
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


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("literal", LITERALS)
def test_literals_in_tsv_are_counted_and_left_out(file: File, literal: str, fast: bool) -> None:
    graph = read_graph([file("g.tsv", f"a\tr\tb\na\tname\t{literal}\r\nb\tr\ta\n")], fast=fast)
    assert named(graph) == {("a", "r", "b"), ("b", "r", "a")}
    assert (graph.counts.literals, len(graph.vocabulary.relations)) == (1, 1)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", ['"Rhine"', '"', '""', '"a"b', 'x"1"@en', '"a"@', '"a"^^int', '"a"@en '])
def test_other_quotation_marks_in_tsv_are_part_of_a_name(file: File, name: str, fast: bool) -> None:
    graph = read_graph([file("g.tsv", f"a\tr\tb\na\tr\t{name}\n")], fast=fast)
    assert named(graph) == {("a", "r", "b"), ("a", "r", name)}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("relation", ["rdfs:label", "<http://www.w3.org/2000/01/rdf-schema#label>"])
def test_labels_in_tsv(file: File, relation: str, fast: bool) -> None:
    text = f'a\tr\tb\na\t{relation}\t"Rh\\u00edn"@es\nb\t{relation}\t"the  \\"B\\""@en\n'
    assert dict(read_graph([file("g.tsv", text)], fast=fast).vocabulary.labels) == {0: "Rhín", 1: 'the "B"'}


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


@settings(max_examples=30)
@given(TRIPLES, st.sampled_from([["head", "relation", "tail"], ["a", "b", "c"], ["s", "p", "o"]]))
def test_parquet_is_read_as_csv_is(tmp_path_factory: pytest.TempPathFactory, triples: list, header: list) -> None:
    path = tmp_path_factory.getbasetemp() / "written.parquet"
    pq.write_table(pa.table({name: [row[i] for row in triples] for i, name in enumerate(header)}), path)
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("head", "relation", "tail"), *triples])
    path.with_suffix(".csv").write_bytes(text.getvalue().encode())
    for fast in (False, True):
        from_parquet, from_csv = read_graph([path], fast=fast), read_graph([path.with_suffix(".csv")], fast=fast)
        assert list(from_parquet.vocabulary.entities) == list(from_csv.vocabulary.entities)
        assert from_parquet.splits.fingerprint == from_csv.splits.fingerprint


def test_parquet_columns_by_name_and_integer_names(tmp_path: Path) -> None:
    table = pa.table({"weight": [0.5, 1.0], "tail": [1, 2], "head": [3, 1], "relation": ["r", "s"]})
    pq.write_table(table, tmp_path / "g.parquet")
    graph = read_graph([tmp_path / "g.parquet"])
    assert named(graph) == {("3", "r", "1"), ("1", "s", "2")}
    assert graph.counts.ignored_columns == ["weight"]


def test_parquet_names_in_every_form_of_text(tmp_path: Path) -> None:
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
        pa.string_view(),
        pa.binary_view(),
    ]
    for kind in kinds:
        text = pa.array(["Köln", "b", "Köln"])
        if pa.types.is_dictionary(kind):
            column = text.cast(kind.value_type).dictionary_encode()
        else:
            column = text.cast(kind)
        pq.write_table(pa.table({"h": column, "r": column, "t": column}), tmp_path / "g.parquet")
        assert named(read_graph([tmp_path / "g.parquet"])) == {("Köln",) * 3, ("b",) * 3}, kind
    latin = pa.array(["K\xf6ln".encode("latin-1")])
    pq.write_table(pa.table({"h": latin, "r": latin, "t": latin}), tmp_path / "g.parquet")
    with pytest.raises(UnreadableFile, match="cannot be read as text") as caught:
        read_graph([tmp_path / "g.parquet"])
    assert "UTF-8" in (caught.value.hint or "")


def test_literals_in_parquet_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = [
        ("a", "r", "b"),
        ("a", "age", '"42"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        ("b", "r", '"quoted"'),
        ("a", "rdfs:label", '"Alpha"@en'),
        ("a", "note", '"two\nlines"@en'),
        ("c", "note", '"' + "x" * 70_000 + '"@en'),
    ]
    pq.write_table(pa.table(dict(zip("hrt", zip(*rows, strict=True), strict=True))), tmp_path / "g.parquet")
    graph = read_graph([tmp_path / "g.parquet"])
    assert named(graph) == {("a", "r", "b"), ("b", "r", '"quoted"')}
    assert list(graph.vocabulary.entities) == ["a", "b", '"quoted"']
    assert (graph.counts.literals, dict(graph.vocabulary.labels)) == (4, {0: "Alpha"})
    pq.write_table(pa.table({"h": ["a"], "r": ["age"], "t": ['"42"^^xsd:int']}), tmp_path / "none.parquet")
    with pytest.raises(BiqeError, match="no triple between entities"):
        read_graph([tmp_path / "none.parquet"])


def test_packed_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"h": ["a"], "r": ["r"], "t": ["b"]}), tmp_path / "g.parquet")
    data = (tmp_path / "g.parquet").read_bytes()
    (tmp_path / "g.parquet.gz").write_bytes(gzip.compress(data))
    told: list[int] = []
    assert named(read_graph([tmp_path / "g.parquet.gz"], advance=told.append)) == {("a", "r", "b")}
    assert sum(told) == (tmp_path / "g.parquet.gz").stat().st_size
    (tmp_path / "cut.parquet.gz").write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(UnreadableFile, match="damaged or truncated gzip"):
        read_graph([tmp_path / "cut.parquet.gz"])
    (tmp_path / "text.parquet.gz").write_bytes(gzip.compress(b"a\tr\tb\n"))
    with pytest.raises(UnreadableFile, match="not a readable Parquet file"):
        read_graph([tmp_path / "text.parquet.gz"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["x"], "b": ["y"]}, "columns a, b"),
        ({"head": ["x", None], "relation": ["r", "r"], "tail": ["y", "z"]}, "row 2: column 'head' is empty"),
        ({"head": ["x", ""], "relation": ["r", "r"], "tail": ["y", "z"]}, "row 2: column 'head' is empty"),
        ({"head": [1.5], "relation": ["r"], "tail": ["y"]}, "type double"),
        ({"head": ["a\nb"], "relation": ["r"], "tail": ["y"]}, r"holds '\\n'"),
    ],
)
def test_bad_parquet(tmp_path: Path, columns: dict, message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "g.parquet")
    with pytest.raises(UnreadableFile, match=message):
        read_graph([tmp_path / "g.parquet"])


def test_parquet_garbage(file: File) -> None:
    for content in (b"", b"PAR1", b"\x00\x01" * 50):
        with pytest.raises(UnreadableFile):
            read_graph([file("g.parquet", content)])


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


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("name", "content", "line", "message"), BAD)
def test_bad_lines_are_named(file: File, name: str, content: str | bytes, line: int, message: str, fast: bool) -> None:
    path = file(name, content)
    with pytest.raises(BadLine, match=message) as caught:
        read_graph([path], fast=fast)
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


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_bad_lines_can_be_skipped(file: File, name: str, fast: bool) -> None:
    content, lines = GOOD_AND_BAD[name]
    path = file(name, content)
    with pytest.raises(UnreadableFile):
        read_graph([path], fast=fast)
    graph = read_graph([path], fast=fast, skip_bad=True)
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
    ("name", "content"), [("g.csv", 'a,r,b\n"a,r,b\nb,r,a\n'), ("g.ttl", "<http://e/a> <http://e/r> .")]
)
def test_what_cannot_be_skipped_is_an_error_all_the_same(file: File, name: str, content: str) -> None:
    with pytest.raises(BadLine):
        read_graph([file(name, content)], skip_bad=True)


def test_over_long_line(file: File) -> None:
    path = file("g.tsv", b"a\tr\tb\n" + b"x" * (17 << 20))
    with pytest.raises(BadLine, match="line 2: the line is longer than 16,777,216 bytes"):
        read_graph([path])


@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.nt", "g.ttl", "g.nq", "g.rdf", "g.parquet"])
@pytest.mark.parametrize("content", [b"", b"\n\n", bytes(range(256)) * 4, b"PK\x03\x04zip", b"\x1f\x8b\x08broken"])
@pytest.mark.parametrize("fast", [False, True])
def test_garbage_of_any_kind_is_refused(file: File, name: str, content: bytes, fast: bool) -> None:
    with pytest.raises(BiqeError):
        read_graph([file(name, content)], fast=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_gzip_is_looked_through_and_truncation_noticed(file: File, fast: bool) -> None:
    packed = gzip.compress("".join(f"e{i}\tr\te{i * 7 % 1000}\n" for i in range(5000)).encode())
    for name in ("g.tsv.gz", "g.TSV.GZ", "g.tsv"):
        assert len(read_graph([file(name, packed)], fast=fast).splits.train) == 5000
    with pytest.raises(UnreadableFile, match="damaged or truncated gzip"):
        read_graph([file("cut.tsv.gz", packed[: len(packed) // 2])], fast=fast)
    with pytest.raises(UnreadableFile, match="not a gzip file"):
        read_graph([file("plain.tsv.gz", "a\tr\tb\n")], fast=fast)


def test_folder_with_splits_and_labels(file: File) -> None:
    file("g/train.txt", "a\tr\tb\nb\tr\tc\na\tr\tb\n")
    file("g/valid.txt", "a\tr\td\n")
    file("g/test.txt.gz", gzip.compress(b"e\ts\ta\r\n"))
    file("g/labels.tsv", "a\tAlpha\tfirst letter\n# note\nz\tZeta\nb\t\nd\tDelta\r\n")
    file("g/README.md", "not data")
    graph = read_graph([file("g/train.txt", "a\tr\tb\nb\tr\tc\na\tr\tb\n").parent])
    assert graph.has_splits
    assert [len(graph.splits[split].triples) for split in ("train", "valid", "test")] == [2, 1, 1]
    assert named(graph, "test") == {("e", "s", "a")}
    assert list(graph.vocabulary.entities) == ["a", "b", "c", "d", "e"]
    assert dict(graph.vocabulary.labels) == {0: "Alpha", 3: "Delta"}
    assert dict(graph.vocabulary.descriptions) == {0: "first letter"}
    assert (graph.counts.duplicates, graph.counts.labels, graph.counts.labels_unused) == (1, 2, 1)
    assert graph.prefixes == {"": ""}


@pytest.mark.parametrize(
    "empty", [b"", b"\n\n", b"# nothing yet\n", gzip.compress(b"", mtime=0), b"head\trelation\ttail\n"]
)
def test_an_empty_split_counts_as_none(file: File, empty: bytes) -> None:
    folder = file("g/valid.txt", empty).parent
    file("g/train.txt", "a\tr\tb\nb\tr\ta\n")
    assert not read_graph([folder]).has_splits
    file("g/test.txt", "a\tr\ta\n")
    graph = read_graph([folder])
    assert graph.has_splits
    assert [len(graph.splits[split].triples) for split in ("train", "valid", "test")] == [2, 0, 1]
    file("g/train.txt", empty)
    with pytest.raises(BiqeError, match=r"train.txt (is empty|holds no triple)"):
        read_graph([folder])


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[list[bytes]], Path]]:
    """Function that writes pieces into a pipe, one after the other, and returns its path."""
    writers = []

    def write(pieces: list[bytes]) -> Path:
        path = tmp_path / f"pipe{len(writers)}"
        os.mkfifo(path)

        def run() -> None:
            with contextlib.suppress(BrokenPipeError), path.open("wb", buffering=0) as stream:
                for piece in pieces:
                    stream.write(piece)
                    time.sleep(0.01)

        writers.append(threading.Thread(target=run, daemon=True))
        writers[-1].start()
        return path

    yield write
    for writer in writers:
        writer.join(5)


PIPED = "h\tr\tt\n" + "".join(f"e{i}\tr\te{i * 7 % 1000}\n" for i in range(5000))


@pytest.mark.parametrize("fast", [None, True])
def test_pipes(file: File, pipe: Callable[[list[bytes]], Path], fast: bool | None) -> None:
    data = PIPED.encode()
    wanted = read_graph([file("g.tsv", data)]).splits.fingerprint
    packed = gzip.compress(data)
    for pieces in (
        [data],
        [data[:1], data[1:4], data[4:]],
        [packed],
        [packed[:1], packed[1:]],
        [b"\xef\xbb\xbf", data],
    ):
        told: list[int] = []
        graph = read_graph([pipe(pieces)], format="tsv", fast=fast, advance=told.append)
        assert graph.splits.fingerprint == wanted
        assert sum(told) == sum(map(len, pieces))
    turned = pipe([b"t\tr\th\nb\tr\ta\n"])
    assert named(read_graph([turned], format="tsv", fast=fast, labels=pipe([b"a\tAlpha\n"]))) == {("a", "r", "b")}
    turtle = pipe([b"@prefix : <http://e/> . :a :r", b" :b ."])
    assert named(read_graph([turtle], format="ttl", fast=fast)) == {("http://e/a", "http://e/r", "http://e/b")}


@pytest.mark.parametrize("format", ["parquet", "rdfxml"])
def test_formats_that_pipes_cannot_have(tmp_path: Path, format: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="pipe or a device") as caught:
        read_graph([tmp_path / "pipe"], format=format)
    assert "file first" in (caught.value.hint or "")


def test_folder_without_splits_reads_all_files(file: File) -> None:
    file("g/one.tsv", "a\tr\tb\n")
    graph = read_graph([file("g/two.csv", "b,r,c\n").parent])
    assert not graph.has_splits
    assert named(graph) == {("a", "r", "b"), ("b", "r", "c")}


def test_labels_option_stands_above_the_folder(file: File) -> None:
    file("g/train.tsv", "a\tr\tb\n")
    file("g/labels.tsv", "a\tOld\n")
    graph = read_graph([file("g/valid.tsv", "b\tr\ta\n").parent], labels=file("mine.tsv", "a\tNew\n"))
    assert dict(graph.vocabulary.labels) == {0: "New"}


@pytest.mark.parametrize("name", ["labels.tsv", "labels.tsv.gz"])
def test_labels_beside_the_files(file: File, name: str) -> None:
    triples, text = file("g/facts.tsv", "a\tr\tb\n"), b"a\tAlpha\tthe first letter\n"
    labels = file(f"g/{name}", gzip.compress(text) if name.endswith(".gz") else text)
    # As a folder, as a file, and as the shell writes out g/*: what labels.tsv says is never a triple.
    for paths in ([triples.parent], [triples], [triples, labels], [labels, triples]):
        graph = read_graph(paths)
        assert (named(graph), dict(graph.vocabulary.labels)) == ({("a", "r", "b")}, {0: "Alpha"}), paths
        assert graph.counts.ignored_files == []
    graph = read_graph([triples, labels], labels=file("mine.tsv", "a\tNew\n"))
    assert dict(graph.vocabulary.labels) == {0: "New"}
    assert dict(read_graph([triples], labels=file("mine.tsv", "b\tNew\n")).vocabulary.labels) == {1: "New"}
    assert named(read_graph([labels])) == {("a", "Alpha", "the first letter")}  # it alone is what was asked for


def test_a_labels_file_may_be_empty(file: File) -> None:
    folder = file("g/facts.tsv", "a\tr\tb\n").parent
    file("g/labels.tsv", "")
    assert len(read_graph([folder]).vocabulary.labels) == 0
    assert len(read_graph([folder], labels="/dev/null").vocabulary.labels) == 0


def test_files_of_a_folder_that_are_not_read_are_listed(file: File) -> None:
    folder = file("g/train.txt", "a\tr\tb\n").parent
    for name in ("valid.txt", "entity2id.txt", "README.md", "labels.tsv", ".hidden", "raw/more.tsv"):
        file(f"g/{name}", "a\tb\n" if name == "labels.tsv" else "b\tr\ta\n")
    assert read_graph([folder]).counts.ignored_files == ["README.md", "entity2id.txt", "raw/"]
    (folder / "valid.txt").unlink()
    assert read_graph([folder]).counts.ignored_files == ["README.md", "entity2id.txt", "raw/"]
    (folder / "train.txt").unlink()
    assert read_graph([folder]).counts.ignored_files == ["README.md", "raw/"]


@pytest.mark.parametrize("content", ["a\n", "a\tb\tc\td\n", "\tb\n"])
def test_bad_labels(file: File, content: str) -> None:
    with pytest.raises(BadLine, match="line 2: a label line has 2 or 3 columns"):
        read_graph([file("g.tsv", "a\tr\tb\n")], labels=file("labels.tsv", "x\ty\n" + content))


def test_what_is_not_there_or_not_clear(file: File, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="does not exist") as caught:
        read_graph([file("graph.tsv", "a\tr\tb\n").with_name("grph.tsv")])
    assert "graph.tsv?" in (caught.value.hint or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFile, match="holds no file to read"):
        read_graph([tmp_path / "empty"])
    with pytest.raises(UnreadableFile, match="the extension tells no format"):
        read_graph([file("g.dat", "a\tr\tb\n")])
    assert named(read_graph([tmp_path / "g.dat"], format="TSV")) == {("a", "r", "b")}
    with pytest.raises(InvalidOption, match="format must be one of"):
        read_graph([tmp_path / "g.dat"], format="xls")
    with pytest.raises(InvalidOption, match="given twice"):
        read_graph([tmp_path / "g.dat", tmp_path / "g.dat"], format="tsv")
    with pytest.raises(InvalidOption, match="nothing to import"):
        read_graph([])
    with pytest.raises(UnreadableFile, match="labels file"):
        read_graph([tmp_path / "g.dat"], format="tsv", labels=tmp_path / "none.tsv")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_graph([tmp_path / ("long" * 100)])


def test_a_given_format_reads_a_folder_whatever_the_names(file: File) -> None:
    folder = file("g/train", "a\tr\tb\n").parent
    file("g/valid.del", "b\tr\ta\n")
    file("g/README.md", "not data")
    with pytest.raises(UnreadableFile, match="holds no file to read") as caught:
        read_graph([folder])
    assert "--format" in (caught.value.hint or "")
    graph = read_graph([folder], format="tsv")
    assert (named(graph), named(graph, "valid")) == ({("a", "r", "b")}, {("b", "r", "a")})
    assert graph.counts.ignored_files == ["README.md"]
    parts = file("h/part-0", "a\tr\tb\n").parent
    file("h/part-1", "b\tr\tc\n")
    assert named(read_graph([parts], format="tsv")) == {("a", "r", "b"), ("b", "r", "c")}


@pytest.mark.parametrize("name", ["valid", "validation", "val", "dev", "Valid"])
def test_names_of_the_valid_split(file: File, name: str) -> None:
    file("g/train.txt", "a\tr\tb\n")
    graph = read_graph([file(f"g/{name}.txt", "b\tr\ta\n").parent])
    assert (named(graph, "valid"), graph.counts.ignored_files) == ({("b", "r", "a")}, [])


def test_folders_of_splits_must_be_clear(file: File) -> None:
    folder = file("g/valid.txt", "a\tr\tb\n").parent
    with pytest.raises(UnreadableFile, match="no train file"):
        read_graph([folder])
    file("g/train.txt", "a\tr\tb\n")
    file("g/dev.tsv", "a\tr\tb\n")
    with pytest.raises(InvalidOption, match="two files for the valid split"):
        read_graph([folder])
    (folder / "dev.tsv").unlink()
    with pytest.raises(InvalidOption, match="cannot be joined"):
        read_graph([folder, file("other.tsv", "a\tr\tb\n")])
