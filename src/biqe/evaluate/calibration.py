"""Whether probabilities mean what they say: reliability, expected calibration error, and a picture of both.

Rows are gathered by their probability into bins of equal width. In a bin, the mean probability is what was promised and
the share of true rows what was kept. The expected calibration error is the mean difference, weighted by rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.canvas import Canvas
from biqe.evaluate.report import plain

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Promised and kept, bin by bin."""

    counts: NDArray[np.int64]
    """(bins,) rows."""
    promised: NDArray[np.float64]
    """(bins,) mean probability; 0 where a bin is empty."""
    kept: NDArray[np.float64]
    """(bins,) share of true rows; 0 where a bin is empty."""
    error: float
    """Expected calibration error."""
    brier: float
    """Mean squared difference between probability and truth: small only where probabilities are also sharp."""

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def true_share(self) -> float:
        """Share of true rows among all."""
        return float(self.counts @ self.kept / self.rows)

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists and numbers only."""
        return {**plain(self), "rows": self.rows, "true_share": self.true_share}


def reliability(probabilities: NDArray[np.floating], true: NDArray[np.bool_], *, bins: int = BINS) -> Reliability:
    """Reliability of rows with these probabilities, of which these are true.

    >>> half = reliability(np.array([0.5, 0.5, 0.5, 0.5]), np.array([True, True, False, True]), bins=2)
    >>> half.error
    0.25
    """
    if bins < 1:
        raise InvalidOption(f"the number of bins must be at least 1. Got {bins}")
    if len(probabilities) != len(true):
        raise InvalidOption(f"each row needs a probability and a truth. Got {len(probabilities)} and {len(true)}")
    if len(probabilities) == 0:
        raise EmptyResult("there is no row whose probability could be checked")
    values = np.asarray(probabilities, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        wrong = values[~((values >= 0) & (values <= 1))][0]
        raise InvalidOption(f"probabilities must be in [0, 1]. Got {wrong}")
    truth = np.asarray(true, np.float64)
    bin_of = np.minimum((values * bins).astype(np.int64), bins - 1)
    counts = np.bincount(bin_of, minlength=bins)
    some = np.maximum(counts, 1)
    promised = np.bincount(bin_of, values, bins) / some
    kept = np.bincount(bin_of, truth, bins) / some
    error = float(counts @ np.abs(promised - kept) / len(values))
    return Reliability(counts, promised, kept, error, float(((values - truth) ** 2).mean()))


MARGIN, SIDE, GAP, STRIP = 56, 240, 64, 48
KEPT, PROMISED, GREY, LIGHT = "#1864ab", "#d9480f", "#666666", "#eeeeee"


def picture(diagrams: Mapping[str, Reliability]) -> Canvas:
    """Reliability diagrams side by side: bars are the share of true rows, lines the probability that was promised;
    where both are level, probabilities mean what they say. Below, how many rows each bin has."""
    width = 2 * MARGIN + len(diagrams) * SIDE + (len(diagrams) - 1) * GAP
    canvas = Canvas(width, SIDE + STRIP + 136, "reliability of probabilities")
    for number, (name, diagram) in enumerate(diagrams.items()):
        _draw(canvas, MARGIN + number * (SIDE + GAP), 44, name, diagram)
    return canvas


def _draw(canvas: Canvas, left: float, top: float, name: str, diagram: Reliability) -> None:
    canvas.text(left, top - 24, name, bold=True)
    canvas.text(left, top - 8, f"ECE {diagram.error:.3f}, {diagram.rows:,} rows", size=11, fill=GREY)
    canvas.box(left, top, SIDE, SIDE, fill="#ffffff", stroke=GREY)
    for tenth in (0, 5, 10):
        canvas.text(left - 6, top + SIDE - SIDE * tenth / 10 + 4, f"{tenth / 10:g}", size=10, fill=GREY, anchor="end")
        canvas.text(left + SIDE * tenth / 10, top + SIDE + 14, f"{tenth / 10:g}", size=10, fill=GREY, anchor="middle")
    step = SIDE / len(diagram.counts)
    most = np.log1p(diagram.counts.max())
    floor = top + SIDE + 28 + STRIP
    for place, count in enumerate(diagram.counts.tolist()):
        if not count:
            continue
        x, kept, promised = left + place * step, float(diagram.kept[place]), float(diagram.promised[place])
        said = f"{count:,} rows: promised {promised:.3f}, true {kept:.3f}"
        canvas.box(x + 1, top + SIDE * (1 - kept), step - 2, SIDE * kept, fill=KEPT, title=said)
        canvas.box(x, top + SIDE * (1 - promised) - 1, step, 2, fill=PROMISED, title=said)
        height = STRIP * float(np.log1p(count) / most)
        canvas.box(x + 1, floor - height, step - 2, height, fill=LIGHT, stroke=GREY, line=0.5, title=f"{count:,} rows")
    canvas.text(left, floor + 16, "rows in each bin (log)", size=10, fill=GREY)
    canvas.text(left, floor + 34, "bar: share true", size=10, fill=KEPT)
    canvas.text(left + SIDE, floor + 34, "line: probability", size=10, fill=PROMISED, anchor="end")
