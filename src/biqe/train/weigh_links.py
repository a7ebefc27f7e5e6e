"""The end of a run: the voices about links are weighed on held-out facts, and the best way to answer is chosen.

What the run held out serves twice. Single facts give every link a calibrated probability (links/probability.py).
Questions made of them decide how much the encoder and how much the links count, and whether stored links are certain,
so that a run is not worse than its best part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from biqe.graph.knowledge_graph import Splits
from biqe.links import probability
from biqe.links.probability import Record
from biqe.models import store
from biqe.models._contract import QueryModel, SolvesOtherwise, use_graph
from biqe.train.training_data import Validation

WAYS: tuple[dict[str, Any], ...] = (
    {"search": 1.0, "search_beam": 24, "stored": "off"},
    {"search": 1.0, "search_beam": 24, "stored": "one"},
    {"search": 0.5, "search_beam": 8, "stored": "off"},
    {"search": 0.5, "search_beam": 8, "stored": "one"},
    {"search": 0.0},
)
"""Ways to answer that are compared: links alone, links and encoder, the encoder alone."""
RULE_SECONDS, RULE_SHARE = 60.0, 0.1
"""Time for mining rules, at most: so many seconds, and this share of the run."""


@dataclass(frozen=True)
class Weighed:
    """What the end of a run found out."""

    record: Record
    figures: dict[str, dict[str, float]]
    """Metrics of each way, on the same held-out questions."""
    chosen: str

    def sentence(self) -> str:
        """For people."""
        record = self.record
        if not record.calibrated:
            return (
                f"Links have scores, not probabilities: {record.facts} facts were held out, and at least "
                f"{probability.FEWEST_FACTS} are needed to calibrate them."
            )
        found, guess = (
            [round(100 * value) for value in pair]
            for pair in ((record.hits_1, record.hits_10), (record.guess_1, record.guess_10))
        )
        return (
            f"Hidden facts: found first in {found[0]} of 100 cases, among the first ten in {found[1]} "
            f"(guessing: {guess[0]} and {guess[1]}). Probabilities: calibrated, error {record.error:.3f}."
        )


def weigh_links(folder: Path, splits: Splits, validation: Validation, *, seconds: float, seed: int) -> Weighed | None:
    """Fit probabilities of links and choose how the model in ``folder`` answers; both are written there. None for
    models without links. ``splits`` are those of the run, ``seconds`` is its length."""
    model: Any = store.load(folder).model
    if not hasattr(model, "knowledge"):
        return None
    rule_seconds = min(RULE_SECONDS, max(2.0, RULE_SHARE * seconds))
    model.knowledge = probability.fit(model.links, splits["train"], splits.valid, rule_seconds=rule_seconds, seed=seed)
    probability.save(model.knowledge, folder)
    use_graph(model, splits["train"])
    figures = _compared(model, validation)
    chosen = max(figures, key=lambda name: next(iter(figures[name].values())), default="")
    if chosen:
        store.solve_by(folder, **WAYS[[_name(way) for way in WAYS].index(chosen)])
    return Weighed(model.knowledge.record, figures, chosen)


def _compared(model: QueryModel, validation: Validation) -> dict[str, dict[str, float]]:
    if validation.measure_answers is None or not isinstance(model, SolvesOtherwise):
        return {}
    with torch.inference_mode():
        return {_name(way): validation.measure_answers(model.solving(**way)) for way in WAYS}


def _name(way: dict[str, Any]) -> str:
    parts = {1.0: "links", 0.5: "links and encoder", 0.0: "encoder"}[way["search"]]
    return f"{parts}, stored links certain" if way.get("stored") == "one" else parts
