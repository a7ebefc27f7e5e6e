"""Answer sets with a stated coverage, by split-conformal prediction.

A set of coverage c holds every row whose log-probability reaches a threshold. The threshold comes from n held-out
queries whose missing answer is known: with the scores of those answers sorted, it is the k-th smallest,
k = floor((1 - c) (n + 1)). For a further query of the same kind the answer is then in the set with probability c at
least, however bad the model is; a bad model pays with large sets. (Vovk et al. 2005, "Algorithmic Learning in a Random
World"; the answer that is covered is one drawn at random where a query misses several.)

Thresholds are kept apart by the number of targets: the rows of three targets have smaller probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption, UnreadableFile

GRID = tuple(percent / 100 for percent in range(50, 100))
"""Coverages whose thresholds are kept; any other is rounded up to the next of them."""
MOST_TARGETS = 3
"""Queries with more targets share the threshold of this group."""


@dataclass(frozen=True)
class Thresholds:
    """Thresholds by number of targets, one for each coverage of GRID."""

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


def fit(scores: NDArray[np.floating], targets: NDArray[np.integer] | Sequence[int]) -> Thresholds:
    """Thresholds from the log-probabilities of the missing answers of held-out queries, -inf where they were not
    listed, and the queries' numbers of targets."""
    scores = np.asarray(scores, np.float64)
    group_of = np.minimum(np.asarray(targets, np.int64), MOST_TARGETS)
    if len(scores) != len(group_of):
        raise InvalidOption(f"each query needs a score and a number of targets. Got {len(scores)} and {len(group_of)}")
    groups, counts = {}, {}
    for group in np.unique(group_of).tolist():
        own = np.sort(scores[group_of == group])
        groups[group] = tuple(_threshold(own, coverage) for coverage in GRID)
        counts[group] = len(own)
    return Thresholds(groups, counts)


def _threshold(ordered: NDArray[np.float64], coverage: float) -> float | None:
    """The k-th smallest score, k = floor((1 - c) (n + 1)); None where there is none, or it is infinite."""
    # Coverages are whole percents: so counted, floor is not at the mercy of 1 - 0.9 = 0.0999...
    place = math.floor((100 - round(100 * coverage)) * (len(ordered) + 1) / 100)
    if place < 1 or not np.isfinite(ordered[place - 1]):
        return None
    return float(ordered[place - 1])


def in_set(log_probabilities: NDArray[np.floating], threshold: float) -> NDArray[np.bool_]:
    """(n,) which rows an answer set with this threshold holds. Where all of them are in, rows that were not listed may
    belong to it too: list more."""
    return np.asarray(log_probabilities, np.float64) >= threshold
