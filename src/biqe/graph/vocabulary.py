"""Names and ids of entities and relations, their labels, and the one rule for inverse relations.

Ids are dense: entities 0..E-1, relations 0..R-1. The inverse of relation r is r+R, so ids R..2R-1 stand for
edges walked against their direction; nothing else in the project knows this rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property
from itertools import chain
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption, UnknownName, UnreadableFile


class Names(Sequence[str]):
    """Names by id, held as one UTF-8 blob with offsets, so that millions of them can be memory-mapped.

    >>> names = Names.of(["Rhine", "Elbe"])
    >>> names[1], names.find("Rhine"), names.find("Oder")
    ('Elbe', 0, None)
    """

    def __init__(
        self, blob: NDArray[np.uint8], offsets: NDArray[np.int64], lookup: NDArray[np.uint64] | None = None
    ) -> None:
        self.blob = blob
        self.offsets = offsets
        self._lookup = lookup

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Names in the given order."""
        encoded = [name.encode() for name in names]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @property
    def lookup(self) -> NDArray[np.uint64]:
        """(n,) checksum of a name in the high 32 bits, its id in the low 32; ascending.

        Built on first use, or given when the names are memory-mapped, so that ``find`` is a binary search that
        touches a few pages and nothing as large as a dict of all names has to be made.
        """
        if self._lookup is None:
            blob, offsets = self.blob.tobytes(), self.offsets.tolist()
            checksums = np.fromiter(
                (crc32(blob[start:stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)),
                np.uint64,
                len(self),
            )
            self._lookup = np.sort((checksums << np.uint64(32)) | np.arange(len(self), dtype=np.uint64))
        return self._lookup

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, id_):  # type: ignore[no-untyped-def, override]
        if isinstance(id_, slice):
            return [self[i] for i in range(*id_.indices(len(self)))]
        if not -len(self) <= id_ < len(self):
            raise IndexError(id_)
        id_ %= len(self)
        return _decoded(self.blob[self.offsets[id_] : self.offsets[id_ + 1]].tobytes())

    def __iter__(self) -> Iterator[str]:
        blob, offsets = self.blob.tobytes(), self.offsets.tolist()
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            yield _decoded(blob[start:stop])

    def find(self, name: str) -> int | None:
        """Id of ``name``, or None. If names repeat, the smallest id."""
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            return None
        checksum = crc32(encoded)
        place = int(self.lookup.searchsorted(np.uint64(checksum << 32)))
        while place < len(self.lookup):
            entry = int(self.lookup[place])
            if entry >> 32 != checksum:
                return None
            id_ = entry & 0xFFFFFFFF
            if self.blob[self.offsets[id_] : self.offsets[id_ + 1]].tobytes() == encoded:
                return id_
            place += 1
        return None

    def digest(self) -> bytes:
        """A hash of all names in order."""
        digest = hashlib.sha256(np.ascontiguousarray(self.blob).data)
        digest.update(np.ascontiguousarray(self.offsets, np.int64).data)
        return digest.digest()


class GrownNames(Names):
    """``base`` followed by ``more``; ids of ``base`` do not change.

    ``base`` may be memory-mapped and have millions of names; it is copied only where all names are needed at once.

    >>> names = GrownNames(Names.of(["Rhine", "Elbe"]), Names.of(["Oder"]))
    >>> len(names), names[2], names.find("Oder"), names.find("Elbe"), list(names) == ["Rhine", "Elbe", "Oder"]
    (3, 'Oder', 2, 1, True)
    """

    def __init__(self, base: Names, more: Names) -> None:
        self._base = base
        self._more = more
        self._lookup = None

    @cached_property
    def blob(self) -> NDArray[np.uint8]:  # type: ignore[override]
        return np.concatenate([self._base.blob, self._more.blob])

    @cached_property
    def offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        return np.concatenate([self._base.offsets, self._base.offsets[-1] + self._more.offsets[1:]])

    def __len__(self) -> int:
        return len(self._base) + len(self._more)

    def __getitem__(self, id_):  # type: ignore[no-untyped-def, override]
        if isinstance(id_, slice):
            return [self[i] for i in range(*id_.indices(len(self)))]
        if not -len(self) <= id_ < len(self):
            raise IndexError(id_)
        id_ %= len(self)
        first = len(self._base)
        return self._base[id_] if id_ < first else self._more[id_ - first]

    def __iter__(self) -> Iterator[str]:
        return chain(self._base, self._more)

    def find(self, name: str) -> int | None:
        """Id of ``name``, or None. If names repeat, the smallest id."""
        id_ = self._base.find(name)
        if id_ is not None:
            return id_
        id_ = self._more.find(name)
        return None if id_ is None else id_ + len(self._base)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # Readers refuse such bytes, so a file was damaged after it was written.
        raise UnreadableFile(
            f"the graph is damaged: the name {data[:60]!r} is not valid UTF-8",
            hint="import the graph again; biqe doctor GRAPH shows more",
        ) from error


