"""Rules: closed paths that make a link likely, with their record on the training graph.

A rule says that a path of one or two links from x to y makes the link r(x, y) likely:

    located_on(x, y)  <-  near(x, z), located_on(z, y)        one such z: 31 of 100 pairs; five or more: 74 of 100

Its *confidence* is counted: of all pairs (x, y) that the path joins, the share that has the link as well. Pairs joined
by several paths of one kind (several z) are counted apart, because several neighbours that agree say more than one
does. Mining walks all paths of up to two links from every entity, or from a random sample of entities where time is
short.

Directions: relation ids run to 2R; r + R is relation r walked from its object to its subject. A rule can be read from
either end of a link, and says the same.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph

BINS = 4
"""Pairs are counted by their number of paths: 1, 2, 3 or 4, 5 or more."""
NONE = -1
"""Second direction of a path of one link."""
HUB = 1_000
"""Entities with more links than this are not walked through: paths over them join everything with everything."""
FEWEST_PAIRS = 2
"""Pairs with the link that a rule needs."""
LOWEST_CONFIDENCE = 0.01
CAUTION = 2.0
"""Pairs without the link that are added to each count, so that a path seen twice is not trusted like one seen often."""
MOST_RULES = 100
"""Rules that are kept of a relation: the most confident ones."""
MOST_PATHS = 200_000
"""Paths that are walked from one entity."""
MOST_BODIES = 16_000_000
"""Kinds of paths that are counted; with more relations than that, only paths of one link are."""
CERTAIN = 0.999
"""Confidences are cut here before several are joined."""


@dataclass(frozen=True)
class Walks:
    """All links of a graph from both ends: those of one entity side by side, by direction and then by tail."""

    offsets: NDArray[np.int64]  # (E+1,)
    directions: NDArray[np.int32]  # (2T,)
    tails: NDArray[np.int32]  # (2T,)

    @classmethod
    def of(cls, graph: Graph) -> Walks:
        """The links of ``graph``."""
        subjects, relations, objects = (graph.triples[:, column] for column in range(3))
        heads, tails = np.concatenate([subjects, objects]), np.concatenate([objects, subjects])
        directions = np.concatenate([relations, relations + graph.relation_count])
        order = np.lexsort((tails, directions, heads))
        offsets = np.zeros(graph.entity_count + 1, np.int64)
        np.cumsum(np.bincount(heads, minlength=graph.entity_count), out=offsets[1:])
        return cls(offsets, directions[order].astype(np.int32), tails[order].astype(np.int32))

    def counts(self, heads: NDArray[np.integer], directions: NDArray[np.integer]) -> NDArray[np.int64]:
        """(n,) how many tails each head has in its direction."""
        return _counts(self.offsets, self.directions, np.asarray(heads, np.int64), np.asarray(directions, np.int64))

    def of_head(self, head: int, direction: int) -> NDArray[np.int32]:
        """Tails of ``head`` in ``direction``, sorted."""
        start, stop = find_range(self.offsets, self.directions, head, direction)
        return self.tails[start:stop]

    def of_heads(
        self, heads: NDArray[np.integer], directions: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All tails of n heads and directions, and the number of the head that each belongs to."""
        return _tails(
            self.offsets, self.directions, self.tails, np.asarray(heads, np.int64), np.asarray(directions, np.int64)
        )


@dataclass(frozen=True)
class Fired:
    """A rule that speaks for a link."""

    rule: int
    """Its number."""
    path: tuple[int, ...]
    """Directions of its one or two links, walked from the subject."""
    through: tuple[int, ...]
    """Entities in the middle of its paths; none for a path of one link."""
    confidence: float
    pairs: int
    """Pairs that such paths join; entities with the link that speaks, for a rule with constants."""
    hits: int
    """Those of them that have the link that it speaks for."""
    constant: int | None = None
    """For a rule with constants: the entity at the other end of the one link in ``path``."""
    of_object: bool = False
    """For a rule with constants: whether the link that speaks is one of the object, not of the subject."""


