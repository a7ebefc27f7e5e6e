"""Protocol ``qar``: AnyCQ's query answer retrieval (Olejniczak, Huang, Galkin, Ceylan 2024).

For each question one tuple is returned, or none. A tuple is right if it is one of the answers in the graph up to the
split. As AnyCQ counts it,

    recall      right tuples among the questions that have an answer
    precision   right tuples among these and the tuples returned for questions that have none
    F1          their harmonic mean

A wrong tuple for a question that has answers costs recall and no precision. ``strict`` counts every wrong tuple against
precision. Easy questions have an answer in the graph that is given, hard ones do not; ``hard F1`` leaves the easy ones
out.

The tuple is a stored answer where the exact engine finds one, else the most probable one that the search
over links finds; below a probability that is kept back. That threshold
is chosen on validation questions, one for each number of free variables: on one half of them for the other half where
these are evaluated themselves. Beside it stands the exact engine alone, which returns a stored answer or nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.benchmarks.anycq import EASY, HARD, NONE, TupleQuestions
from biqe.errors import UnsupportedQuery
from biqe.evaluate.metrics import drawn_times, percentile_ends
from biqe.evaluate.missing_links import MANY, UNKNOWN, MissingLinks
from biqe.evaluate.report import FORMAT, VERSION
from biqe.evaluate.scoring import Progress
from biqe.evaluate.text_table import aligned, wrapped
from biqe.exact.first_match import first_match
from biqe.graph.knowledge_graph import Graph
from biqe.links.guided import best_assignments
from biqe.models._contract import use_graph
from biqe.models.cqd import CQD
from biqe.models.store import write_whole
from biqe.query.bound import BoundQuery, QuerySet

if TYPE_CHECKING:
    from biqe.benchmarks import OpenBenchmark
    from biqe.links.probability import LinkProbability
    from biqe.models._contract import QueryModel

WIDTH = 16
"""Partial assignments that the search keeps."""
THRESHOLD_QUESTIONS = 150
"""Validation questions of each number of free variables by which thresholds are chosen for another split."""
NEVER = 1.0
"""A threshold that only what is stored reaches: it is never kept back."""
FIGURES = ("f1", "precision", "recall", "easy", "hard", "hard_f1", "strict_f1")


@dataclass(frozen=True)
class Found:
    """The best tuple of each question."""

    right: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    """0 where no tuple was found."""
    seconds: NDArray[np.float64]


@dataclass(frozen=True)
class QarReport:
    """Figures of one model on AnyCQ's questions."""

    model: str
    groups: Mapping[str, Mapping[str, Any]]
    """By group of questions and for ``all``: numbers of questions; ``ours`` and ``exact`` by FIGURES; the ``interval``
    of ours and of the ``difference`` in F1; the ``threshold``."""
    by_missing: Mapping[str, Mapping[str, float]]
    """Questions with answers, and the share answered right, by the links that the nearest answer is missing."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    median_seconds: float = 0.0
    slowest_seconds: float = 0.0
    protocol: str = "qar"

    def to_json(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers only."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write JSON to ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")

    def to_table(self) -> str:
        """Plain text of at most 80 columns."""
        head = ["", "questions", "F1", "95% interval", "easy", "hard", "hard F1", "strict F1", "exact F1"]
        rows = [head]
        for name, group in self.groups.items():
            ours, (low, high) = group["ours"], group["interval"]
            figures = [f"{ours[key]:.3f}" for key in ("easy", "hard", "hard_f1", "strict_f1")]
            interval = f"{low:.3f} - {high:.3f}"
            rows.append(
                [
                    name,
                    f"{group['questions']:,}",
                    f"{ours['f1']:.3f}",
                    interval,
                    *figures,
                    f"{group['exact']['f1']:.3f}",
                ]
            )
        whole = self.groups["all"]
        low, high = whole["difference"]
        lines = [
            *wrapped(f"{self.model}, protocol qar: one tuple or none, right if it is an answer up to the split"),
            "",
            *aligned(rows),
            "",
            *wrapped(
                f"easy, hard: share answered right of {whole['easy']:,} questions with a stored answer and "
                f"{whole['hard']:,} without; {whole['none']:,} more have no answer. F1 minus that of the exact engine "
                f"alone: {whole['ours']['f1'] - whole['exact']['f1']:+.3f} ({low:+.3f} to {high:+.3f})"
            ),
        ]
        if self.by_missing:
            lines += ["", *aligned([["links missing", "questions", "right"], *_missing_rows(self.by_missing)])]
        lines += [
            "",
            *wrapped(
                f"{self.seconds:.1f} s; a question {self.median_seconds:.2f} s, the slowest "
                f"{self.slowest_seconds:.2f} s; thresholds {self.notes.get('thresholds_from', '')}"
            ),
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"


def _missing_rows(by_missing: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    for name, found in by_missing.items():
        yield [f"  {name}", f"{found['questions']:,.0f}", f"{found['right']:.3f}"]


def evaluate_qar(
    model: QueryModel,
    questions: TupleQuestions,
    missing: MissingLinks,
    thresholds: Mapping[int, float] | None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
    **fields: Any,
) -> QarReport:
    """How good ``model`` is on these questions; without ``thresholds`` they are chosen on the questions themselves,
    each half by the other."""
    start = time.perf_counter()
    exact = exact_alone(missing.known, questions)
    found = searched(model, missing.known, questions, exact, progress)
    free = np.array([rows.shape[1] for rows in questions.answers])
    if thresholds is None:
        limits, chosen = cross_chosen(found, questions.kinds, free, seed)
    else:
        limits, chosen = np.array([thresholds.get(number, NEVER) for number in free.tolist()]), dict(thresholds)
    given = (found.probabilities > 0) & (found.probabilities >= limits)
    ours = np.stack([given, given & found.right])
    groups: dict[str, Any] = {}
    for name, members in _groups(questions):
        kinds = questions.kinds[members]
        groups[name] = {
            "questions": len(members),
            **{what: int((kinds == kind).sum()) for what, kind in (("easy", EASY), ("hard", HARD), ("none", NONE))},
            "ours": figures(kinds, *ours[:, members]),
            "exact": figures(kinds, *exact[:, members]),
            **_intervals(kinds, ours[:, members], exact[:, members], bootstrap, seed),
        }
    fields["notes"] = {**fields.get("notes", {}), "thresholds": {str(k): v for k, v in chosen.items()}}
    return QarReport(
        model.name,
        groups,
        by_missing(missing, questions, exact[0], ours[1]),
        seconds=time.perf_counter() - start,
        median_seconds=float(np.median(found.seconds)),
        slowest_seconds=float(found.seconds.max()),
        **fields,
    )


def evaluate_split(
    model: QueryModel,
    questions: TupleQuestions,
    benchmark: OpenBenchmark,
    split: str,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> QarReport:
    """How good ``model`` is on some questions of a benchmark's split. Where that is not the validation split, the
    probabilities below which no tuple is returned are chosen on a sample of the validation questions first."""
    finder_of(model, benchmark.splits["train"])  # refused before anything is searched
    missing, thresholds = MissingLinks.of_split(benchmark.splits, split), None
    chosen_on = "of each half of the questions chosen on the other half"
    if split != "valid":
        before = MissingLinks.of_split(benchmark.splits, "valid").known
        choosing = benchmark.queries("valid")
        assert isinstance(choosing, TupleQuestions)
        use_graph(model, before)
        thresholds = thresholds_on(model, before, choosing, seed)
        chosen_on = "chosen on validation questions"
    use_graph(model, missing.known)
    notes = {**options.pop("notes", {}), "thresholds_from": chosen_on}
    return evaluate_qar(model, questions, missing, thresholds, seed=seed, progress=progress, notes=notes, **options)


def _groups(questions: TupleQuestions) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The questions of each file, and all of them."""
    for number, name in enumerate(questions.sets):
        if (members := np.flatnonzero(questions.set_of == number)).size:
            yield name, members
    yield "all", np.arange(len(questions))


