"""Words, ends and clauses of a query that is being typed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.graph.vocabulary import Aliases, Vocabulary
from biqe.query.complete import KEYWORDS, begins_clause, complete, complete_as_typed, is_finished, with_clauses
from biqe.query.sparql import parse_question

TOWN = Vocabulary(
    ["Rhine", "New York", "Bonn", "/m/027rn", "Rhône"], ["flows_through", "located in"], {2: "Rheinstadt"}
)


IRIS = Vocabulary(["http://e.org/Rhine", "http://e.org/a b", "http://w.org/Q1"], ["http://e.org/on"])


PREFIXES = {"": "http://e.org/", "wd": "http://w.org/"}


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (":Rh", [":Rhine", ":Rhône", ":Bonn"]),
        (":rhe", [":Bonn"]),
        (":fl", [":flows_through"]),
        (":loc", ["<located%20in>"]),
        (":New", ["<New%20York>"]),
        ("</m", ["</m/027rn>"]),
        (":nothing", []),
        ("fil", ["FILTER"]),
        (":flows_through/:fl", [":flows_through/:flows_through"]),
        (":flows_through/^:fl", [":flows_through/^:flows_through"]),
        ("^:fl", ["^:flows_through"]),
        (":flows_through/</m", [":flows_through/</m/027rn>"]),
        ("<flows_through>/:fl", ["<flows_through>/:flows_through"]),
        ("?x!=:Bo", ["?x!=:Bonn"]),
        (":flows_through/", []),
        (":flows_through/sel", []),
        (":a\\/:fl", []),
        (":/m", ["</m/027rn>"]),
        ("<New%20Y", ["<New%20York>"]),
        ("<%20", []),
        ("?x", []),
        ("", []),
    ],
)
def test_names_of_a_graph_of_plain_names(word: str, found: list[str]) -> None:
    assert complete(word, TOWN) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (":Rh", [":Rhine"]),
        (":", [":on"]),
        ("wd:q", ["wd:Q1"]),
        ("w", ["WHERE", "wd:"]),
        ("other:x", []),
        (":a", ["<http://e.org/a%20b>"]),
    ],
)
def test_names_of_a_graph_with_prefixes(word: str, found: list[str]) -> None:
    assert complete(word, IRIS, PREFIXES) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (":Rh", [":Rhine", ":Rhône"]),
        (":rh", []),
        (":Rhei", []),
        (":f", [":flows_through"]),
        (":", [":flows_through"]),
        (":New", []),
        ("<New", ["<New%20York>"]),
        ("<New%20", ["<New%20York>"]),
        (":flows_through/:Rhi", [":flows_through/:Rhine"]),
        ("SEL", ["SELECT"]),
        ("sel", []),
    ],
)
def test_what_begins_as_it_was_typed(word: str, found: list[str]) -> None:
    assert complete_as_typed(word, TOWN) == found


def test_all_that_begins_as_it_was_typed() -> None:
    many = Vocabulary([f"{letter}ity{number}" for number in range(500) for letter in "cC"], ["r"])
    assert complete_as_typed(":C", many) == [f":City{number}" for number in range(500)]
    assert complete_as_typed(":Rh", IRIS, PREFIXES) == [":Rhine"]
    assert complete_as_typed("wd:q", IRIS, PREFIXES) == []


@given(st.text(max_size=30))
def test_nothing_else_begins_as_it_was_typed(word: str) -> None:
    assert set(complete_as_typed(word, TOWN)) == {text for text in complete(word, TOWN) if text.startswith(word)}


def test_what_is_offered_can_be_asked() -> None:
    for vocabulary, prefixes in ((TOWN, None), (IRIS, PREFIXES)):
        offered = {text for letter in "abflnrRq" for text in complete(f":{letter}", vocabulary, prefixes)}
        assert offered
        for text in offered:
            query = parse_question(f"SELECT ?x {{ ?x {text} ?y FILTER(?x != {text}) }}", prefixes=prefixes)
            name = query.branches[0].patterns[0].relation
            assert name.replace("%20", " ") in {*vocabulary.entities, *vocabulary.relations}


def test_further_labels_are_completed_too() -> None:
    pairs = [(0, "Rhein"), (0, "le Rhin"), (2, "Bonna"), (1, "Big Apple")]
    for aliases in (pairs, Aliases.of(pairs)):
        town = Vocabulary(["Rhine", "New York", "Bonn"], ["r"], {2: "Bonn"}, None, aliases)
        assert complete(":rhei", town) == [":Rhine"] and complete(":le", town) == [":Rhine"]
        assert complete(":big", town) == ["<New%20York>"] and complete(":apple", town) == []
        assert complete(":bon", town, limit=1) == [":Bonn"]


def test_no_more_than_the_limit() -> None:
    many = Vocabulary([f"City{number}" for number in range(500)], ["r"])
    assert len(complete(":c", many, limit=7)) == 7


@given(st.text(max_size=30))
def test_any_word(word: str) -> None:
    for offered in complete(word, TOWN):
        last_step = offered[re.match(r"(?:.*[/|^!=])?", word, re.DOTALL).end() :]
        assert offered in KEYWORDS or offered.endswith(":") or offered[0] in ":<" or last_step[0] in ":<"


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("SELECT ?x {", False),
        ("SELECT ?x { ?x :p ?y }", True),
        ("SELECT ?x { { ?x :p ?y }", False),
        ("SELECT ?x { ?x :p ?y # }", False),
        ("SELECT ?x { ?x :p ?y FILTER(str(?x) = '}')", False),
        ("SELECT ?x { ?x :p ?y } }", True),
        ("SELECT ?x", False),
        ("", False),
        ("SELECT ?x { ?x :p ?y } LIMIT", False),
        ("SELECT ?x { ?x :p ?y } LIMIT 3", True),
        ("SELECT ?x { ?x :p ?y } ORDER BY", False),
        ("SELECT ?x { ?x :p ?y } HAVING (COUNT(*)", False),
        ("SELECT ?x { ?x :p ?y } VALUES ?x {", False),
        ("SELECT (COUNT(* AS ?n) { ?x :p ?y }", True),
        ("CONSTRUCT { ?x :p ?y }", False),
        ("CONSTRUCT { ?x :p ?y } WHERE", False),
        ("CONSTRUCT { ?x :p ?y } WHERE { ?y :p ?x }", True),
        ("CONSTRUCT WHERE { ?x :p ?y }", True),
        ("LIMIT 3", True),
        ("ORDER BY", False),
        ("VALUES ?x", False),
        ("values ?x { :a }", True),
    ],
)
def test_the_end_of_a_query(text: str, finished: bool) -> None:
    assert is_finished(text) == finished


QUERY = "SELECT ?x { { SELECT ?x { ?x :p ?limit } LIMIT 9 } }"


@pytest.mark.parametrize(
    ("query", "clauses", "expected"),
    [
        ("", "LIMIT 1", "LIMIT 1"),
        ("LIMIT 1", "LIMIT 2", "LIMIT 2"),
        ("LIMIT 1", "order by desc(?x)", "order by desc(?x) LIMIT 1"),
        ("ORDER BY ?x", "LIMIT 1 OFFSET 2", "ORDER BY ?x LIMIT 1 OFFSET 2"),
        ("LIMIT 1 # the first", "OFFSET 3", "LIMIT 1 OFFSET 3"),
        ("GROUP BY ?x LIMIT 1", "HAVING (COUNT(*) > 1)", "GROUP BY ?x HAVING (COUNT(*) > 1) LIMIT 1"),
        ("VALUES ?x { :limit :b }", "LIMIT 1", "LIMIT 1 VALUES ?x { :limit :b }"),
    ],
)
def test_a_clause_that_is_added(query: str, clauses: str, expected: str) -> None:
    assert begins_clause(clauses) and not begins_clause(QUERY)
    assert with_clauses(f"{QUERY} {query}", clauses) == f"{QUERY} {expected}"
