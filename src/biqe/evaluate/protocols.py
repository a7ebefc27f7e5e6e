"""The protocols: ``cq`` and ``q2b``, which average ranks; ``bio``, which compares scores, is in bio.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import NEGATIONS, ShapedQueries
from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.bio import Bio
from biqe.evaluate.metrics import METRICS, bootstrap, contributions, drawn_sums, percentile_ends
from biqe.evaluate.missing_links import MissingLinks, strata
from biqe.evaluate.protocol import Bootstrap, Figures, Protocol, Summary, mean_of_shapes
from biqe.evaluate.ranks import TIE_RULES, Ranks, rank_answers, rank_targets
from biqe.evaluate.scoring import Skipped, by_reason, check_ids, filters_of, supported, supported_questions
from biqe.query.bound import KINDS, ROLES, AnswerSets, QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

CONJUNCTIVE = ("1p", "2p", "3p", "2i", "3i", "ip", "pi")
"""The shapes whose mean is the headline of protocol ``q2b``: those of table 2 of the paper. Unions stand apart."""


@dataclass(frozen=True)
class RankedTargets:
    """Ranks of targets of a query set."""

    targets: NDArray[np.int64]
    """Number of each in the query set's target order."""
    ranks: Ranks

    @classmethod
    def join(cls, parts: Sequence[RankedTargets]) -> RankedTargets:
        """All of them, in the order of the query set."""
        targets = np.concatenate([np.zeros(0, np.int64), *(part.targets for part in parts)])
        order = np.argsort(targets)
        return cls(targets[order], Ranks.join([part.ranks for part in parts]).take(order))


class Cq(Protocol[QuerySet, RankedTargets]):
    """Protocol ``cq``: the paper's way for its CQ and Paths sets. Use it to compare with tables 3 and 5 of the paper.

    Each target with a gold entity is ranked among all entities, without its other true values in ``filter_graph``:
    ``complete``, ``split`` or ``reach``.

    Averages over targets: each target of each query counts once, however many paths (and so [MASK]s) it stands on,
    since a model's scores already average the masks of one target; a query with six targets weighs six times a query
    with one. ``by_position`` averages over the tails, over the intersections and over all other targets apart;
    ``by_kind`` over paths and DAGs apart; ``by_targets`` over queries with the same number of ranked targets.

    ``macro`` averages the targets of each query first and then the queries, so that each query weighs the same. The
    paper does not report it; it shows whether large queries carry the figure.
    """

    name, headline, ranked, reads = "cq", "mrr", "targets", QuerySet

    def __init__(self, filter_graph: str = "complete", *, missing: MissingLinks | None = None) -> None:
        self.filter_graph = filter_graph
        self.missing = missing

    def select(
        self, model: QueryModel, queries: QuerySet, *, strict: bool = False
    ) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
        """Queries that the model supports."""
        filters = filters_of(queries, self.filter_graph)
        gold = queries.gold[queries.target_nodes]
        check_ids(model, entity=queries.nodes, gold_entity=gold, filter_value=filters.values)
        rows, refused = supported(model, queries, strict)
        return rows, by_reason(refused)

    def measure(self, queries: QuerySet, numbers: NDArray[np.int64], scores: NDArray[np.floating]) -> RankedTargets:
        """Ranks of the targets that have a gold entity."""
        gold = queries.gold[queries.target_nodes[numbers]]
        known = gold >= 0
        if not known.all():
            numbers, gold, scores = numbers[known], gold[known], scores[known]
        filters = filters_of(queries, self.filter_graph)
        return RankedTargets(numbers, rank_targets(scores, gold, filters.take(numbers)))

    def summarise(
        self, queries: QuerySet, asked: NDArray[np.int64], measured: Sequence[RankedTargets], bootstrap: Bootstrap
    ) -> Figures:
        """Means over targets; intervals draw whole queries."""
        ranked = RankedTargets.join(measured)
        targets = int(np.diff(queries.target_offsets)[asked].sum())
        if len(ranked.targets) == 0:
            raise EmptyResult(f"none of {targets:,} targets could be ranked: they have no gold entity")
        query = np.searchsorted(queries.target_offsets, ranked.targets, side="right") - 1
        roles = queries.roles[queries.target_nodes[ranked.targets]]
        counts = {
            "queries": len(queries),
            "targets": len(queries.target_nodes),
            "ranked_queries": len(np.unique(query)),
            "ranked_targets": len(ranked.targets),
            "targets_without_gold": targets - len(ranked.targets),
        }
        numbers = None if self.missing is None else self.missing.of_targets(queries, ranked.targets)
        return average_targets(ranked.ranks, query, roles, queries.kinds[query], bootstrap, counts, numbers)


