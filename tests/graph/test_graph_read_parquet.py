"""Parquet."""

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

from biqe.errors import BiqeError, UnreadableFile
from biqe.graph.read import ReadGraph, read_graph

File = Callable[[str, str | bytes], Path]


def named(graph: ReadGraph, split: str = "train") -> set[tuple[str, str, str]]:
    """The triples of a split in names."""
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return {(entities[s], relations[r], entities[o]) for s, r, o in graph.splits[split].triples.tolist()}


NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8)


TRIPLES = st.lists(st.tuples(NAME, NAME, NAME), min_size=1, max_size=12)


@settings(max_examples=30)
@given(TRIPLES, st.sampled_from([["head", "relation", "tail"], ["s", "p", "o"]]))
def test_parquet_is_read_as_csv_is(tmp_path_factory: pytest.TempPathFactory, triples: list, header: list) -> None:
    path = tmp_path_factory.getbasetemp() / "written.parquet"
    pq.write_table(pa.table({name: [row[i] for row in triples] for i, name in enumerate(header)}), path)
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("head", "relation", "tail"), *triples])
    path.with_suffix(".csv").write_bytes(text.getvalue().encode())
    from_parquet, from_csv = read_graph([path]), read_graph([path.with_suffix(".csv")])
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


def test_a_table_with_a_row_for_each_entity(tmp_path: Path) -> None:
    table = pa.table(
        {
            "title": ["Alien", "Brazil", "Casablanca", "Duel", "Elephant"],
            "directed by": ["Scott", "Gilliam", "Curtiz", "Spielberg", None],
            "starring": ["Weaver; Holm", "Pryce; Holm", "Bogart", "Weaver", ""],
            "year": [1979, 1985, 1942, None, 2003],
            "released": pa.array([3653, None, 0, 1, 2], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "films.parquet")
    graph = read_graph([tmp_path / "films.parquet"])
    assert {fact for fact in named(graph) if fact[0] in ("Alien", "Elephant")} == {
        ("Alien", "directed by", "Scott"),
        ("Alien", "starring", "Weaver"),
        ("Alien", "starring", "Holm"),
    }
    literals = graph.splits.literals
    assert literals is not None
    values = {(subject, relation): value.value for subject, relation, value in literals.statements()}
    assert values["Alien", "year"] == "1979" and values["Alien", "released"] == "1980-01-02" and len(values) == 8
    assert "one row an entity, named by 'title'" in graph.counts.tables[0]


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
        ({"a": ["x"]}, "the columns a;"),
        ({"a": ["x"], "b": [["y"]]}, "row 1: column 'b' holds a list"),
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
