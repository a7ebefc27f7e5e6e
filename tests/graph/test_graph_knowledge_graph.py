"""Graphs and their splits."""

from __future__ import annotations

import pytest

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary


def test_fingerprints_tell_graphs_apart() -> None:
    one, other = Vocabulary(["ab", "c"], ["r"]), Vocabulary(["a", "bc"], ["r"])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == Vocabulary(["ab", "c"], ["r"], {0: "x"}).fingerprint
    row = as_triples([(0, 0, 1)])
    assert Splits(one, row, as_triples([])).fingerprint != Splits(one, as_triples([]), row).fingerprint
    assert Graph(one, row).fingerprint != Graph(other, row).fingerprint


def test_splits_by_name() -> None:
    splits = Splits(Vocabulary(["a", "b"], ["r"]), as_triples([(0, 0, 1)]), as_triples([(1, 0, 0)]))
    assert len(splits["complete"].triples) == 2
    assert splits["train"] is splits["train"]
    with pytest.raises(InvalidOption, match="split must be one of"):
        splits["all"]
