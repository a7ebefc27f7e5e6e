"""Protocols cq and q2b: who counts how often, examples by hand, and what their reports say."""

import numpy as np
import pytest

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate import PROTOCOLS, Bio, Cq, Query2Box, Report, evaluate, protocol_named
from biqe.evaluate.protocol import Bootstrap
from biqe.evaluate.protocols import CONJUNCTIVE, QuestionMeans, average_targets
from biqe.evaluate.ranks import Ranks
from biqe.query.bound import KINDS, ROLES

TAIL, INTERSECTION, BRANCH = (ROLES.index(role) for role in ("tail", "intersection", "branch"))
DAG, PATH = KINDS.index("dag"), KINDS.index("path")


def figures(draws=1000):
    # Query 4: a DAG with tail at rank 1, intersection at rank 2 and a branch at rank 4. Query 7: a path whose only
    # target, its tail, has rank 10. No ties. Numbers of queries need not start at 0.
    rank = np.array([1, 2, 4, 10])
    ranks = Ranks(rank, rank.astype(float), rank, np.full(4, 50))
    return average_targets(
        ranks,
        np.array([4, 4, 4, 7]),
        np.array([TAIL, INTERSECTION, BRANCH, TAIL]),
        np.array([DAG, DAG, DAG, PATH]),
        Bootstrap(draws),
    )


def mrr_of(summary):
    return summary.metrics["realistic"]["mrr"]


def test_each_target_counts_once():
    found = figures()
    assert mrr_of(found.overall) == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10) / 4)
    assert found.overall.metrics["realistic"]["hits@3"] == pytest.approx(2 / 4)
    assert (found.overall.queries, found.overall.targets) == (2, 4)


def test_macro_counts_each_query_once():
    found = figures()
    assert mrr_of(found.macro) == pytest.approx(((1 + 1 / 2 + 1 / 4) / 3 + 1 / 10) / 2)
    assert (found.macro.queries, found.macro.targets) == (2, 4)


def test_groups():
    found = figures()
    assert {name: mrr_of(part) for name, part in found.by_position.items()} == pytest.approx(
        {"tail": (1 + 1 / 10) / 2, "intersection": 1 / 2, "branch": 1 / 4}
    )
    assert {name: mrr_of(part) for name, part in found.by_kind.items()} == pytest.approx(
        {"dag": (1 + 1 / 2 + 1 / 4) / 3, "path": 1 / 10}
    )
    assert {name: part.targets for name, part in found.by_targets.items()} == {"1": 1, "3": 3}
    assert found.by_position["tail"].queries == 2


def test_intervals_are_there_when_asked_for():
    found = figures(draws=50)
    for part in (found.overall, found.macro, *found.by_position.values(), *found.by_kind.values()):
        for metric, (low, high) in part.intervals.items():
            assert low <= part.metrics["realistic"][metric] <= high
    assert figures(draws=0).overall.intervals == {}


def test_protocols_are_found_by_name():
    assert isinstance(protocol_named("cq", filter_graph="split"), Cq)
    assert isinstance(protocol_named("q2b"), Query2Box) and isinstance(protocol_named("bio"), Bio)
    assert {name: protocol.version for name, protocol in PROTOCOLS.items()} == {
        "cq": 1,
        "q2b": 1,
        "betae": 1,
        "bio": 1,
    }
    with pytest.raises(InvalidOption, match="must be one of cq, q2b, betae, bio. Got 'best'"):
        protocol_named("best")


