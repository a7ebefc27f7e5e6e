"""Entities and relations by name or label, as a person would type them: case and accents do not matter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from biqe.errors import InvalidOption
from biqe.graph.vocabulary import Aliases, Labels, Names, Vocabulary


class Found(NamedTuple):
    """One entity that fits."""

    entity: int
    name: str
    label: str
    """Its label, or its name where it has none."""


def find(vocabulary: Vocabulary, text: str, limit: int = 10) -> list[Found]:
    """Entities whose name, label or alias fits ``text``, whatever its case and accents; at most ``limit``.

    First those that equal it, then those that start with it, then those that contain it; shorter ones first within
    each group, then by id. An IRI also counts by what follows its namespace, so ``Rhine`` equals
    ``http://example.org/Rhine``.
    """
    wanted = _wanted(text, limit)
    chosen = _best(_containing(vocabulary, wanted), wanted, limit)
    return [Found(entity, vocabulary.entities[entity], vocabulary.label(entity)) for entity in chosen]


def find_relations(vocabulary: Vocabulary, text: str, limit: int = 10) -> list[int]:
    """Relations whose name fits ``text``, in the order of ``find``. An underscore fits a blank.

    >>> find_relations(Vocabulary([], ["located_on", "on_sea", "borders"]), "located on")
    [0]
    """
    wanted = _wanted(text, limit).replace("_", " ")
    rows = ((id_, name.replace("_", " ")) for id_, name in enumerate(vocabulary.relations))
    return _best((row for row in rows if wanted in fold(row[1])), wanted, limit)


def fold(text: str) -> str:
    """The text without case and accents.

    >>> fold("Ein Café"), fold("STRASSE") == fold("Straße")
    ('ein cafe', True)
    """
    folded = text.casefold()
    if folded.isascii():
        return folded
    parts = unicodedata.normalize("NFKD", folded)
    return "".join(part for part in parts if not unicodedata.combining(part)).casefold()


def _wanted(text: str, limit: int) -> str:
    if limit < 1:
        raise InvalidOption(f"limit must be 1 or more. Got {limit}")
    wanted = fold(text.strip())
    if not wanted:
        raise InvalidOption(
            "the text to look for is empty", hint="any part of a name will do, such as 'rhi' for the Rhine"
        )
    return wanted


def _best(candidates: Iterable[tuple[int, str]], wanted: str, limit: int) -> list[int]:
    """Ids of the texts that fit best."""
    best: dict[int, tuple[int, int]] = {}
    for id_, candidate in candidates:
        for form in (candidate, local_name(candidate)):
            folded = fold(form)
            place = 0 if folded == wanted else 1 if folded.startswith(wanted) else 2
            rank = (place, len(form))
            if wanted in folded and (id_ not in best or rank < best[id_]):
                best[id_] = rank
    return sorted(best, key=lambda id_: (*best[id_], id_))[:limit]


def namespace_of(iri: str) -> str | None:
    """The IRI up to its local name, or None for a blank node or a name that is no IRI.

    >>> namespace_of("http://example.org/geo#Rhine"), namespace_of("urn:isbn:1"), namespace_of("_:b1")
    ('http://example.org/geo#', 'urn:isbn:', None)
    """
    if iri.startswith("_:") or ":" not in iri:
        return None
    end = iri.rfind("#") + 1 or iri.rfind("/") + 1 or iri.rfind(":") + 1
    return iri[:end]


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
        yield from ((entity, text) for entity, text in labels.items() if wanted in fold(text))
    aliases = vocabulary.aliases
    if isinstance(aliases, Aliases):
        yield from ((int(aliases.entities[row]), text) for row, text in _names_containing(aliases.texts, wanted))
    else:
        yield from ((entity, text) for entity, text in aliases if wanted in fold(text))


def _names_containing(names: Names, wanted: str) -> Iterator[tuple[int, str]]:
    """Places and texts of the names that contain ``wanted`` once they are folded.

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
        found.update(place for place in _beyond_ascii(names) if wanted in fold(names[place]))
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
