"""Protocol ``bio``: how well a true answer is told from sampled false ones (Hamilton et al. 2018).

Two figures, each between 0 and 1 (published in percent):

AUC   area under the ROC curve: the chance that a true answer of the type scores above a false one, where the two
      may belong to different questions of the type. As in the original, one negative is drawn for each question,
      and all true answers and all drawn negatives of a type are pooled. So scores of different questions are
      compared with each other: log-probabilities over all entities, whatever the model.
APR   average percentile rank: for each question the share of all its negatives that score below the true answer,
      then the mean over the questions of the type.

Each type has both figures against random negatives (entities of the answer's type that are no answers); types with
an intersection have them again against hard negatives (entities that satisfy a part of the question). The headline
is the mean over all of these, each with the same weight: 7 types and 4 of them again for the seven of the paper.
Ties count half. The original's percentile (scipy's ``percentileofscore``) counts a tie with k negatives as
(k + 1) / 2 of them, ours as k / 2, so that a constant score gets exactly .5; without ties the two agree.
The paper (table 3) says only that it follows these protocols and gives one AUC and one APR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.metrics import drawn_times
from biqe.evaluate.protocols import ShapeFigures, Summary, mean_of, summary_of
from biqe.evaluate.ranks import TIE_RULES

BIO = "bio"
BIO_VERSION = 3
"""3: AUC pools log-probabilities of every model; 2 pooled what each model calls its raw scores, which for BiQE alone
were log-probabilities; 1 pooled scores, which were log-probabilities of some models."""
BIO_METRICS = ("auc", "apr")
HARD = "{} hard"
"""Name of a type's figures against hard negatives."""

_TIE = {"realistic": 0.5, "optimistic": 1.0, "pessimistic": 0.0}


@dataclass(frozen=True)
class PairScores:
    """Scores of n questions of one type: of the true answer of each, and of its negatives."""

    positive: NDArray[np.floating]
    """(n,)"""
    offsets: NDArray[np.int64]
    """(n+1,) slice of each question's negatives; a question may have none."""
    negative: NDArray[np.floating]
    drawn: NDArray[np.int64]
    """(n,) place in ``negative`` of the one negative that AUC compares with; ignored where there is none."""

    def __post_init__(self) -> None:
        n = len(self.positive)
        if len(self.offsets) != n + 1 or len(self.drawn) != n:
            raise InvalidOption(
                f"{n:,} questions need {n + 1:,} offsets and {n:,} drawn negatives. "
                f"Got {len(self.offsets):,} and {len(self.drawn):,}"
            )
        for name in ("positive", "negative"):
            if np.isnan(getattr(self, name)).any():
                raise InvalidOption(
                    f"{name} scores hold NaN; every score must be a number",
                    hint="a model that gives NaN has usually diverged in training; lower its learning rate",
                )

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(n,) questions that have a negative."""
        return np.diff(self.offsets) > 0


def bio(
    types: Mapping[str, tuple[PairScores, PairScores | None]], *, draws: int = 1000, seed: int = 0, level: float = 0.95
) -> ShapeFigures:
    """AUC and APR of each type and their mean; the module's text says how they are averaged.

    ``types`` holds by name the scores against random and, where there are any, against hard negatives, of the same
    questions in the same order. Intervals draw questions within each type, the same for both kinds of negatives.

    Use it when you compare with table 3 of the paper, with GQE, MPQE or TractOR on Bio.

    Relations: APR is what AUC would be if each question had a curve of its own and curves were averaged.
    """
    found: dict[str, Summary] = {}
    drawn: dict[str, NDArray[np.float64]] = {}
    rng = np.random.default_rng(seed)
    for name, (random, hard) in types.items():
        if hard is not None and len(hard.positive) != len(random.positive):
            raise InvalidOption(
                f"type {name!r} has {len(random.positive):,} questions with random negatives and "
                f"{len(hard.positive):,} with hard ones; they must be the same"
            )
        kinds = {name: random} | ({HARD.format(name): hard} if hard is not None else {})
        kinds = {kind: pairs for kind, pairs in kinds.items() if pairs.counted.any()}
        sampled = {kind: np.empty((draws, 2)) for kind in kinds}
        if draws:
            for start, times in drawn_times(len(random.positive), draws=draws, rng=rng):
                for kind, pairs in kinds.items():
                    sampled[kind][start : start + len(times)] = _figures(pairs, times, "realistic")
        once = np.ones((1, len(random.positive)))
        for kind, pairs in kinds.items():
            means = {rule: _figures(pairs, once, rule)[0] for rule in TIE_RULES}
            if draws:
                # A draw without any question that has negatives of the kind says nothing.
                drawn[kind] = np.where(np.isnan(sampled[kind]), means["realistic"], sampled[kind])
            found[kind] = summary_of(
                int(pairs.counted.sum()), len(pairs.negative), BIO_METRICS, means, drawn.get(kind), level
            )
    if not found:
        raise EmptyResult("no question has a negative to compare its answer with")
    over = tuple(found)
    return ShapeFigures(mean_of(found, over, BIO_METRICS, drawn, level), found, over)


def _figures(pairs: PairScores, times: NDArray[np.float64], rule: str) -> NDArray[np.float64]:
    """(draws, 2) AUC and APR where question i counts ``times[:, i]`` times; NaN for a draw without any question."""
    counted = pairs.counted
    positive, times = pairs.positive[counted], times[:, counted]
    tie = _TIE[rule]

    # Each true answer against the drawn negatives of all questions, sorted once.
    negative = pairs.negative[pairs.drawn[counted]]
    order = np.argsort(negative, kind="stable")
    below = np.searchsorted(negative[order], positive, "left")
    up_to = np.searchsorted(negative[order], positive, "right")
    running = np.zeros((len(times), len(order) + 1))
    np.cumsum(times[:, order], axis=1, out=running[:, 1:])
    wins = (1 - tie) * running[:, below] + tie * running[:, up_to]

    # Each true answer against all negatives of its own question.
    owner = np.repeat(np.arange(len(counted)), np.diff(pairs.offsets))
    against = pairs.positive[owner]
    won = np.bincount(owner, (pairs.negative < against) + tie * (pairs.negative == against), len(counted))
    share = won[counted] / np.diff(pairs.offsets)[counted]

    total = times.sum(axis=1)
    total = np.where(total > 0, total, np.nan)
    return np.stack([(times * wins).sum(axis=1) / total**2, times @ share / total], axis=1)
