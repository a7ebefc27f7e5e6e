"""What the page shows without an answer: the questions that it offers, and what completes a word."""

from __future__ import annotations

import numpy as np

from biqe.serve import page_metadata


def test_the_likeliest_questions_come_first(atlas_kb):
    links = atlas_kb.predictor.links
    found = page_metadata.examples(atlas_kb.graph, atlas_kb.prefixes, links)
    assert len(found) == len({example.query for example in found}) == page_metadata.EXAMPLES
    assert [example.query for example in found[:2]] == [query for _, query in page_metadata.PAPER]
    scores = []
    for example in found:
        answers = atlas_kb.ask(example.query, top=5)
        assert answers.known_count > 0 and answers.predicted_count == 5
        scores.append(np.mean([row.probability for row in answers if row.status == "predicted"]))
    assert min(scores) > 0.3


def test_without_a_model_there_are_questions_with_known_answers(odd_kb):
    found = page_metadata.examples(odd_kb.graph, odd_kb.prefixes, None)
    assert found and all(odd_kb.ask(example.query).known_count > 0 for example in found)


def test_what_a_relation_leads_to_is_offered_first(atlas_kb):
    graph = atlas_kb.graph

    def offered(text: str, after: str) -> list[str]:
        found = page_metadata.completions(text, "entity", 10, atlas_kb.prefixes, graph, after=after)
        return [completion.label for completion in found]

    relation = graph.vocabulary.relations.find("located_on")
    triples = graph.triples[graph.triples[:, 1] == relation]
    often = np.argsort(-np.bincount(triples[:, 2], minlength=graph.entity_count), kind="stable")[:10]
    assert offered("", ":located_on") == [graph.vocabulary.label(entity) for entity in often.tolist()]
    rivers = {graph.vocabulary.label(entity) for entity in triples[:, 2].tolist()}
    assert offered("Dan", ":located_on")[0] in rivers
    assert set(offered("Dan", "")) == set(offered("Dan", "?p"))
    assert offered("", "") == []
