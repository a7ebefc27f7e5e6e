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
The paper (table 4) says only that it follows these protocols and gives one AUC and one APR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.metrics import drawn_times, percentile_ends
from biqe.evaluate.missing_links import MissingLinks, strata
from biqe.evaluate.protocol import Bootstrap, Figures, Protocol, Summary, mean_of_shapes
from biqe.evaluate.ranks import TIE_RULES
from biqe.evaluate.scoring import Skipped, check_ids, check_numbers, supported_questions
from biqe.query.bound import AnswerSets, members

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

BIO_METRICS = ("auc", "apr")
HARD = "{} hard"
"""Name of a type's figures against hard negatives."""

_TIE = {"realistic": 0.5, "optimistic": 1.0, "pessimistic": 0.0}
"""What a tie is worth, by tie rule."""


@dataclass(frozen=True)
class AnswerScores:
    """Log-probabilities of the true answers of n questions, and of their negatives."""

    questions: NDArray[np.int64]
    positive: NDArray[np.floating]
    """(n,)"""
    negative: dict[str, NDArray[np.floating]]
    """By kind (random, hard): those of all n questions, one after the other."""


class Bio(Protocol[ShapedQueries, AnswerScores]):
    """Protocol ``bio``: see the module's text. Use it to compare with table 4 of the paper, and with GQE, MPQE or
    TractOR on Bio.

    The seed of the bootstrap also chooses the one negative of each question that AUC compares with.
    """

    name, headline, ranked, reads, filter_graph = "bio", "auc", "negatives", ShapedQueries, "none"

    def __init__(self, *, missing: MissingLinks | None = None) -> None:
        self.missing = missing

    def select(
        self, model: QueryModel, queries: ShapedQueries, *, strict: bool = False
    ) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
        """Questions that have a single true answer and a negative and that the model supports."""
        kinds, truth = _negatives(queries), true_answers(queries)
        negatives = {f"{kind}_negative": sets.values for kind, sets in kinds.items()}
        check_ids(model, entity=queries.rows.nodes, answer=truth, **negatives)
        none = np.flatnonzero(np.diff(kinds["random"].offsets) == 0)
        refused = {question: "no negative was sampled" for question in none.tolist()}
        refused |= {question: "no single true answer" for question in np.flatnonzero(truth < 0).tolist()}
        return supported_questions(model, queries, refused, strict)

    def measure(self, queries: ShapedQueries, numbers: NDArray[np.int64], scores: NDArray[np.floating]) -> AnswerScores:
        """Log-probabilities of the true answers and of the negatives of these questions."""
        check_numbers(scores)
        scores = log_probabilities(scores)
        positive = scores[np.arange(len(numbers)), true_answers(queries)[numbers]]
        negative = {}
        for kind, sets in _negatives(queries).items():
            owner, places = members(sets.offsets, numbers)
            negative[kind] = scores[owner, sets.values[places]]
        return AnswerScores(numbers, positive, negative)

    def summarise(
        self, queries: ShapedQueries, asked: NDArray[np.int64], measured: Sequence[AnswerScores], bootstrap: Bootstrap
    ) -> Figures:
        """AUC and APR of each type and their mean; intervals draw questions within each type."""
        kinds = _negatives(queries)
        positive = np.zeros(len(queries), np.float32)
        negative = {kind: np.zeros(len(sets.values), np.float32) for kind, sets in kinds.items()}
        for part in measured:
            positive[part.questions] = part.positive
            for kind, sets in kinds.items():
                negative[kind][members(sets.offsets, part.questions)[1]] = part.negative[kind]

        rng = np.random.default_rng(bootstrap.seed)
        pairs = {}
        for kind, sets in kinds.items():
            counts = np.diff(sets.offsets)
            drawn = sets.offsets[:-1] + np.floor(rng.random(len(counts)) * counts).astype(np.int64)
            pairs[kind] = PairScores(positive, sets.offsets, negative[kind], drawn)
        types: dict[str, tuple[PairScores, PairScores | None]] = {}
        for code, name in enumerate(queries.shapes):
            of_type = asked[queries.shape[asked] == code]
            if len(of_type):
                types[name] = pairs["random"].take(of_type), pairs["hard"].take(of_type) if "hard" in pairs else None
        by_shape, drawn_figures = compare_types(types, bootstrap)
        return Figures(
            overall=mean_of_shapes(by_shape, tuple(by_shape), drawn_figures, bootstrap.level),
            counts={
                "queries": len(queries),
                "targets": sum(len(sets.values) for sets in kinds.values()),
                "ranked_queries": len(asked),
                "ranked_targets": sum(part.targets for part in by_shape.values()),
            },
            by_shape=by_shape,
            by_missing=self._by_missing(queries, asked, pairs["random"], bootstrap),
            mean_over=tuple(by_shape),
        )

    def _by_missing(
        self, queries: ShapedQueries, asked: NDArray[np.int64], pairs: PairScores, bootstrap: Bootstrap
    ) -> dict[str, Summary]:
        """AUC and APR against random negatives, over the questions of all types together."""
        if self.missing is None:
            return {}
        truth = true_answers(queries)[asked].astype(np.int32)
        numbers = self.missing.of_answers(queries.take(asked), AnswerSets(np.arange(len(asked) + 1), truth))
        groups = {name: (pairs.take(asked[members]), None) for name, members in strata(numbers)}
        return compare_types(groups, bootstrap)[0] if groups else {}


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

    def take(self, questions: NDArray[np.int64]) -> PairScores:
        """The scores of these questions, in this order."""
        _, places = members(self.offsets, questions)
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[questions])])
        drawn = self.drawn[questions] - self.offsets[questions] + offsets[:-1]
        return PairScores(self.positive[questions], offsets, self.negative[places], drawn)


