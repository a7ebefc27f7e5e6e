"""Graphs out of Python: what a user with a DataFrame, triples, rdflib or PyKEEN gets, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st

import biqe
from biqe.errors import BiqeError, EmptyResult, InvalidOption, UnknownName, UnreadableFile
from biqe.graph.words import escaped, html_table

GAPS = pd.DataFrame(
    {
        "s": ["Alien", "Alien", "Alien", "Brazil", None, "X", "Y"],
        "r": ["by", "by", "year", "year", "by", "  ", pd.NA],
        "o": ["Ridley Scott", "Ridley Scott", 1979, 1985.0, "q", "z", "z"],
        "n": [1, 2, 3, np.nan, 5, 6, 7],
    }
)
TWICE = pd.DataFrame([[1, 2, 3]], columns=list("xxy"))
LISTS = pd.DataFrame({"s": [[1]], "r": ["a"], "o": ["b"]})
FACTS = [("Alien", "by", "Ridley Scott"), ("Alien", "year", "1979"), ("Brazil", "year", "1985")]


def test_gaps_numbers_and_duplicates_of_a_table() -> None:
    with pytest.warns(UserWarning, match="3 of 7 rows lack a subject, a relation or an object") as caught:
        graph = biqe.Graph.from_pandas(GAPS, "s", "r", "o")
    assert list(graph) == FACTS
    assert caught[0].filename == __file__, "the warning points at the user's line"


def test_whole_numbers_stay_whole_in_a_column_with_gaps() -> None:
    with pytest.warns(UserWarning, match="4 of 7"):
        objects = {fact[2] for fact in biqe.Graph.from_pandas(GAPS, "s", "r", "n")}
    assert objects == {"1", "2", "3"}


@pytest.mark.parametrize("kind", ["category", "string", object])
def test_any_type_of_column_gives_the_same_graph(kind: Any) -> None:
    table = pd.DataFrame(FACTS, columns=["subject", "relation", "object"])
    assert list(biqe.Graph.from_pandas(table.astype(kind))) == FACTS
    assert list(biqe.Graph.from_pandas(table.set_index("subject", drop=False).rename_axis("i"))) == FACTS


NAMES = st.one_of(
    st.text(min_size=1, max_size=8), st.integers(-5, 5), st.floats(-3, 3), st.none(), st.just(float("nan"))
)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=12))
def test_triples_and_tables_agree_with_a_loop(rows: list[tuple[Any, Any, Any]]) -> None:
    def name(value: Any) -> str | None:
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            return None
        return value if isinstance(value, str) else str(int(value)) if value == int(value) else repr(value)

    facts = {tuple(map(name, row)) for row in rows if None not in map(name, row)}
    is_good = all("\n" not in part and "\r" not in part for fact in facts for part in fact)
    table = pd.DataFrame({role: pd.Series([row[n] for row in rows], dtype=object) for n, role in enumerate("sro")})
    for make in (lambda: biqe.Graph.from_triples(rows), lambda: biqe.Graph.from_pandas(table, "s", "r", "o")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph = make()
            except (EmptyResult, InvalidOption):
                assert not facts or not is_good or any("\n" in str(v) or "\r" in str(v) for row in rows for v in row)
            else:
                assert set(graph) == facts and len(graph) == len(facts)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: biqe.Graph.from_pandas(GAPS), UnknownName, "no column 'subject'.*its columns are s, r, o, n"),
        (lambda: biqe.Graph.from_pandas([("a", "b", "c")]), InvalidOption, "takes a DataFrame"),
        (
            lambda: biqe.Graph.from_pandas(pd.DataFrame([[1, 2, 3]], columns=list("xxy")), "x", "y", "y"),
            UnknownName,
            "2 col",
        ),
        (
            lambda: biqe.Graph.from_pandas(pd.DataFrame({"s": [[1]], "r": ["a"], "o": ["b"]}), *"sro"),
            InvalidOption,
            "'s'",
        ),
        (lambda: biqe.Graph.from_pandas(GAPS.head(0), *"sro"), EmptyResult, "no triple"),
        (lambda: biqe.Graph.from_triples([("a", "b")]), InvalidOption, "row 0 is no triple"),
        (lambda: biqe.Graph.from_triples(["abc"]), InvalidOption, "row 0 is no triple"),
        (lambda: biqe.Graph.from_triples(3), InvalidOption, "takes rows"),
        (lambda: biqe.Graph.from_triples([]), EmptyResult, "no triple"),
        (
            lambda: biqe.Graph.from_triples([("a", "r", "b"), ("a", "r", "c\nd")]),
            InvalidOption,
            "row 1: the object runs",
        ),
        (lambda: biqe.Graph.from_triples([("a", "r", "\ud800")]), InvalidOption, "no text of Unicode"),
        (lambda: biqe.Graph.from_triples([("a", "r", b"\xff")]), InvalidOption, "bytes, which is no name"),
        (lambda: biqe.Graph.from_triples([("a", "r", {})]), InvalidOption, "dict, which is no name"),
        (lambda: biqe.Graph.from_triples([("a" * 70_000, "r", "b")]), InvalidOption, "a name may have"),
        (lambda: biqe.Graph.from_rdflib("x"), InvalidOption, "graph of rdflib"),
        (lambda: biqe.Graph.from_pykeen("x"), InvalidOption, "TriplesFactory"),
        (lambda: biqe.Graph.from_file("/no/such/file.nt"), UnreadableFile, "does not exist"),
    ],
)
def test_what_is_no_graph_is_refused_in_words(make: Callable[[], Any], error: type[BiqeError], said: str) -> None:
    with pytest.raises(error, match=f"(?s){said}"):
        make()


TURTLE = """@prefix ex: <http://ex.org/> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
ex:a foaf:knows ex:b, _:x ; rdfs:label "Ann <b>"@en ; foaf:age 3 . _:x foaf:knows ex:a ."""


def test_rdflib_gives_what_its_file_would(tmp_path: Path) -> None:
    source = rdflib.Graph().parse(data=TURTLE, format="turtle")
    (tmp_path / "g.ttl").write_text(TURTLE)
    ours, read = biqe.Graph.from_rdflib(source), biqe.Graph.from_file(tmp_path / "g.ttl")
    plain = [{fact for fact in graph if "_:" not in "".join(fact)} for graph in (ours, read)]
    assert plain[0] == plain[1] and len(ours) == len(read) == 3
    assert ours.prefixes["foaf"] == "http://xmlns.com/foaf/0.1/" and "csvw" not in ours.prefixes
    assert biqe.open(ours).ask("SELECT ?x { ex:a foaf:knows ?x FILTER(?x = ex:b) }")[0].x == "http://ex.org/b"
    assert "Ann &lt;b&gt;" in ours._repr_html_() and "<b>" not in ours._repr_html_()


def test_a_dataset_of_rdflib_is_read_with_all_its_graphs() -> None:
    dataset = rdflib.Dataset()
    name = rdflib.URIRef
    dataset.graph(name("http://ex.org/g")).add(
        (name("http://ex.org/a"), name("http://ex.org/r"), name("http://ex.org/b"))
    )
    assert list(biqe.Graph.from_rdflib(dataset)) == [("http://ex.org/a", "http://ex.org/r", "http://ex.org/b")]


def test_pykeen_keeps_its_ids() -> None:
    def factory(rows: list[list[int]]) -> SimpleNamespace:
        return SimpleNamespace(
            mapped_triples=np.array(rows), entity_to_id={"z": 0, "a": 1, "m": 2}, relation_to_id={"r": 0}
        )

    one, other = factory([[2, 0, 1], [0, 0, 1]]), factory([[1, 0, 2]])
    assert list(biqe.Graph.from_pykeen(one)) == [("z", "r", "a"), ("m", "r", "a")]
    dataset = SimpleNamespace(training=one, validation=other, testing=None)
    assert biqe.Graph.from_pykeen(dataset).triples.tolist() == [[0, 0, 1], [1, 0, 2], [2, 0, 1]]
    one.entity_to_id["m"] = 5
    with pytest.raises(InvalidOption, match="are not 0, 1, 2"):
        biqe.Graph.from_pykeen(one)


def test_labels_are_shown_and_looked_up() -> None:
    graph = biqe.Graph.from_triples([(64, "P17", 183)], labels={64: "Berlin\n city", 99: "nobody", 183: None})
    assert [graph.vocabulary.label(entity) for entity in (0, 1)] == ["Berlin city", "183"]
    assert biqe.open(graph).find("berlin")[0].name == "64"


def test_a_graph_that_is_saved_is_the_same_again(tmp_path: Path) -> None:
    graph = biqe.Graph.from_rdflib(rdflib.Graph().parse(data=TURTLE, format="turtle"))
    graph.save(tmp_path / "kg")
    again = biqe.Graph.from_file(tmp_path / "kg")
    assert again.fingerprint == graph.fingerprint and again.prefixes == graph.prefixes
    with pytest.raises(InvalidOption):
        graph.save(tmp_path / "kg")
    graph.save(tmp_path / "kg", force=True)


def test_a_large_graph_is_shown_in_short() -> None:
    graph = biqe.Graph.from_triples([("a", f"<r{n}>", "b") for n in range(50)])
    shown = graph._repr_html_()
    assert shown.count("<tr>") <= 23 and "… and 30 relations more" in shown
    assert "&lt;r0&gt;" in shown and "<r0>" not in shown


@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_no_cell_breaks_out_of_its_table(cells: list[str]) -> None:
    written = html_table(cells, cells, [cells])
    tags = {"table", "caption", "thead", "tbody", "tr", "th", "td", "br"}
    assert all(part.split(">")[0].strip("/") in tags for part in written.split("<")[1:])
    assert escaped("\x1b\u202e") == "\\x1b\\u202e"
