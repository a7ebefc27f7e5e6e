"""Whether probabilities mean what they say: expected calibration error and reliability diagrams.

Rows are put into bins of equal width by their probability. In a bin, the mean probability is compared with the share
of rows that are true. The expected calibration error is the mean difference over the bins, weighted by rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate.pictures import BLUE, ORANGE, PLAIN, SOFT, printable
from biqe.evaluate.report import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Probability and truth, bin by bin."""

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


def diagrams(by_name: Mapping[str, Reliability]) -> Figure:
    """Reliability diagrams side by side: bars are the share of true rows, lines the mean probability; where both are
    level, probabilities mean what they say. Below, how many rows each bin has. To be drawn by ``pictures.render`` or
    ``pictures.save``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(by_name) + 0.4, 4.4), layout="constrained")
    axes = figure.subplots(2, len(by_name), sharex=True, squeeze=False, gridspec_kw={"height_ratios": [4, 1]})
    for (name, reliability), above, below in zip(by_name.items(), *axes, strict=True):
        _diagram(above, below, name, reliability)
    axes[0, 0].set_ylabel("share of true rows")
    axes[1, 0].set_ylabel("rows")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _diagram(above: Axes, below: Axes, name: str, reliability: Reliability) -> None:
    bins = len(reliability.counts)
    edges = np.linspace(0, 1, bins + 1)
    some = reliability.counts > 0
    above.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (4, 4)), label="perfect")
    above.bar(edges[:-1][some], reliability.kept[some], 1 / bins, align="edge", color=BLUE, label="share true")
    promised = reliability.promised[some]
    above.hlines(promised, edges[:-1][some], edges[1:][some], color=ORANGE, linewidth=2, label="mean probability")
    above.set(xlim=(0, 1), ylim=(0, 1))
    above.grid(axis="y")
    above.set_title(f"{printable(name)}\nECE {reliability.error:.3f}, {reliability.rows:,} rows", fontsize=10)
    below.bar(edges[:-1], reliability.counts, 1 / bins, align="edge", color=PLAIN, edgecolor=SOFT, linewidth=0.5)
    below.set_yscale("symlog", linthresh=1)
    below.set_yticks([10**power for power in (0, 2, 4, 6) if 10**power <= 10 * reliability.counts.max()])
    below.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    below.minorticks_off()
    below.set_xlabel("probability")
