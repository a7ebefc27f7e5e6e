"""From names to ids, on patterns and on conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import AmbiguousName, UnknownName, UnsupportedQuery
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import RDF_TYPE, bind, bind_question, find_entity, find_relation
from biqe.query.bound import HIDDEN, TARGET
from biqe.query.question import Entity, Matches, NameOf, OneOf, Pattern, Query, Variable
from biqe.query.sparql import parse, parse_question

X, Y, Z = map(Variable, "xyz")


def test_nodes_in_order_of_appearance_subject_first() -> None:
    town = Vocabulary(["Germany", "France"], ["through", "on"])
    query = parse("SELECT ?city ?river { ?river :through :Germany, :France . ?city :on ?river, [] } LIMIT 7")
    bound = bind(query, town)
    assert bound.nodes == (TARGET, 0, 1, TARGET, HIDDEN)
    assert bound.edges == ((0, 0, 1), (0, 0, 2), (3, 1, 0), (3, 1, 4))
    assert bound.targets == (3, 0)
    assert bound.names == ("river", "", "", "city", "_1")
    assert bound.limit == 7
    assert bound.anchors == (1, 2)


def test_patterns_said_twice_and_names_of_one_entity() -> None:
    town = Vocabulary(["Q183"], ["p"], {0: "Germany"})
    bound = bind(parse("SELECT ?x { ?x :p :Q183, :Germany, :germany, ?x . ?x :p :Q183 }"), town)
    assert bound.nodes == (TARGET, 0)
    assert bound.edges == ((0, 0, 1), (0, 0, 0))


entity_names = st.lists(st.text("abc_ %é", min_size=1, max_size=4), min_size=1, max_size=8, unique=True)


@given(entity_names, st.data())
def test_every_name_is_found_as_it_stands(names: list[str], data: st.DataObject) -> None:
    """Whatever else a name resembles, written out it means itself."""
    labels = data.draw(st.dictionaries(st.integers(0, len(names) - 1), st.sampled_from(names)))
    town = Vocabulary(names, names, labels)
    for id_, name in enumerate(names):
        assert find_entity(name, town) == find_relation(name, town) == id_
        assert bind(Query((X,), (Pattern(X, name, Entity(name)),)), town).nodes == (TARGET, id_)


def testspellings() -> None:
    town = Vocabulary(["New York", "San_José", "wiki:Rio de Janeiro"], ["flows through"])
    assert find_entity("New_York", town) == 0
    assert find_entity("New%20York", town) == 0
    assert find_entity("San José", town) == 1
    assert find_entity("wiki:Rio%20de_Janeiro", town) == 2
    assert find_relation("flows_through", town) == 0


def test_labels() -> None:
    town = Vocabulary(["/m/1", "/m/2", "/m/3", "Bonn"], ["p"], {0: "New York", 1: "Bonn", 2: "bonn"})
    assert find_entity("New York", town) == find_entity("New_York", town) == find_entity("new_york", town) == 0
    assert find_entity("Bonn", town) == 3  # a name goes before a label
    assert find_entity("bonn", town) == 2  # an exact label before one in other letters
    with pytest.raises(AmbiguousName, match="'BONN' is the label of 2 entities: '/m/2', '/m/3'") as caught:
        find_entity("BONN", town)
    assert caught.value.hint == "use the name of the one you mean"


def test_labels_of_iris() -> None:
    base = "http://wikidata.org/entity/"
    town = Vocabulary([base + "Q183", base + "Q142"], [base + "P1"], {0: "Germany", 1: "France"})
    query = parse("SELECT ?x { ?x :P1 :Germany }", prefixes={"": base})
    assert bind(query, town).nodes == (TARGET, 0)
    # The last part of a name that is no IRI is not a name of its own.
    with pytest.raises(UnknownName):
        find_entity("EU/Germany", town)


def test_ambiguous_labels_are_listed_up_to_five() -> None:
    town = Vocabulary([f"/m/{i}" for i in range(9)], ["p"], dict.fromkeys(range(9), "Springfield"))
    with pytest.raises(AmbiguousName) as caught:
        bind(parse("SELECT ?x { ?x :p :Springfield }"), town)
    assert caught.value.message == (
        "'Springfield' is the label of 9 entities: '/m/0', '/m/1', '/m/2', '/m/3', '/m/4' and 4 more"
    )


@pytest.mark.parametrize("name", ["rdf:type", "a", "type", RDF_TYPE])
def test_a_is_the_type_relation_under_any_name(name: str) -> None:
    town = Vocabulary(["City"], ["other", name])
    assert bind(parse("SELECT ?x { ?x a :City }"), town).edges == ((0, 1, 1),)


def test_suggestions() -> None:
    town = Vocabulary(["Germany", "France", "/m/0"], ["flows_through", "capital_of"], {2: "Switzerland"})
    for name, hint in (
        ("Germny", "did you mean 'Germany'?"),
        ("germany", "did you mean 'Germany'?"),
        ("Switzerlnd", "did you mean '/m/0' (Switzerland)?"),
        ("capital_of", "'capital_of' is a relation; a pattern is: subject relation object"),
        ("zzzzzzzzzzz", "look it up with find: any part of the name, in any case"),
        ("", "look it up with find: any part of the name, in any case"),
    ):
        with pytest.raises(UnknownName) as caught:
            find_entity(name, town)
        assert caught.value.message == f"entity {name!r} is not in this graph (3 entities)"
        assert caught.value.hint == hint
    for name, hint in (
        ("capitalOf", "did you mean 'capital_of'?"),
        ("flowsThru", "did you mean 'flows_through'?"),
        ("France", "'France' is an entity; a pattern is: subject relation object"),
        ("xyz", "relations are: 'flows_through', 'capital_of'"),
    ):
        with pytest.raises(UnknownName) as caught:
            find_relation(name, town)
        assert caught.value.message == f"relation {name!r} is not in this graph (2 relations)"
        assert caught.value.hint == hint


def test_many_relations_are_not_all_listed() -> None:
    town = Vocabulary(["a"], [f"relation {i}" for i in range(40)])
    with pytest.raises(UnknownName) as caught:
        find_relation("q", town)
    assert caught.value.hint.endswith("'relation 4', and 35 more")


def test_long_names_are_cut_in_messages() -> None:
    with pytest.raises(UnknownName) as caught:
        find_entity("x" * 10_000, Vocabulary(["a"], ["p"]))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query((X,), ()), "the query has no triple pattern"),
        (Query((), (Pattern(Entity("a"), "p", Entity("a")),)), "the query has no variable"),
        (Query((), (Pattern(X, "p", Entity("a")),)), "the query selects no variable"),
        (Query((X, Z), (Pattern(X, "p", Y),)), r"\?z is selected but occurs in no pattern"),
    ],
)
def test_incomplete_queries(query: Query, message: str) -> None:
    with pytest.raises(UnsupportedQuery, match=message) as caught:
        bind(query, Vocabulary(["a"], ["p"]))
    assert caught.value.hint


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
