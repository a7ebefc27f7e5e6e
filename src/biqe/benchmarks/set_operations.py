"""Operations on many sorted sets of entities at once: union, difference, random members, random outsiders."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biqe.query.bound import AnswerSets


def sorted_sets(owner: NDArray[np.integer], values: NDArray[np.integer], count: int) -> AnswerSets:
    """``count`` sets from pairs of set and member, in any order, repeated or not."""
    keys = np.unique(np.asarray(owner, np.int64) << 32 | np.asarray(values, np.int64))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys >> 32, minlength=count), out=offsets[1:])
    return AnswerSets(offsets, (keys & 0xFFFFFFFF).astype(np.int32))


def merge_rows(sets: AnswerSets, owner: NDArray[np.integer], count: int) -> AnswerSets:
    """The union of the sets of each of ``count`` owners."""
    if len(owner) == count and (owner == np.arange(count)).all():
        return sets
    return sorted_sets(np.repeat(owner, np.diff(sets.offsets)), sets.values, count)


def subtract(sets: AnswerSets, less: AnswerSets) -> AnswerSets:
    """Members of each set that are not in the other's set of the same place."""
    mine, theirs = (
        np.repeat(np.arange(len(some), dtype=np.int64), np.diff(some.offsets)) << 32 | some.values.astype(np.int64)
        for some in (sets, less)
    )
    left = np.ones(len(mine), bool)
    if len(theirs):
        places = np.searchsorted(theirs, mine)
        left = theirs[np.minimum(places, len(theirs) - 1)] != mine
    lengths = np.bincount(mine[left] >> 32, minlength=len(sets))
    offsets = np.zeros(len(sets) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return AnswerSets(offsets, sets.values[left])


def pick_members(sets: AnswerSets, most: int, rng: np.random.Generator) -> AnswerSets:
    """At most ``most`` members of each set, every choice alike; sorted."""
    offsets, ranks = _ranks(np.diff(sets.offsets), most, rng)
    owner = np.repeat(np.arange(len(sets)), np.diff(offsets))
    return AnswerSets(offsets, sets.values[sets.offsets[owner] + ranks])


def pick_outside(
    sets: AnswerSets, types: NDArray[np.integer], wanted: NDArray[np.integer], most: int, rng: np.random.Generator
) -> AnswerSets:
    """For each set at most ``most`` entities of the ``wanted`` type that are not in it, every choice alike; sorted.

    ``types`` is (E,), ``wanted`` one type a set.
    """
    # Entities by type, and the place of each among those of its type.
    order = np.argsort(types, kind="stable")
    sizes = np.bincount(types, minlength=int(wanted.max(initial=0)) + 1)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(types), np.int64)
    place[order] = np.arange(len(types)) - starts[types[order]]
    # Only members of the wanted type have to be avoided.
    owner = np.repeat(np.arange(len(sets)), np.diff(sets.offsets))
    alike = types[sets.values] == wanted[owner]
    owner, inside = owner[alike], place[sets.values[alike]]
    counts = np.bincount(owner, minlength=len(sets))
    first = np.cumsum(counts) - counts
    offsets, ranks = _ranks(sizes[wanted] - counts, most, rng)
    asked = np.repeat(np.arange(len(sets)), np.diff(offsets))
    # The j-th member, at place p, has p - j outsiders before it: an outsider of rank k has before it all members with
    # p - j <= k, and so stands at place k plus their number. Members stand sorted, so one search finds all of them.
    width = np.int64(len(types) + 1)
    before = owner * width + inside - (np.arange(len(inside)) - first[owner])
    passed = np.searchsorted(before, asked * width + ranks, side="right") - first[asked]
    return AnswerSets(offsets, order[starts[wanted[asked]] + ranks + passed].astype(np.int32))


def _ranks(
    sizes: NDArray[np.integer], most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets, and for each row min(size, most) distinct numbers below its size, sorted, every choice alike."""
    taken = np.minimum(sizes, most)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(taken, out=offsets[1:])
    ranks = np.arange(offsets[-1]) - np.repeat(offsets[:-1], taken)  # all of them, where there are no more
    large = np.flatnonzero(sizes > most)
    if len(large):
        # Floyd's algorithm, in all rows at once: the i-th draw is below size - most + i + 1, and one that was drawn
        # before is replaced by the largest number of its turn, which cannot have been.
        chosen = np.empty((len(large), most), np.int64)
        for turn in range(most):
            last = sizes[large] - most + turn
            drawn = (rng.random(len(large)) * (last + 1)).astype(np.int64)
            again = (chosen[:, :turn] == drawn[:, None]).any(axis=1)
            chosen[:, turn] = np.where(again, last, drawn)
        chosen.sort(axis=1)
        ranks[(offsets[large][:, None] + np.arange(most)).ravel()] = chosen.ravel()
    return offsets, ranks
