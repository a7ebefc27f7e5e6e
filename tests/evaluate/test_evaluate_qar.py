"""Protocol qar: figures by hand, thresholds, the exact engine alone, and a run from file to table."""

from __future__ import annotations

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biqe.benchmarks.anycq import TupleQuestions
from biqe.errors import UnsupportedQuery
from biqe.evaluate import qar
from biqe.evaluate.missing_links import MissingLinks
from biqe.evaluate.qar import NEVER, Found, best_threshold, cross_chosen, evaluate_qar, exact_alone, figures
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models.cqd import CQD, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

KINDS = np.array(["e", "e", "h", "h", "n", "n"])
NAMES = Vocabulary([f"e{n}" for n in range(6)], ["r", "s"])
NAMES_COUNT = len(NAMES.entities)
KNOWN = Graph(NAMES, as_triples([(0, 0, 1), (1, 1, 2), (3, 0, 4)]))
COMPLETE = Graph(NAMES, as_triples([(0, 0, 1), (1, 1, 2), (3, 0, 4), (4, 1, 5), (2, 0, 0)]))


class FewLinks:
    """Stored links are certain, the missing ones of the complete graph have probability .5, all others .01."""

    certain, entity_count = True, 6

    def __init__(self):
        self.table = torch.full((4, 6, 6), float(np.log(0.01)))
        for chance, graph in ((0.5, COMPLETE), (1.0, KNOWN)):
            for s, r, o in graph.triples.tolist():
                self.table[r, s, o] = self.table[r + 2, o, s] = float(np.log(chance))

    def to_all(self, heads, relations):
        return self.table[relations, heads].clone()

    def of(self, subjects, relations, objects):
        return self.table[relations, subjects, objects].double().numpy()


def questions():
    path = ((0, 0, 1), (1, 1, 2))
    queries = [
        BoundQuery((0, HIDDEN, TARGET), path, (2,)),  # stored: 2
        BoundQuery((3, HIDDEN, TARGET), path, (2,)),  # misses one link: 5
        BoundQuery((5, HIDDEN, TARGET), path, (2,)),  # none
        BoundQuery((TARGET, TARGET, 2), path, (0, 1)),  # stored: 0, 1
    ]
    answers = [np.array([[2]]), np.array([[5]]), np.zeros((0, 1)), np.array([[0, 1]])]
    return TupleQuestions(
        QuerySet.of(queries),
        ("3hub efo1", "3hub efo2"),
        np.array([0, 0, 0, 1], np.int8),
        np.array(["e", "h", "n", "e"]),
        tuple(rows.astype(np.int32) for rows in answers),
    )


def test_figures_are_those_of_the_definition():
    given = np.array([True, True, True, False, True, False])
    right = np.array([True, False, True, False, False, False])
    found = figures(KINDS, given, right)
    assert found["precision"] == pytest.approx(2 / 3) and found["recall"] == pytest.approx(2 / 4)
    assert found["f1"] == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert (found["easy"], found["hard"]) == (0.5, 0.5)
    assert found["hard_f1"] == pytest.approx(0.5), "one of two right, and one false"
    assert found["strict_f1"] == pytest.approx(2 * 0.5 * 0.5 / 1.0), "two of four returned are right"
    nothing = figures(KINDS, np.zeros(6, bool), np.zeros(6, bool))
    assert set(nothing.values()) == {0.0}


def test_a_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(30):
        kinds = rng.choice(KINDS, 20)
        right = (kinds != "n") & (rng.random(20) < 0.6)
        found = Found(right, rng.choice([0.0, 0.1, 0.2, 0.4, 0.8, 1.0], 20), np.zeros(20))
        limit = best_threshold(found, kinds)

        def f1(limit, found=found, kinds=kinds):
            given = (found.probabilities > 0) & (found.probabilities >= limit)
            return figures(kinds, given, given & found.right)["f1"]

        assert f1(limit) == pytest.approx(max(f1(each) for each in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, NEVER)))


def test_no_question_has_part_in_its_own_threshold():
    """What decides about one half is what the other half says."""
    kinds = np.tile(KINDS, 20)
    found = Found(kinds != "n", np.linspace(0.01, 1, len(kinds)), np.zeros(len(kinds)))
    free = np.ones(len(kinds), int)
    limits, chosen = cross_chosen(found, kinds, free, seed=1)
    assert set(chosen) == {1}
    first = limits == limits[0]
    assert first.any() and limits[first][0] == best_threshold(
        Found(found.right[~first], found.probabilities[~first], found.seconds[~first]), kinds[~first]
    )


