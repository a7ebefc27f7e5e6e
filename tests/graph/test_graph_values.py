"""Numbers and dates of tables of facts: values where they are values, names where they are names."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import biqe
from biqe.graph.read import read_graph

FILMS = ["Alien", "Brazil", "1984", "Casablanca", "Duel", "Elephant", "Fargo", "Gandhi", "Heat", "If", "Jaws"]
FACTS = [
    *((film, "directed_by", f"D{number // 2}") for number, film in enumerate(FILMS)),
    *((film, "year", str(1980 + number)) for number, film in enumerate(FILMS)),
    *((film, "released", f"19{80 + number}-02-03") for number, film in enumerate(FILMS)),
]


def written(folder: Path, facts: list[tuple[str, str, str]], kind: str) -> Path:
    path = folder / f"facts.{kind}"
    table = pd.DataFrame(facts, columns=["subject", "relation", "object"])
    if kind == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, sep="\t" if kind == "tsv" else ",", index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_relations_that_lead_to_numbers_and_dates_have_values(tmp_path, kind) -> None:
    read = read_graph([written(tmp_path, FACTS, kind)])
    graph = read.splits["complete"]
    assert list(graph.vocabulary.relations) == ["directed_by"]
    assert set(graph) == {fact for fact in FACTS if fact[1] == "directed_by"}, "1984 is a film, and a year"
    assert (read.counts.triples, read.counts.literals) == (11, 22)
    assert read.counts.tables == ["numbers and dates, kept as values: released, year"]
    found = biqe.open(graph).ask(
        "SELECT ?f { ?f :year ?y ; :released ?d FILTER(?y > 1988 && ?d < '1990-01-01'^^xsd:date) }"
    )
    assert [row.f for row in found] == ["If"]


def test_values_can_be_kept_as_names(tmp_path) -> None:
    graph = read_graph([written(tmp_path, FACTS, "csv")], values=False).splits["complete"]
    assert set(graph) == set(FACTS) and graph.literals is None
    wide = tmp_path / "wide.csv"
    rows = [
        f"{film},D{number // 2},{1980 + number},note {number}" for number, film in enumerate([*FILMS, *"abcdefghijk"])
    ]
    wide.write_text("\n".join(["title,directed_by,year,about", *rows]))
    assert list(read_graph([wide], values=False).vocabulary.relations) == ["directed_by", "year"]
    assert list(read_graph([wide]).vocabulary.relations) == ["directed_by"]


@pytest.mark.parametrize(
    "facts",
    [
        [(str(n), "7", str(n + 1)) for n in range(20)],  # a graph of ids
        [("Alien", "in", str(1979 + n)) for n in range(10)] + [(str(1979 + n), "part_of", "past") for n in range(10)],
        [("Alien", "in", str(1979 + n)) for n in range(10)] + [("Brazil", "in", "1985 or so")],
        [("Alien", "in", str(1979 + n)) for n in range(4)],
        [("Alien", "in", str(1979 + n)) for n in range(10)],
        [("Alien", "in", str(n)) for n in range(10)] + [("Alien", "or", name) for name in ["x", *map(str, range(9))]],
    ],
)
def test_numbers_that_are_entities_stay_entities(tmp_path, facts) -> None:
    graph = read_graph([written(tmp_path, facts, "csv")]).splits["complete"]
    assert set(graph) == set(facts) and graph.literals is None


def test_splits_of_the_input_keep_all_that_they_hold(tmp_path) -> None:
    (tmp_path / "train.txt").write_text("".join("\t".join(fact) + "\n" for fact in FACTS))
    (tmp_path / "test.txt").write_text("Alien\tyear\t1979\n")
    assert len(read_graph([tmp_path]).splits["complete"]) == len(FACTS) + 1


def test_python_reads_them_likewise() -> None:
    table = pd.DataFrame(FACTS, columns=["subject", "relation", "object"])
    for graph in (biqe.Graph.from_pandas(table), biqe.Graph.from_triples(FACTS)):
        assert graph.relation_count == 1 and graph.literals is not None and len(graph.literals) == 22
    years = [("Alien", "year", number) for number in range(1979, 1989)]
    assert len(biqe.Graph.from_triples(years)) == 10, "a graph of nothing but numbers has links to them"
