"""One 64-bit number a row, so that equal walks, branches and queries are found by sorting.

Two different rows get the same number once in about 2^64 pairs: for a million rows the chance that any two do
is below one in ten million.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_START = np.uint64(0x243F6A8885A308D3)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def signatures(*columns: NDArray[np.integer]) -> Keys:
    """(n,) a number for each row of the (n,) or (n, k) arrays, taken side by side."""
    key = np.full(len(columns[0]), _START, np.uint64)
    for array in columns:
        for column in array.T if array.ndim == 2 else (array,):
            key = _mix((key ^ column.astype(np.uint64)) + _STEP)
    return key


def unseen(keys: Keys, seen: Keys) -> tuple[NDArray[np.int64], Keys]:
    """Rows of ``keys`` that are not in ``seen``, each value at its first row, in order; and ``seen`` with them.

    ``seen`` is sorted, and so is what comes back.
    """
    values, rows = np.unique(keys, return_index=True)
    if len(seen):
        places = np.minimum(np.searchsorted(seen, values), len(seen) - 1)
        new = seen[places] != values
        values, rows = values[new], rows[new]
    merged = np.concatenate([seen, values])
    merged.sort(kind="stable")
    return np.sort(rows), merged


def _mix(key: Keys) -> Keys:
    """A bijection of 64-bit numbers in which every bit of the input reaches every bit of the output."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
