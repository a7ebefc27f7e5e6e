"""Reasons: rules with their record, kinds, rivals and the embedding's rank, with the numbers that ``ask`` lists."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import biqe
from biqe.explain import why
from biqe.explain.reasons import ordinal
from biqe.predict.evidence import IdLink


@pytest.fixture(scope="module")
def atlas():
    return biqe.open("atlas")


@pytest.fixture(scope="module")
def rows(atlas):
    return atlas.ask("SELECT ?city { ?city :located_on :Rhine }", mode="predicted", top=30)


def ids(atlas, subject, relation, object_) -> IdLink:
    vocabulary = atlas.vocabulary
    return IdLink(
        vocabulary.entities.find(subject), vocabulary.relations.find(relation), vocabulary.entities.find(object_)
    )


def test_the_sentence_names_the_rule_and_its_record(atlas, rows):
    (first, *_) = rows
    found = atlas.explain(first)
    (reason,) = found.reasons
    links, link = atlas.predictor.links, first.evidence.missing[0]
    best = links.reasons(*link)[0]
    assert found.sentence == reason.sentence == reason.rules[0].text
    assert f"({best.hits:,} of {best.pairs:,})" in found.sentence and first.city in found.sentence
    assert (reason.rules[0].hits, reason.rules[0].pairs) == (best.hits, best.pairs)
    assert set(reason.rules[0].through) == {atlas.vocabulary.label(entity) for entity in best.through}
    # A symmetric relation is told once.
    assert len({rule.text for rule in reason.rules}) == len(reason.rules)
    told = " ".join(str(found).split())
    assert f"{found.sentence}." in told and "ATTENTION" not in told


def test_the_cheap_sentence_is_that_of_the_explanation(atlas, rows):
    for row in rows:
        missing = {link: rows.rows.link_probabilities[link] for link in row.evidence.missing}
        assert why(atlas.predictor, atlas.vocabulary, missing) == atlas.explain(row).sentence


def test_rivals_have_the_numbers_that_are_listed(atlas, rows):
    (first, second, *_) = rows
    object_, subject = atlas.explain(second).reasons[0].places
    listed = {row.labels["city"]: row.probability for row in rows}
    assert subject.entity == second.labels["city"] and subject.rank == 2
    new = [rival for rival in subject.rivals if not rival.is_stored]
    assert new[0].entity == first.labels["city"]
    for rival in new:
        assert rival.probability == pytest.approx(listed[rival.entity], rel=1e-5)
    known = atlas.ask("SELECT ?city { ?city :located_on :Rhine }", mode="known")
    assert subject.stored == known.known_count
    assert {rival.entity for rival in subject.rivals if rival.is_stored} <= {row.labels["city"] for row in known}
    others = atlas.ask(f"SELECT ?r {{ :{second.city} :located_on ?r }}", mode="predicted", top=5)
    expected = {row.labels["r"]: row.probability for row in others}
    for rival in (rival for rival in object_.rivals if not rival.is_stored):
        assert rival.probability == pytest.approx(expected[rival.entity], rel=1e-5)


def test_the_rank_of_the_embedding_is_counted_among_new_ends(atlas, rows):
    links, graph = atlas.predictor.links, atlas.graph
    for row in (rows[0], rows[7]):
        link = row.evidence.missing[0]
        for place, (head, direction, own) in zip(
            atlas.explain(row).reasons[0].places,
            [
                (link.subject, link.relation, link.object),
                (link.object, link.relation + graph.relation_count, link.subject),
            ],
            strict=True,
        ):
            with torch.no_grad():
                scores = links.predictor.scores(torch.tensor([head]), torch.tensor([direction]))[0].numpy()
            stored = set(links.walks.of_head(head, direction).tolist())
            better = [e for e in np.flatnonzero(scores > scores[own]).tolist() if e not in stored]
            assert place.embedding_rank == 1 + len(better) and place.of == graph.entity_count - len(stored)


def test_what_speaks_against_an_impossible_link_is_said(atlas):
    predictor, vocabulary = atlas.predictor, atlas.vocabulary
    told = why(predictor, vocabulary, {ids(atlas, "Germany", "located_on", "Berlin"): 1e-6})
    assert "no strong rule speaks for “Germany located on Berlin”" in told
    assert re.search(r"Germany has (\d|all|none).* traits that most entities with “located on” have|none has", told)
    loop = why(predictor, vocabulary, {ids(atlas, "Germany", "borders", "Germany"): 1e-9})
    assert "no entity has “borders” to itself" in loop or "traits" in loop
    (row,) = atlas.ask("ASK { :Germany :borders :Germany }")
    kinds = atlas.explain(row).reasons[0].kinds
    assert "no entity has “borders” to itself" in [kind.text for kind in kinds if not kind.speaks_for]


def test_several_missing_links_are_numbered(atlas):
    chances = {
        ids(atlas, "Bonn", "located_on", "Rhine"): 0.3,
        ids(atlas, "Bonn", "located_on", "Main"): 0.1,
        ids(atlas, "Bonn", "located_on", "Elbe"): 0.1,
        ids(atlas, "Bonn", "located_on", "Oder"): 0.1,
    }
    told = why(atlas.predictor, atlas.vocabulary, chances)
    assert told.startswith("(1) Bonn near ") and "(3) " in told and told.endswith(", and 1 more missing link")
    open_end = IdLink(ids(atlas, "Bonn", "located_on", "Rhine").subject, 0, -3)
    assert why(atlas.predictor, atlas.vocabulary, {open_end: None}).startswith("the graph lacks “Bonn")
    assert why(atlas.predictor, atlas.vocabulary, {}) == ""


def test_json_has_all_of_it(atlas, rows):
    found = atlas.explain(rows[0])
    document = json.loads(found.write("json"))
    (reason,) = document["reasons"]
    assert document["sentence"] == found.sentence
    assert reason["probability"] == pytest.approx(rows[0].probability, rel=1e-6)
    assert {"text", "hits", "pairs", "through"} == set(reason["rules"][0])
    assert [place["pattern"] for place in reason["places"]] == [f"{rows[0].city} located on …", "… located on Rhine"]
    assert found.sentence.split(":")[0] in " ".join(re.findall(r"<text[^>]*>([^<]*)", found.to_svg()))


@pytest.mark.parametrize(("number", "said"), [(1, "first"), (4, "4th"), (11, "11th"), (23, "23rd"), (1_102, "1,102nd")])
def test_ranks_in_words(number, said):
    assert ordinal(number) == said