def compare_types(
    types: Mapping[str, tuple[PairScores, PairScores | None]], bootstrap: Bootstrap
) -> tuple[dict[str, Summary], dict[str, NDArray[np.float64]]]:
    """AUC and APR of each type, and their (draws, 2) bootstrap draws.

    ``types`` holds by name the scores against random and, where there are any, against hard negatives, of the same
    questions in the same order. Draws are of questions within each type, the same for both kinds of negatives.
    APR is what AUC would be if each question had a curve of its own and curves were averaged.
    """
    found: dict[str, Summary] = {}
    drawn: dict[str, NDArray[np.float64]] = {}
    rng = np.random.default_rng(bootstrap.seed)
    for name, (random, hard) in types.items():
        if hard is not None and len(hard.positive) != len(random.positive):
            raise InvalidOption(
                f"type {name!r} has {len(random.positive):,} questions with random negatives and "
                f"{len(hard.positive):,} with hard ones; they must be the same"
            )
        kinds = {name: random} | ({HARD.format(name): hard} if hard is not None else {})
        kinds = {kind: pairs for kind, pairs in kinds.items() if pairs.counted.any()}
        sampled = {kind: np.empty((bootstrap.draws, 2)) for kind in kinds}
        if bootstrap.draws:
            for start, times in drawn_times(len(random.positive), draws=bootstrap.draws, rng=rng):
                for kind, pairs in kinds.items():
                    sampled[kind][start : start + len(times)] = _auc_apr(pairs, times, "realistic")
        once = np.ones((1, len(random.positive)))
        for kind, pairs in kinds.items():
            means = {rule: _auc_apr(pairs, once, rule)[0] for rule in TIE_RULES}
            ends = None
            if bootstrap.draws:
                # A draw without any question that has negatives of the kind says nothing.
                drawn[kind] = np.where(np.isnan(sampled[kind]), means["realistic"], sampled[kind])
                ends = percentile_ends(drawn[kind], means["realistic"], bootstrap.level)
            found[kind] = Summary.of(int(pairs.counted.sum()), len(pairs.negative), BIO_METRICS, means, ends)
    if not found:
        raise EmptyResult("no question has a negative to compare its answer with")
    return found, drawn


def _auc_apr(pairs: PairScores, times: NDArray[np.float64], rule: str) -> NDArray[np.float64]:
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


def log_probabilities(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """(n, E) scores as log-probabilities over the entities. Some models give such, others what they compare entities
    by; only so are questions of all models compared alike. A row without one possible entity stays as it is."""
    top = scores.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    with np.errstate(divide="ignore"):
        total = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return scores - np.where(np.isfinite(total), total, 0.0)


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
