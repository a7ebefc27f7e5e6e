"""Questions that a graph has answers to."""

from __future__ import annotations

import numpy as np

from biqe.serve import example_questions
from biqe.serve.example_questions import Questions


def test_the_likeliest_question_comes_first_and_the_papers_own_are_there(atlas_kb):
    found = example_questions.examples(atlas_kb.graph, atlas_kb.prefixes, atlas_kb.predictor.links)
    assert len(found) == len({example.query for example in found}) == example_questions.EXAMPLES
    assert [example.query for example in found[1:3]] == [query for _, query in example_questions.PAPER]
    means = []
    for example in found:
        answers = atlas_kb.ask(example.query, top=5)
        assert answers.known_count > 0 and answers.predicted_count == 5
        means.append(np.mean([row.probability for row in answers.predicted]))
    assert min(means) > 0.3 and means[0] > 0.5


def test_without_a_model_there_are_questions_with_known_answers(odd_kb):
    found = example_questions.examples(odd_kb.graph, odd_kb.prefixes or {}, None)
    assert found and all(odd_kb.ask(example.query).known_count > 0 for example in found)


def test_questions_go_both_ways(atlas_kb):
    ask, names = Questions(atlas_kb.graph, {"": ""}), atlas_kb.graph.vocabulary
    danube, flows_through = names.entities.find("Danube"), names.relations.find("flows_through")
    assert ask.about(flows_through, danube).query == "SELECT ?country WHERE { :Danube :flows_through ?country }"
    back = flows_through + atlas_kb.graph.relation_count
    austria = names.entities.find("Austria")
    assert ask.about(back, austria).query == "SELECT ?river WHERE { ?river :flows_through :Austria }"


def test_variables_are_called_after_classes(atlas_kb):
    ask, names = Questions(atlas_kb.graph, {"": ""}), atlas_kb.graph.vocabulary
    rhine, berlin = (names.entities.find(name) for name in ("Rhine", "Berlin"))
    located_on, near, flows_into = (names.relations.find(name) for name in ("located_on", "near", "flows_into"))
    assert ask.who(located_on, rhine).query == "SELECT ?city WHERE { ?city :located_on :Rhine }"
    assert ask.who(located_on, rhine).title == "Which city located on Rhine?"
    assert ask.whom(berlin, near).query == "SELECT ?city WHERE { :Berlin :near ?city }"
    both = ask.who_and_what(flows_into, rhine, flows_into)
    assert len(set(atlas_kb.ask(both.query, mode="known").variables)) == 2


def test_classes_of_any_name_make_variables_that_can_be_asked(odd_kb):
    ask = Questions(odd_kb.graph, {"": ""})
    for _subject, relation, object_ in odd_kb.graph.triples.tolist():
        if odd_kb.graph.vocabulary.entities[object_].startswith("_:"):
            continue  # a query cannot name it
        assert odd_kb.ask(ask.who(relation, object_).query, mode="known").known_count > 0
