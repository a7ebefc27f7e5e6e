"""Tables as strangers bring them: other separators, headers and encodings, and one row an entity."""

from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BadLine, InvalidOption, UnreadableFile
from biqe.graph.read import read_graph

WIDE = """\
title,director,starring,year,seen on,note
Alien,Ridley Scott,"Sigourney Weaver; John Hurt",1979,1980-02-01,N/A
Blade Runner,Ridley Scott,Harrison Ford; Sean Young,1982,1982-10-14,
Witness,Peter Weir,Harrison Ford; Kelly McGillis,1985,1986-01-02,"a
second line"
"""


def facts(graph):
    vocabulary = graph.vocabulary
    return {
        (vocabulary.entities[s], vocabulary.relations[r], vocabulary.entities[o])
        for s, r, o in graph.splits["train"].triples.tolist()
    }


def read(tmp_path, text: str | bytes, name: str = "table.csv", **options):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_graph([path], **options)


def test_a_row_for_each_entity(tmp_path):
    graph = read(tmp_path, WIDE)
    assert facts(graph) == {
        ("Alien", "director", "Ridley Scott"),
        ("Alien", "starring", "Sigourney Weaver"),
        ("Alien", "starring", "John Hurt"),
        ("Blade Runner", "director", "Ridley Scott"),
        ("Blade Runner", "starring", "Harrison Ford"),
        ("Blade Runner", "starring", "Sean Young"),
        ("Witness", "director", "Peter Weir"),
        ("Witness", "starring", "Harrison Ford"),
        ("Witness", "starring", "Kelly McGillis"),
        ("Witness", "note", "a second line"),
    }
    assert graph.counts.literals == 6  # years and days
    (said,) = graph.counts.tables
    assert "named by 'title'; links: director, starring, note; values: year, seen on" in said


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "table.txt", "table.csv.gz"])
def test_separators_are_recognised(tmp_path, separator, name):
    rows = [("subject", "predicate", "object"), *((f"s{n}", "likes", f"o{n % 3}") for n in range(9))]
    text = "".join(separator.join(row) + "\n" for row in rows).encode()
    graph = read(tmp_path, gzip.compress(text) if name.endswith("gz") else text, name)
    assert len(facts(graph)) == 9


@pytest.mark.parametrize(
    ("first", "is_header"),
    [("film,link,person", True), ("a0,likes,b1", False), ("a77,likes,b77", False), ("a77,hates,b77", True)],
)
def test_an_unusual_header_of_facts_shares_no_value_with_them(tmp_path, first, is_header):
    rows = [f"a{n % 7},{('likes', 'sees')[n % 2]},b{n % 5}" for n in range(30)]
    graph = read(tmp_path, "\n".join([first, *rows]) + "\n")
    assert bool(graph.counts.headers) is is_header
    assert (tuple(first.split(",")) in facts(graph)) is not is_header


def test_three_columns_with_a_row_for_each_entity(tmp_path):
    rows = [f"City {n},Country {n % 3},River {n % 4}" for n in range(12)]
    graph = read(tmp_path, "\n".join(["name,country,river", *rows]) + "\n")
    assert ("City 4", "country", "Country 1") in facts(graph) and len(facts(graph)) == 24


def test_a_number_is_no_name_where_there_is_a_better_column(tmp_path):
    rows = [f"{n},Person {n},City {n % 3}" for n in range(8)]
    graph = read(tmp_path, "\n".join(["id,name,born in", *rows]) + "\n")
    assert facts(graph) == {(f"Person {n}", "born in", f"City {n % 3}") for n in range(8)}


def test_a_broken_row_is_refused_with_its_line_or_left_out(tmp_path):
    text = WIDE + "Too,few\n" + ",Nobody,x,1,2000-01-01,y\n"
    with pytest.raises(BadLine, match="line 6: 2 columns where 6 are expected"):
        read(tmp_path, text)
    graph = read(tmp_path, text, skip_bad=True)
    assert graph.counts.bad_lines == 2 and len(facts(graph)) == 10


def test_lines_in_two_encodings(tmp_path):
    lines = [f"Réné {n},likes,Zoë {n % 3}\n".encode("cp1252" if n % 4 == 0 else "utf-8") for n in range(40)]
    with pytest.raises(BadLine) as refused:
        read(tmp_path, b"".join(lines))
    assert "line 1" in refused.value.message and "--encoding" in refused.value.hint
    graph = read(tmp_path, b"".join(lines), encoding="windows-1252")
    assert graph.counts.other_encoding == 10
    assert facts(graph) == {(f"Réné {n}", "likes", f"Zoë {n % 3}") for n in range(40)}


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_behind_a_byte_order_mark(tmp_path, order):
    text = "\ufeff" + "".join(f"Réné {n}\tlikes\tZoë 😀 {n % 3}\r\n" for n in range(4_000))
    graph = read(tmp_path, text.encode(order), "table.tsv")
    assert len(facts(graph)) == 4_000 and ("Réné 1", "likes", "Zoë 😀 1") in facts(graph)
    with pytest.raises(UnreadableFile, match="UTF-16"):
        read(tmp_path, text.encode(order)[:-1], "cut.tsv")


def test_an_unknown_encoding_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="there is no encoding"):
        read(tmp_path, WIDE, encoding="klingon")


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n;|#"), max_size=12)


@given(st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=30))
def test_any_cells_are_read_or_refused_with_a_line(tmp_path_factory, rows):
    """Never anything but a graph, or an error that names what is wrong."""
    text = io.StringIO()
    csv.writer(text).writerows([("name", "one", "two", "three"), *rows])
    path = tmp_path_factory.mktemp("cells") / "table.csv"
    path.write_text(text.getvalue(), "utf-8")
    from biqe.errors import BiqeError

    try:
        graph = read_graph([path], skip_bad=True)
    except BiqeError as error:
        assert error.message
    else:
        assert len(facts(graph)) <= 3 * len(rows)