# Figures


def exact_figures(graph: Graph, questions: TupleQuestions) -> dict[str, dict[str, float]]:
    """FIGURES of the exact engine alone, by group of questions."""
    found = exact_alone(graph, questions)
    return {name: figures(questions.kinds[members], *found[:, members]) for name, members in _groups(questions)}


def figures(kinds: NDArray[np.str_], given: NDArray[np.bool_], right: NDArray[np.bool_]) -> dict[str, float]:
    """FIGURES, from what was returned and whether it was right."""
    easy, hard, none = (kinds == kind for kind in (EASY, HARD, NONE))

    def share(some: int, of: int) -> float:
        return some / of if of else 0.0

    def f1(precision: float, recall: float) -> float:
        return float(share(2 * precision * recall, precision + recall))  # type: ignore[arg-type]

    false = int((given & none).sum())
    precision, recall = share(right.sum(), right.sum() + false), share(right.sum(), (easy | hard).sum())
    right_hard = int((right & hard).sum())
    return {
        "f1": f1(precision, recall),
        "precision": float(precision),
        "recall": float(recall),
        "easy": float(share((right & easy).sum(), easy.sum())),
        "hard": float(share(right_hard, hard.sum())),
        "hard_f1": f1(share(right_hard, right_hard + false), share(right_hard, hard.sum())),
        "strict_f1": f1(share(right.sum(), given.sum()), recall),
    }


