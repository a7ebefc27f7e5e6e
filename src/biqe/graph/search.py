"""Entities by name or label, as a person would type them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from biqe.errors import InvalidOption
from biqe.graph.labels import Aliases, Labels
from biqe.graph.prefixes import namespace_of
from biqe.graph.vocabulary import Names, Vocabulary


class Found(NamedTuple):
    """One entity that fits."""

    entity: int
    name: str
    label: str
    """Its label, or its name where it has none."""


def find(vocabulary: Vocabulary, text: str, limit: int = 10) -> list[Found]:
    """Entities whose name, label or alias fits ``text``, whatever its case; at most ``limit``.

    First those that equal it, then those that start with it, then those that contain it; shorter ones first within
    each group, then by id. An IRI also counts by what follows its namespace, so ``Rhine`` equals
    ``http://example.org/Rhine``.
    """
    if limit < 1:
        raise InvalidOption(f"limit must be 1 or more. Got {limit}")
    wanted = text.strip().casefold()
    if not wanted:
        raise InvalidOption("the text to look for is empty")
    best: dict[int, tuple[int, int]] = {}
    for entity, candidate in _containing(vocabulary, wanted):
        for form in (candidate, local_name(candidate)):
            folded = form.casefold()
            place = 0 if folded == wanted else 1 if folded.startswith(wanted) else 2
            rank = (place, len(form))
            if wanted in folded and (entity not in best or rank < best[entity]):
                best[entity] = rank
    chosen = sorted(best, key=lambda entity: (*best[entity], entity))[:limit]
    return [Found(entity, vocabulary.entities[entity], vocabulary.label(entity)) for entity in chosen]


def local_name(name: str) -> str:
    """What follows the namespace of an IRI; any other name as it is.

    >>> local_name("http://example.org/geo#Rhine"), local_name("/m/0345h")
    ('Rhine', '/m/0345h')
    """
    namespace = namespace_of(name) if "://" in name else None
    return name[len(namespace) :] if namespace else name


def _containing(vocabulary: Vocabulary, wanted: str) -> Iterator[tuple[int, str]]:
    yield from _names_containing(vocabulary.entities, wanted)
    labels: Mapping[int, str] = vocabulary.labels
    if isinstance(labels, Labels):
        entities = labels.entities
        yield from ((int(entities[place]), text) for place, text in _names_containing(labels.texts, wanted))
    else:
        yield from ((entity, text) for entity, text in labels.items() if wanted in text.casefold())
    aliases = vocabulary.aliases
    if isinstance(aliases, Aliases):
        yield from ((int(aliases.entities[row]), text) for row, text in _names_containing(aliases.texts, wanted))
    else:
        yield from ((entity, text) for entity, text in aliases if wanted in text.casefold())


def _names_containing(names: Names, wanted: str) -> Iterator[tuple[int, str]]:
    """Places and texts of the names that contain ``wanted`` when case is folded.

    ASCII text is searched in the bytes of all names at once, which is some ten times faster than name by name. Names
    with other letters are folded one by one, because folding may turn such a letter into ASCII.
    """
    blob = names.blob.tobytes()
    offsets = np.asarray(names.offsets)
    found: set[int] = set()
    if wanted.isascii():
        pattern = re.compile(re.escape(wanted.encode()))
        starts = np.fromiter((match.start() for match in _overlapping(pattern, blob.lower())), np.int64)
        places = np.searchsorted(offsets, starts, side="right") - 1
        within = starts + len(wanted) <= offsets[places + 1]
        found.update(places[within].tolist())
    if not blob.isascii():
        found.update(place for place in _beyond_ascii(names) if wanted in names[place].casefold())
    yield from ((place, names[place]) for place in sorted(found))


def _overlapping(pattern: re.Pattern[bytes], blob: bytes) -> Iterator[re.Match[bytes]]:
    """Matches that may overlap: one that runs over the end of a name must not hide one that starts in the next."""
    match = pattern.search(blob)
    while match is not None:
        yield match
        match = pattern.search(blob, match.start() + 1)


def _beyond_ascii(names: Names) -> list[int]:
    high = np.flatnonzero(np.asarray(names.blob) >= 0x80)
    return np.unique(np.searchsorted(names.offsets, high, side="right") - 1).tolist()
