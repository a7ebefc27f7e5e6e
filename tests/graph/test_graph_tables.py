"""TSV, CSV, Parquet and labels files."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import BadLine, BiqeError, InvalidOption, UnreadableFile
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
    ("g.csv", "a,r,b\n" + "x" * 200_000 + ",r,b\n", 2, "field"),
]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("name", "content", "line", "message"), BAD)
def test_bad_lines_are_named(file: File, name: str, content: str | bytes, line: int, message: str, fast: bool) -> None:
    path = file(name, content)
    with pytest.raises(BadLine, match=message) as caught:
        read_graph([path], fast=fast)
    assert caught.value.line == line
    assert str(path) in str(caught.value)


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