def test_the_exact_engine_answers_what_is_stored():
    assert exact_alone(KNOWN, questions()).tolist() == [[True, False, False, True], [True, False, False, True]]
    assert exact_alone(COMPLETE, questions()).tolist() == [[True, True, False, True], [True, True, False, True]]


def test_a_run_from_questions_to_the_table():
    model = SimpleNamespace(name="few", link_probability=FewLinks())
    missing = MissingLinks(KNOWN, COMPLETE)
    report = evaluate_qar(model, questions(), missing, {1: 0.2, 2: 0.2}, bootstrap=50)
    whole = report.groups["all"]
    assert whole["ours"]["f1"] == 1.0 and whole["exact"]["f1"] == pytest.approx(2 * 1 * (2 / 3) / (1 + 2 / 3))
    assert (whole["easy"], whole["hard"], whole["none"]) == (2, 1, 1)
    assert report.by_missing == {"0": {"questions": 2.0, "right": 1.0}, "1": {"questions": 1.0, "right": 1.0}}
    assert whole["difference"][0] <= 1.0 - whole["exact"]["f1"] <= whole["difference"][1]
    assert "3hub efo2" in report.to_table() and max(map(len, report.to_table().splitlines())) <= 92
    assert json.loads(json.dumps(report.to_json()))["groups"]["all"]["ours"]["f1"] == 1.0
    eager = evaluate_qar(model, questions(), missing, {1: 0.0, 2: 0.0}, bootstrap=0)
    assert eager.groups["all"]["ours"]["precision"] == pytest.approx(3 / 4), "a tuple where there is no answer"


def test_a_stored_answer_is_never_kept_back():
    """Not even where no guess is worth its risk."""
    report = evaluate_qar(
        SimpleNamespace(name="few", link_probability=FewLinks()),
        questions(),
        MissingLinks(KNOWN, COMPLETE),
        {1: NEVER, 2: NEVER},
    )
    assert report.groups["all"]["ours"] == report.groups["all"]["exact"]


def test_a_missing_link_to_a_variable_that_leads_nowhere_is_counted():
    """What the search fills in last is judged as all else is."""
    leaf = BoundQuery((1, TARGET, HIDDEN), ((0, 1, 1), (1, 0, 2)), (1,))  # 1 s ?2, stored; ?2 r 0, missing
    asked = TupleQuestions(
        QuerySet.of([leaf]), ("3hub efo1",), np.zeros(1, np.int8), np.array(["h"]), (np.array([[2]], np.int32),)
    )
    nothing = np.zeros(1, bool)
    found = qar.by_missing(MissingLinks(KNOWN, COMPLETE), asked, nothing, nothing)
    assert found == {"1": {"questions": 1.0, "right": 0.0}}


def test_cqd_returns_what_its_own_beam_finds_and_looks_nothing_up():
    torch.manual_seed(0)
    model = CQD(Config(rank=4), NAMES_COUNT, 2)
    model.use_graph(KNOWN)
    find, stored_first = qar.finder_of(model, KNOWN)
    assert not stored_first
    asked = questions()
    for query in asked.queries:
        row, chance = find(query)
        best, truth = by_hand(model, query)
        assert chance == pytest.approx(truth, rel=1e-4) and tuple(row) in best
    found = qar.searched(model, KNOWN, asked, exact_alone(KNOWN, asked))
    assert not (found.probabilities == 1.0).any(), "a stored answer is a guess among others"


@torch.no_grad()
def by_hand(model, query):
    """Tuples of the truest assignments of all variables, and how true these are."""
    links = model.truths()
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    chances = {}
    for values in itertools.product(range(NAMES_COUNT), repeat=len(variables)):
        nodes = list(query.nodes)
        for node, value in zip(variables, values, strict=True):
            nodes[node] = value
        truth = sum(
            float(links.to_all(torch.tensor([nodes[s]]), torch.tensor([r]))[0, nodes[o]]) for s, r, o in query.edges
        )
        row = tuple(nodes[target] for target in query.targets)
        chances[row] = max(math.exp(truth), chances.get(row, 0.0))
    most = max(chances.values())
    return [row for row, chance in chances.items() if chance > most * (1 - 1e-4)], most


def test_a_model_without_links_is_refused():
    with pytest.raises(UnsupportedQuery, match="probabilities of links"):
        qar.finder_of(SimpleNamespace(name="gqe"), KNOWN)
