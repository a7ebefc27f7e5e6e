"""Triples as sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biqe.graph.triples import as_triples, contains, difference, union

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