def average_targets(
    ranks: Ranks,
    query: NDArray[np.integer],
    roles: NDArray[np.integer],
    kinds: NDArray[np.integer],
    options: Bootstrap,
    counts: dict[str, int] | None = None,
    missing: NDArray[np.int64] | None = None,
) -> Figures:
    """Figures of protocol ``cq`` from ranks, which have one entry a target: the number of its query, its role code
    (see ROLES), its query's kind code (see KINDS) and, where they were counted, the missing links that it needs."""
    _, query = np.unique(query, return_inverse=True)
    sizes = np.bincount(query)  # (Q,) ranked targets of each query
    # Groups of targets by family and name, each a mask over the targets.
    families: dict[str, dict[str, NDArray[np.bool_]]] = {
        "": {"overall": np.ones(len(ranks), bool)},
        "position": {ROLES[code]: roles == code for code in np.unique(roles).tolist()},
        "kind": {KINDS[code]: kinds == code for code in np.unique(kinds).tolist()},
        "targets": {str(size): sizes[query] == size for size in np.unique(sizes).tolist()},
        "missing": {} if missing is None else dict(strata(missing)),
    }
    groups = {f"{family}/{name}": mask for family, of in families.items() for name, mask in of.items()}
    by_rule = {rule: contributions(ranks.by(rule)) for rule in TIE_RULES}  # (V, metrics)
    sums = {key: _per_query(by_rule["realistic"][mask], query[mask], len(sizes)) for key, mask in groups.items()}
    numbers = {key: np.bincount(query[mask], minlength=len(sizes)).astype(float) for key, mask in groups.items()}
    # A query's mean counts once: the same arithmetic, with means for sums and ones for counts.
    sums["macro"], numbers["macro"] = sums["/overall"] / sizes[:, None], np.ones(len(sizes))
    ends: dict[str, NDArray[np.float64]] = {}
    if options.draws:
        ends = bootstrap(sums, numbers, draws=options.draws, seed=options.seed, level=options.level)

    def family(name: str) -> dict[str, Summary]:
        found = {}
        for group, mask in families[name].items():
            key = f"{name}/{group}"
            means = {rule: values[mask].mean(axis=0) for rule, values in by_rule.items()}
            with_target = int((numbers[key] > 0).sum())
            found[group] = Summary.of(with_target, int(mask.sum()), METRICS, means, ends.get(key))
        return found

    macro = {
        rule: (_per_query(values, query, len(sizes)) / sizes[:, None]).mean(axis=0) for rule, values in by_rule.items()
    }
    return Figures(
        overall=family("")["overall"],
        counts=counts or {},
        macro=Summary.of(len(sizes), len(ranks), METRICS, macro, ends.get("macro")),
        by_position=family("position"),
        by_kind=family("kind"),
        by_targets=family("targets"),
        by_missing=family("missing"),
    )


@dataclass(frozen=True)
class RankedAnswers:
    """Ranks of hard answers of questions."""

    questions: NDArray[np.int64]
    """The question that each was ranked for."""
    answers: NDArray[np.int32]
    ranks: Ranks


@dataclass(frozen=True)
class QuestionMeans:
    """Metrics of some questions, each the mean over its hard answers."""

    questions: NDArray[np.int64]
    by_rule: dict[str, NDArray[np.float64]]
    """By tie rule, (questions, metrics) in the order of METRICS."""
    candidates: int
    """Entities that may be ranked."""
    by_missing: dict[str, GroupMeans] = field(default_factory=dict)
    """The same over the hard answers alone that need so many missing links."""


@dataclass(frozen=True)
class GroupMeans:
    """Metrics of some questions, each the mean over some of its hard answers."""

    by_rule: dict[str, NDArray[np.float64]]
    """By tie rule, (questions, metrics) in the order of METRICS."""
    answers: int

    @classmethod
    def of(cls, ranked: RankedAnswers, chosen: NDArray[np.integer] | slice = slice(None)) -> GroupMeans:
        """Over the chosen answers; the questions that have one are in ascending order."""
        _, owner = np.unique(ranked.questions[chosen], return_inverse=True)
        counts = np.bincount(owner)[:, None]
        figures = {rule: contributions(ranked.ranks.by(rule)[chosen]) for rule in TIE_RULES}
        return cls({rule: _per_query(own, owner, len(counts)) / counts for rule, own in figures.items()}, len(owner))


