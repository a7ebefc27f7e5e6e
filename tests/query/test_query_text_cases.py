"""The plain-text cases of tests/sparql: SPARQL behaviour, errors included."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from biqe.answer.execute import count, select_rows, verdict
from biqe.errors import BiqeError
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.predict.config import AskConfig
from biqe.query.bind import BoundQuestion, bind, bind_question
from biqe.query.bound import BoundQuery
from biqe.query.dag import orient
from biqe.query.question import ASK, COUNT, Question
from biqe.query.shapes import shape_of
from biqe.query.sparql import parse_question
from biqe.query.tokens import tokens

FOLDER = Path(__file__).parent.parent / "sparql"
MARKS = ("-->", "--0", "--=", "--t", "--s", "--n", "--a", "--!", "--?")


@dataclass
class Case:
    file: str
    name: str
    graph: str | None = None
    query: list[str] = field(default_factory=list)
    expected: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def read_cases(path: Path) -> list[Case]:
    cases: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- case:"):
            cases.append(Case(path.stem, line.removeprefix("-- case:").strip()))
        elif not cases or (not line.strip() and cases[-1].expected):
            continue  # the file's own remarks, and blank lines between cases
        elif line[:3] in MARKS:
            cases[-1].expected.append((line[:3], line[3:].strip()))
        elif line.startswith("graph:"):
            cases[-1].graph = line.removeprefix("graph:").strip()
        else:
            cases[-1].query.append(line)
    return cases


CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in read_cases(path)]


def read_graph(name: str) -> tuple[Vocabulary, set[tuple[int, int, int]]]:
    rows = [line.split("\t") for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]
    entities = sorted({row[0] for row in rows} | {row[2] for row in rows})
    relations = sorted({row[1] for row in rows})
    vocabulary = Vocabulary(entities, relations)
    return vocabulary, {
        (entities.index(subject), relations.index(relation), entities.index(object_))
        for subject, relation, object_ in rows
    }


def joined(query: BoundQuery, triples: set[tuple[int, int, int]]) -> set[tuple[int, ...]]:
    """Answers by joining one pattern after the other."""
    bindings: list[dict[int, int]] = [{node: query.nodes[node] for node in query.anchors}]
    for subject, relation, object_ in query.edges:
        bindings = [
            binding | {subject: s, object_: o}
            for binding, (s, r, o) in product(bindings, triples)
            if r == relation
            and binding.get(subject, s) == s
            and binding.get(object_, o) == o
            and (subject != object_ or s == o)
        ]
    return {tuple(binding[target] for target in query.targets) for binding in bindings}


def test_there_are_cases() -> None:
    assert len(CASES) > 110
    assert all(case.expected and case.query for case in CASES)
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    text = "\n".join(case.query)
    marks = {mark for mark, _ in case.expected}
    if "--!" in marks:
        with pytest.raises(BiqeError) as caught:
            question = parse_question(text)
            if case.graph:
                bind_question(question, read_graph(case.graph)[0])
        for mark, expected in case.expected:
            assert mark in ("--!", "--?")
            if mark == "--!":
                assert caught.value.message.startswith(expected), caught.value.message
            else:
                assert expected in (caught.value.hint or ""), caught.value.hint
        return

    question = parse_question(text)
    for mark, expected in case.expected:
        if mark == "--=":
            assert str(question) == expected
    assert_reads_itself(question)
    if case.graph is None:
        assert marks == {"--="}
        return
    vocabulary, triples = read_graph(case.graph)
    bound = bind_question(question, vocabulary)
    shown = found(Graph(vocabulary, as_triples(sorted(triples))), bound)
    expected_rows = [expected for mark, expected in case.expected if mark in ("-->", "--n", "--a")]
    if marks & {"-->", "--0", "--n", "--a"}:
        assert (shown if question.order else sorted(shown)) == (
            expected_rows if question.order else sorted(expected_rows)
        )
    if question.conjunctive is None:
        assert not marks & {"--t", "--s"}
        return
    # A second road to the rows, one pattern after the other; and what models see of the query.
    query = bind(question.conjunctive, vocabulary)
    turned = orient(query, len(vocabulary.relations))
    if marks & {"-->", "--0"} and query.limit is None:
        assert sorted(shown) == sorted(" ".join(vocabulary.entities[v] for v in row) for row in joined(query, triples))
    for mark, expected in case.expected:
        if mark == "--t":
            assert str(tokens(turned, vocabulary=vocabulary)) == expected
        if mark == "--s":
            assert shape_of(query) == shape_of(turned) == expected


def found(graph: Graph, question: BoundQuestion) -> list[str]:
    """What the graph itself answers, a line a row."""
    config = AskConfig(mode="known")
    if question.form == COUNT:
        return [str(count(graph, question, None, config).known)]
    if question.form == ASK:
        return ["yes" if len(verdict(graph, question, None, config).known) else "no"]
    rows = select_rows(graph, question, None, config).known.tolist()
    return [" ".join(graph.vocabulary.entities[value] for value in row) for row in rows]


def assert_reads_itself(question: Question) -> None:
    assert parse_question(str(question)) == question
