"""Kinds: how well an entity fits as the subject or the object of a relation, learnt from use.

What an entity is shows in its links: cities have a ``located_in``, rivers a ``flows_into``, and a class is what others
have as their ``type``. A *trait* of an entity is a direction that it has links in, or a frequent link itself (``type
City``). Counted over the training graph, each trait tells how many of the entities with it also have links in the
direction that is asked for. What an entity's own links in that direction say is left out, so that known and new
subjects are judged alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph

MOST_LINKS = 5_000
"""Frequent links that count as traits, at most."""
FEWEST = 5
"""Entities that must share a link for it to be a trait."""
MANY = 10
"""Entities that must share a trait for it to rule out what none of them has."""
FIGURES = 3
"""How an entity fits: by its most fitting trait, by the mean of its traits, by its least fitting trait (logits)."""


@dataclass(frozen=True)
class Traits:
    """Traits of every entity of one graph."""

    offsets: NDArray[np.int64]  # (E+1,)
    traits: NDArray[np.int32]
    about: NDArray[np.int32]
    """The direction that each trait is about."""


@dataclass(frozen=True)
class Kinds:
    """How often traits go together with directions. Relation ids run to 2R, as those of rules do."""

    relation_count: int
    entity_count: int
    """Of the graph that was counted; entities that came later have the traits of their links."""
    links: NDArray[np.int64]  # (m,) ascending keys, direction * E + tail, of the links that are traits
    sizes: NDArray[np.int32]  # (2R + m,) entities with each trait
    together: NDArray[np.int32]  # (2R + m, 2R) entities with the trait and with links in the direction

    @classmethod
    def of(cls, graph: Graph) -> Kinds:
        """Counted on ``graph``."""
        D = 2 * graph.relation_count
        _, directions, tails = _ends(graph)
        unique, counts = np.unique(directions * graph.entity_count + tails, return_counts=True)
        frequent = np.flatnonzero(counts >= FEWEST)
        links = np.sort(unique[frequent[np.argsort(-counts[frequent], kind="stable")[:MOST_LINKS]]])
        size = D + len(links)
        empty = cls(
            graph.relation_count, graph.entity_count, links, np.zeros(size, np.int32), np.zeros((size, D), np.int32)
        )
        traits = empty.traits(graph)
        together = np.zeros((size, D), np.int32)
        _count(traits.offsets, traits.traits, D, together)
        sizes = np.bincount(traits.traits, minlength=size).astype(np.int32)
        return cls(graph.relation_count, graph.entity_count, links, sizes, together)

    def traits(self, graph: Graph) -> Traits:
        """Traits of the entities of ``graph``, which has the vocabulary that was counted and perhaps more."""
        heads, directions, tails = _ends(graph)
        # Relations may have been added behind those that were counted, and inverses stand behind all relations.
        inverse = directions >= graph.relation_count
        relations = directions - inverse * graph.relation_count
        counted = relations < self.relation_count
        heads, tails = heads[counted], tails[counted]
        directions = (relations + inverse * self.relation_count)[counted]
        D = 2 * self.relation_count
        keys = directions * self.entity_count + tails
        place = np.minimum(np.searchsorted(self.links, keys), max(0, len(self.links) - 1))
        is_trait = (tails < self.entity_count) & (self.links[place] == keys if len(self.links) else False)
        uses = np.unique(heads * max(1, D) + directions)
        entity = np.concatenate([uses // max(1, D), heads[is_trait]])
        trait = np.concatenate([uses % max(1, D), D + place[is_trait]])
        about = np.concatenate([uses % max(1, D), directions[is_trait]])
        order = np.lexsort((trait, entity))
        offsets = np.zeros(graph.entity_count + 1, np.int64)
        np.cumsum(np.bincount(entity, minlength=graph.entity_count), out=offsets[1:])
        return Traits(offsets, trait[order].astype(np.int32), about[order].astype(np.int32))

    def fit(self, traits: Traits, direction: int) -> NDArray[np.float32]:
        """(E, FIGURES) how well each entity fits as the head of a link in ``direction``, as logits."""
        found = np.empty((len(traits.offsets) - 1, FIGURES), np.float32)
        base = (self.sizes[direction] + 0.5) / (self.entity_count + 1.0)
        others, own = (self._logits(direction, base, counted) for counted in (0, 1))
        _fit(traits.offsets, traits.traits, traits.about, direction, others, own, _logit(base), found)
        return found

    def typical(self, direction: int) -> NDArray[np.bool_]:
        """(2R + m,) traits that at least half of the entities with links in ``direction`` have, without those that are
        about such links."""
        about = np.concatenate([np.arange(2 * self.relation_count), self.links // max(1, self.entity_count)])
        return (2 * self.together[:, direction] >= max(1, self.sizes[direction])) & (about != direction)

    def rules_out(self, traits: Traits, entity: int, direction: int) -> bool:
        """Whether an entity without links in ``direction`` has a trait that many share, none of whom has such links."""
        every = traits.traits[traits.offsets[entity] : traits.offsets[entity + 1]]
        if (every == direction).any():
            return False
        return bool(((self.sizes[every] >= MANY) & (self.together[every, direction] == 0)).any())

    def _logits(self, direction: int, base: float, own: int) -> NDArray[np.float32]:
        """(2R + m,) what each trait says; ``own`` is 1 for an entity with links in the direction, which does not count
        itself."""
        return _logit((self.together[:, direction] - own + base) / np.maximum(self.sizes - own + 1.0, 1.0))


def _logit(share: float | NDArray[np.floating]) -> NDArray[np.float32]:
    share = np.clip(share, 1e-6, 1.0 - 1e-6)
    return np.log(share / (1.0 - share)).astype(np.float32)


def _ends(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Heads, directions and tails of all links, from both of their ends."""
    subjects, relations, objects = (graph.triples[:, column].astype(np.int64) for column in range(3))
    return (
        np.concatenate([subjects, objects]),
        np.concatenate([relations, relations + graph.relation_count]),
        np.concatenate([objects, subjects]),
    )


@numba.njit(cache=True)
def _count(offsets, traits, D, together):  # type: ignore[no-untyped-def]
    for entity in range(len(offsets) - 1):
        for first in range(offsets[entity], offsets[entity + 1]):
            for second in range(offsets[entity], offsets[entity + 1]):
                if traits[second] < D:
                    together[traits[first], traits[second]] += 1


@numba.njit(cache=True)
def _fit(offsets, traits, about, direction, others, own, base, found):  # type: ignore[no-untyped-def]
    for entity in range(len(offsets) - 1):
        logits = others
        for place in range(offsets[entity], offsets[entity + 1]):
            if traits[place] == direction:
                logits = own
        best, least, total, n = -20.0, 20.0, 0.0, 0
        for place in range(offsets[entity], offsets[entity + 1]):
            if about[place] != direction:
                logit = logits[traits[place]]
                best, least, total = max(best, logit), min(least, logit), total + logit
                n += 1
        if n == 0:
            best = least = total = base
            n = 1
        found[entity, 0], found[entity, 1], found[entity, 2] = best, total / n, least
