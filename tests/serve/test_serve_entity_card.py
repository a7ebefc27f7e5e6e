"""The card of an entity against the triples of the graph."""

from __future__ import annotations

import pytest

from biqe.errors import UnknownName
from biqe.serve.entity_card import LISTED, card


@pytest.mark.parametrize("name", ["Rhine", "Germany", "City", "Bonn"])
def test_a_card_has_every_fact_once(atlas_kb, name):
    graph = atlas_kb.graph
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    found = card(graph, name, {"": ""}, None, 10_000)
    told = {
        (other.name, group.relation, name) if group.inverse else (name, group.relation, other.name)
        for group in found.facts
        for other in group.values
    }
    own = graph.triples[(graph.triples[:, [0, 2]] == entities.find(name)).any(axis=1)].tolist()
    assert told == {(entities[s], relations[r], entities[o]) for s, r, o in own}
    assert sum(group.count for group in found.facts) == found.count


def test_long_lists_are_cut_and_one_relation_can_be_asked_for(atlas_kb):
    germany = card(atlas_kb.graph, "Germany", {"": ""}, None, None)
    assert max(len(group.values) for group in germany.facts) == LISTED
    (group,) = card(atlas_kb.graph, "Germany", {"": ""}, "located_in", 500).facts
    assert group.inverse and len(group.values) == group.count > LISTED


def test_questions_of_a_card_have_known_answers(atlas_kb):
    for name in ("Rhine", "Germany", "City"):
        questions = card(atlas_kb.graph, name, {"": ""}, None, None).questions
        assert questions and all(atlas_kb.ask(one.query, mode="known").known_count > 0 for one in questions)


def test_names_are_found_by_label_and_unknown_ones_refused(odd_kb, atlas_kb):
    assert card(atlas_kb.graph, "New York", {"": ""}, None, None).value.term == ":New_York"
    for name in odd_kb.graph.vocabulary.entities:
        assert card(odd_kb.graph, name, {"": ""}, None, None).value.name == name
    with pytest.raises(UnknownName):
        card(atlas_kb.graph, "Atlantis", {"": ""}, None, None)


def test_numbers_and_dates_are_facts_of_the_card(tmp_path):
    import biqe
    from biqe.serve.entity_card import with_values

    lines = [f"F {n},year,{1980 + n}\nF {n},seen on,2001-02-{n + 10}\nF {n},by,D{n // 2}" for n in range(10)]
    (tmp_path / "films.csv").write_text("\n".join(lines))
    kb = biqe.open(biqe.Graph.from_file(tmp_path / "films.csv"))
    shown = card(kb.graph, "F 3", {"": ""}, None, None)
    found = kb.ask(f"SELECT ?p ?o {{ <{shown.value.iri}> ?p ?o FILTER(isLiteral(?o)) }}", mode="known")
    whole = with_values(shown, found, {"": ""}, None, None)
    assert [(group.relation, [value.label for value in group.values]) for group in whole.facts] == [
        ("by", ["D1"]),
        ("seen on", ["2001-02-13"]),
        ("year", ["1983"]),
    ]
    assert whole.count == 3 and whole.facts[1].term == ":seen_on"
    assert all(kb.ask(f"ASK {{ :F_3 {group.term} ?x }}", mode="known").holds for group in whole.facts)
    (alone,) = with_values(card(kb.graph, "F 3", {"": ""}, "year", 5), found, {"": ""}, "year", 5).facts
    assert alone.relation == "year"
