"""Names, ids and vocabularies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnknownName
from biqe.graph.vocabulary import Names, Vocabulary


@given(st.lists(st.text(), max_size=30), st.text())
def test_names_are_found(names: list[str], other: str) -> None:
    names = list(dict.fromkeys(name for name in names if name.isprintable()))
    held = Names.of(names)
    assert list(held) == names == held[:]
    assert [held.find(name) for name in names] == list(range(len(names)))
    if other not in names:
        assert held.find(other) is None
    again = Names(held.blob, held.offsets, held.lookup)
    assert [again.find(name) for name in names] == list(range(len(names)))


def test_names_with_equal_checksums_are_told_apart() -> None:
    # Two of the many pairs that share a CRC-32.
    pair = ["plumless", "buckeroo"]
    names = Names.of(["x", *pair, "y"])
    assert int(names.lookup[0]) >> 32 != int(names.lookup[3]) >> 32
    assert [names.find(name) for name in pair] == [1, 2]


def test_names_refuse_what_is_not_there() -> None:
    names = Names.of(["a", "b"])
    assert names[-1] == "b"
    for id_ in (2, -3):
        with pytest.raises(IndexError):
            names[id_]
    assert names.find("\ud800") is None
    assert Names.of([]).find("a") is None


def test_vocabulary() -> None:
    vocabulary = Vocabulary(["a", "b"], ["r", "s", "t"], {1: "Bee"})
    assert [vocabulary.label(0), vocabulary.label(1)] == ["a", "Bee"]
    assert [vocabulary.inverse(relation) for relation in range(6)] == [3, 4, 5, 0, 1, 2]
    with pytest.raises(InvalidOption, match=r"relation id must be in \[0, 6\)"):
        vocabulary.inverse(6)
    with pytest.raises(UnknownName, match="entity 'c' is not in this graph"):
        vocabulary.entity_id("c")
    with pytest.raises(UnknownName, match="relation 'c' is not in this graph"):
        vocabulary.relation_id("c")
