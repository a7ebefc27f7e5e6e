"""Scores of true answers and of their sampled negatives: the work of protocol ``bio``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption
from biqe.evaluate.auc_apr import PairScores
from biqe.evaluate.questions import askable, question_scores
from biqe.evaluate.scoring import Progress, Skipped, at_rest, check_ids
from biqe.query.queryset import AnswerSets

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


def comparable(
    model: QueryModel, shaped: ShapedQueries, *, strict: bool = False
) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
    """Questions that have a single true answer and a negative and that the model supports; the others by reason."""
    kinds = _negatives(shaped)
    truth = true_answers(shaped)
    check_ids(model, entity=shaped.rows.nodes, answer=truth, **{f"{k}_negative": s.values for k, s in kinds.items()})
    none = np.flatnonzero(np.diff(kinds["random"].offsets) == 0)
    refused = {question: "no negative was sampled" for question in none.tolist()}
    refused |= {question: "no single true answer" for question in np.flatnonzero(truth < 0).tolist()}
    return askable(model, shaped, refused, strict=strict)


def pair_scores(
    model: QueryModel,
    shaped: ShapedQueries,
    asked: NDArray[np.int64],
    *,
    seed: int = 0,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> dict[str, tuple[PairScores, PairScores | None]]:
    """By shape, scores of the true answers of ``asked`` and of their random and hard negatives.

    ``seed`` draws the one negative of each question that AUC compares with.
    """
    kinds, truth = _negatives(shaped), true_answers(shaped)
    positive = np.zeros(len(shaped), np.float32)
    negative = {kind: np.zeros(len(sets.values), np.float32) for kind, sets in kinds.items()}
    with at_rest(model):
        for questions, scores in question_scores(model, shaped, asked, batch_targets, progress):
            normalise(scores)
            positive[questions] = scores[np.arange(len(questions)), truth[questions]]
            for kind, sets in kinds.items():
                for row, question in enumerate(questions.tolist()):
                    own = slice(sets.offsets[question], sets.offsets[question + 1])
                    negative[kind][own] = scores[row, sets.values[own]]

    rng = np.random.default_rng(seed)
    pairs = {}
    for kind, sets in kinds.items():
        counts = np.diff(sets.offsets)
        drawn = sets.offsets[:-1] + np.floor(rng.random(len(counts)) * counts).astype(np.int64)
        pairs[kind] = PairScores(positive, sets.offsets, negative[kind], drawn)
    types: dict[str, tuple[PairScores, PairScores | None]] = {}
    for code, name in enumerate(shaped.shapes):
        of_type = asked[shaped.shape[asked] == code]
        if len(of_type):
            hard = _take(pairs["hard"], of_type) if "hard" in pairs else None
            types[name] = (_take(pairs["random"], of_type), hard)
    return types


def normalise(scores: NDArray[np.floating]) -> None:
    """Turns every row of (n, E) scores into log-probabilities over the entities, in place.

    Some models give such, others what they compare entities by; only so are questions of all models compared alike.
    A row without one possible entity stays as it is.
    """
    top = scores.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    with np.errstate(divide="ignore"):
        total = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    scores -= np.where(np.isfinite(total), total, 0.0)


def true_answers(shaped: ShapedQueries) -> NDArray[np.int64]:
    """(N,) the one true answer of each question: the gold entity of its first row or, where none is known there, its
    only hard answer, or its only answer; -1 where there is no single one."""
    rows = shaped.rows
    truth = np.full(len(shaped), -1, np.int64)
    for sets in (shaped.answers, shaped.hard):  # the later one wins
        if sets is not None:
            single = np.flatnonzero(np.diff(sets.offsets) == 1)
            truth[single] = sets.values[sets.offsets[single]]
    questions, first = np.unique(shaped.owner, return_index=True)
    has_target = np.diff(rows.target_offsets)[first] > 0
    questions, first = questions[has_target], first[has_target]
    gold = rows.gold[rows.target_nodes[rows.target_offsets[first]]]
    truth[questions[gold >= 0]] = gold[gold >= 0]
    return truth


def _negatives(shaped: ShapedQueries) -> dict[str, AnswerSets]:
    if shaped.negatives is None:
        raise InvalidOption(
            "protocol bio needs sampled negatives for every question; this set holds none",
            hint="use protocol q2b for sets with answers, or sample negatives of the answers' types",
        )
    return {"random": shaped.negatives} | ({} if shaped.hard_negatives is None else {"hard": shaped.hard_negatives})


def _take(pairs: PairScores, questions: NDArray[np.int64]) -> PairScores:
    places = AnswerSets(pairs.offsets, np.arange(len(pairs.negative), dtype=np.int32)).take(questions)
    drawn = pairs.drawn[questions] - pairs.offsets[questions] + places.offsets[:-1]
    return PairScores(pairs.positive[questions], places.offsets, pairs.negative[places.values], drawn)