class Vocabulary:
    """Entities and relations of one graph: names, ids, labels."""

    def __init__(
        self,
        entities: Names | Iterable[str],
        relations: Names | Iterable[str],
        labels: Mapping[int, str] | None = None,
        descriptions: Mapping[int, str] | None = None,
        aliases: Collection[tuple[int, str]] = (),
    ) -> None:
        self.entities = entities if isinstance(entities, Names) else Names.of(entities)
        self.relations = relations if isinstance(relations, Names) else Names.of(relations)
        self.labels: Mapping[int, str] = labels if labels is not None else {}
        """Display name of an entity, where one is known, by entity id."""
        self.descriptions: Mapping[int, str] = descriptions if descriptions is not None else {}
        """A few words on an entity, where they are known, by entity id."""
        self.aliases = aliases
        """Entity ids and further labels, such as those of other languages: for looking up, never shown."""

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.entities):,} entities, {len(self.relations):,} relations)"

    def entity_id(self, name: str) -> int:
        """Id of the entity called ``name``; UnknownName if there is none."""
        id_ = self.entities.find(name)
        if id_ is None:
            raise UnknownName(f"entity {name!r} is not in this graph ({len(self.entities):,} entities)")
        return id_

    def relation_id(self, name: str) -> int:
        """Id of the relation called ``name``; UnknownName if there is none."""
        id_ = self.relations.find(name)
        if id_ is None:
            raise UnknownName(f"relation {name!r} is not in this graph ({len(self.relations):,} relations)")
        return id_

    def label(self, entity: int) -> str:
        """What to show for an entity: its label, or its name where it has none."""
        return self.labels.get(entity) or self.entities[entity]

    def inverse(self, relation: int) -> int:
        """Id of the relation walked the other way; its own inverse's inverse."""
        count = len(self.relations)
        if not 0 <= relation < 2 * count:
            raise InvalidOption(f"relation id must be in [0, {2 * count}). Got {relation}")
        return relation + count if relation < count else relation - count

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that two vocabularies share exactly if their names and ids agree."""
        return hashlib.sha256(self.entities.digest() + self.relations.digest()).hexdigest()[:16]


def first_part(vocabulary: Vocabulary, entities: int, relations: int) -> Vocabulary | None:
    """The vocabulary of the first ``entities`` and ``relations``; None where there are fewer.

    Its fingerprint shows whether a model was trained on an earlier state of this graph.
    """
    if len(vocabulary.entities) < entities or len(vocabulary.relations) < relations:
        return None
    return Vocabulary(_first(vocabulary.entities, entities), _first(vocabulary.relations, relations))


def _first(names: Names, count: int) -> Names:
    offsets = names.offsets[: count + 1]
    return Names(names.blob[: offsets[-1]], offsets)


# Labels


class Labels(Mapping[int, str]):
    """Text by entity id, for some entities; both arrays may be memory-mapped.

    >>> labels = Labels.of({7: "Rhine", 2: "Elbe"})
    >>> labels[7], labels.get(3), list(labels)
    ('Rhine', None, [2, 7])
    """

    def __init__(self, entities: NDArray[np.int32], texts: Names) -> None:
        self.entities = entities
        """Ids of the entities that have a text, ascending."""
        self.texts = texts

    @classmethod
    def of(cls, labels: Mapping[int, str]) -> Labels:
        """Labels of the mapping."""
        ids = sorted(labels)
        return cls(np.asarray(ids, np.int32), Names.of(labels[id_] for id_ in ids))

    def __getitem__(self, entity: int) -> str:
        place = int(np.searchsorted(self.entities, np.int32(entity))) if 0 <= entity < 2**31 else len(self.entities)
        if place == len(self.entities) or self.entities[place] != entity:
            raise KeyError(entity)
        return self.texts[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self.entities.tolist())

    def __len__(self) -> int:
        return len(self.entities)

    def items(self) -> ItemsView[int, str]:
        """Entities and texts, without a search for each."""
        return _Items(self)

    def values(self) -> ValuesView[str]:
        """Texts, without a search for each."""
        return _Values(self)


class ChangedLabels(Mapping[int, str]):
    """Labels of ``base``, overridden by those of ``changed``.

    >>> labels = ChangedLabels({1: "Rhine", 2: "Elbe"}, {2: "Labe", 5: "Oder"})
    >>> labels[2], labels.get(3), sorted(labels), len(labels)
    ('Labe', None, [1, 2, 5], 3)
    """

    def __init__(self, base: Mapping[int, str], changed: Mapping[int, str]) -> None:
        self._base = base
        self._changed = changed
        self._new = sum(entity not in base for entity in changed)

    def __getitem__(self, entity: int) -> str:
        found = self._changed.get(entity)
        return self._base[entity] if found is None else found

    def __iter__(self) -> Iterator[int]:
        return chain(self._base, (entity for entity in self._changed if entity not in self._base))

    def __len__(self) -> int:
        return len(self._base) + self._new


class Aliases(Collection[tuple[int, str]]):
    """Entities and texts, as pairs; an entity may have several, or none. Both arrays may be memory-mapped.

    >>> aliases = Aliases.of([(7, "Rhein"), (2, "Labe"), (7, "Rhin")])
    >>> list(aliases), (7, "Rhin") in aliases
    ([(2, 'Labe'), (7, 'Rhein'), (7, 'Rhin')], True)
    """

    def __init__(self, entities: NDArray[np.int32], texts: Names) -> None:
        self.entities = entities
        """Entity of each text, ascending."""
        self.texts = texts

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, str]]) -> Aliases:
        """Aliases of the pairs; those of one entity stay in their order."""
        ordered = sorted(pairs, key=lambda pair: pair[0])
        return cls(np.asarray([entity for entity, _ in ordered], np.int32), Names.of(text for _, text in ordered))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self.entities.tolist(), self.texts, strict=True)

    def __len__(self) -> int:
        return len(self.entities)

    def __contains__(self, pair: object) -> bool:
        return any(pair == mine for mine in self)


class _Items(ItemsView[int, str]):
    _mapping: Labels

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self._mapping.entities.tolist(), self._mapping.texts, strict=True)


class _Values(ValuesView[str]):
    _mapping: Labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping.texts)
