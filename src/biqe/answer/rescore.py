"""Tuples ranked anew, by the geometric mean of several ways to write their joint probability.

forward    the chain in the beam's own order:  p(a) p(b | a) p(c | a, b)
backward   the chain in the reverse order:     p(c) p(b | c) p(a | b, c)
each       every target given all others:      p(a | b, c) p(b | a, c) p(c | a, b)

All of it is asked in one step, since the tuples are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.ranked import Ranked, Tuples
from biqe.answer.refill import Question, Refiller, Reply, Scores, Template

Condition = tuple[frozenset[int], int]
"""Filled columns, and the column whose probability given them is asked for."""


def rescore(
    refiller: Refiller, marginals: Scores, rows: Tuples, order: Sequence[int], count: int
) -> Generator[list[Question], Reply, Ranked]:
    """The ``count`` best of ``rows`` by the mean over the ways to write their joint probability.

    The rows together keep the probability that the beam's order gives them; how it is divided, the mean says.
    """
    targets = len(order)
    forward = [(frozenset(order[:place]), order[place]) for place in range(targets)]
    backward = [(frozenset(order[place + 1 :]), order[place]) for place in range(targets)]
    each = [(frozenset(order) - {column}, column) for column in order]
    given = yield from conditionals(refiller, marginals, rows, {*forward, *backward, *each})
    chain = np.sum([given[key] for key in forward], axis=0)
    mixed = np.mean([np.sum([given[key] for key in way], axis=0) for way in (forward, backward, each)], axis=0)
    possible = np.isfinite(chain) & np.isfinite(mixed)
    rows, chain, mixed = rows[possible], chain[possible], mixed[possible]
    probabilities = mixed - _log_sum(mixed) + min(0.0, _log_sum(chain))
    best = np.lexsort((*rows.T[::-1], -probabilities))[:count]
    return Ranked(rows[best], probabilities[best])


def conditionals(
    refiller: Refiller, marginals: Scores, rows: Tuples, needed: set[Condition]
) -> Generator[list[Question], Reply, dict[Condition, NDArray[np.float64]]]:
    """(n,) log-probability, for each condition, of the row's entity given the row's other entities."""
    found: dict[Condition, NDArray[np.float64]] = {}
    wanted: list[tuple[frozenset[int], Template, list[int]]] = []
    questions = []
    for closed in sorted({closed for closed, _ in needed}, key=sorted):
        columns = [column for other, column in sorted(needed, key=lambda key: key[1]) if other == closed]
        if not closed:
            found |= {(closed, column): marginals[column, rows[:, column]].astype(np.float64) for column in columns}
            continue
        for template in refiller.templates(closed):
            own = [column for column in columns if column in template.columns]
            if own:
                nodes, filling = template.filled(rows)
                wanted.append((closed, template, own))
                questions.append(Question(template, nodes, _picker(rows, filling, template.columns, own)))
    replies = yield questions
    for (closed, _, own), (members, picked) in zip(wanted, replies, strict=True):
        values = np.empty((len(rows), len(own)))
        values[members] = picked
        found |= {(closed, column): values[:, place] for place, column in enumerate(own)}
    return found


def _picker(
    rows: Tuples, filling: NDArray[np.int64], columns: Sequence[int], own: Sequence[int]
) -> Callable[[Scores, slice], tuple[NDArray[Any], ...]]:
    """Keeps, for each row, the scores of its own entities."""

    def pick(scores: Scores, slice_: slice) -> tuple[NDArray[Any], ...]:
        members = np.flatnonzero((filling >= slice_.start) & (filling < slice_.stop))
        at = filling[members] - slice_.start
        picked = [scores[at, columns.index(column), rows[members, column]] for column in own]
        return members, np.stack(picked, axis=1).astype(np.float64)

    return pick


def _log_sum(values: NDArray[np.float64]) -> float:
    """Logarithm of the sum of exponentials; -inf of none."""
    top = values.max(initial=-np.inf)
    return float(top + np.log(np.exp(values - top).sum())) if np.isfinite(top) else -np.inf