# The worked example has six entities, e0 to e5, and four questions.
#
#   question 0, 1p from e0: scores e0..e5 = 6 5 4 3 2 1; answers {e1, e3, e4}, of which e3 and e4 are hard.
#       Non-answers are e0, e2, e5 with scores 6, 4, 1.
#       e3 (3): above it e0 and e2, so rank 3.   e4 (2): above it e0 and e2, so rank 3; e1 and e3 are filtered.
#       HITS@1 = 0, HITS@3 = 1, HITS@10 = 1, MRR = (1/3 + 1/3) / 2 = 1/3
#   question 1, 1p from e1: all scores 0; answer {e5}, hard. Five rivals tie with it.
#       optimistic rank 1, pessimistic rank 6, realistic rank 3.5.
#       realistic: HITS@1 = 0, HITS@3 = 0, HITS@10 = 1, MRR = 1/3.5 = 2/7
#   question 2, 2p from e2: scores 1 2 3 4 5 6; answers {e0, e5}, both hard. Non-answers score 2 3 4 5.
#       e5 (6): rank 1.   e0 (1): rank 5.   HITS@1 = 1/2, HITS@3 = 1/2, HITS@10 = 1, MRR = (1 + 1/5) / 2 = 3/5
#   question 3, 2u of e3 and e4: first row 9 0 0 0 0 0, second row 0 0 0 8 0 7; the larger: 9 0 0 8 0 7.
#       answers {e3, e5}, e5 hard: e3 is filtered, e0 stands above: rank 2. HITS@1 = 0, HITS@3 = 1, MRR = 1/2
#
#   1p = mean of questions 0 and 1: HITS@3 = (1 + 0) / 2 = 1/2, MRR = (1/3 + 2/7) / 2 = 13/42
#   2p = question 2:                HITS@3 = 1/2,              MRR = 3/5
#   2u = question 3:                HITS@3 = 1,                MRR = 1/2, not in the mean
#   mean of 1p and 2p:              HITS@3 = 1/2,              MRR = (13/42 + 3/5) / 2 = 191/420
SCORES = {0: [6, 5, 4, 3, 2, 1], 1: [0] * 6, 2: [1, 2, 3, 4, 5, 6], 3: [9, 0, 0, 0, 0, 0], 4: [0, 0, 0, 8, 0, 7]}


@pytest.fixture
def example(make):
    shaped = make.questions(
        [[make.one_hop(0)], [make.one_hop(1)], [make.two_hops(2)], [make.one_hop(3), make.one_hop(4)]],
        [0, 0, 1, 2],
        ("1p", "2p", "2u"),
        answers=[{1, 3, 4}, {5}, {0, 5}, {3, 5}],
        hard=[{3, 4}, {5}, {0, 5}, {5}],
    )
    return make.Scripted(lambda query, target: SCORES[query.nodes[0]], 6), shaped


def test_the_worked_example(example):
    report = evaluate(*example, Query2Box())
    figures = {name: part.metrics["realistic"] for name, part in report.by_shape.items()}
    assert figures["1p"] == pytest.approx({"mrr": 13 / 42, "hits@1": 0, "hits@3": 1 / 2, "hits@10": 1})
    assert figures["2p"] == pytest.approx({"mrr": 3 / 5, "hits@1": 1 / 2, "hits@3": 1 / 2, "hits@10": 1})
    assert figures["2u"] == pytest.approx({"mrr": 1 / 2, "hits@1": 0, "hits@3": 1, "hits@10": 1})
    assert report.mean_over == ("1p", "2p")
    assert report.value("hits@3") == pytest.approx(1 / 2)
    assert report.value("mrr") == pytest.approx(191 / 420)
    # Question 1 at rank 1 if all ties are won, at rank 6 if all are lost.
    assert report.by_shape["1p"].metrics["optimistic"]["mrr"] == pytest.approx((1 / 3 + 1) / 2)
    assert report.by_shape["1p"].metrics["pessimistic"]["mrr"] == pytest.approx((1 / 3 + 1 / 6) / 2)
    assert (report.by_shape["1p"].queries, report.by_shape["1p"].targets) == (2, 3)


def test_what_the_report_of_q2b_says(example, tmp_path):
    report = evaluate(*example, Query2Box(), notes={"benchmark": "toy"}, fingerprints={"graph": "g"})
    assert (report.protocol, report.filter_graph, report.model) == ("q2b", "answers", "scripted")
    assert dict(report.counts) == {
        "queries": 4,
        "targets": 6,
        "ranked_queries": 4,
        "ranked_targets": 6,
        "candidates": 6,
    }
    assert {"allocator", "threads", "processor", "peak_resident_mib"} <= set(report.machine)
    assert set(report.fingerprints) == {"queries", "graph"}
    report.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == report
    table = report.to_table()
    assert max(map(len, table.splitlines())) <= 80
    lines = [line.split() for line in table.splitlines()]
    assert ["mean", "of", "2/7"] in [line[:3] for line in lines]
    assert "not in the mean" in table
    assert [line[0] for line in lines if line and line[0] in ("1p", "2p", "2u")] == ["1p", "2p", "2u"]
    assert "every other answer of a question filtered" in " ".join(table.split())