@dataclass(frozen=True)
class Rules:
    """Rules by relation, the most confident of a relation first."""

    relation_count: int
    relations: NDArray[np.int32]  # (n,) the relation that each predicts, ascending
    bodies: NDArray[np.int32]  # (n, 2) directions of its path; NONE in second place for one link
    hits: NDArray[np.int32]  # (n, BINS) pairs with the link, by their number of paths
    totals: NDArray[np.int32]  # (n, BINS) pairs that the path joins

    def __len__(self) -> int:
        return len(self.relations)

    @cached_property
    def confidences(self) -> NDArray[np.float32]:
        """(n, BINS)"""
        return _confidence(self.hits, self.totals).astype(np.float32)

    @cached_property
    def _by_direction(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """(2R+1,) slices; (2n,) rules; and their (2n, 2) paths as they are walked from the head of the direction."""
        R = self.relation_count
        is_one = self.bodies[:, 1] == NONE
        turned = (self.bodies + R) % max(1, 2 * R)
        back = np.where(is_one[:, None], np.stack([turned[:, 0], np.full(len(self), NONE)], 1), turned[:, ::-1])
        offsets = np.zeros(2 * R + 1, np.int64)
        both = np.concatenate([self.relations, self.relations + R])
        np.cumsum(np.bincount(both, minlength=2 * R), out=offsets[1:])
        numbers = np.tile(np.arange(len(self), dtype=np.int32), 2)
        return offsets, numbers, np.ascontiguousarray(np.concatenate([self.bodies, back]), np.int32)

    def evidence(
        self, walks: Walks, heads: NDArray[np.integer], directions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, E) twice: the confidence of the best rule that speaks for each tail, 0 where none does; and all of them
        together as -log(1 - p) of their noisy-or."""
        entities = len(walks.offsets) - 1
        best = np.zeros((len(heads), entities), np.float32)
        joint = np.zeros((len(heads), entities), np.float32)
        offsets, numbers, bodies = self._by_direction
        _apply(
            np.asarray(heads, np.int64),
            np.asarray(directions, np.int64),
            walks.offsets,
            walks.directions,
            walks.tails,
            offsets,
            numbers,
            bodies,
            self.confidences,
            best,
            joint,
        )
        return best, joint

    def fired(self, walks: Walks, subject: int, relation: int, object_: int) -> list[Fired]:
        """The rules that speak for a link, the most confident first."""
        found = []
        for rule in range(*np.searchsorted(self.relations, [relation, relation + 1]).tolist()):
            first, second = self.bodies[rule].tolist()
            through: list[int] = []
            if second == NONE:
                paths = int(object_ in walks.of_head(subject, first))
            else:
                back = (second + self.relation_count) % (2 * self.relation_count)
                middle = np.intersect1d(walks.of_head(subject, first), walks.of_head(object_, back))
                through = [z for z in middle.tolist() if z not in (subject, object_) and not self._is_hub(walks, z)]
                paths = len(through)
            if paths:
                bin_ = int(_bin(paths))
                found.append(
                    Fired(
                        rule,
                        (first,) if second == NONE else (first, second),
                        tuple(through),
                        float(self.confidences[rule, bin_]),
                        int(self.totals[rule, bin_]),
                        int(self.hits[rule, bin_]),
                    )
                )
        return sorted((one for one in found if one.confidence > 0), key=lambda one: (-one.confidence, one.rule))

    @staticmethod
    def _is_hub(walks: Walks, entity: int) -> bool:
        return bool(walks.offsets[entity + 1] - walks.offsets[entity] > HUB)

    def widened(self, relation_count: int) -> Rules:
        """The same rules for a vocabulary with more relations, which come after those that the rules know."""
        R = self.relation_count
        bodies = np.where(self.bodies >= R, self.bodies - R + relation_count, self.bodies).astype(np.int32)
        return Rules(relation_count, self.relations, bodies, self.hits, self.totals)


def mine(graph: Graph, *, seconds: float = 60.0, seed: int = 0) -> Rules:
    """Rules of ``graph``, from as many of its entities as ``seconds`` allow; all of them on a small graph."""
    R, E = graph.relation_count, graph.entity_count
    D = 2 * R
    walks, length = Walks.of(graph), 2 if D * (D + 1) <= MOST_BODIES else 1
    totals = np.zeros((D * (D + 1) if length == 2 else D, BINS), np.int32)
    order = np.random.default_rng(seed).permutation(E)
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    end, done, chunk = time.monotonic() + seconds, 0, 64
    while done < E and (done == 0 or time.monotonic() < end):
        began = time.monotonic()
        part = order[done : done + chunk]
        found = _count(part, walks.offsets, walks.directions, walks.tails, R, length, totals)
        new, new_counts = np.unique(found, return_counts=True)
        keys, place = np.unique(np.concatenate([keys, new]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts, new_counts]), len(keys)).astype(np.int64)
        done += len(part)
        chunk = int(np.clip(chunk / max(1e-3, time.monotonic() - began), 16, 4_096))  # about a second each
    # A key is (body, relation, bin).
    pairs, row = np.unique(keys // BINS, return_inverse=True)
    hits = np.zeros((len(pairs), BINS), np.int32)
    hits[row, keys % BINS] = counts
    body, relation = pairs // max(1, R), pairs % max(1, R)
    best = _confidence(hits, totals[body]).max(axis=1, initial=0)
    kept = np.flatnonzero((hits.sum(axis=1) >= FEWEST_PAIRS) & (best >= LOWEST_CONFIDENCE))
    kept = kept[np.lexsort((-best[kept], relation[kept]))]
    kept = kept[np.arange(len(kept)) - np.searchsorted(relation[kept], relation[kept]) < MOST_RULES]
    if length == 2:
        bodies = np.stack([body[kept] // (D + 1), body[kept] % (D + 1) - 1], 1)
    else:
        bodies = np.stack([body[kept], np.full(len(kept), NONE)], 1)
    return Rules(R, relation[kept].astype(np.int32), bodies.astype(np.int32), hits[kept], totals[body[kept]])


def _confidence(hits: NDArray[np.integer], totals: NDArray[np.integer]) -> NDArray[np.float64]:
    return hits / (totals + CAUTION)


@numba.njit(cache=True)
def _bin(paths):  # type: ignore[no-untyped-def]
    if paths <= 2:
        return paths - 1
    return 2 if paths <= 4 else 3


@numba.njit(cache=True)
def find_range(offsets, directions, entity, direction):  # type: ignore[no-untyped-def]
    """Slice of the links of ``entity`` in ``direction``."""
    low, high = offsets[entity], offsets[entity + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if directions[middle] < direction:
            low = middle + 1
        else:
            high = middle
    start, high = low, end
    while low < high:
        middle = (low + high) // 2
        if directions[middle] <= direction:
            low = middle + 1
        else:
            high = middle
    return start, low


@numba.njit(cache=True)
def _counts(offsets, directions, heads, asked):  # type: ignore[no-untyped-def]
    found = np.empty(len(heads), np.int64)
    for row in range(len(heads)):
        start, stop = find_range(offsets, directions, heads[row], asked[row])
        found[row] = stop - start
    return found


@numba.njit(cache=True)
def _tails(offsets, directions, tails, heads, asked):  # type: ignore[no-untyped-def]
    counts = _counts(offsets, directions, heads, asked)
    rows, found = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64)
    n = 0
    for row in range(len(heads)):
        start, stop = find_range(offsets, directions, heads[row], asked[row])
        for place in range(start, stop):
            rows[n], found[n] = row, tails[place]
            n += 1
    return rows, found


@numba.njit(cache=True)
def _count(entities, offsets, directions, tails, R, length, totals):  # type: ignore[no-untyped-def]
    """Keys ((body * R + relation) * BINS + bin) of the pairs with a link that begin at ``entities``, one a pair and
    path; all pairs are added to ``totals``. A body is direction * (2R + 1), plus 1 + the second direction if any; where
    ``length`` is 1, the direction alone."""
    E = len(offsets) - 1
    D = 2 * R
    factor = D + 1 if length == 2 else 1
    keys = []
    is_linked = np.zeros(E, np.bool_)  # from x, by a relation of the graph's own direction
    for x in entities:
        steps = 0
        for edge in range(offsets[x], offsets[x + 1]):
            z = tails[edge]
            is_linked[z] |= directions[edge] < R
            steps += 1
            if length == 2 and offsets[z + 1] - offsets[z] <= HUB:
                steps += offsets[z + 1] - offsets[z]
        joined = np.empty(steps, np.int64)
        n = 0
        for edge in range(offsets[x], offsets[x + 1]):
            z = tails[edge]
            if z == x:
                continue
            body = np.int64(directions[edge]) * factor
            joined[n] = body * E + z
            n += 1
            if length == 1 or n > MOST_PATHS or offsets[z + 1] - offsets[z] > HUB:
                continue
            for next_edge in range(offsets[z], offsets[z + 1]):
                y = tails[next_edge]
                if y != x and y != z:
                    joined[n] = (body + directions[next_edge] + 1) * E + y
                    n += 1
        joined = np.sort(joined[:n])
        at = 0
        while at < n:
            stop = at + 1
            while stop < n and joined[stop] == joined[at]:
                stop += 1
            body, y, bin_ = joined[at] // E, joined[at] % E, _bin(stop - at)
            at = stop
            totals[body, bin_] += 1
            if is_linked[y]:
                for edge in range(offsets[x], offsets[x + 1]):
                    relation = directions[edge]
                    # A link does not speak for itself.
                    if tails[edge] == y and relation < R and body != np.int64(relation) * factor:
                        keys.append((body * R + relation) * 4 + bin_)
        for edge in range(offsets[x], offsets[x + 1]):
            is_linked[tails[edge]] = False
    return np.array(keys, dtype=np.int64)


@numba.njit(cache=True)
def _apply(heads, asked, offsets, directions, tails, slices, numbers, bodies, confidences, best, joint):  # type: ignore[no-untyped-def]
    E = len(offsets) - 1
    paths = np.zeros(E, np.int32)
    reached = np.empty(E, np.int64)
    for row in range(len(heads)):
        x = heads[row]
        for place in range(slices[asked[row]], slices[asked[row] + 1]):
            rule, n = numbers[place], 0
            start, stop = find_range(offsets, directions, x, bodies[place, 0])
            for edge in range(start, stop):
                z = tails[edge]
                if z == x:
                    continue
                if bodies[place, 1] < 0:
                    reached[n] = z
                    n += 1
                    paths[z] = 1
                    continue
                if offsets[z + 1] - offsets[z] > HUB:
                    continue
                first, last = find_range(offsets, directions, z, bodies[place, 1])
                for next_edge in range(first, last):
                    y = tails[next_edge]
                    if y != x and y != z:
                        if paths[y] == 0:
                            reached[n] = y
                            n += 1
                        paths[y] += 1
            for k in range(n):
                y = reached[k]
                confidence = confidences[rule, _bin(paths[y])]
                paths[y] = 0
                if confidence > best[row, y]:
                    best[row, y] = confidence
                joint[row, y] -= np.log1p(-min(confidence, CERTAIN))
