"""The largest subsets of a query's patterns that satisfy a monotone predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from biqe.query.bound import Edge

SEARCH = 256
"""Subsets that are tried; beyond these, a maximal subset that may not be a largest one is good enough."""
Patterns = tuple[Edge, ...]


def max_consistent_patterns(patterns: Sequence[Edge], hold: Callable[[Patterns], bool]) -> tuple[list[Patterns], bool]:
    """All subsets of maximal size for which ``hold`` is true (the empty set if no other), and whether the search ended.

    ``hold`` must be monotone: if it is false for a set, it is false for every larger set that contains it. After
    ``SEARCH`` subsets the search is cut short, and the subsets found so far are returned with False.
    """
    # A pattern that fails alone is in no subset. Usually this leaves nothing to search.
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
    """A maximal subset, by adding one pattern after the other."""
    held: Patterns = ()
    for edge in possible:
        if hold((*held, edge)):
            held = (*held, edge)
    return held