def test_batches_and_order_change_no_figure(example, make):
    model, shaped = example
    whole = evaluate(model, shaped, Query2Box())
    assert evaluate(model, shaped, Query2Box(), batch_targets=1).by_shape == whole.by_shape
    turned = evaluate(model, shaped.take(np.array([3, 2, 1, 0])), Query2Box())
    assert {n: p.metrics for n, p in turned.by_shape.items()} == {n: p.metrics for n, p in whole.by_shape.items()}


def test_intervals_of_q2b_hold_the_figures_and_can_be_left_out(example):
    report = evaluate(*example, Query2Box(), bootstrap=200)
    for part in (report.overall, *report.by_shape.values()):
        for metric, (low, high) in part.intervals.items():
            assert low <= part.metrics["realistic"][metric] <= high
    # 1p has two questions with HITS@3 of 1 and 0, so draws reach from 0 to 1; 2p has one, so they cannot move.
    assert report.by_shape["1p"].intervals["hits@3"] == (0, 1)
    assert report.by_shape["2p"].intervals["hits@3"] == (0.5, 0.5)
    assert evaluate(*example, Query2Box(), bootstrap=0).overall.intervals == {}
    assert report.overall.intervals == evaluate(*example, Query2Box(), bootstrap=200).overall.intervals


def test_every_shape_weighs_the_same_and_unions_nothing(make):
    rng = np.random.default_rng(0)
    shapes = ("2u", *CONJUNCTIVE, "up")
    shape = rng.integers(0, len(shapes), 300)
    values = rng.random((300, 4))
    shaped = make.questions([[make.one_hop(0)]] * 300, shape, shapes, answers=[{0}] * 300, hard=[{0}] * 300)

    def summary(members):
        measured = QuestionMeans(members, dict.fromkeys(("realistic", "optimistic", "pessimistic"), values[members]), 9)
        return Query2Box().summarise(shaped, members, [measured], Bootstrap(0))

    found = summary(np.arange(300))
    means = [values[shape == shapes.index(name)].mean(axis=0) for name in CONJUNCTIVE]
    assert list(found.overall.metrics["realistic"].values()) == pytest.approx(np.mean(means, axis=0).tolist())
    assert found.mean_over == CONJUNCTIVE
    assert summary(np.flatnonzero(shape == 0)).mean_over == ("2u",)


def test_a_question_counts_once_however_many_answers_it_has(make):
    # One question with 3 hard answers at ranks 1, 1, 1 (all rivals below), one with a single hard answer at rank 4:
    # HITS@3 is (1 + 0) / 2, not 3/4.
    scores = {0: [9, 9, 9, 1, 1, 1], 1: [9, 8, 7, 6, 1, 1]}
    shaped = make.questions(
        [[make.one_hop(0)], [make.one_hop(1)]], [0, 0], ["1p"], answers=[{0, 1, 2}, {3}], hard=[{0, 1, 2}, {3}]
    )
    report = evaluate(make.Scripted(lambda query, target: scores[query.nodes[0]], 6), shaped, Query2Box())
    assert report.value("hits@3") == 0.5


def test_nothing_to_average_is_an_error_that_says_why(example, make):
    model, shaped = example
    tired = make.Scripted(model.script, 6, refuse=lambda query: "it is tired")
    with pytest.raises(EmptyResult, match="4 queries: it is tired"):
        evaluate(tired, shaped, Query2Box())
    with pytest.raises(EmptyResult, match="none of 0 queries"):
        evaluate(model, shaped.take(np.zeros(0, int)), Query2Box())


def test_skipped_questions_are_in_the_report(example, make):
    model, shaped = example
    picky = make.Scripted(model.script, 6, refuse=lambda query: "one hop only" if len(query.edges) > 1 else None)
    report = evaluate(picky, shaped, Query2Box())
    assert [(part.reason, part.queries, part.examples) for part in report.skipped] == [("one hop only", 1, (2,))]
    assert "skipped: 1 queries, one hop only" in report.to_table()
    assert report.counts["ranked_queries"] == 3
