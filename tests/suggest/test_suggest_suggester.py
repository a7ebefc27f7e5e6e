"""Suggestions as a user gets them: the numbers of ask, reasons, pages, names."""

from __future__ import annotations

import pytest

from biqe.errors import InvalidOption, UnknownName, UnsupportedQuery
from biqe.suggest import Suggester


def test_a_suggestion_has_the_probability_that_ask_shows(town, suggester):
    found = suggester.suggest(top=12)
    assert len(found) == 12 and found[0].probability >= found[-1].probability > 0
    for each in found:
        subject, relation, object_ = each.query
        (verdict,) = town.kb.ask(f"ASK {{ {subject} {relation} {object_} }}")
        assert verdict.probability == pytest.approx(each.probability)
        row = next(
            row for row in town.kb.ask(f"SELECT ?x {{ {subject} {relation} ?x }}", top=70) if row["x"] == each.object
        )
        assert row.status == "predicted" and row.probability == pytest.approx(each.probability)
        assert row.why == each.why


def test_hidden_facts_are_suggested(town, suggester):
    found = {link.ids for link in suggester.suggest(":citizen_of", top=60)}
    hidden = [tuple(triple) for triple in town.hidden.tolist()]
    assert sum(triple in found for triple in hidden) > 0.8 * len(hidden)


def test_pages_are_parts_of_one_list(suggester, town):
    whole = [each.ids for each in suggester.suggest(top=30)]
    pages = [each.ids for skip in (0, 10, 20) for each in suggester.suggest(top=10, skip=skip)]
    assert pages == whole == [each.ids for each in Suggester(town.kb.predictor).suggest(top=30)]


def test_rejected_links_are_left_out_and_others_follow(suggester):
    first = [each.ids for each in suggester.suggest(top=6)]
    assert [each.ids for each in suggester.suggest(top=4, without={first[0], first[3]})] == [
        first[1],
        first[2],
        *first[4:],
    ]


def test_of_a_relation_of_an_entity_and_of_both(suggester):
    assert {each.relation for each in suggester.suggest(":lives_in")} == {"lives_in"}
    assert all("e40" in (each.subject, each.object) for each in suggester.suggest(entity=":e40"))
    both = suggester.suggest("citizen_of", "e40", top=3)
    assert {each.relation for each in both} == {"citizen_of"} and both[0].subject == "e40"
    each = [one.relation for one in suggester.suggest(each=2)]
    assert sorted(each) == sorted(["lives_in", "in", "citizen_of"] * 2)


def test_a_least_probability(suggester):
    found = suggester.suggest(top=200, min_probability=0.3)
    assert found and all(each.probability >= 0.3 for each in found)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"relation": ":citizen"}, UnknownName),
        ({"entity": "nobody"}, UnknownName),
        ({"entity": 3}, InvalidOption),
        ({"top": 0}, InvalidOption),
        ({"top": 10**9}, InvalidOption),
        ({"skip": -1}, InvalidOption),
        ({"each": 0}, InvalidOption),
    ],
)
def test_what_makes_no_sense_is_refused(suggester, options, error):
    with pytest.raises(error):
        suggester.suggest(**options)


def test_a_model_without_probabilities_of_links_is_refused_with_a_hint(town):
    with pytest.raises(UnsupportedQuery) as refused:
        Suggester(town.kb.predictor.encoder_alone())
    assert "biqe train" in refused.value.hint
