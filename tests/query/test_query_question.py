"""Conditions of a question."""

from __future__ import annotations

from biqe.query.question import variables
from biqe.query.sparql import parse_question


def test_variables_of_a_condition() -> None:
    question = parse_question("SELECT ?a { ?a :p ?b . ?b :q ?c FILTER(!(?c = ?a || contains(?b, 'x')) && isIRI(?a)) }")
    assert [variable.name for variable in variables(question.branches[0].filters[0])] == ["c", "a", "b"]
