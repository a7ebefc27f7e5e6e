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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import JOINT, TOP
from biqe.answer.conformal import Thresholds
from biqe.errors import EmptyResult, InvalidOption, RunFailed, UnreadableFile

FILE = "calibration.json"
FORMAT = "biqe-calibration"
VERSION = 2
MOST_KNOWN = 1000
"""Known rows beyond this number say nothing more."""
MOST_TARGETS = 3
"""Queries with more targets share the bias of this group."""
_RIDGE = 1e-3
_BLOCK = 40
"""Rows behind each point of the curve, at least."""
_POINTS = 60


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
    decode: str = JOINT[0]
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


def calibrated(
    log_probabilities: NDArray[np.floating], calibration: Calibration | None, *, targets: int, known: int
) -> NDArray[np.float64]:
    """Probabilities of the listed rows of one query, best first; their plain shares where there is no calibration.

    ``targets`` is the query's number of targets, ``known`` the number of its rows that the graph holds (those that were
    left out of the list). The order of rows never changes.
    """
    scores = np.asarray(log_probabilities, np.float64)
    if calibration is None or len(scores) == 0:
        return np.exp(scores)
    first = np.full(len(scores), scores.max())
    table = features(scores, first, np.full(len(scores), known), np.full(len(scores), targets))
    logits = table @ np.array(calibration.weights)
    return np.interp(logits, calibration.logits, calibration.probabilities)


def features(
    scores: NDArray[np.float64], first: NDArray[np.float64], known: NDArray[np.integer], targets: NDArray[np.integer]
) -> NDArray[np.float64]:
    """(n, 5 + groups) what the logit of each row is a weighted sum of."""
    group = np.minimum(targets, MOST_TARGETS)[:, None] == np.arange(1, MOST_TARGETS + 1)
    first = np.maximum(first, -1e3)
    lone = np.asarray(known) == 0
    counted = np.log1p(np.minimum(known, MOST_KNOWN))
    return np.column_stack([np.maximum(scores, -1e3), first, counted, lone, lone * first, group])


def fit(
    scores: NDArray[np.floating],
    first: NDArray[np.floating],
    known: NDArray[np.integer],
    targets: NDArray[np.integer],
    true: NDArray[np.bool_],
) -> Calibration:
    """A calibration from listed rows: log-probability of each, that of its query's first row, known rows of its query,
    targets of its query, and whether it is true."""
    if len({len(column) for column in (scores, first, known, targets, true)}) != 1:
        raise InvalidOption("every row needs a score, its query's first score, known rows, targets and truth")
    if len(scores) == 0:
        raise EmptyResult("there is no listed row to calibrate on")
    table = features(np.asarray(scores, np.float64), np.asarray(first, np.float64), known, targets)
    truth = np.asarray(true, np.float64)
    weights = _logistic(table, truth)
    if weights[0] < 0:
        # Larger shares may be less often true on few rows; they must not be put behind smaller ones for it.
        weights = np.concatenate([[0.0], _logistic(table[:, 1:], truth)])
    slope, best, held, lone, lone_best, *bias = weights.tolist()
    logits, probabilities = _curve(table @ weights, truth)
    return Calibration(slope, best, held, tuple(bias), logits, probabilities, lone, lone_best)


def _logistic(table: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of a logistic regression, by Newton's method with a little ridge, so that it always has a solution."""
    weights = np.zeros(table.shape[1])

    def loss(candidate: NDArray[np.float64]) -> float:
        logits = table @ candidate
        return float(np.logaddexp(0, logits).sum() - truth @ logits + _RIDGE / 2 * candidate @ candidate)

    current = loss(weights)
    for _ in range(100):
        probabilities = _sigmoid(table @ weights)
        gradient = table.T @ (probabilities - truth) + _RIDGE * weights
        curvature = (table * (probabilities * (1 - probabilities))[:, None]).T @ table
        step = np.linalg.solve(curvature + _RIDGE * np.eye(len(weights)), gradient)
        scale = 1.0
        while (following := loss(weights - scale * step)) > current and scale > 1e-8:
            scale /= 2
        weights = weights - scale * step
        if current - following < 1e-9 * max(1.0, abs(current)):
            break
        current = following
    return weights


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0, -logits))


def _curve(logits: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points of a curve from logits to shares of true rows that never falls."""
    order = np.argsort(logits, kind="stable")
    blocks = np.array_split(order, max(1, min(_POINTS, len(order) // _BLOCK)))
    # Half a true and half a false row are added to each block, so that no finite number of rows makes a row certain.
    shares = np.array([(truth[block].sum() + 0.5) / (len(block) + 1) for block in blocks])
    sizes = np.array([len(block) for block in blocks], np.float64)
    places = np.array([logits[block].mean() for block in blocks])
    return tuple(places.tolist()), tuple(_isotonic(shares, sizes).tolist())


def _isotonic(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The non-decreasing sequence nearest to ``values`` in weighted squares: neighbours that fall are merged."""
    merged: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        merged.append([value, weight, 1])
        while len(merged) > 1 and merged[-2][0] > merged[-1][0]:
            mean, heavy, length = merged.pop()
            before = merged[-1]
            total = before[1] + heavy
            merged[-1] = [(before[0] * before[1] + mean * heavy) / total, total, before[2] + length]
    return np.repeat([block[0] for block in merged], [int(block[2]) for block in merged])


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


def halves(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers 0..count-1 in two random halves, each ascending: one to fit on, one to measure on."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


def by_group(targets: Sequence[int] | NDArray[np.integer]) -> dict[str, NDArray[np.bool_]]:
    """Members by number of targets, ``3`` standing for three and more; groups without members are left out."""
    group = np.minimum(np.asarray(targets), MOST_TARGETS)
    return {str(number): group == number for number in range(1, MOST_TARGETS + 1) if (group == number).any()}
