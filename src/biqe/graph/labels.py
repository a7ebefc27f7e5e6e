"""Labels of entities, stored in sorted arrays."""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from biqe.graph.vocabulary import Names


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
