"""Scores and ranks of questions with one target and many answers, as protocols ``q2b`` and ``bio`` need them.

A question is a disjunction of conjunctive rows (one row for all shapes but the unions). Its score of an entity is
the largest that any of its rows gives: an entity answers a disjunction if it answers one of its parts. Query2Box calls
this the disjunctive normal form and takes the smallest distance. Rows are compared by the model's raw scores: a row
with many answers spreads its probability over them, and its log-probabilities would lose to those of a row with few.

Every hard answer is ranked among the entities that are no answers at all, so one sorted list of those serves all
hard answers of a question: a binary search each, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate.ranks import Ranks
from biqe.evaluate.scoring import (
    Progress,
    Skipped,
    as_array,
    at_rest,
    batch_size,
    batches,
    by_reason,
    check_ids,
    check_numbers,
    check_shape,
    supported,
)
from biqe.models._contract import raw_scores
from biqe.query.queryset import AnswerSets

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


@dataclass(frozen=True)
class RankedQuestions:
    """Ranks of hard answers, in the order of questions and, within one, of its hard answers."""

    ranks: Ranks
    questions: NDArray[np.int64]
    """The question that each was ranked for."""
    answers: NDArray[np.int32]
    """The hard answer that was ranked."""
    skipped: tuple[Skipped, ...] = ()


def rank_questions(
    model: QueryModel,
    shaped: ShapedQueries,
    *,
    candidates: NDArray[np.integer] | None = None,
    strict: bool = False,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> RankedQuestions:
    """Ranks of every hard answer of every question that the model supports, every other answer filtered out.

    ``candidates`` are the entities that may be ranked; None takes all. Questions that the model does not support,
    or that have no hard answer, are counted in ``skipped`` with the reason. Memory grows with the number of hard
    answers only; ``ranked_parts`` hands out the same ranks piece by piece.
    """
    asked, skipped = rankable(model, shaped, strict=strict)
    with at_rest(model):
        parts = list(
            ranked_parts(model, shaped, asked, candidates=candidates, batch_targets=batch_targets, progress=progress)
        )
    questions = np.concatenate([np.zeros(0, np.int64), *(part.questions for part in parts)])
    answers = np.concatenate([np.zeros(0, np.int32), *(part.answers for part in parts)])
    order = np.argsort(questions, kind="stable")
    ranks = Ranks.join([part.ranks for part in parts]).take(order)
    return RankedQuestions(ranks, questions[order], answers[order], skipped)


def rankable(
    model: QueryModel, shaped: ShapedQueries, *, strict: bool = False
) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
    """Questions that have a hard answer and that the model supports, and the others by reason."""
    answers, hard = _answers(shaped)
    check_ids(model, entity=shaped.rows.nodes, answer=answers.values, hard_answer=hard.values)
    refused = {question: "no hard answer to rank" for question in np.flatnonzero(np.diff(hard.offsets) == 0).tolist()}
    return askable(model, shaped, refused, strict=strict)


def askable(
    model: QueryModel, shaped: ShapedQueries, refused: dict[int, str], *, strict: bool = False
) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
    """Questions all of whose rows the model supports and that are not ``refused`` already; the others by reason."""
    _check_rows(shaped)
    _, refused_rows = supported(model, shaped.rows, strict)
    refused = dict(refused)
    for row, reason in refused_rows.items():
        refused.setdefault(int(shaped.owner[row]), reason)
    for question in np.setdiff1d(np.arange(len(shaped)), shaped.owner).tolist():
        refused.setdefault(question, "no row to ask")
    asked = np.setdiff1d(np.arange(len(shaped)), np.array(list(refused), np.int64))
    return asked, by_reason(dict(sorted(refused.items())))


def ranked_parts(
    model: QueryModel,
    shaped: ShapedQueries,
    asked: NDArray[np.int64],
    *,
    candidates: NDArray[np.integer] | None = None,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> Iterator[RankedQuestions]:
    """Ranks of the hard answers of the questions ``asked``, a batch of whole questions at a time, in any order.

    The model must be at rest until the last one is taken.
    """
    answers, hard = _answers(shaped)
    left_out = _left_out(model, candidates, hard.take(asked))
    for questions, scores in question_scores(model, shaped, asked, batch_targets, progress):
        wanted = hard.take(questions)
        ranks = rank_answers(scores, answers.take(questions), wanted, left_out)
        yield RankedQuestions(ranks, np.repeat(questions, np.diff(wanted.offsets)), wanted.values)


def question_scores(
    model: QueryModel,
    shaped: ShapedQueries,
    asked: NDArray[np.int64],
    batch_targets: int | None,
    progress: Progress | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.floating]]]:
    """Numbers of some questions and their (questions, E) scores, until all of ``asked`` are done.

    Unions have raw scores, so that their rows may be compared.
    The model must be at rest. Scores are fresh arrays that the caller may overwrite.
    """
    size = batch_size(model, batch_targets)
    part = shaped.take(asked)
    if len(part) == 0:
        return
    encoded = model.encode(replace(part.rows, filters={}))  # a model never sees the answers
    sizes = np.asarray(encoded.sizes)
    first = np.searchsorted(part.owner, np.arange(len(part) + 1))
    counts = np.diff(first)
    # Questions with as large rows side by side: the largest row of each, then its smallest. Unions by themselves.
    largest, smallest = np.maximum.reduceat(sizes, first[:-1]), np.minimum.reduceat(sizes, first[:-1])
    _, kinds = np.unique(np.stack([largest, smallest, counts > 1], 1), axis=0, return_inverse=True)
    done = 0
    for chosen in batches(kinds.ravel(), counts, size):
        rows = np.concatenate([np.arange(first[question], first[question + 1]) for question in chosen])
        score = partial(raw_scores, model) if counts[chosen[0]] > 1 else model.scores
        scores = np.array(as_array(_row_scores(model, score, encoded, sizes, rows)))
        check_numbers(scores)
        if len(rows) > len(chosen):
            starts = np.cumsum(counts[chosen]) - counts[chosen]
            scores = np.maximum.reduceat(scores, starts, axis=0)
        yield asked[chosen], scores
        done += len(chosen)
        if progress is not None:
            progress(done, len(asked))


def rank_answers(
    scores: NDArray[np.floating], answers: AnswerSets, hard: AnswerSets, left_out: NDArray[np.bool_] | None = None
) -> Ranks:
    """Ranks of the hard answers, question after question, among the entities that are neither answers nor left out.

    ``scores`` is (questions, E), free of NaN, and is overwritten. Equal to ranking each hard answer alone with
    ``rank_targets`` and all other answers as its filter, with one sort a question instead of a pass an answer.
    """
    rows, entities = scores.shape
    hard_owner = np.repeat(np.arange(rows), np.diff(hard.offsets))
    wanted = scores[hard_owner, hard.values]
    scores[np.repeat(np.arange(rows), np.diff(answers.offsets)), answers.values] = np.nan
    scores[hard_owner, hard.values] = np.nan
    if left_out is not None:
        scores[:, left_out] = np.nan
    others = entities - np.count_nonzero(np.isnan(scores), axis=1)
    scores.sort(axis=1)  # NaN goes last

    better = np.empty(len(wanted), np.int64)
    equal = np.empty(len(wanted), np.int64)
    offsets = hard.offsets - hard.offsets[0]
    for row, count in enumerate(others.tolist()):
        own = slice(offsets[row], offsets[row + 1])
        rivals = scores[row, :count]
        below_or_equal = np.searchsorted(rivals, wanted[own], "right")
        better[own] = count - below_or_equal
        equal[own] = below_or_equal - np.searchsorted(rivals, wanted[own], "left")
    optimistic, pessimistic = better + 1, better + equal + 1
    return Ranks(optimistic, (optimistic + pessimistic) / 2, pessimistic, others[hard_owner] + 1)


def _row_scores(
    model: QueryModel,
    score: Callable[[object], torch.Tensor],
    encoded: object,
    sizes: NDArray[np.integer],
    rows: NDArray[np.int64],
) -> torch.Tensor:
    """(rows, E) scores, a batch for each size among the rows."""
    present = np.unique(sizes[rows])
    if len(present) == 1:
        scores = score(encoded.batch(rows))  # type: ignore[attr-defined]
        check_shape(model, scores, len(rows))
        return scores
    whole = torch.empty(len(rows), model.entity_count)
    for size in present:
        places = np.flatnonzero(sizes[rows] == size)
        scores = score(encoded.batch(rows[places]))  # type: ignore[attr-defined]
        check_shape(model, scores, len(places))
        whole[torch.from_numpy(places)] = scores.to(whole.dtype)
    return whole


def _check_rows(shaped: ShapedQueries) -> None:
    targets = np.diff(shaped.rows.target_offsets)
    if (targets > 1).any():
        row = int(np.argmax(targets > 1))
        raise InvalidOption(
            f"a row of a question has exactly one target; row {row:,} has {targets[row]}",
            hint="queries with several targets are evaluated with protocol cq",
        )
    owner = shaped.owner
    if len(owner) and ((np.diff(owner) < 0).any() or owner[0] < 0 or owner[-1] >= len(shaped)):
        raise InvalidOption(
            f"owners of rows must rise within [0, {len(shaped):,}): the rows of a question stand together. "
            f"Got {owner.min()} to {owner.max()}"
        )


def _answers(shaped: ShapedQueries) -> tuple[AnswerSets, AnswerSets]:
    for name in ("answers", "hard"):
        if getattr(shaped, name) is None:
            raise InvalidOption(
                f"protocol q2b needs the {name if name == 'answers' else 'hard answers'} of every question; "
                "this set holds none",
                hint="compute them from the graphs up to and before the split: exact.answer_sets",
            )
    assert shaped.answers is not None and shaped.hard is not None
    return shaped.answers, shaped.hard


def _left_out(model: QueryModel, candidates: NDArray[np.integer] | None, hard: AnswerSets) -> NDArray[np.bool_] | None:
    """(E,) true for entities that are no candidates; None where all are."""
    if candidates is None:
        return None
    candidates = np.asarray(candidates)
    if candidates.ndim != 1 or not np.issubdtype(candidates.dtype, np.integer) or len(candidates) == 0:
        raise InvalidOption(
            f"candidates must be a one-dimensional array of entity ids. Got shape {candidates.shape}, "
            f"{candidates.dtype}"
        )
    if candidates.min() < 0 or candidates.max() >= model.entity_count:
        raise InvalidOption(
            f"candidates must be in [0, {model.entity_count:,}). Got {candidates.min()} to {candidates.max()}"
        )
    left_out = np.ones(model.entity_count, bool)
    left_out[candidates] = False
    outside = np.flatnonzero(left_out[hard.values])
    if len(outside):
        raise InvalidOption(
            f"{len(outside):,} hard answers are not among the {len(candidates):,} candidates, the first of them entity "
            f"{hard.values[outside[0]]}",
            hint="candidates must hold every entity that may be an answer",
        )
    return left_out
