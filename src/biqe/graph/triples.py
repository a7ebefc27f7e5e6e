"""Sets of triples as sorted (n, 3) int32 arrays, and the set operations on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Triples = NDArray[np.int32]


def as_triples(rows: object) -> Triples:
    """``rows`` as a (n, 3) int32 array, sorted by subject, relation, object, without duplicates."""
    array = np.asarray(rows, np.int32).reshape(-1, 3)
    if len(array) == 0:
        return array
    widths = _widths(array)
    if widths is None:
        array = array[np.lexsort((array[:, 2], array[:, 1], array[:, 0]))]
        keep = np.ones(len(array), bool)
        keep[1:] = (array[1:] != array[:-1]).any(axis=1)
        return np.ascontiguousarray(array[keep])
    keys = _keys(array, widths)
    keys.sort()
    keep = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return _rows(keys if keep.all() else keys[keep], widths)


def _widths(array: Triples) -> tuple[int, int] | None:
    """Bits of relation and object ids, where a triple fits into 63 bits: such keys sort many times faster."""
    if array.min() < 0:
        return None
    subject, relation, object_ = (int(array[:, column].max()).bit_length() for column in range(3))
    return (relation, object_) if subject + relation + object_ <= 63 else None


def _keys(array: Triples, widths: tuple[int, int]) -> NDArray[np.int64]:
    relation, object_ = widths
    keys = array[:, 0].astype(np.int64)
    keys <<= relation
    keys |= array[:, 1]
    keys <<= object_
    keys |= array[:, 2]
    return keys


def _rows(keys: NDArray[np.int64], widths: tuple[int, int]) -> Triples:
    relation, object_ = widths
    rows = np.empty((len(keys), 3), np.int32)
    rows[:, 2] = keys & ((1 << object_) - 1)
    rows[:, 1] = (keys >> object_) & ((1 << relation) - 1)
    rows[:, 0] = keys >> (object_ + relation)
    return rows


def union(*parts: Triples) -> Triples:
    """Triples that are in any of the parts."""
    return as_triples(np.concatenate(parts)) if parts else as_triples([])


def difference(a: Triples, b: Triples) -> Triples:
    """Triples of ``a`` that are not in ``b``."""
    return a[~contains(b, a)]


def contains(stored: Triples, asked: Triples) -> NDArray[np.bool_]:
    """For each row of ``asked``, whether ``stored`` holds it. Both may be in any order."""
    if len(stored) == 0 or len(asked) == 0:
        return np.zeros(len(asked), bool)
    smallest = np.minimum(stored.min(axis=0), asked.min(axis=0))
    largest = np.maximum(stored.max(axis=0), asked.max(axis=0))
    widths = _widths(np.stack([smallest, largest]))
    if widths is None:
        # As one opaque 12-byte value a row, so that a set operation sees rows, not columns.
        row = np.dtype((np.void, 12))
        stored_rows = np.ascontiguousarray(stored, np.int32).view(row).ravel()
        asked_rows = np.ascontiguousarray(asked, np.int32).view(row).ravel()
        return np.isin(asked_rows, stored_rows)
    keys = np.sort(_keys(stored, widths))
    wanted = _keys(asked, widths)
    places = np.searchsorted(keys, wanted)
    # A key beyond the last is compared with the last, which it does not equal.
    return keys[np.minimum(places, len(keys) - 1)] == wanted