class Query2Box(Protocol[ShapedQueries, QuestionMeans]):
    """Protocol ``q2b``: Query2Box's way (Ren et al. 2020), which table 2 of the paper follows. Use it to compare with
    that table, with Query2Box, or with CQD's tables on its data.

    Every hard answer is ranked with all other answers, easy and hard, filtered out, and among ``candidates`` only where
    they are given.

    Averages three times: over the hard answers of a question; then over the questions of a shape; then over the seven
    conjunctive shapes, each with the same weight. So a question with a thousand answers weighs as much as one with a
    single answer, and a shape with few questions as much as one with many. The figure to compare with published tables
    is HITS@3. Unions (2u, up) are reported by shape and stay out of the mean, as they stay out of the paper's table;
    where a set has unions alone, the mean is over them. Later papers on the same data average over nine shapes, 1p to
    up; take the mean of ``by_shape`` for that.
    """

    name, headline, ranked, reads, filter_graph = "q2b", "hits@3", "answers", ShapedQueries, "answers"

    def __init__(self, candidates: NDArray[np.integer] | None = None, *, missing: MissingLinks | None = None) -> None:
        self.candidates = candidates
        self.missing = missing

    def select(
        self, model: QueryModel, queries: ShapedQueries, *, strict: bool = False
    ) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
        """Questions that have a hard answer and that the model supports."""
        answers, hard = _answers(queries)
        check_ids(model, entity=queries.rows.nodes, answer=answers.values, hard_answer=hard.values)
        none = np.flatnonzero(np.diff(hard.offsets) == 0)
        refused = {question: "no hard answer to rank" for question in none.tolist()}
        asked, skipped = supported_questions(model, queries, refused, strict)
        if self.candidates is not None:
            _check_candidates(self.candidates, model.entity_count, hard.take(asked))
        return asked, skipped

    def rank(self, queries: ShapedQueries, numbers: NDArray[np.int64], scores: NDArray[np.floating]) -> RankedAnswers:
        """Ranks of all hard answers of these questions."""
        answers, hard = _answers(queries)
        wanted = hard.take(numbers)
        excluded = None
        if self.candidates is not None:
            excluded = np.ones(scores.shape[1], bool)
            excluded[self.candidates] = False
        ranks = rank_answers(scores, answers.take(numbers), wanted, excluded)
        return RankedAnswers(np.repeat(numbers, np.diff(wanted.offsets)), wanted.values, ranks)

    def measure(
        self, queries: ShapedQueries, numbers: NDArray[np.int64], scores: NDArray[np.floating]
    ) -> QuestionMeans:
        """Means over the hard answers of each question: their ranks need not be kept, of which there are millions."""
        ranked = self.rank(queries, numbers, scores)
        by_missing = {}
        if self.missing is not None:
            asked = queries.take(numbers)
            found = self.missing.of_answers(asked, _answers(asked)[1])
            by_missing = {name: GroupMeans.of(ranked, np.flatnonzero(members)) for name, members in strata(found)}
        return QuestionMeans(
            np.unique(ranked.questions),
            GroupMeans.of(ranked).by_rule,
            scores.shape[1] if self.candidates is None else len(np.unique(self.candidates)),
            by_missing,
        )

    @staticmethod
    def _means(shapes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Shapes of the headline, under the empty name, and of further means."""
        return {"": tuple(name for name in shapes if name in CONJUNCTIVE) or tuple(shapes)}

    def summarise(
        self, queries: ShapedQueries, asked: NDArray[np.int64], measured: Sequence[QuestionMeans], bootstrap: Bootstrap
    ) -> Figures:
        """Means over questions of a shape, then over shapes; intervals draw questions within each shape."""
        order = np.argsort(np.concatenate([part.questions for part in measured]))
        figures = {rule: np.concatenate([part.by_rule[rule] for part in measured])[order] for rule in TIE_RULES}
        _, hard = _answers(queries)
        answers = np.diff(hard.offsets)  # (N,) hard answers of each question
        rng = np.random.default_rng(bootstrap.seed)
        by_shape, drawn = {}, {}
        for code, name in enumerate(queries.shapes):
            members = np.flatnonzero(queries.shape[asked] == code)
            if len(members) == 0:
                continue
            means = {rule: figures[rule][members].mean(axis=0) for rule in TIE_RULES}
            ends = None
            if bootstrap.draws:
                drawn[name] = drawn_sums(figures["realistic"][members], draws=bootstrap.draws, rng=rng) / len(members)
                ends = percentile_ends(drawn[name], means["realistic"], bootstrap.level)
            by_shape[name] = Summary.of(len(members), int(answers[asked[members]].sum()), METRICS, means, ends)
        means_over = self._means(list(by_shape))
        mean_over = means_over.pop("")
        counts = {
            "queries": len(queries),
            "targets": int(answers.sum()),
            "ranked_queries": len(asked),
            "ranked_targets": int(answers[asked].sum()),
            "candidates": measured[0].candidates,
        }
        overall = mean_of_shapes(by_shape, mean_over, drawn, bootstrap.level)
        by_shape |= {
            name: mean_of_shapes(by_shape, shapes, drawn, bootstrap.level) for name, shapes in means_over.items()
        }
        return Figures(
            overall, counts, by_shape=by_shape, by_missing=_by_missing(measured, bootstrap), mean_over=mean_over
        )


class BetaE(Query2Box):
    """Protocol ``betae``: BetaE's way (Ren & Leskovec 2020), which CQD, GNN-QE, QTO and FIT follow on its data.

    Hard answers are ranked with all other answers filtered out, and figures are averaged over the hard answers of a
    question, then over the questions of a shape. The headline is the MRR, averaged over the shapes without a negation;
    the five with one stand apart, with their own mean.
    """

    name, headline = "betae", "mrr"

    @staticmethod
    def _means(shapes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        positive = tuple(name for name in shapes if name not in NEGATIONS)
        negative = tuple(name for name in shapes if name in NEGATIONS)
        return {"": positive or negative} | ({f"mean of {len(negative)}": negative} if positive and negative else {})


def _by_missing(measured: Sequence[QuestionMeans], bootstrap: Bootstrap) -> dict[str, Summary]:
    """Means over the questions of all shapes together; intervals draw questions."""
    found = {}
    for name in sorted({name for part in measured for name in part.by_missing}):
        parts = [part.by_missing[name] for part in measured if name in part.by_missing]
        figures = {rule: np.concatenate([part.by_rule[rule] for part in parts]) for rule in TIE_RULES}
        means, questions = {rule: values.mean(axis=0) for rule, values in figures.items()}, len(figures["realistic"])
        ends = None
        if bootstrap.draws:
            rng = np.random.default_rng(bootstrap.seed)
            drawn = drawn_sums(figures["realistic"], draws=bootstrap.draws, rng=rng) / questions
            ends = percentile_ends(drawn, means["realistic"], bootstrap.level)
        found[name] = Summary.of(questions, sum(part.answers for part in parts), METRICS, means, ends)
    return found


def _per_query(values: NDArray[np.float64], query: NDArray[np.integer], queries: int) -> NDArray[np.float64]:
    """(Q, metrics) sums of (V, metrics) values over the targets of each query."""
    return np.stack([np.bincount(query, column, minlength=queries) for column in values.T], axis=1)


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


def _check_candidates(candidates: NDArray[np.integer], entities: int, hard: AnswerSets) -> None:
    candidates = np.asarray(candidates)
    if candidates.ndim != 1 or not np.issubdtype(candidates.dtype, np.integer) or len(candidates) == 0:
        raise InvalidOption(
            f"candidates must be a one-dimensional array of entity ids. Got shape {candidates.shape}, "
            f"{candidates.dtype}"
        )
    if candidates.min() < 0 or candidates.max() >= entities:
        raise InvalidOption(f"candidates must be in [0, {entities:,}). Got {candidates.min()} to {candidates.max()}")
    missing = np.setdiff1d(hard.values, candidates)
    if len(missing):
        raise InvalidOption(
            f"{len(missing):,} hard answers are not among the {len(candidates):,} candidates, the first of them entity "
            f"{missing[0]}",
            hint="candidates must hold every entity that may be an answer",
        )


PROTOCOLS: dict[str, type[Protocol[Any, Any]]] = {protocol.name: protocol for protocol in (Cq, Query2Box, BetaE, Bio)}


def protocol_named(
    name: str,
    *,
    filter_graph: str = "complete",
    candidates: NDArray[np.integer] | None = None,
    missing: MissingLinks | None = None,
) -> Protocol[Any, Any]:
    """The protocol of this name; ``filter_graph`` is for ``cq`` and ``candidates`` for ``q2b`` alone."""
    if name == Cq.name:
        return Cq(filter_graph, missing=missing)
    if name == Query2Box.name:
        return Query2Box(candidates, missing=missing)
    if name == BetaE.name:
        return BetaE(candidates, missing=missing)
    if name == Bio.name:
        return Bio(missing=missing)
    raise InvalidOption(f"protocol must be one of {', '.join(PROTOCOLS)}. Got {name!r}")
