"""A question bound to the names of a graph."""

from __future__ import annotations

import pytest

from biqe.errors import UnknownName
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind_question import bind_question
from biqe.query.question import Matches, NameOf, OneOf
from biqe.query.sparql import parse_question

TOWN = Vocabulary(
    ["Rhine", "New York", "Bonn", "/m/027rn", "Rhône"], ["flows_through", "located in"], {2: "Rheinstadt"}
)


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


@pytest.mark.parametrize("function", ["regex({}, 'Y')", "contains({}, 'Y')", "isIRI({})", "str({}) = 'New York'"])
def test_entities_of_every_condition_are_spelt_as_the_graph_spells_them(function: str) -> None:
    for term in (":New_York", "str(:New_York)") if "isIRI" not in function else (":New_York",):
        text = f"SELECT ?x {{ ?x <located%20in> ?y FILTER({function.format(term)}) }}"
        (branch,) = bind_question(parse_question(text), TOWN).branches
        assert "<New%20York>" in str(branch.filters[0]), branch.filters
        with pytest.raises(UnknownName):
            bind_question(parse_question(text.replace("New_York", "Nowhere")), TOWN)


def test_limits_reach_the_query_only_where_nothing_else_is_asked() -> None:
    def limits(tail: str) -> tuple[int | None, int | None]:
        bound = bind_question(parse_question(f"SELECT ?x {{ ?x <located%20in> ?y {tail}"), TOWN)
        return bound.limit, bound.branches[0].query.limit

    assert limits("} LIMIT 3") == (3, 3)
    assert limits("} ORDER BY ?x LIMIT 3") == (3, None)
    assert limits("} LIMIT 3 OFFSET 1") == (3, None)
    assert limits("FILTER(?x != ?y) } LIMIT 3") == (3, None)
