"""Names and labels of a stored graph with a few more appended.

The stored part may be memory-mapped and have millions of names; it is copied only where all names are needed at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from biqe.graph.vocabulary import Names, Vocabulary


class GrownNames(Names):
    """``base`` followed by ``more``; ids of ``base`` do not change.

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