def _intervals(
    kinds: NDArray[np.str_], ours: NDArray[np.bool_], exact: NDArray[np.bool_], draws: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Of ours and of the difference in F1, by drawing questions."""
    columns = []
    for given, right in (ours, exact):
        columns += [right, given & (kinds == NONE), kinds != NONE]
    values = np.stack(columns, 1).astype(float)

    def f1s(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        # The harmonic mean of right / (right + false) and right / positive is 2 right / (right + false + positive).
        right, false, positive = sums.T
        return 2 * right / np.maximum(1, right + false + positive)

    sums = np.concatenate(
        [times @ values for _, times in drawn_times(len(kinds), draws=max(1, draws), rng=np.random.default_rng(seed))]
    )
    drawn = np.stack([f1s(sums[:, :3]), f1s(sums[:, :3]) - f1s(sums[:, 3:])], 1)
    total = values.sum(0, keepdims=True)
    estimate = np.array([f1s(total[:, :3])[0], f1s(total[:, :3])[0] - f1s(total[:, 3:])[0]])
    own, difference = percentile_ends(drawn, estimate, 0.95).tolist()
    return {"interval": tuple(own), "difference": tuple(difference)}


# Thresholds


def best_threshold(found: Found, kinds: NDArray[np.str_]) -> float:
    """The probability with the best F1 on these questions."""
    order = np.argsort(-found.probabilities, kind="stable")
    order = order[found.probabilities[order] > 0]
    right, false = np.cumsum(found.right[order]), np.cumsum(kinds[order] == NONE)
    f1 = 2 * right / np.maximum(1, right + false + (kinds != NONE).sum())
    # The last of equal probabilities decides for all of them.
    chances = found.probabilities[order]
    f1[:-1][chances[:-1] == chances[1:]] = -1.0
    if len(f1) == 0 or f1.max() <= 0:
        return NEVER
    best = int(f1.argmax())
    below = chances[best + 1] if best + 1 < len(chances) else 0.0
    return float(math.sqrt(chances[best] * below)) if below > 0 else float(chances[best])


def cross_chosen(
    found: Found, kinds: NDArray[np.str_], free: NDArray[np.integer], seed: int
) -> tuple[NDArray[np.float64], dict[int, float]]:
    """(N,) a threshold for each question, chosen on the other half of its kin; and those chosen on all of them, by the
    number of free variables."""
    half = np.random.default_rng(seed).random(len(kinds)) < 0.5
    limits, chosen = np.full(len(kinds), NEVER), {}
    for number in np.unique(free).tolist():
        own = free == number
        chosen[number] = best_threshold(_of(found, own), kinds[own])
        for side in (half, ~half):
            other = own & ~side
            limits[own & side] = best_threshold(_of(found, other), kinds[other]) if other.any() else chosen[number]
    return limits, chosen


def _of(found: Found, members: NDArray[np.bool_]) -> Found:
    return Found(found.right[members], found.probabilities[members], found.seconds[members])


def thresholds_on(model: QueryModel, graph: Graph, questions: TupleQuestions, seed: int = 0) -> dict[int, float]:
    """Thresholds by the number of free variables, from THRESHOLD_QUESTIONS of each."""
    free = np.array([rows.shape[1] for rows in questions.answers])
    rng = np.random.default_rng(seed)
    taken = np.sort(
        np.concatenate([rng.permutation(np.flatnonzero(free == n))[:THRESHOLD_QUESTIONS] for n in np.unique(free)])
    )
    sample = questions.take(taken)
    found = searched(model, graph, sample, exact_alone(graph, sample))
    return cross_chosen(found, sample.kinds, free[taken], seed)[1]


# Answers


Tuple = tuple[NDArray[np.int32] | None, float]
"""The best tuple of a question, or None; and its probability, or what a model has in its place."""


def finder_of(model: QueryModel, graph: Graph) -> tuple[Callable[[BoundQuery], Tuple], bool]:
    """How ``model`` finds the best tuple of a question, and whether a stored answer goes before it. A model with
    calibrated probabilities of links searches by these; cqd has its own beam, as published, for which no link is
    certain."""
    links: LinkProbability | None = getattr(model, "link_probability", None)
    if links is not None:
        return lambda query: best_tuple(query, graph, links), True
    if isinstance(model, CQD):
        return lambda query: _truest_tuple(query, model), False
    raise UnsupportedQuery(
        f"protocol qar returns tuples by probabilities of links, and this {model.name} has none",
        hint="evaluate a run of the default model: biqe train GRAPH --out RUN",
    )


def _truest_tuple(query: BoundQuery, model: CQD) -> Tuple:
    (found,) = model.tuples(QuerySet.of([query]), 1)
    if len(found.scores) == 0:
        return None, 0.0
    # A product of thirty links may be smaller than any number; it is nevertheless found.
    return found.rows[0], max(math.exp(min(float(found.scores[0]), 0.0)), np.finfo(np.float64).tiny)


def searched(
    model: QueryModel,
    graph: Graph,
    questions: TupleQuestions,
    exact: NDArray[np.bool_],
    progress: Progress | None = None,
) -> Found:
    """A stored answer of each question, where ``exact_alone``, which gives ``exact``, has found one and the model takes
    stored links for certain; else the most probable tuple."""
    find, stored_first = finder_of(model, graph)
    right: list[bool] = []
    chances: list[float] = []
    seconds: list[float] = []
    for number, (query, answers) in enumerate(zip(questions.queries, questions.answers, strict=True), start=1):
        start = time.perf_counter()
        if stored_first and exact[0, number - 1]:
            right.append(bool(exact[1, number - 1]))
            chances.append(1.0)
        else:
            with torch.no_grad():
                best, chance = find(query)
            right.append(best is not None and bool((answers == best).all(axis=1).any()))
            chances.append(chance)
        seconds.append(time.perf_counter() - start)
        if progress is not None:
            progress(number, len(questions))
    return Found(np.array(right), np.array(chances), np.array(seconds))


def best_tuple(query: BoundQuery, graph: Graph, links: LinkProbability) -> tuple[NDArray[np.int32] | None, float]:
    """The tuple of the most probable assignment, and the product of the probabilities of its links, each once."""
    found = best_assignments(query, graph, links, 1, WIDTH)
    if len(found.truths) == 0:
        return None, 0.0
    nodes = found.nodes[0]
    count = graph.relation_count
    filled = [(nodes[s], r, nodes[o]) if r < count else (nodes[o], r - count, nodes[s]) for s, r, o in query.edges]
    subjects, relations, objects = np.array(list(dict.fromkeys(filled)), np.int64).T
    return nodes[list(query.targets)], float(np.exp(links.of(subjects, relations, objects).sum()))


def exact_alone(graph: Graph, questions: TupleQuestions) -> NDArray[np.bool_]:
    """(2, N) whether the graph holds an answer, and whether it is right."""
    found = np.zeros((2, len(questions)), bool)
    for number, (query, answers) in enumerate(zip(questions.queries, questions.answers, strict=True)):
        nodes = first_match(graph, query)
        if nodes is not None:
            found[:, number] = True, bool((answers == nodes[list(query.targets)]).all(axis=1).any())
    return found


# Strata


class _Counted:
    """Links of the complete graph, each that is not stored counted as one."""

    certain = False
    """The search reads the complete graph, whose links are not all free."""

    def __init__(self, missing: MissingLinks) -> None:
        from biqe.links.stored import StoredLinks

        self._known, self._complete = StoredLinks(missing.known), StoredLinks(missing.complete)
        self.entity_count = missing.complete.entity_count

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) 0, -1, or far less where there is no link."""
        table = torch.full((len(heads), self.entity_count), -1e4)
        self._complete.mark(table, heads, relations, -1.0)
        self._known.mark(table, heads, relations, 0.0)
        return table


def by_missing(
    missing: MissingLinks, questions: TupleQuestions, stored: NDArray[np.bool_], right: NDArray[np.bool_]
) -> dict[str, dict[str, float]]:
    """Questions with answers by the links that the nearest answer is missing: none of those whose answer is ``stored``,
    of others as far as the search finds it."""
    links, numbers = _Counted(missing), np.where(stored, 0, UNKNOWN)
    for number in np.flatnonzero((questions.kinds != NONE) & ~stored).tolist():
        found = best_assignments(questions.queries[number], missing.complete, links, 1, WIDTH)
        if len(found.truths) and found.truths[0] > -1e3:
            numbers[number] = round(-found.truths[0])
    groups: dict[str, NDArray[np.bool_]] = {str(n): numbers == n for n in range(MANY + 1)}
    groups = {**groups, f"{MANY + 1}+": numbers > MANY, "unknown": (numbers == UNKNOWN) & (questions.kinds != NONE)}
    return {
        name: {"questions": float(members.sum()), "right": float(right[members].mean())}
        for name, members in groups.items()
        if members.any()
    }
