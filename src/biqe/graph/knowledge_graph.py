"""A knowledge graph at rest: a vocabulary, triples, an index and literals; and the splits of one graph.

Fingerprints are over links alone: a model is of a graph whatever its texts and numbers say.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from biqe.errors import InvalidOption
from biqe.graph.index import Index, build_index
from biqe.graph.literals import Literals
from biqe.graph.triples import Triples, as_triples, union
from biqe.graph.vocabulary import Vocabulary

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Graph:
    """One set of triples over a vocabulary."""

    vocabulary: Vocabulary
    triples: Triples
    """(n, 3) int32: subject, relation, object; sorted, without duplicates."""
    literals: Literals | None = None
    """Statements with a literal as object, which only SPARQL sees; None where there are none."""

    @property
    def entity_count(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def relation_count(self) -> int:
        return len(self.vocabulary.relations)

    @cached_property
    def index(self) -> Index:
        """Neighbours, both ways; built on first use."""
        return build_index(self.triples, self.entity_count, self.relation_count)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits over names, ids and triples."""
        return _digest(self.vocabulary, self.triples)


@dataclass(frozen=True)
class Splits:
    """train, valid and test triples under one vocabulary. valid and test may be empty."""

    vocabulary: Vocabulary
    train: Triples
    valid: Triples = field(default_factory=lambda: as_triples([]))
    test: Triples = field(default_factory=lambda: as_triples([]))
    literals: Literals | None = None
    """Statements with a literal as object; known whatever the split, since nobody predicts them."""

    def __getitem__(self, split: str) -> Graph:
        """The graph of ``train``, ``valid`` or ``test`` alone, or of all three as ``complete``.

        Each graph is built once, so that its index is too.
        """
        if split not in self._graphs:
            if split == "complete":
                triples = union(self.train, self.valid, self.test)
            elif split in SPLITS:
                triples = getattr(self, split)
            else:
                raise InvalidOption(f"split must be one of {', '.join((*SPLITS, 'complete'))}. Got {split!r}")
            self._graphs[split] = Graph(self.vocabulary, triples, self.literals)
        return self._graphs[split]

    @cached_property
    def _graphs(self) -> dict[str, Graph]:
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits over names, ids and the triples of every split."""
        return _digest(self.vocabulary, self.train, self.valid, self.test)


def _digest(vocabulary: Vocabulary, *parts: Triples) -> str:
    digest = hashlib.sha256(vocabulary.fingerprint.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
