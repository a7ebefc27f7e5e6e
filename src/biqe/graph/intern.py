"""Ids for names, in order of first appearance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biqe.graph.vocabulary import Names


class Interner(Protocol):
    """Gives each distinct name the next id."""

    def __len__(self) -> int: ...

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Id of each name; a name not seen before gets the next free id."""
        ...

    def names(self) -> Names:
        """All names, by id."""
        ...


class DictInterner:
    """An Interner over a dict: no compilation to wait for, so right for small inputs."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        known = self._ids
        return np.fromiter((known.setdefault(name, len(known)) for name in names), np.int32, len(names))

    def names(self) -> Names:
        return Names.of(self._ids)
