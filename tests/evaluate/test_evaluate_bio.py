"""Protocol bio: an example by hand, equal ways to AUC and APR, and what its report says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import EmptyResult, InvalidOption, VocabularyMismatch
from biqe.evaluate import Bio, Report, evaluate
from biqe.evaluate.bio import PairScores, compare_types, log_probabilities, true_answers
from biqe.evaluate.protocol import Bootstrap

# The worked example has eight entities and four questions; the true answer of each is e0.
#
#   1-chain, two questions, scores e0..e7:
#     question 0:  5 4 3 2 1 0 0 0   one random negative e1 (4)
#                  APR: 5 > 4: 1/1
#     question 1:  2 9 2 1 0 0 0 0   one random negative e2 (2)
#                  APR: 2 ties with 2: 1/2
#     AUC pools log-probabilities. All scores of question 0 fall by log(e^5 + e^4 + e^3 + e^2 + e + 3) = 5.46, those of
#     question 1 by log(e^9 + 2 e^2 + e + 4) = 9.00. True answers {-.46, -7.00} and negatives {-1.46, -7.00}:
#     -.46 wins twice, -7.00 loses once and ties once: (1 + 1 + 0 + 1/2) / 4 = 5/8
#     APR = (1 + 1/2) / 2 = 3/4
#   2-inter, two questions:
#     question 2:  3 1 1 5 0 0 0 0   one random negative e1 (1), one hard negative e3 (5)
#     question 3:  4 0 2 6 6 0 0 0   one random negative e2 (2), no hard negative
#     question 2 falls by log(e^5 + e^3 + 2 e + 4) = 5.20, question 3 by log(2 e^6 + e^4 + e^2 + 4) = 6.77
#     random AUC: {-2.20, -2.77} against {-4.20, -4.77}: all four won, 1.   APR = 1
#     hard, question 2 only: {-2.20} against {-.20}: AUC 0, APR 0
#   mean over 1-chain, 2-inter and 2-inter hard: AUC = (5/8 + 1 + 0) / 3 = 13/24, APR = (3/4 + 1 + 0) / 3 = 7/12
SCORES = {
    0: [5, 4, 3, 2, 1, 0, 0, 0],
    1: [2, 9, 2, 1, 0, 0, 0, 0],
    2: [3, 1, 1, 5, 0, 0, 0, 0],
    3: [4, 0, 2, 6, 6, 0, 0, 0],
}


@pytest.fixture
def example(make):
    shaped = make.questions(
        [[make.one_hop(anchor)] for anchor in range(4)],
        [0, 0, 1, 1],
        ("1-chain", "2-inter"),
        answers=[{0}] * 4,
        negatives=[{1}, {2}, {1}, {2}],
        hard_negatives=[set(), set(), {3}, set()],
    )
    return make.Scripted(lambda query, target: SCORES[query.nodes[0]], 8), shaped


def test_the_worked_example(example):
    report = evaluate(*example, Bio())
    figures = {name: part.metrics["realistic"] for name, part in report.by_shape.items()}
    assert figures == {
        "1-chain": pytest.approx({"auc": 5 / 8, "apr": 3 / 4}),
        "2-inter": pytest.approx({"auc": 1, "apr": 1}),
        "2-inter hard": pytest.approx({"auc": 0, "apr": 0}),
    }
    assert report.value("auc") == pytest.approx(13 / 24)
    assert report.value("apr") == pytest.approx(7 / 12)
    # The one tie won or lost: AUC of 1-chain is 3/4 or 2/4, APR 1 or 1/2.
    chain = report.by_shape["1-chain"].metrics
    assert (chain["optimistic"]["auc"], chain["pessimistic"]["auc"]) == (3 / 4, 2 / 4)
    assert (chain["optimistic"]["apr"], chain["pessimistic"]["apr"]) == (1, 1 / 2)
    assert report.by_shape["2-inter hard"].queries == 1


def test_auc_pools_log_probabilities(make):
    """True answers score 5 and 2, their negatives 4 and 6. As they are, 5 would win against 4 alone, 1/4. But in the
    second question e7 takes all, 100, so its scores are worth -98 and -94: 5 wins against both, 2/4."""
    scores = {0: [5, 4, 0, 0, 0, 0, 0, 0], 1: [2, 0, 6, 0, 0, 0, 0, 100]}
    shaped = make.questions(
        [[make.one_hop(anchor)] for anchor in range(2)], [0, 0], ("1-chain",), answers=[{0}] * 2, negatives=[{1}, {2}]
    )
    model = make.Scripted(lambda query, target: scores[query.nodes[0]], 8)
    figures = evaluate(model, shaped, Bio()).by_shape["1-chain"].metrics["realistic"]
    assert figures == pytest.approx({"auc": 2 / 4, "apr": 1 / 2})


def test_how_high_all_scores_of_a_question_stand_changes_nothing(make, example):
    model, shaped = example
    raised = make.Scripted(lambda query, target: [s + 7 * query.nodes[0] for s in SCORES[query.nodes[0]]], 8)
    assert evaluate(raised, shaped, Bio()).overall == evaluate(model, shaped, Bio()).overall


@given(st.lists(st.lists(st.floats(-40, 40) | st.just(-np.inf), min_size=3, max_size=3), min_size=1, max_size=4))
def test_normalised_scores_are_log_probabilities(rows):
    scores = np.array(rows)
    found = log_probabilities(scores)
    possible = np.isfinite(scores).any(axis=1)
    assert np.exp(found[possible]).sum(axis=1) == pytest.approx(1)
    assert (found[~possible] == -np.inf).all()
    assert not np.isnan(found).any()


def test_apr_looks_at_all_negatives_and_auc_at_one(make):
    # One question, true answer e0 with score 2; negatives score 1, 1, 3 and 2: below it two, equal one, of four.
    # APR = (2 + 1/2) / 4 = 5/8. AUC is against one of them: 1, 0 or 1/2, by the seed.
    shaped = make.questions([[make.one_hop(0)]], [0], ["1-chain"], answers=[{0}], negatives=[{1, 2, 3, 4}])
    model = make.Scripted(lambda query, target: [2, 1, 1, 3, 2], 5)
    reports = [evaluate(model, shaped, Bio(), seed=seed, bootstrap=0) for seed in range(12)]
    assert {report.value("apr") for report in reports} == {5 / 8}
    assert {report.value("auc") for report in reports} <= {0, 0.5, 1}
    assert len({report.value("auc") for report in reports}) > 1
    assert reports[3].overall == evaluate(model, shaped, Bio(), seed=3, bootstrap=0).overall


def pairs(positive, negatives, drawn):
    """Scores from a list of negatives for each question and the place of the drawn one."""
    offsets = np.cumsum([0, *map(len, negatives)])
    flat = np.array([score for part in negatives for score in part], float)
    return PairScores(np.array(positive, float), offsets, flat, offsets[:-1] + np.array(drawn))


@given(st.data())
def test_equal_to_comparing_every_pair(data):
    score = st.integers(-3, 3).map(float)
    count = data.draw(st.integers(1, 8))
    positive = data.draw(st.lists(score, min_size=count, max_size=count))
    negatives = data.draw(st.lists(st.lists(score, min_size=1, max_size=4), min_size=count, max_size=count))
    drawn = [data.draw(st.integers(0, len(part) - 1)) for part in negatives]
    types, _ = compare_types({"t": (pairs(positive, negatives, drawn), None)}, Bootstrap(0))
    found = types["t"].metrics["realistic"]

    def won(a, b):
        return 1.0 if a > b else 0.5 if a == b else 0.0

    one_each = [part[place] for part, place in zip(negatives, drawn, strict=True)]
    assert found["auc"] == pytest.approx(np.mean([won(a, b) for a in positive for b in one_each]))
    each = [np.mean([won(a, b) for b in part]) for a, part in zip(positive, negatives, strict=True)]
    assert found["apr"] == pytest.approx(np.mean(each))


def test_draws_are_what_drawing_questions_gives():
    rng = np.random.default_rng(5)
    positive, negatives = rng.normal(0.5, 1, 30), [rng.normal(0, 1, 3).tolist() for _ in range(30)]
    scores = pairs(positive, negatives, [0] * 30)
    types, _ = compare_types({"t": (scores, None)}, Bootstrap(400, seed=7))
    found = types["t"].intervals
    draws = np.random.default_rng(7).integers(30, size=(400, 30))
    first = np.array([part[0] for part in negatives])
    share = np.array([np.mean(np.array(part) < a) for a, part in zip(positive, negatives, strict=True)])
    aucs = [np.mean(positive[drawn][:, None] > first[drawn][None]) for drawn in draws]
    assert found["auc"] == pytest.approx(np.percentile(aucs, [2.5, 97.5]).tolist())
    assert found["apr"] == pytest.approx(np.percentile(share[draws].mean(axis=1), [2.5, 97.5]).tolist())


def test_a_constant_score_is_worth_one_half(make):
    shaped = make.questions(
        [[make.one_hop(n)] for n in range(4)],
        [0, 0, 1, 1],
        ("1-chain", "2-inter"),
        answers=[{0}] * 4,
        negatives=[{1, 2}] * 4,
        hard_negatives=[set(), set(), {3}, {3}],
    )
    report = evaluate(make.Scripted(lambda query, target: np.zeros(8), 8), shaped, Bio())
    assert {metric: report.value(metric) for metric in ("auc", "apr")} == {"auc": 0.5, "apr": 0.5}
    assert report.value("auc", "optimistic") == 1
    assert report.value("auc", "pessimistic") == 0


def test_what_the_report_says(example, tmp_path):
    report = evaluate(*example, Bio(), bootstrap=50)
    assert (report.protocol, report.filter_graph) == ("bio", "none")
    assert report.mean_over == ("1-chain", "2-inter", "2-inter hard")
    report.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == report
    table = report.to_table()
    assert max(map(len, table.splitlines())) <= 80
    for words in ("AUC", "APR", "2-inter hard", "mean of 3", "negatives", "protocol bio version 1"):
        assert words in table
    for part in report.by_shape.values():
        for metric, (low, high) in part.intervals.items():
            assert low <= part.metrics["realistic"][metric] <= high
    with pytest.raises(InvalidOption, match="it has metrics auc, apr"):
        report.value("mrr")


def test_what_cannot_be_compared_is_counted(example, make):
    model, shaped = example
    changed = replace(shaped, negatives=make.sets([set(), {2}, {1}, {2}]), answers=make.sets([{0}, {0, 1}, {0}, {0}]))
    report = evaluate(model, changed, Bio())
    assert {part.reason: part.queries for part in report.skipped} == {
        "no negative was sampled": 1,
        "no single true answer": 1,
    }
    assert list(report.by_shape) == ["2-inter", "2-inter hard"]
    with pytest.raises(EmptyResult, match="no negative was sampled"):
        evaluate(model, replace(shaped, negatives=make.sets([set()] * 4)), Bio())


def test_the_true_answer_is_the_gold_entity_then_the_only_hard_then_the_only_answer(make):
    rows = [[make.one_hop(0), make.one_hop(1)], [make.one_hop(1)], [make.one_hop(2)], [make.one_hop(3)]]
    shaped = make.questions(
        rows, [0] * 4, ["1-chain"], answers=[{5}, {1, 4}, {6}, {1, 2}], hard=[{5}, {4}, set(), {1, 2}]
    )
    gold = shaped.rows.gold.copy()
    gold[shaped.rows.target_nodes[0]] = 7
    assert true_answers(replace(shaped, rows=replace(shaped.rows, gold=gold))).tolist() == [7, 4, 6, -1]


def test_bad_input(example, make):
    model, shaped = example
    with pytest.raises(InvalidOption, match="needs sampled negatives"):
        evaluate(model, replace(shaped, negatives=None), Bio())
    with pytest.raises(VocabularyMismatch, match="random negative 99"):
        evaluate(model, replace(shaped, negatives=make.sets([{99}] * 4)), Bio())
    with pytest.raises(InvalidOption, match="NaN"):
        evaluate(make.Scripted(lambda query, target: np.full(8, np.nan), 8), shaped, Bio())
    with pytest.raises(InvalidOption, match="NaN"):
        pairs([np.nan], [[0.0]], [0])
    with pytest.raises(InvalidOption, match="need 2 offsets"):
        PairScores(np.zeros(1), np.zeros(1, int), np.zeros(0), np.zeros(1, int))
    with pytest.raises(InvalidOption, match="must be the same"):
        both = pairs([1.0], [[0.0]], [0]), pairs([1.0, 2.0], [[0.0], [0.0]], [0, 0])
        compare_types({"t": both}, Bootstrap())
    with pytest.raises(EmptyResult):
        none = PairScores(np.zeros(1), np.zeros(2, int), np.zeros(0), np.zeros(1, int))
        compare_types({"t": (none, None)}, Bootstrap())
