"""The missing links of a graph with the largest calibrated probability, without judging all E * R * E of them.

1. A link can be asked for from either end, so each relation is asked about from the side that has fewer heads.
2. An entity that never had such a link has a ceiling: no such link of it is more probable than its kind allows
   (links/probability.py). Entities with links are asked first; of the others, those whose ceiling lies above the worst
   link that is still wanted.
3. Some links are not suggested: those of blank nodes, which nobody could review, and of entities that have neither
   such a link nor any trait of those that do (a class as the subject of ``type``).
4. Of all pairs of a relation, the sum of the three scores picks MOST_JUDGED, and these get their probability.

On a graph with fewer pairs than that every missing link is judged, and what is found is exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.exact.answers import checkpoint
from biqe.links.kinds import FIGURES, Traits
from biqe.links.probability import ROWS_AT_ONCE, ROWS_BYTES, Asked, LinkProbability

MOST_JUDGED = 20_000
"""Links of a relation, or of an entity, that are judged at a time, at least."""
JUDGED_EACH = 20
"""Links that are judged for each that is wanted, at least."""
LEAST = FIGURES - 1
"""Column of the least fitting trait among the figures of kinds."""

Ids = NDArray[np.int64]
Progress = Callable[[float], None]


@dataclass
class Best:
    """The ``count`` most probable links so far."""

    count: int
    links: Ids
    """(n, 3) subject, relation and object."""
    chances: NDArray[np.float64]
    """(n,) logarithms of their probabilities."""

    @classmethod
    def none(cls, count: int) -> Best:
        """Nothing yet."""
        return cls(count, np.zeros((0, 3), np.int64), np.zeros(0))

    @property
    def worst(self) -> float:
        """The least log-probability that still counts."""
        return float(self.chances[-1]) if len(self.chances) == self.count else -math.inf

    def take(self, links: Ids, chances: NDArray[np.float64]) -> None:
        """Consider these, too; equal ones by their ids."""
        links, chances = np.concatenate([self.links, links]), np.concatenate([self.chances, chances])
        order = np.lexsort((*links.T[::-1], -chances))[: self.count]
        self.links, self.chances = links[order], chances[order]


def of_relations(
    links: LinkProbability,
    relations: Sequence[int],
    best: Callable[[int], Best],
    *,
    end: float | None = None,
    progress: Progress = lambda share: None,
) -> bool:
    """Put the missing links of each relation into ``best`` of it; whether all that should be asked was asked before
    ``end``, a moment of ``time.monotonic``. ``progress`` is called with the share of the work that was done since."""
    plans = [(relation, _Plan.of(links, relation)) for relation in relations]
    rows = sum(len(plan.heads) for _, plan in plans)
    is_complete = True
    for relation, plan in sorted(plans, key=lambda each: len(each[1].heads)):
        # What is left of the time is shared by the rows that are left.
        now = time.monotonic()
        own_end = None if end is None else now + (end - now) * min(1.0, 2 * len(plan.heads) / max(1, rows))
        rows -= len(plan.heads)
        is_complete &= plan.search(links, best(relation), own_end)
        progress(1 / len(plans))
    return is_complete


def of_entity(links: LinkProbability, entity: int, relations: Sequence[int], best: Callable[[int], Best]) -> None:
    """Put the missing links of one entity, as subject or object, by some relations into ``best`` of each."""
    for relation in relations:
        checkpoint()
        directions = np.array([relation, relation + links.graph.relation_count])
        directions = directions[[ceilings(links, one, entity)[0] > _FAINT for one in directions.tolist()]]
        if len(directions) == 0:
            continue
        asked = links.asked(np.full(len(directions), entity), directions)
        order = _without_stored(links, asked)
        for row, direction in enumerate(directions.tolist()):
            tails = fitting(links, (direction + links.graph.relation_count) % (2 * links.graph.relation_count))
            order[row, torch.from_numpy(~tails)] = -torch.inf
        kept = torch.topk(order, min(order.shape[1], JUDGED_EACH * best(relation).count, MOST_JUDGED), 1)
        rows, places = (part.numpy() for part in torch.nonzero(kept.values > -torch.inf, as_tuple=True))
        _judge(links, asked, rows, kept.indices.numpy()[rows, places], best(relation))


@dataclass(frozen=True)
class _Plan:
    """From which side a relation is asked about, and from which heads."""

    direction: int
    heads: Ids
    """Those with such links first, then by how they fit; entities that can have none are left out."""
    ceilings: NDArray[np.float64]
    """(h,) log-probability that no missing link of each head exceeds, descending."""
    tail_ceilings: NDArray[np.float64]
    """(E,) the same of all tails."""

    @classmethod
    def of(cls, links: LinkProbability, relation: int) -> _Plan:
        """The side with fewer links to ask about."""
        sides = [ceilings(links, direction) for direction in (relation, relation + links.graph.relation_count)]
        is_back = int((sides[1] > _FAINT).sum() < (sides[0] > _FAINT).sum())
        own = sides[is_back]
        heads = np.flatnonzero(own > _FAINT)
        heads = heads[np.argsort(-own[heads], kind="stable")]
        return cls(relation + is_back * links.graph.relation_count, heads, own[heads], sides[1 - is_back])

    def search(self, links: LinkProbability, best: Best, end: float | None) -> bool:
        """Put the best missing links into ``best``; whether there was time for all heads."""
        wanted = max(MOST_JUDGED, JUDGED_EACH * best.count)
        least, kept = -math.inf, np.zeros(0, np.float32)
        step = _rows_at_once(links)
        for first in range(0, len(self.heads), step):
            checkpoint()
            if self.ceilings[first] <= best.worst:
                break
            if end is not None and first and time.monotonic() > end:
                return False
            heads = self.heads[first : first + step]
            asked = links.asked(heads, np.full(len(heads), self.direction))
            order = _without_stored(links, asked)
            order[:, torch.from_numpy(self.tail_ceilings <= best.worst)] = -torch.inf
            rows, tails = (part.numpy() for part in torch.nonzero(order > least, as_tuple=True))
            values = order.numpy()[rows, tails]
            kept = np.concatenate([kept, values])
            if len(kept) > wanted:
                kept = np.partition(kept, len(kept) - wanted)[-wanted:]
                least = float(kept[0])
            chosen = values >= least
            _judge(links, asked, rows[chosen], tails[chosen], best)
        return True


_FAINT = math.log(1e-3)
"""Entities whose links of a kind are all less probable than this are not asked."""


def ceilings(links: LinkProbability, direction: int, entity: int | None = None) -> NDArray[np.float64]:
    """(E,) log-probability that no missing link of each entity in ``direction`` exceeds: 0 for those with such
    links; minus infinity for those that are not suggested. (1,) for one entity alone."""
    knowledge, count = links.knowledge, links.graph.relation_count
    entities = np.arange(links.entity_count) if entity is None else np.array([entity])
    relation, known = direction % count, knowledge.kinds.relation_count
    if relation >= known:  # newer than all that was learnt
        return np.full(len(entities), -math.inf)
    traits = _traits(links, entity)
    least = knowledge.kinds.fit(traits, relation + known * (direction >= count))[:, LEAST].astype(np.float64)
    most = knowledge.straightened(least + math.log(knowledge.kind_doubt))
    has_links = links.walks.counts(entities, np.full(len(entities), direction)) > 0
    return np.where(fitting(links, direction, entity), np.where(has_links, 0.0, -np.logaddexp(0.0, -most)), -math.inf)


def fitting(links: LinkProbability, direction: int, entity: int | None = None) -> NDArray[np.bool_]:
    """(E,) whether an entity may be suggested as the head of ``direction``: it has a name, and such links or a trait of
    those that have. (1,) for one entity alone."""
    kinds, count = links.knowledge.kinds, links.graph.relation_count
    relation, known = direction % count, kinds.relation_count
    entities = np.arange(links.entity_count) if entity is None else np.array([entity])
    named = ~_is_blank(links)[entities]
    if relation >= known:
        return named
    typical = kinds.typical(relation + known * (direction >= count))
    if not typical.any():
        return named
    traits = _traits(links, entity)
    shared = np.concatenate([[0], np.cumsum(typical[traits.traits])])[traits.offsets]
    has_links = links.walks.counts(entities, np.full(len(entities), direction)) > 0
    return named & (has_links | (np.diff(shared) > 0))


def _is_blank(links: LinkProbability) -> NDArray[np.bool_]:
    """(E,) which entities are blank nodes: nobody could find them again."""
    names = links.graph.vocabulary.entities
    first = np.minimum(names.offsets[:-1], max(0, len(names.blob) - 2))
    is_long = np.diff(names.offsets) >= 2
    return (
        is_long & (names.blob[first] == ord("_")) & (names.blob[np.minimum(first + 1, len(names.blob) - 1)] == ord(":"))
    )


def _traits(links: LinkProbability, entity: int | None) -> Traits:
    """Traits of all entities, or of one."""
    traits = links.traits
    if entity is None:
        return traits
    own = slice(*traits.offsets[entity : entity + 2])
    return Traits(np.array([0, own.stop - own.start]), traits.traits[own], traits.about[own])


def _rows_at_once(links: LinkProbability) -> int:
    return min(ROWS_AT_ONCE, max(1, ROWS_BYTES // (4 * links.entity_count)))


def _without_stored(links: LinkProbability, asked: Asked) -> torch.Tensor:
    """The sum of the three scores, minus infinity for stored links and for those of an entity to itself."""
    order = asked.order
    rows, tails = links.walks.of_heads(asked.heads, asked.directions)
    order[torch.from_numpy(rows), torch.from_numpy(tails)] = -torch.inf
    order[torch.arange(len(order)), torch.from_numpy(asked.heads)] = -torch.inf
    return order


def _judge(links: LinkProbability, asked: Asked, rows: Ids, tails: Ids, best: Best) -> None:
    """Put the links from the heads of ``rows`` to ``tails`` into ``best`` by their probabilities."""
    if len(rows) == 0:
        return
    chances = links.of_asked(asked, rows, tails)
    likely = np.flatnonzero(chances >= best.worst)
    heads, directions, tails = asked.heads[rows[likely]], asked.directions[rows[likely]], tails[likely]
    count = links.graph.relation_count
    is_back = directions >= count
    subjects, objects = np.where(is_back, tails, heads), np.where(is_back, heads, tails)
    best.take(np.stack([subjects, directions % count, objects], 1).astype(np.int64), chances[likely])
