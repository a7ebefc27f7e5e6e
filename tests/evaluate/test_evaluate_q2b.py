"""Protocol q2b: an example by hand, and what its report says."""

import numpy as np
import pytest

from biqe.errors import EmptyResult
from biqe.evaluate import Report, evaluate_q2b, rank_questions
from biqe.evaluate.protocols import CONJUNCTIVE, q2b, question_figures

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
    report = evaluate_q2b(*example)
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


def test_the_ranks_of_the_example(example):
    ranked = rank_questions(*example)
    assert ranked.questions.tolist() == [0, 0, 1, 2, 2, 3]
    assert ranked.answers.tolist() == [3, 4, 5, 0, 5, 5]
    assert ranked.ranks.realistic.tolist() == [3, 3, 3.5, 5, 1, 2]


def test_what_the_report_says(example, tmp_path):
    report = evaluate_q2b(*example, notes={"benchmark": "toy"}, fingerprints={"graph": "g"})
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
    whole = evaluate_q2b(model, shaped)
    assert evaluate_q2b(model, shaped, batch_targets=1).by_shape == whole.by_shape
    turned = evaluate_q2b(model, shaped.take(np.array([3, 2, 1, 0])))
    assert {n: p.metrics for n, p in turned.by_shape.items()} == {n: p.metrics for n, p in whole.by_shape.items()}


def test_intervals_hold_the_figures_and_can_be_left_out(example):
    report = evaluate_q2b(*example, bootstrap=200)
    for part in (report.overall, *report.by_shape.values()):
        for metric, (low, high) in part.intervals.items():
            assert low <= part.metrics["realistic"][metric] <= high
    # 1p has two questions with HITS@3 of 1 and 0, so draws reach from 0 to 1; 2p has one, so they cannot move.
    assert report.by_shape["1p"].intervals["hits@3"] == (0, 1)
    assert report.by_shape["2p"].intervals["hits@3"] == (0.5, 0.5)
    assert evaluate_q2b(*example, bootstrap=0).overall.intervals == {}
    assert report.overall.intervals == evaluate_q2b(*example, bootstrap=200).overall.intervals


def test_every_shape_weighs_the_same_and_unions_nothing():
    rng = np.random.default_rng(0)
    shapes = ("2u", *CONJUNCTIVE, "up")
    shape = rng.integers(0, len(shapes), 300)
    values = rng.random((300, 4))
    figures = {rule: values for rule in ("realistic", "optimistic", "pessimistic")}
    found = q2b(figures, shape, shapes, np.ones(300, int), draws=0)
    means = [values[shape == shapes.index(name)].mean(axis=0) for name in CONJUNCTIVE]
    assert list(found.overall.metrics["realistic"].values()) == pytest.approx(np.mean(means, axis=0).tolist())
    assert found.mean_over == CONJUNCTIVE
    only_unions = shape == 0
    unions = q2b(
        {rule: values[only_unions] for rule in figures},
        shape[only_unions],
        shapes,
        np.ones(only_unions.sum(), int),
        draws=0,
    )
    assert unions.mean_over == ("2u",)


def test_a_question_counts_once_however_many_answers_it_has(make):
    # One question with 3 hard answers at ranks 1, 1, 1 (all rivals below), one with a single hard answer at rank 4:
    # HITS@3 is (1 + 0) / 2, not 3/4.
    scores = {0: [9, 9, 9, 1, 1, 1], 1: [9, 8, 7, 6, 1, 1]}
    shaped = make.questions(
        [[make.one_hop(0)], [make.one_hop(1)]], [0, 0], ["1p"], answers=[{0, 1, 2}, {3}], hard=[{0, 1, 2}, {3}]
    )
    report = evaluate_q2b(make.Scripted(lambda query, target: scores[query.nodes[0]], 6), shaped)
    assert report.value("hits@3") == 0.5


def test_nothing_to_average_is_an_error_that_says_why(example, make):
    model, shaped = example
    tired = make.Scripted(model.script, 6, refuse=lambda query: "it is tired")
    with pytest.raises(EmptyResult, match="4 queries: it is tired"):
        evaluate_q2b(tired, shaped)
    with pytest.raises(EmptyResult, match="none of 0 queries"):
        evaluate_q2b(model, shaped.take(np.zeros(0, int)))
    with pytest.raises(EmptyResult):
        q2b({}, np.zeros(0, int), (), np.zeros(0, int))


def test_skipped_questions_are_in_the_report(example, make):
    model, shaped = example
    report = evaluate_q2b(
        make.Scripted(model.script, 6, refuse=lambda query: "one hop only" if len(query.edges) > 1 else None), shaped
    )
    assert [(part.reason, part.queries, part.examples) for part in report.skipped] == [("one hop only", 1, (2,))]
    assert "skipped: 1 queries, one hop only" in report.to_table()
    assert report.counts["ranked_queries"] == 3


def test_question_figures_of_no_ranks():
    from biqe.evaluate.ranks import Ranks

    figures, counts = question_figures(Ranks.join([]), np.zeros(0, int), 2)
    assert figures["realistic"].tolist() == [[0.0] * 4] * 2
    assert counts.tolist() == [0, 0]
