"""Literals: the same statements from every format, through the folder and into the store; models never see them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BadLine, UnreadableFile
from biqe.exact.store import ExactStore
from biqe.graph import folder
from biqe.graph.literals import LiteralBook
from biqe.graph.read import read_graph

File = Callable[[str, str | bytes], Path]

PEOPLE = """@prefix : <http://e/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:ann :knows :bob ; :age 34 ; :born "1990-03-02"^^xsd:date ; rdfs:label "Ann"@en, "Anna"@de ;
  :note "a \\"b\\"\\n\\u00e9" .
:bob :knows :ann ; :age 6.5e0 ; :lives [ :street "Am Markt" ; :in :Bonn ] .
:dora :age 5 .
"""


def held(literals) -> set[tuple[str, str, str]]:
    return set() if literals is None else {(s, r, str(value)) for s, r, value in literals.statements()}


def test_every_rdf_format_gives_the_same(file: File) -> None:
    turtle = file("g.ttl", PEOPLE)
    quads = list(pyoxigraph.parse(PEOPLE, pyoxigraph.RdfFormat.TURTLE))
    paths = [turtle]
    for suffix, form in (("nt", "N_TRIPLES"), ("nq", "N_QUADS"), ("trig", "TRIG"), ("rdf", "RDF_XML")):
        written = pyoxigraph.serialize([quad.triple for quad in quads], format=getattr(pyoxigraph.RdfFormat, form))
        paths.append(file(f"g.{suffix}", written))
    for path in paths:
        graph = read_graph([path])
        found = held(graph.splits.literals)
        assert len(found) == graph.counts.literals == 8
        assert {each for each in found if not each[0].startswith("_:")} == {
            ("http://e/ann", "http://e/age", '"34"^^<http://www.w3.org/2001/XMLSchema#integer>'),
            ("http://e/ann", "http://e/born", '"1990-03-02"^^<http://www.w3.org/2001/XMLSchema#date>'),
            ("http://e/ann", "http://www.w3.org/2000/01/rdf-schema#label", '"Ann"@en'),
            ("http://e/ann", "http://www.w3.org/2000/01/rdf-schema#label", '"Anna"@de'),
            ("http://e/ann", "http://e/note", '"a \\"b\\"\\né"'),
            ("http://e/bob", "http://e/age", '"6.5e0"^^<http://www.w3.org/2001/XMLSchema#double>'),
            ("http://e/dora", "http://e/age", '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        }
        assert "http://e/dora" not in list(graph.vocabulary.entities)  # nobody predicts what has no link
        store = ExactStore(graph.splits["train"]).store
        stored = pyoxigraph.Store()
        stored.extend(quads)
        count = "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY ?p"
        blank = "SELECT ?street { ?x <http://e/lives> ?y . ?y <http://e/street> ?street FILTER(isBlank(?y)) }"
        for text in (count, blank):
            assert [tuple(row) for row in store.query(text)] == [tuple(row) for row in stored.query(text)]


def test_tables_have_literals_as_n_triples_writes_them(file: File, tmp_path: Path) -> None:
    rows = [
        ("a", "r", "b"),
        ("a", "age", '"7"^^xsd:integer'),
        ("b", "rdfs:label", '"B\\u00e9"@de'),
        ("a", "n", '"x"^^<u:v>'),
    ]
    tsv = file("g.tsv", "".join("\t".join(row) + "\n" for row in rows))
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows]
    subjects, relations, objects = map(list, zip(*rows, strict=True))
    table = pyarrow.table({"subject": subjects, "relation": relations, "object": objects})
    pyarrow.parquet.write_table(table, tmp_path / "g.parquet")
    for path in (tsv, file("g.csv", "".join(quoted)), tmp_path / "g.parquet"):
        graph = read_graph([path])
        assert held(graph.splits.literals) == {
            ("a", "age", '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'),
            ("b", "http://www.w3.org/2000/01/rdf-schema#label", '"Bé"@de'),
            ("a", "n", '"x"^^<u:v>'),
        }
        assert dict(graph.vocabulary.labels) == {1: "Bé"}


@pytest.mark.parametrize("cell", ['"x"@abcdefghij', '"x"^^<relative>'])
def test_a_literal_that_rdf_does_not_allow_is_a_bad_line(file: File, cell: str) -> None:
    path = file("g.tsv", f"a\tr\tb\na\tn\t{cell}\n")
    with pytest.raises(BadLine, match="is no literal") as caught:
        read_graph([path])
    assert caught.value.line == 2
    assert read_graph([path], skip_bad=True).counts.bad_lines == 1


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.text(max_size=4), st.booleans()), min_size=1)
)
def test_what_goes_in_comes_out_once(rows) -> None:
    book = LiteralBook()
    for subject, relation, text, is_german in rows:
        book.add(subject, relation, str(pyoxigraph.Literal(text, language="de" if is_german else None)))
    found = list(book.statements())
    wanted = {(s, r, pyoxigraph.Literal(text, language="de" if german else None)) for s, r, text, german in rows}
    assert len(found) == len(wanted) and set(found) == wanted


def test_the_folder_keeps_them(file: File, tmp_path: Path) -> None:
    splits = read_graph([file("g.ttl", PEOPLE)]).splits
    manifest = folder.save(splits, tmp_path / "g")
    again = folder.load(tmp_path / "g", verify=True)
    assert held(again.literals) == held(splits.literals)
    assert manifest["literals"] == len(again.literals) == 8
    assert again["train"].literals is again["complete"].literals is again.literals
    bare = read_graph([file("h.tsv", "a\tr\tb\n")]).splits
    folder.save(bare, tmp_path / "h")
    assert not list((tmp_path / "h").glob("literals*")) and folder.load(tmp_path / "h").literals is None


@pytest.mark.parametrize("value", [-1, 99])
def test_damaged_literals_are_told(file: File, tmp_path: Path, value: int) -> None:
    splits = read_graph([file("g.ttl", PEOPLE)]).splits
    folder.save(splits, tmp_path / "g")
    rows = np.array(splits.literals.rows)
    rows[0, 2] = value
    np.save(tmp_path / "g" / "literals.npy", rows)
    with pytest.raises(UnreadableFile, match=f"literals.npy is damaged: a triple has the values {value}"):
        folder.load(tmp_path / "g")
