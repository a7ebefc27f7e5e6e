"""Labels of entities: read from a ``labels.tsv``, and stored in sorted arrays."""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BadLine
from biqe.graph.blocks import blocks
from biqe.graph.collect import LabelBook
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


def read_labels(path: Path, into: LabelBook) -> None:
    """A labels file: ``name TAB label``, or ``name TAB label TAB description``, one entity a line.

    Blank lines and lines that start with ``#`` are skipped; an empty label stands for none. A file may be empty.
    """
    if path.stat().st_size == 0 and not path.is_fifo():
        return
    for block in blocks(path):
        for line, text in enumerate(block.data.decode().split("\n"), block.first_line):
            text = text.removesuffix("\r")
            if not text.strip(" ") or text.startswith("#"):
                continue
            row = text.split("\t")
            if len(row) not in (2, 3) or not row[0]:
                raise BadLine(
                    path,
                    line,
                    f"a label line has 2 or 3 columns and a name in the first. Got {len(row)} columns: {text[:60]!r}",
                    hint="write: name TAB label [TAB description]; or choose another file with --labels",
                )
            into.set(row[0], row[1].strip(), row[2].strip() if len(row) == 3 else "")
