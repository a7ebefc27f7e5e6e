"""From the share that a model gives a row to the probability that the row is true.

A model spreads a probability of 1 over all rows of a question, so ten equally good answers have 0.1 each, however
sure it is of all of them. What is calibrated here is something else: **the probability that a row, listed among those
that the graph does not hold, is an answer in the complete graph**. It is learnt on validation queries:

    logit = slope * log p + best * log p_first + known * log(1 + known rows) + bias(number of targets)
            + [no known row] * (lone + lone_best * log p_first)
    P(true) = curve(logit)           the curve never falls, so the order of rows stays as it is

p_first is the share of the query's first listed row: where no row is known, it says how sure the model is; where some
are, they have taken their part of the shares. The slope is an inverse temperature. The curve is isotonic: means
of rows with like logits, made non-decreasing, and straight lines between them.

``calibration.json`` in a model folder holds one fit. It belongs to the weights beside it: after further training it is
refused, and made anew by ``biqe calibrate``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.predict.config import BEAM, JOINT, TOP

FILE = "calibration.json"
FORMAT = "biqe-calibration"
VERSION = 1
GRID = tuple(percent / 100 for percent in range(50, 100))
"""Coverages of answer sets whose thresholds are kept; any other is rounded up to the next of them."""
MOST_KNOWN = 1000
"""Known rows beyond this number say nothing more."""
MOST_TARGETS = 3
"""Queries with more targets share the bias and the thresholds of this group."""


@dataclass(frozen=True)
class Thresholds:
    """Log-probabilities that the rows of an answer set reach, by number of targets, one for each coverage of GRID.

    They are made by split-conformal prediction (``fit_calibration.fit_thresholds``).
    """

    groups: Mapping[int, tuple[float | None, ...]] = field(default_factory=dict)
    """None where no list of rows reaches that coverage."""
    queries: Mapping[int, int] = field(default_factory=dict)
    """Held-out queries behind them."""

    def threshold(self, coverage: float, targets: int) -> float:
        """The log-probability that rows of an answer set reach; InvalidOption where it cannot be stated."""
        if not 0.0 < coverage < 1.0:
            raise InvalidOption(f"coverage must be in (0, 1). Got {coverage}")
        group = min(targets, MOST_TARGETS)
        if group not in self.groups:
            known = ", ".join(map(str, sorted(self.groups))) or "none"
            raise InvalidOption(
                f"coverage was not measured for {targets} targets; it was for {known}",
                hint="biqe calibrate RUN --set SET, with a set that has such queries",
            )
        place = next((number for number, step in enumerate(GRID) if step >= coverage - 1e-9), None)
        if place is None or (found := self.groups[group][place]) is None:
            reached = [step for step, value in zip(GRID, self.groups[group], strict=True) if value is not None]
            raise InvalidOption(
                f"no answer set has a coverage of {coverage:g} for {targets} targets: the model lists the missing "
                f"answer too seldom, or {self.queries.get(group, 0)} held-out queries are too few",
                hint=f"ask for {reached[-1]:g} or less" if reached else "there is none to ask for",
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists and numbers only."""
        return {
            "coverages": list(GRID),
            "thresholds": {str(group): list(values) for group, values in self.groups.items()},
            "queries": {str(group): count for group, count in self.queries.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Thresholds:
        """What ``to_json`` wrote; UnreadableFile if it is something else."""
        try:
            if tuple(data["coverages"]) != GRID:
                raise UnreadableFile("the coverages are not those that this program keeps")
            groups = {
                int(group): tuple(None if value is None else float(value) for value in values)
                for group, values in data["thresholds"].items()
            }
            counts = {int(group): int(count) for group, count in data["queries"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile(f"the thresholds of answer sets are damaged: {error}") from error
        if any(len(values) != len(GRID) for values in groups.values()):
            raise UnreadableFile(f"the thresholds of answer sets are damaged: each group must have {len(GRID)}")
        return cls(groups, counts)


@dataclass(frozen=True)
class Calibration:
    """How probabilities are made of shares."""

    slope: float
    best: float
    known: float
    bias: tuple[float, ...]
    """For one target, two, and three or more."""
    logits: tuple[float, ...]
    """Points of the curve, ascending."""
    probabilities: tuple[float, ...]
    """The curve there, never falling."""
    lone: float = 0.0
    lone_best: float = 0.0
    decode: str = BEAM
    """How the rows were listed that it was fitted on."""
    top: int = TOP
    """Rows of each query that it was fitted on."""
    sets: Thresholds = field(default_factory=Thresholds)
    """Thresholds of answer sets with a stated coverage."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was measured on queries that it was not fitted on."""

    @property
    def weights(self) -> tuple[float, ...]:
        """What the columns of ``features`` are multiplied by."""
        return (self.slope, self.best, self.known, self.lone, self.lone_best, *self.bias)

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "slope": self.slope,
            "best": self.best,
            "known": self.known,
            "lone": self.lone,
            "lone_best": self.lone_best,
            "bias": list(self.bias),
            "curve": {"logits": list(self.logits), "probabilities": list(self.probabilities)},
            "decode": self.decode,
            "top": self.top,
            "sets": self.sets.to_json(),
            "report": dict(self.report),
        }

    @classmethod
    def from_json(cls, data: Any) -> Calibration:
        """What ``to_json`` wrote; UnreadableFile if it is something else, or of another version."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UnreadableFile("this is not a calibration of biqe")
        if data.get("version") != VERSION:
            raise UnreadableFile(f"the calibration is of version {data.get('version')}; this program reads {VERSION}")
        try:
            found = cls(
                slope=float(data["slope"]),
                best=float(data["best"]),
                known=float(data["known"]),
                bias=tuple(map(float, data["bias"])),
                logits=tuple(map(float, data["curve"]["logits"])),
                probabilities=tuple(map(float, data["curve"]["probabilities"])),
                lone=float(data["lone"]),
                lone_best=float(data["lone_best"]),
                decode=str(data["decode"]),
                top=int(data["top"]),
                sets=Thresholds.from_json(data["sets"]),
                report=dict(data["report"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableFile(f"the calibration is damaged: {error}") from error
        found._check()
        return found

    def probabilities_of(self, scores: NDArray[np.float64], *, targets: int, known: int) -> NDArray[np.float64]:
        """Probabilities of the rows listed for one query from their log-shares; see ``probability.of_rows``."""
        count = len(scores)
        table = features(scores, np.full(count, scores.max()), np.full(count, known), np.full(count, targets))
        return np.interp(table @ np.array(self.weights), self.logits, self.probabilities)

    def _check(self) -> None:
        numbers = (*self.weights, *self.logits, *self.probabilities)
        curve = self.probabilities
        faults = [
            ("a number is not finite", not all(map(math.isfinite, numbers))),
            ("the slope is negative", self.slope < 0),
            (f"there must be {MOST_TARGETS} biases", len(self.bias) != MOST_TARGETS),
            ("the curve has no points, or not as many of both kinds", not 0 < len(self.logits) == len(curve)),
            ("the curve falls", any(a > b for row in (self.logits, curve) for a, b in zip(row, row[1:], strict=False))),
            (f"its rows were found by none of {', '.join(JOINT)}", self.decode not in JOINT),
            ("the curve leaves [0, 1]", not all(0 <= value <= 1 for value in curve)),
        ]
        for fault, found in faults:
            if found:
                raise UnreadableFile(f"the calibration is damaged: {fault}")


def features(
    scores: NDArray[np.float64], first: NDArray[np.float64], known: NDArray[np.integer], targets: NDArray[np.integer]
) -> NDArray[np.float64]:
    """(n, 5 + groups) what the logit of each row is a weighted sum of."""
    group = np.minimum(targets, MOST_TARGETS)[:, None] == np.arange(1, MOST_TARGETS + 1)
    first = np.maximum(first, -1e3)
    lone = np.asarray(known) == 0
    counted = np.log1p(np.minimum(known, MOST_KNOWN))
    return np.column_stack([np.maximum(scores, -1e3), first, counted, lone, lone * first, group])


def save(calibration: Calibration, folder: str | os.PathLike[str]) -> Path:
    """Write ``calibration`` into a model folder, whole or not at all; returns the file."""
    from biqe.models.store import write_whole  # torch: only whoever fits one writes one

    place = Path(folder) / FILE
    data = {**calibration.to_json(), "model": _digest(Path(folder))}
    try:
        write_whole(place, json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise RunFailed(
            f"the calibration could not be written to {place}: {error.strerror or error}",
            hint="free some space, or copy the model folder to where you may write",
        ) from error
    return place


def load(folder: str | os.PathLike[str]) -> Calibration | None:
    """The calibration of a model folder; None where it has none. UnreadableFile where it is damaged, or belongs to
    other weights than those beside it."""
    place = Path(folder) / FILE
    hint = f"make it anew with: biqe calibrate RUN --set SET; or delete {place} to ask without it"
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{place} cannot be read: {error}", hint=hint) from error
    try:
        found = Calibration.from_json(data)
    except UnreadableFile as error:
        raise UnreadableFile(f"{place}: {error.message}", hint=hint) from error
    if data.get("model") != _digest(Path(folder)):
        raise UnreadableFile(f"{place} was fitted to other weights than those beside it", hint=hint)
    return found


def _digest(folder: Path) -> str:
    """Sixteen hex digits over what the manifest says of the weights: every saving of a model in training changes it."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        told = [manifest.get(key) for key in ("model", "config", "vocabulary_fingerprint", "trained")]
    except (OSError, ValueError, AttributeError) as error:
        raise UnreadableFile(
            f"{folder} is not a model folder: it has no manifest.json that can be read",
            hint="a run keeps its best model in RUN/model",
        ) from error
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
