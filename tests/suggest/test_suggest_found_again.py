"""Questions whose likeliest new answers are facts that were hidden."""

from __future__ import annotations

from biqe.answer.answers import Answers
from biqe.suggest.found_again import LISTED, found_again


def test_what_it_shows_is_what_asking_finds(town):
    questions = found_again(town.kb.predictor.links, town.hidden, {"": ""}, 3)
    assert 0 < len(questions) <= 3
    for question in questions:
        answers = town.kb.ask(question.query, top=LISTED)
        assert isinstance(answers, Answers)
        assert sum(row.ids[0] in question.hidden for row in answers.predicted) == question.found > 0


def test_where_nothing_was_hidden_there_is_nothing_to_show(town):
    assert found_again(town.kb.predictor.links, town.hidden[:0], {"": ""}, 3) == []
