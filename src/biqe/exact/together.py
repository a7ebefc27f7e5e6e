"""The largest sets of patterns that hold together, for whatever it means to hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from biqe.query.bound import Edge

SEARCH = 256
"""Sets of patterns that are tried before as many as possible becomes merely many."""
Patterns = tuple[Edge, ...]


def largest(patterns: Sequence[Edge], hold: Callable[[Patterns], bool]) -> tuple[list[Patterns], bool]:
    """The largest sets of ``patterns`` that hold together, at least the empty one; and whether these are all of them.

    A set must not hold where a part of it does not.
    """
    # What does not hold alone is in none of them; usually nothing else has to be searched.
    possible = [edge for edge in patterns if hold((edge,))]
    if len(possible) < 2:
        return [tuple(possible)], True
    tried = 0
    for size in range(len(possible), 1, -1):
        chosen: list[Patterns] = []
        for subset in combinations(possible, size):
            tried += 1
            if tried > SEARCH:
                return chosen or [_grown(possible, hold)], False
            if hold(subset):
                chosen.append(subset)
        if chosen:
            return chosen, True
    return [(edge,) for edge in possible], True


def _grown(possible: Sequence[Edge], hold: Callable[[Patterns], bool]) -> Patterns:
    """A set that no further pattern can join."""
    held: Patterns = ()
    for edge in possible:
        if hold((*held, edge)):
            held = (*held, edge)
    return held
