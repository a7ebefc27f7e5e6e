"""Completion of words and the end of a typed query; what conditions become when they are bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BiqeError, UnknownName
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind_question import bind_question
from biqe.query.complete import KEYWORDS, complete, is_finished
from biqe.query.expression import Matches, NameOf, OneOf, variables
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


def test_what_is_offered_can_be_asked() -> None:
    for vocabulary, prefixes in ((TOWN, None), (IRIS, PREFIXES)):
        offered = {text for letter in "abflnrRq" for text in complete(f":{letter}", vocabulary, prefixes)}
        assert offered
        for text in offered:
            query = parse_question(f"SELECT ?x {{ ?x {text} ?y FILTER(?x != {text}) }}", prefixes=prefixes)
            name = query.branches[0].patterns[0].relation
            assert name.replace("%20", " ") in {*vocabulary.entities, *vocabulary.relations}


def test_no_more_than_the_limit() -> None:
    many = Vocabulary([f"City{number}" for number in range(500)], ["r"])
    assert len(complete(":c", many, limit=7)) == 7


@given(st.text(max_size=30))
def test_any_word(word: str) -> None:
    for offered in complete(word, TOWN):
        assert offered in KEYWORDS or offered[0] in ":<" or offered.endswith(":")


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
    ],
)
def test_the_end_of_a_query(text: str, finished: bool) -> None:
    assert is_finished(text) == finished


def test_conditions_are_bound_to_the_names_of_the_graph() -> None:
    text = "SELECT ?x { ?x <located%20in> ?y FILTER(?y IN (:New_York, :rheinstadt)) FILTER(regex(str(?x), 'a')) }"
    question = bind_question(parse_question(text), TOWN)
    (branch,) = question.branches
    member, match = branch.filters
    assert isinstance(member, OneOf) and [option.name for option in member.options] == ["New York", "Bonn"]
    assert isinstance(match, Matches) and isinstance(match.text, NameOf)
    # ?y is hidden in the query, and a target of the wide one.
    assert [branch.query.names[node] for node in branch.query.targets] == ["x"]
    assert [branch.wide.names[node] for node in branch.wide.targets] == ["x", "y"]
    assert branch.query.edges == branch.wide.edges and branch.query.names == branch.wide.names
    with pytest.raises(UnknownName, match="entity 'Nowhere' is not in this graph"):
        bind_question(parse_question("SELECT ?x { ?x <located%20in> ?y FILTER(?y != :Nowhere) }"), TOWN)


def test_limits_reach_the_query_only_where_nothing_else_is_asked() -> None:
    def limits(tail: str) -> tuple[int | None, int | None]:
        bound = bind_question(parse_question(f"SELECT ?x {{ ?x <located%20in> ?y {tail}"), TOWN)
        return bound.limit, bound.branches[0].query.limit

    assert limits("} LIMIT 3") == (3, 3)
    assert limits("} ORDER BY ?x LIMIT 3") == (3, None)
    assert limits("} LIMIT 3 OFFSET 1") == (3, None)
    assert limits("FILTER(?x != ?y) } LIMIT 3") == (3, None)


def test_variables_of_a_condition() -> None:
    question = parse_question("SELECT ?a { ?a :p ?b . ?b :q ?c FILTER(!(?c = ?a || contains(?b, 'x')) && isIRI(?a)) }")
    assert [variable.name for variable in variables(question.branches[0].filters[0])] == ["c", "a", "b"]


@pytest.mark.parametrize(
    "text", ["SELECT ?x { ?x :p ?y FILTER(?x = ?y) }", "ASK { :a :p :b }", "SELECT ?x { ?x :p :y } OFFSET 1"]
)
def test_parse_reads_conjunctive_queries_only(text: str) -> None:
    from biqe.query.sparql import parse

    with pytest.raises(BiqeError, match="more than one conjunctive query") as caught:
        parse(text)
    assert "parse_question" in str(caught.value.hint)
