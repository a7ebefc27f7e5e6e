"""What speaks for a missing link, in a sentence: the stored paths between its ends, and their record on this graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from biqe.graph.vocabulary import Vocabulary
from biqe.predict.evidence import IdLink

if TYPE_CHECKING:
    from biqe.links.probability import LinkProbability
    from biqe.links.rules import Fired

RULES = 3
"""Rules that are told of a link, the most confident ones."""
NAMED = 3
"""Entities in the middle of a path that are named."""


@dataclass(frozen=True)
class Reason:
    """Why one missing link is likely, or that no rule says so."""

    link: str
    """Subject, relation and object as they are shown."""
    sentences: tuple[str, ...]


def reasons(links: LinkProbability, vocabulary: Vocabulary, link: IdLink) -> Reason:
    """What speaks for ``link``, the strongest first."""
    fired = links.reasons(*link)[:RULES]
    told = tuple(_sentence(vocabulary, link, each) for each in fired)
    if not told:
        told = ("no stored path speaks for it; it is judged by what its ends are and by their likeness to others",)
    return Reason(_fact(vocabulary, link.subject, link.relation, link.object), told)


def _sentence(vocabulary: Vocabulary, link: IdLink, fired: Fired) -> str:
    cases = f"in {round(100 * fired.hits / max(1, fired.pairs))} of 100 cases ({fired.hits:,} of {fired.pairs:,})"
    if len(fired.path) == 1:
        return f"{_step(vocabulary, link.subject, fired.path[0], [link.object])}: so it is {cases}"
    first, second = fired.path
    count = len(vocabulary.relations)
    back = (second + count) % (2 * count)  # from the object, so that the entities in the middle are named once
    middle = list(fired.through[:NAMED])
    more = f" and {len(fired.through) - NAMED} more" if len(fired.through) > NAMED else ""
    start = _step(vocabulary, link.subject, first, middle)
    end = (
        _step(vocabulary, link.object, back, middle[:1]) if len(middle) == 1 else _each(vocabulary, second, link.object)
    )
    return f"{start}{more}, and {end}: so it is {cases}"


def _step(vocabulary: Vocabulary, entity: int, direction: int, others: list[int]) -> str:
    """Links of an entity to others, as the graph has them."""
    count, names = len(vocabulary.relations), " and ".join(vocabulary.label(other) for other in others)
    relation = vocabulary.relations[direction % count]
    return (
        f"{vocabulary.label(entity)} {relation} {names}"
        if direction < count
        else f"{names} {relation} {vocabulary.label(entity)}"
    )


def _each(vocabulary: Vocabulary, direction: int, object_: int) -> str:
    count, name = len(vocabulary.relations), vocabulary.label(object_)
    relation = vocabulary.relations[direction % count]
    return f"each of them {relation} {name}" if direction < count else f"{name} {relation} each of them"


def _fact(vocabulary: Vocabulary, subject: int, relation: int, object_: int) -> str:
    return f"{vocabulary.label(subject)} {vocabulary.relations[relation]} {vocabulary.label(object_)}"
