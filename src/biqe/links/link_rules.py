"""Rules with constants: entities with one link often have another, with their record on the training graph.

    language(x, Swahili)  <-  country(x, Kenya)          93 of 100 entities with the one link have the other

Both links are frequent ones, and both may be walked either way. Counted are entities: of all with the first link, how
many have the second as well. A rule counts where it says clearly more than how often entities have the second link
anyway. A link speaks through such rules from both of its ends: by the other links of its subject, and by those of its
object.

Directions: relation ids run to 2R; r + R is relation r walked from its object to its subject.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph
from biqe.links.rules import CERTAIN, Fired, Walks, find_range

FEWEST_ENTITIES = 5
"""Entities that must share a link for it to stand in a rule."""
MOST_LINKS = 20_000
"""Frequent links that are considered, at most."""
MOST_OF_ONE = 200
"""Links of one entity that are paired, at most: the rarest ones, which say most about it."""
MOST_PAIRS = 20_000_000
"""Pairs of links that are counted; with more, a random sample of the entities is."""
FEWEST_HITS = 3
CAUTION = 5.0
"""Entities that are added to each count as if they had the second link as often as others do."""
LOWEST_CONFIDENCE, LEAST_GAIN = 0.1, 2.0
"""A rule needs this confidence, and so many times the odds that an entity has the second link anyway."""
MOST_RULES = 50
"""Rules that are kept for one second link: the most confident ones."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class LinkRules:
    """Rules "who has the link ``body`` has the link ``head``", by head."""

    relation_count: int
    entity_count: int
    """Of the graph that was counted; constants are among its entities."""
    bodies: NDArray[np.int32]  # (n, 2) direction and entity of the link that speaks
    heads: NDArray[np.int32]  # (n, 2) direction and entity of the link that it speaks for; ascending
    hits: NDArray[np.int32]  # (n,) entities with both links
    totals: NDArray[np.int32]  # (n,) entities with the first
    confidences: NDArray[np.float32]  # (n,)

    def __len__(self) -> int:
        return len(self.hits)

    @classmethod
    def none(cls, relation_count: int, entity_count: int) -> LinkRules:
        """No rule at all."""
        pairs, counts = np.zeros((0, 2), np.int32), np.zeros(0, np.int32)
        return cls(relation_count, entity_count, pairs, pairs, counts, counts, np.zeros(0, np.float32))

    @cached_property
    def _by_body(self) -> tuple[Ids, Ids]:
        """Ascending keys of body and direction of the head, and the rules in that order."""
        keys = self._keys(self.bodies) * (2 * self.relation_count) + self.heads[:, 0]
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    @cached_property
    def _by_head(self) -> Ids:
        return self._keys(self.heads)

    def _keys(self, links: NDArray[np.int32]) -> Ids:
        return links[:, 0].astype(np.int64) * self.entity_count + links[:, 1]

    def add_to(
        self, best: NDArray[np.float32], joint: NDArray[np.float32], walks: Walks, heads: Ids, directions: Ids
    ) -> None:
        """Let the best rule with constants for each link from ``heads`` in ``directions`` count as one more rule beside
        ``best`` and ``joint``, (n, E) both: see ``Rules.evidence``."""
        if len(self):
            keys, order = self._by_body
            _apply(
                np.asarray(heads, np.int64),
                np.asarray(directions, np.int64),
                walks.offsets,
                walks.directions,
                walks.tails,
                self.relation_count,
                self.entity_count,
                keys,
                order,
                self._by_head,
                self.bodies,
                self.heads,
                self.confidences,
                best,
                joint,
            )

    def fired(self, walks: Walks, subject: int, relation: int, object_: int) -> list[Fired]:
        """The rules that speak for a link, the most confident first."""
        found = []
        for entity, direction, constant in (
            (subject, relation, object_),
            (object_, relation + self.relation_count, subject),
        ):
            if constant >= self.entity_count:
                continue  # newer than the rules
            key = direction * self.entity_count + constant
            for rule in range(*np.searchsorted(self._by_head, [key, key + 1]).tolist()):
                own, end = self.bodies[rule].tolist()
                if end in walks.of_head(entity, own):
                    record = float(self.confidences[rule]), int(self.totals[rule]), int(self.hits[rule])
                    found.append(Fired(rule, (own,), (), *record, constant=end, of_object=entity == object_))
        return sorted(found, key=lambda each: (-each.confidence, each.of_object, each.rule))

    def widened(self, relation_count: int) -> LinkRules:
        """The same rules for a vocabulary with more relations, which come after those that the rules know."""
        shift = np.array([relation_count - self.relation_count, 0], np.int32)
        moved = [
            (links + np.where(links[:, :1] >= self.relation_count, shift, 0)).astype(np.int32)
            for links in (self.bodies, self.heads)
        ]
        return replace(self, relation_count=relation_count, bodies=moved[0], heads=moved[1])


