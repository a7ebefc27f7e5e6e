"""Scores of questions: samples, unions that take the better row, what cannot be ranked, broken sets and models."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from biqe.benchmarks import shaped
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption, RunFailed, VocabularyMismatch
from biqe.evaluate import Query2Box, rank_targets
from biqe.evaluate.loop import measure
from biqe.evaluate.protocols import RankedAnswers
from biqe.evaluate.ranks import Ranks
from biqe.evaluate.scoring import at_rest, sample, sample_groups, score_batches
from biqe.models import _catalogue
from biqe.query.bound import AnswerSets

E = 23


def script(query, target):
    rng = np.random.default_rng([abs(hash((query.nodes, query.edges))), target])
    return rng.integers(0, 8, E)  # small integers: ties are common


def random_questions(make, count=40, seed=0):
    """One- and two-hop questions and unions of both kinds of rows, with random answers."""
    rng = np.random.default_rng(seed)
    rows, shape, answers, hard = [], [], [], []
    for _ in range(count):
        kind = int(rng.integers(3))
        anchor, other = rng.integers(0, E, 2).tolist()
        rows.append(
            [[make.one_hop(anchor)], [make.two_hops(anchor)], [make.one_hop(anchor), make.two_hops(other)]][kind]
        )
        shape.append(kind)
        all_answers = rng.choice(E, rng.integers(1, 12), replace=False)
        answers.append(all_answers)
        hard.append(all_answers[: rng.integers(0, len(all_answers) + 1)])
    return make.questions(rows, shape, ("1p", "2p", "2u"), answers=answers, hard=hard)


def rank_questions(model, shaped, candidates=None, **options) -> RankedAnswers:
    """Ranks of every hard answer of every question that the model supports, in the order of the questions."""
    protocol = Query2Box(candidates)
    asked, _ = protocol.select(model, shaped)
    with at_rest(model):
        parts = [protocol.rank(shaped, *batch) for batch in score_batches(model, shaped, asked, **options)]
    questions = np.concatenate([part.questions for part in parts])
    order = np.argsort(questions, kind="stable")
    answers = np.concatenate([part.answers for part in parts])
    return RankedAnswers(questions[order], answers[order], Ranks.join([part.ranks for part in parts]).take(order))


def plain_way(shaped, candidates=None):
    """Each hard answer by itself, through rank_targets."""
    found = []
    for question in range(len(shaped)):
        rows = [shaped.rows[row] for row in np.flatnonzero(shaped.owner == question)]
        scores = np.max([script(row, row.targets[0]) for row in rows], axis=0).astype(np.float32)
        removed = set(shaped.answers[question].tolist())
        if candidates is not None:
            removed |= set(range(E)) - set(candidates.tolist())
        for answer in shaped.hard[question].tolist():
            values = np.array(sorted(removed - {answer}), np.int32)
            ranks = rank_targets(
                torch.tensor(scores[None]), np.array([answer]), AnswerSets(np.array([0, len(values)]), values)
            )
            found.append(
                (question, answer, ranks.optimistic[0], ranks.realistic[0], ranks.pessimistic[0], ranks.candidates[0])
            )
    return found


def rows_of(ranked):
    return list(
        zip(
            ranked.questions.tolist(),
            ranked.answers.tolist(),
            ranked.ranks.optimistic.tolist(),
            ranked.ranks.realistic.tolist(),
            ranked.ranks.pessimistic.tolist(),
            ranked.ranks.candidates.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("batch_targets", [1, 3, 1000])
def test_equal_to_ranking_answer_by_answer(make, batch_targets):
    shaped = random_questions(make)
    ranked = rank_questions(make.Scripted(script, E), shaped, batch_targets=batch_targets)
    assert rows_of(ranked) == plain_way(shaped)


def test_candidates(make):
    shaped = random_questions(make)
    candidates = np.union1d(shaped.hard.values, np.arange(0, E, 3))
    ranked = rank_questions(make.Scripted(script, E), shaped, candidates=candidates)
    assert rows_of(ranked) == plain_way(shaped, candidates)


def test_order_of_questions_changes_nothing(make):
    shaped = random_questions(make)
    order = np.random.default_rng(1).permutation(len(shaped))
    before, after = (rank_questions(make.Scripted(script, E), part) for part in (shaped, shaped.take(order)))
    assert [after.ranks.realistic[after.questions == place].tolist() for place in range(len(order))] == [
        before.ranks.realistic[before.questions == question].tolist() for question in order
    ]


def test_what_cannot_be_ranked_is_counted(make):
    shaped = random_questions(make)

    def refuse(query):
        return "two hops are too far" if len(query.edges) == 2 else None

    model = make.Scripted(script, E, refuse=refuse)
    asked, skipped, _ = measure(model, shaped, [Query2Box()])
    no_hard = np.diff(shaped.hard.offsets) == 0
    too_far = (shaped.shape > 0) & ~no_hard  # a union falls with one of its rows
    assert {part.reason: part.queries for part in skipped} == {
        "no hard answer to rank": no_hard.sum(),
        "two hops are too far": too_far.sum(),
    }
    assert asked.tolist() == np.flatnonzero(~no_hard & ~too_far).tolist()
    assert model.asked == 2, "a model is asked once for each structure"


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (np.array([0, E]), "must be in"),
        (np.array([-1]), "must be in"),
        (np.array([0.5]), "array of entity ids"),
        (np.zeros((2, 2), int), "array of entity ids"),
        (np.zeros(0, int), "array of entity ids"),
        (np.array([0]), "hard answers are not among the 1 candidates"),
    ],
)
def test_bad_candidates(make, candidates, message):
    with pytest.raises(InvalidOption, match=message):
        rank_questions(make.Scripted(script, E), random_questions(make), candidates=candidates)


def test_bad_scores_and_sets(make):
    shaped = random_questions(make)
    with pytest.raises(InvalidOption, match="NaN"):
        rank_questions(make.Scripted(lambda query, target: np.full(E, np.nan), E), shaped)
    with pytest.raises(RunFailed, match="shape"):
        rank_questions(make.Scripted(lambda query, target: np.zeros(E - 1), E), shaped)
    for name in ("answers", "hard"):
        with pytest.raises(InvalidOption, match="needs the .*answers of every question"):
            rank_questions(make.Scripted(script, E), replace(shaped, **{name: None}))
    with pytest.raises(VocabularyMismatch, match="the model knows 20 entities"):
        rank_questions(make.Scripted(lambda query, target: np.zeros(20), 20), shaped)
    with pytest.raises(InvalidOption, match="exactly one target"):
        twice = make.questions(
            [[replace(make.two_hops(0), nodes=(0, -1, -1), targets=(1, 2))]], [0], ["2p"], answers=[{1}], hard=[{1}]
        )
        rank_questions(make.Scripted(script, E), twice)
    with pytest.raises(InvalidOption, match="must rise"):
        rank_questions(make.Scripted(script, E), replace(shaped, owner=shaped.owner[::-1].copy()))


def on_a_line(entities, relations):
    """A Query2Box of one dimension whose boxes are points: entities stand at places, relations move by steps."""
    model = _catalogue.build("query2box", {"width": 1}, len(entities), len(relations)).eval()
    with torch.no_grad():
        model.entities.copy_(torch.tensor(entities)[:, None])
        model.centres.zero_()
        model.centres[: len(relations), 0] = torch.tensor(relations)
        model.offsets.fill_(-20.0)
    return model


def test_a_union_takes_the_smallest_distance(make):
    """The worked example: e0 + 11.5 is at 11.5, alone but for e2 at 10; e1 + 10 is at 110, in a crowd.

    Distances to 11.5 and 110, and the smaller: e2 1.5 100 1.5; e3 98 .5 .5; e4 98.5 0 0; e5 99 .5 .5; e6 99.5 1 1.
    By distance e2 comes after the crowd, rank 5. Of the probability near 11.5 all goes to e2, though: by
    log-probabilities it would come first.
    """
    model = on_a_line([0.0, 100.0, 10.0, 109.5, 110.0, 110.5, 111.0], [11.5, 10.0])
    anchors, relations = np.array([[0, 1]], np.int32), np.array([[0, 1]], np.int32)
    rows, owner = shaped.rows_of("2u", anchors, relations)
    batch = model.encoder(rows)
    with torch.no_grad():
        best = -model.raw_scores(batch).amax(0)
        assert model.scores(batch).amax(0).argmax() == 2
    torch.testing.assert_close(best, torch.tensor([11.5, 10.0, 1.5, 0.5, 0.0, 0.5, 1.0]), rtol=0, atol=1e-4)
    two = AnswerSets(np.array([0, 1]), np.array([2], np.int32))
    union = ShapedQueries(rows, owner, ("2u",), np.zeros(1, np.int8), answers=two, hard=two)
    assert rank_questions(model, union).ranks.realistic.tolist() == [5.0]
    # Each part alone is a conjunction, and asked as ever.
    parts = AnswerSets(np.array([0, 1, 2]), np.array([2, 2], np.int32))
    alone = ShapedQueries(rows, np.arange(2), ("1p",), np.zeros(2, np.int8), answers=parts, hard=parts)
    model.raw_scores = lambda batch: pytest.fail("a conjunction has scores as ever")
    model.scores = lambda batch: torch.log_softmax(type(model).raw_scores(model, batch), 1)
    assert rank_questions(model, alone).ranks.realistic.tolist() == [1.0, 6.0]


def test_training_mode_is_given_back(make):
    model = make.Scripted(script, E).train()
    rank_questions(model, random_questions(make))
    assert model.training
    model.script = lambda query, target: np.full(E, np.nan)
    with pytest.raises(InvalidOption):
        rank_questions(model, random_questions(make))
    assert model.training


def test_a_sample_is_seeded_ordered_and_limited_in_each_group():
    groups = np.array([0] * 50 + [1] * 3 + [2] * 20)
    first, again, other = (sample_groups(groups, 10, seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() == sorted(set(first.tolist()))
    assert first.tolist() != other.tolist()
    assert np.bincount(groups[first]).tolist() == [10, 3, 10]
    with pytest.raises(InvalidOption, match="at least 1"):
        sample_groups(groups, 0)


def test_sets_of_both_kinds_can_be_sampled(make):
    shaped = random_questions(make)
    part = sample(shaped, 3)
    assert np.bincount(part.shape).tolist() == [3, 3, 3]
    assert len(sample(shaped.rows, 5)) == 5  # all of one kind
    assert len(sample(shaped, 1000)) == len(shaped)
