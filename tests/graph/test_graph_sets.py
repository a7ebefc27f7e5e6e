"""Triples as sets, the index, names and vocabularies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnknownName
from biqe.graph.index import build_index, objects, subjects
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.labels import Labels
from biqe.graph.triples import as_triples, contains, difference, union
from biqe.graph.vocabulary import Names, Vocabulary

ROW = st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 6))
WIDE_ROW = st.tuples(*[st.one_of(st.integers(0, 3), st.integers(2**31 - 3, 2**31 - 1))] * 3)
SIGNED_ROW = st.tuples(*[st.integers(-2, 2)] * 3)
ROWS = st.one_of(st.lists(ROW), st.lists(WIDE_ROW), st.lists(SIGNED_ROW))


def tuples(rows: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in rows.tolist()]


@given(ROWS)
def test_as_triples_is_the_sorted_set(rows: list) -> None:
    found = as_triples(rows)
    assert tuples(found) == sorted(set(rows))
    assert (found.dtype, found.flags.c_contiguous) == (np.int32, True)


@given(ROWS, ROWS)
def test_set_operations(a: list, b: list) -> None:
    left, right = as_triples(a), as_triples(b)
    assert tuples(union(left, right)) == sorted(set(a) | set(b))
    assert tuples(difference(left, right)) == sorted(set(a) - set(b))
    asked = np.asarray(b, np.int32).reshape(-1, 3)
    assert contains(left, asked).tolist() == [row in set(a) for row in b]
    assert contains(np.asarray(a, np.int32).reshape(-1, 3)[::-1], asked).tolist() == [row in set(a) for row in b]


def test_union_of_nothing() -> None:
    assert union().shape == (0, 3)


@given(st.lists(ROW), st.randoms())
def test_index_lists_every_neighbour_once(rows: list, random) -> None:
    triples = as_triples(rows)
    index = build_index(triples, 7, 4)
    known = set(rows)
    for entity in range(7):
        for relation in range(4):
            assert objects(index, entity, relation).tolist() == sorted(
                {o for s, r, o in known if (s, r) == (entity, relation)}
            )
            assert subjects(index, relation, entity).tolist() == sorted(
                {s for s, r, o in known if (r, o) == (relation, entity)}
            )
    start = index.relation_offsets
    for relation in range(4):
        part = slice(start[relation], start[relation + 1])
        pairs = list(zip(index.relation_subjects[part].tolist(), index.relation_objects[part].tolist(), strict=True))
        assert pairs == sorted((s, o) for s, r, o in known if r == relation)
    shuffled = tuples(triples)
    random.shuffle(shuffled)
    again = build_index(np.asarray(shuffled, np.int32).reshape(-1, 3), 7, 4)
    for a, b in zip(index, again, strict=True):
        np.testing.assert_array_equal(a, b)


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


@given(st.dictionaries(st.integers(0, 50), st.text().filter(str.isprintable)))
def test_labels_are_a_mapping(labels: dict[int, str]) -> None:
    held = Labels.of(labels)
    assert dict(held) == labels
    assert dict(held.items()) == labels
    assert list(held.values()) == [labels[entity] for entity in sorted(labels)]
    assert len(held) == len(labels)
    for entity in (-1, 51, 2**40):
        assert held.get(entity) is None


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
