"""Which of several models answers a query: the one that was best on validation queries of its shape.

``selection.json`` beside the models says which that is:

    {"format": "biqe-selection", "version": 1, "metric": "mrr", "default": "biqe",
     "shapes": {"1p": "cqd", "2p": "biqe", "path": "biqe", "dag": "biqe"},
     "scores": {"1p": {"cqd": 0.41, "biqe": 0.38}, ...}}

It is written from reports of ``biqe evaluate`` on a validation split. Nothing here loads a model.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biqe.errors import EmptyResult, InvalidOption, UnreadableFile
from biqe.graph.whole_folder import read_json

FILE = "selection.json"
FORMAT = "biqe-selection"
VERSION = 1
OVERALL = "overall"
"""Key of the overall figure among those of the shapes."""
_COARSER = {"1p": ("1p", "triple", "path"), "2p": ("2p", "path"), "3p": ("3p", "path"), "path": ("path",), "other": ()}
"""Shapes whose figures may stand for a shape, the nearest first; any other shape is a kind of ``dag``."""


@dataclass(frozen=True)
class Selection:
    """Figures of several models by shape, the larger the better."""

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures by shape, then by model."""
    metric: str = "mrr"

    @property
    def shapes(self) -> dict[str, str]:
        """The best model of each shape; of two equally good ones the first in the alphabet."""
        return {shape: _best(figures) for shape, figures in self.scores.items() if figures and shape != OVERALL}

    @property
    def default(self) -> str | None:
        """The best model over all queries."""
        overall = self.scores.get(OVERALL)
        return _best(overall) if overall else None

    def order(self, shape: str, models: Sequence[str]) -> list[str]:
        """``models`` as they are to be tried for a query of this shape: best first, those without figures last."""
        tables = [self.scores[name] for name in self._standing_for(shape)]

        def key(place: int) -> tuple[Any, ...]:
            name = models[place]
            return (*(-table.get(name, -math.inf) for table in tables), place)

        return [models[place] for place in sorted(range(len(models)), key=key)]

    def reason(self, shape: str, model: str) -> str:
        """Why a model comes first, in a few words; '' where no figures say so."""
        for name in self._standing_for(shape):
            if model in self.scores[name]:
                kind = "all validation queries" if name == OVERALL else f"validation queries of shape {name}"
                return f"{self.metric} {self.scores[name][model]:.3f} on {kind}"
        return ""

    def _standing_for(self, shape: str) -> Iterator[str]:
        for name in (*_COARSER.get(shape, (shape, "dag")), OVERALL):
            if self.scores.get(name):
                yield name

    def to_json(self) -> dict[str, Any]:
        """Dicts, strings and numbers only."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "metric": self.metric,
            "default": self.default,
            "shapes": self.shapes,
            "scores": {shape: dict(figures) for shape, figures in self.scores.items()},
        }

    @classmethod
    def from_json(cls, data: Any, where: object = FILE) -> Selection:
        """What ``to_json`` wrote. A hand-written file may have ``shapes`` alone: its models are then simply best."""
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise UnreadableFile(f"{where} is no selection of models of version {VERSION}", hint=_HINT)
        try:
            scores = {
                str(shape): {str(name): float(value) for name, value in figures.items()}
                for shape, figures in data.get("scores", {}).items()
            }
            for shape, name in data.get("shapes", {}).items():
                scores.setdefault(str(shape), {str(name): 1.0})
            if isinstance(data.get("default"), str):
                scores.setdefault(OVERALL, {data["default"]: 1.0})
        except (AttributeError, TypeError, ValueError) as error:
            raise UnreadableFile(f"{where} is damaged: {error}", hint=_HINT) from error
        if not all(math.isfinite(value) for figures in scores.values() for value in figures.values()):
            raise UnreadableFile(f"{where} is damaged: a figure is not finite", hint=_HINT)
        return cls(scores, str(data.get("metric", "mrr")))


_HINT = (
    "write it anew with biqe.knowledge_base.model_selection.write_selection, or delete it; then models are tried by "
    "their names"
)


def _best(figures: Mapping[str, float]) -> str:
    return min(figures, key=lambda name: (-figures[name], name))


def read_selection(folder: str | os.PathLike[str]) -> Selection | None:
    """The selection of a folder of models; None where it has none."""
    place = Path(folder) / FILE
    try:
        data = read_json(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnreadableFile as error:
        raise UnreadableFile(error.message, hint=_HINT) from error
    return Selection.from_json(data, place)


def select(reports: Mapping[str, Mapping[str, Any]], metric: str = "mrr") -> Selection:
    """A selection from reports of ``biqe evaluate --split valid --json``, by the name of each model.

    Reports on test queries are refused: a model chosen by them would be chosen by the answers. All reports must be of
    one protocol, and have the metric.
    """
    if not reports:
        raise EmptyResult("there is no report to choose a model by")
    protocols = {str(report.get("protocol")) for report in reports.values()}
    if len(protocols) > 1:
        raise InvalidOption(f"reports must be of one protocol. Got {', '.join(sorted(protocols))}")
    scores: dict[str, dict[str, float]] = {}
    for name, report in reports.items():
        split = report.get("notes", {}).get("split")
        if split != "valid":
            raise InvalidOption(
                f"the report of {name} is on the {split or 'unnamed'} split; models are chosen by validation queries",
                hint="biqe evaluate RUN --set SET --split valid",
            )
        groups = {OVERALL: report.get("overall"), **report.get("by_kind", {}), **report.get("by_shape", {})}
        for shape, summary in groups.items():
            value = _figure(summary, metric)
            if value is not None:
                scores.setdefault(str(shape), {})[name] = value
    if not scores.get(OVERALL):
        raise InvalidOption(f"no report has the metric {metric!r}", hint="mrr, hits@1, hits@3 and hits@10 are usual")
    return Selection(scores, metric)


def _figure(summary: Any, metric: str) -> float | None:
    try:
        value = float(summary["metrics"]["realistic"][metric])
    except (KeyError, TypeError, ValueError):
        return None  # this group of queries was not asked, or has no such figure
    return value if math.isfinite(value) else None


def write_selection(
    folder: str | os.PathLike[str], reports: Mapping[str, Mapping[str, Any]], *, metric: str = "mrr"
) -> Selection:
    """``select`` from reports, and write ``selection.json`` to a folder of models."""
    from biqe.models.store import write_whole

    selection = select(reports, metric)
    write_whole(Path(folder) / FILE, json.dumps(selection.to_json(), indent=1) + "\n")
    return selection
