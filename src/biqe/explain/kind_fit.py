"""How well an entity fits as the subject or the object of a relation, in counts instead of logits.

The counts are those that ``biqe.links.kinds`` judges by: how many entities share a trait, and how many of them have
links in the direction that is asked for. The entity's own links in that direction are left out, as they are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from biqe.links.kinds import Kinds, Traits

CLEARLY = 1.5
"""A trait speaks for links, or against them, if it makes them so many times more or less frequent."""


@dataclass(frozen=True)
class TraitCount:
    """One trait of an entity: how many other entities share it, and how many of these have such links."""

    direction: int
    """The trait: links in this direction (relation ids to 2R, inverses from R), ..."""
    tail: int | None
    """... to this entity, if not to any."""
    with_links: int
    entities: int


@dataclass(frozen=True)
class KindFit:
    """How an entity fits as the head of a direction."""

    typical: int
    """Traits that at least half of the entities with links in the direction have."""
    shared: int
    """Those of them that this entity has, too."""
    best: TraitCount | None
    """Its trait that speaks most for such links, where one does."""
    worst: TraitCount | None
    """Its trait that speaks most against them, where one does."""


def kind_fit(kinds: Kinds, traits: Traits, entity: int, direction: int) -> KindFit:
    """How ``entity`` fits as the head of a link in ``direction``. ``traits`` are those of the graph that is asked."""
    directions = 2 * kinds.relation_count
    place = slice(traits.offsets[entity], traits.offsets[entity + 1])
    every, about = traits.traits[place], traits.about[place]
    own = every[about != direction]
    # The entity itself was counted if it has such links.
    itself = int(bool((every == direction).any()) and entity < kinds.entity_count)
    with_links = np.maximum(kinds.together[own, direction] - itself, 0)
    entities = np.maximum(kinds.sizes[own] - itself, 0)
    base = (kinds.sizes[direction] + 0.5) / (kinds.entity_count + 1.0)
    shares = (with_links + base) / (entities + 1.0)

    def counted(number: int) -> TraitCount:
        trait = int(own[number])
        tail = None if trait < directions else int(kinds.links[trait - directions] % kinds.entity_count)
        return TraitCount(int(about[about != direction][number]), tail, int(with_links[number]), int(entities[number]))

    best = worst = None
    if len(own):
        first, last = int(shares.argmax()), int(shares.argmin())
        best = counted(first) if shares[first] > CLEARLY * base and with_links[first] > 0 else None
        worst = counted(last) if shares[last] < base / CLEARLY else None
    typical = np.flatnonzero(kinds.typical(direction))
    return KindFit(len(typical), int(np.isin(typical, own).sum()), best, worst)
