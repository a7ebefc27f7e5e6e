"""The end of a run: the voices about links are weighed on held-out facts, and the best ways to answer are chosen.

What the run held out serves twice. Single facts give every link a calibrated probability (links/fit.py). Questions
about them decide, for each shape of question, how much the encoder and how much the links count and whether stored
links are certain, so that a run is nowhere worse than its best part.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult
from biqe.evaluate.loop import evaluate
from biqe.evaluate.protocol import Protocol
from biqe.evaluate.protocols import Cq
from biqe.graph.knowledge_graph import Splits
from biqe.links import fit, knowledge
from biqe.links.knowledge import Record
from biqe.links.structures import SHAPES, StructuredQueries
from biqe.models import store
from biqe.models._contract import QueryModel, SolvesOtherwise, use_graph
from biqe.query.bound import QuerySet
from biqe.training.held_out_questions import questions_by_shape
from biqe.training.plot import draw_probabilities
from biqe.training.run import Run
from biqe.training.training_data import Validation, open_recorded_data, validation

WAYS: Mapping[str, Mapping[str, Any]] = {
    f"{what}{', stored certain' if stored == 'one' else ''}": {**way, "stored": stored}
    for stored in ("off", "one")
    for what, way in {
        "links": {"search": 1.0, "search_beam": 24, "truth": "probability"},
        "ComplEx": {"search": 1.0, "search_beam": 64, "truth": "counted"},
        "both": {"search": 0.5, "search_beam": 8, "truth": "probability"},
        "encoder and ComplEx": {"search": 0.5, "search_beam": 8, "truth": "counted"},
    }.items()
} | {"encoder": {"search": 0.0}}
"""Ways to answer that are compared: by probabilities of links, by ComplEx alone, with the encoder beside either, and by
the encoder alone."""
PARTS = {1.0: "links", 0.5: "both", 0.0: "encoder"}
"""What answers, by the weight of the search: the best way of each is shown."""
RULE_SECONDS, RULE_SHARE = 60.0, 0.1
"""Time for mining rules, at most: so many seconds, and this share of the run."""
MARGIN = 0.22
"""By how much the encoder has to improve on links alone, divided by the root of the number of targets: .02 for 120 of
them, which is about what such figures err by."""
FEWEST_QUESTIONS, MOST_QUESTIONS, QUESTIONS_A_MINUTE = 60, 120, 40
"""Questions of each shape that ways are compared on, by the length of the run."""
FIT_SHARE, FIT_SECONDS = 0.1, 10.0
"""Time for asking about held-out facts: this share of the run, but at least so many seconds."""
COMPARE_SHARE, COMPARE_SECONDS = 0.2, 15.0
"""Time for comparing ways: this share of the run, but at least so many seconds. Where less is left than it takes, fewer
questions are asked, FEW at least."""
FEW = 20
HOPELESS = 0.25
"""The encoder stands beside the links only where it reaches this share of what links alone do."""

Questions = Mapping[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]]
"""Held-out questions by shape, and how their answers are ranked."""


@dataclass(frozen=True)
class Weighed:
    """What the end of a run found out."""

    record: Record
    figures: Mapping[str, Mapping[str, float]]
    """MRR (or the first metric of a benchmark's protocol) by shape of question, then by way."""
    counts: Mapping[str, int]
    """Held-out questions of each shape."""
    chosen: Mapping[str, str]
    """The best way for each shape."""

    def sentence(self) -> str:
        """For people."""
        record = self.record
        if not record.calibrated:
            return (
                f"Links have scores, not probabilities: {record.facts} facts were held out, and at least "
                f"{fit.FEWEST_FACTS} are needed to calibrate them."
            )
        found, guess = (
            [round(100 * value) for value in pair]
            for pair in ((record.hits_1, record.hits_10), (record.guess_1, record.guess_10))
        )
        return (
            f"Hidden facts: found first in {found[0]} of 100 cases, among the first ten in {found[1]} "
            f"(guessing: {guess[0]} and {guess[1]}). Probabilities: calibrated, error {record.error:.3f}."
        )

    def lines(self) -> list[str]:
        """How each way ranks held-out questions, for a terminal of 80 columns."""
        lines = ["Held-out questions, mean reciprocal rank; what answers each shape is marked *:"]
        for shape, ways in self.figures.items():
            best: dict[str, str] = {}
            for way in sorted(ways, key=lambda way: (ways[way], way == self.chosen[shape])):
                best[PARTS[WAYS[way]["search"]]] = way
            parts = (
                f"{part} {ways[best[part]]:.3f}{'*' if best[part] == self.chosen[shape] else ''}"
                for part in PARTS.values()
                if part in best
            )
            lines.append(f"  {shape} ({self.counts[shape]}): {', '.join(parts)}")
        return lines if self.figures else []


def weigh_run(folder: str | os.PathLike[str]) -> Weighed | None:
    """Weigh the links of the run in ``folder`` anew, on its own held-out facts and questions. None for models without
    links."""
    run = Run.open(folder)
    _, whole = run.graph()
    splits = run.splits(whole)
    data = open_recorded_data(run.record.get("set"), whole, run.folder)
    with run.locked():
        return weigh_links(run, splits, validation(splits, data, run.train_config))


def weigh_links(run: Run, splits: Splits, validated: Validation) -> Weighed | None:
    """Fit probabilities of links and choose how the run's model answers; both are written into its model folder. None
    for models without links. ``splits`` are those that the run was trained on."""
    folder, seed = run.model_folder, run.train_config.seed
    seconds = 60.0 * (run.train_config.minutes or 10.0)
    model: Any = store.load(folder).model
    if not hasattr(model, "knowledge"):
        return None
    rule_seconds = min(RULE_SECONDS, max(2.0, RULE_SHARE * seconds))
    fit_seconds = max(FIT_SECONDS, FIT_SHARE * seconds)
    model.knowledge = fit.fit(
        model.links,
        splits["train"],
        splits.valid,
        further=len(splits.test),
        rule_seconds=rule_seconds,
        fit_seconds=fit_seconds,
        seed=seed,
    )
    knowledge.save(model.knowledge, folder)
    use_graph(model, splits["train"])
    count = int(np.clip(QUESTIONS_A_MINUTE * seconds / 60, FEWEST_QUESTIONS, MOST_QUESTIONS))
    questions = held_out_questions(model, splits, validated, count, seed)
    questions, compared = compare_all(model, questions, max(COMPARE_SECONDS, COMPARE_SHARE * seconds))
    figures = {shape: ways for shape, ways in compared.items() if ways}
    targets = {shape: _targets(asked) for shape, (asked, _) in questions.items()}
    chosen = {shape: best_way(ways, targets[shape]) for shape, ways in figures.items()}
    means = {
        way: float(np.mean([ways[way] for ways in figures.values()]))
        for way in WAYS
        if figures and all(way in ways for ways in figures.values())
    }
    by_shape = {shape: dict(WAYS[way]) for shape, way in chosen.items()}
    store.solve_by(folder, **WAYS[max(means, key=means.__getitem__, default="links")], by_shape=by_shape)
    counts = {shape: len(questions[shape][0]) for shape in figures}
    weighed = Weighed(model.knowledge.record, figures, counts, chosen)
    run.log("weighed", **asdict(weighed))
    draw_probabilities(run, weighed.record)
    return weighed


def best_way(figures: Mapping[str, float], targets: int) -> str:
    """The way with the best figure over so many targets; one with the encoder only where it is better than links alone
    by more than such figures err.

    >>> best_way({"links": 0.5, "both": 0.51}, 100), best_way({"links": 0.5, "both": 0.51}, 1_000)
    ('links', 'both')
    """
    margin = MARGIN / math.sqrt(max(1, targets))
    return max(figures, key=lambda way: figures[way] - (margin if WAYS[way]["search"] < 1.0 else 0.0))


def held_out_questions(
    model: QueryModel, splits: Splits, validated: Validation, count: int, seed: int
) -> dict[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]]:
    """At most ``count`` questions of each shape: those of the benchmark that a run is validated on; else questions
    about held-out facts, and mined ones with several unknowns."""
    asked, protocol = validated.asked, validated.protocol
    rows = asked.rows if isinstance(asked, ShapedQueries) else asked
    found: dict[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]] = {}
    if rows is not None and asked is not None:
        shapes = StructuredQueries(rows, model.entity_count, model.relation_count, model.name, leave_out=True).shapes()
        for shape in SHAPES if isinstance(asked, ShapedQueries) else SHAPES[-1:]:
            members = np.flatnonzero([own == shape for own in shapes])
            if isinstance(asked, ShapedQueries):
                members = np.unique(asked.owner[members])
            if len(members):
                kept = np.sort(np.random.default_rng([seed, 8]).permutation(members)[:count])
                found[shape] = asked.take(kept), protocol
    if not isinstance(asked, ShapedQueries):
        own = questions_by_shape(splits, count, seed)
        found = {shape: (queries, Cq("complete")) for shape, queries in own.items()} | found
    return found