def mine_link_rules(graph: Graph, *, seed: int = 0) -> LinkRules:
    """Rules with constants of ``graph``."""
    E, R = graph.entity_count, graph.relation_count
    walks = Walks.of(graph)
    entities = starts = np.repeat(np.arange(E), np.diff(walks.offsets))
    keys = walks.directions.astype(np.int64) * E + walks.tails
    unique, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(counts >= FEWEST_ENTITIES)
    kept = np.sort(frequent[np.argsort(-counts[frequent], kind="stable")[:MOST_LINKS]])
    if len(kept) < 2:
        return LinkRules.none(R, E)
    links, numbers = unique[kept], np.full(len(unique), -1)
    numbers[kept] = np.arange(len(kept))
    own = numbers[place]
    entities, own = entities[own >= 0], own[own >= 0]
    # The rarest links of an entity first, and no more than MOST_OF_ONE of them.
    order = np.lexsort((counts[kept][own], entities))
    entities, own = entities[order], own[order]
    within = np.arange(len(entities)) - np.searchsorted(entities, entities)
    entities, own = entities[within < MOST_OF_ONE], own[within < MOST_OF_ONE]
    sizes = np.bincount(entities, minlength=E)
    drawn = np.random.default_rng(seed).permutation(E)
    drawn = drawn[np.cumsum(sizes[drawn].astype(np.int64) ** 2) <= MOST_PAIRS]
    offsets = np.zeros(E + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    T = len(links)
    totals = np.bincount(own[np.isin(entities, drawn)], minlength=T)
    pairs, hits = np.unique(_pairs(drawn, offsets, own, T), return_counts=True)
    body, head = pairs // T, pairs % T
    # How often an entity with any link in the direction of the head has just that one.
    having = np.bincount(np.unique(walks.directions.astype(np.int64) * E + starts) // E, minlength=2 * R)
    usual = counts[kept] / np.maximum(1, having[links // E])
    confidence = (hits + CAUTION * usual[head]) / (totals[body] + CAUTION)
    is_gain = confidence * (1 - usual[head]) >= LEAST_GAIN * usual[head] * (1 - confidence)
    good = (hits >= FEWEST_HITS) & (confidence >= LOWEST_CONFIDENCE) & is_gain & (usual[head] < 1)
    body, head, hits, confidence = body[good], head[good], hits[good], confidence[good]
    order = np.lexsort((body, -confidence, head))
    order = order[np.arange(len(order)) - np.searchsorted(head[order], head[order]) < MOST_RULES]
    body, head = body[order], head[order]
    return LinkRules(
        R,
        E,
        np.stack([links[body] // E, links[body] % E], 1).astype(np.int32),
        np.stack([links[head] // E, links[head] % E], 1).astype(np.int32),
        hits[order].astype(np.int32),
        totals[body].astype(np.int32),
        confidence[order].astype(np.float32),
    )


@numba.njit(cache=True)
def _pairs(entities, offsets, links, count):  # type: ignore[no-untyped-def]
    """Keys first * count + second of all pairs of different links of each entity."""
    n = 0
    for entity in entities:
        size = offsets[entity + 1] - offsets[entity]
        n += size * (size - 1)
    found = np.empty(n, np.int64)
    n = 0
    for entity in entities:
        for first in range(offsets[entity], offsets[entity + 1]):
            for second in range(offsets[entity], offsets[entity + 1]):
                if first != second:
                    found[n] = links[first] * count + links[second]
                    n += 1
    return found


@numba.njit(cache=True)
def _apply(  # type: ignore[no-untyped-def]
    heads, asked, offsets, directions, tails, R, E, keys, order, by_head, bodies, rule_heads, confidences, best, joint
):
    reached = np.zeros(best.shape[1], np.float32)
    touched = np.empty(best.shape[1], np.int64)
    for row in range(len(heads)):
        x, n = heads[row], 0
        # By the links of the entity that is asked about.
        for edge in range(offsets[x], offsets[x + 1]):
            if tails[edge] >= E or directions[edge] >= 2 * R:
                continue
            key = (np.int64(directions[edge]) * E + tails[edge]) * (2 * R) + asked[row]
            place = np.searchsorted(keys, key)
            while place < len(keys) and keys[place] == key:
                rule = order[place]
                y = rule_heads[rule, 1]
                if reached[y] == 0.0:
                    touched[n] = y
                    n += 1
                reached[y] = max(reached[y], confidences[rule])
                place += 1
        # By the links of those that it may be linked to.
        if x < E:
            key = ((asked[row] + R) % (2 * R)) * E + x
            place = np.searchsorted(by_head, key)
            while place < len(by_head) and by_head[place] == key:
                direction = (bodies[place, 0] + R) % (2 * R)
                start, stop = find_range(offsets, directions, bodies[place, 1], direction)
                for edge in range(start, stop):
                    y = tails[edge]
                    if reached[y] == 0.0:
                        touched[n] = y
                        n += 1
                    reached[y] = max(reached[y], confidences[place])
                place += 1
        for k in range(n):
            y = touched[k]
            confidence = reached[y]
            reached[y] = 0.0
            if y != x:
                best[row, y] = max(best[row, y], confidence)
                joint[row, y] -= np.log1p(-min(confidence, CERTAIN))