def _targets(questions: QuerySet | ShapedQueries) -> int:
    return len(questions) if isinstance(questions, ShapedQueries) else len(questions.target_nodes)


def compare_all(
    model: QueryModel, questions: Questions, seconds: float
) -> tuple[dict[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]], dict[str, dict[str, float]]]:
    """The questions that were asked, and the figure of each way by shape. Of a shape that would take longer than its
    part of ``seconds``, judged by the first FEW of its questions, fewer are asked."""
    end = time.process_time() + seconds * torch.get_num_threads()
    kept: dict[str, tuple[QuerySet | ShapedQueries, Protocol[Any, Any]]] = {}
    figures: dict[str, dict[str, float]] = {}
    for number, (shape, (asked, protocol)) in enumerate(questions.items()):
        began = time.process_time()
        found = compare(model, some := asked.take(np.arange(min(FEW, len(asked)))), protocol)
        each = (time.process_time() - began) / max(1, len(some))
        own = (end - began) / (len(questions) - number)
        affordable = int(own / max(each, 1e-9))
        if len(asked) > len(some) and affordable > 2 * len(some):
            some = asked.take(np.arange(min(affordable, len(asked))))
            found = compare(model, some, protocol)
        kept[shape], figures[shape] = (some, protocol), found
    return kept, figures


def compare(model: QueryModel, questions: QuerySet | ShapedQueries, protocol: Protocol[Any, Any]) -> dict[str, float]:
    """The first metric of each way that ranks as many questions as any other does. The encoder alone and the links
    alone come first, and both together only where the encoder is not hopeless."""
    assert isinstance(model, SolvesOtherwise)
    found: dict[str, float] = {}
    ranked: dict[str, int] = {}
    with torch.inference_mode():
        for name, way in sorted(WAYS.items(), key=lambda item: 0.0 < item[1]["search"] < 1.0):
            together = 0.0 < way["search"] < 1.0
            if together and found and found.get("encoder", 0.0) < HOPELESS * max(found.values()):
                continue
            try:
                report = evaluate(model.solving(**way), questions, protocol, bootstrap=0)
            except EmptyResult:
                continue
            found[name] = round(next(iter(report.metrics["realistic"].values())), 6)
            ranked[name] = report.counts["ranked_queries"]
    return {name: found[name] for name in WAYS if name in found and ranked[name] == max(ranked.values())}
