"""One number a row: equal rows share it, others do not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biqe.mine.walks import signatures, unseen


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), max_size=30), st.integers(0, 30))
def test_unseen_keeps_the_first_of_each_row(rows, cut):
    table = np.array(rows, np.int32).reshape(-1, 2)
    keys = signatures(table[:, 0], table[:, 1])
    first, seen = unseen(keys[:cut], np.zeros(0, np.uint64))
    second, seen = unseen(keys[cut:], seen)
    kept = [rows[i] for i in first] + [rows[cut + i] for i in second]
    assert kept == list(dict.fromkeys(rows))
    assert np.array_equal(seen, np.unique(keys))


def test_signatures_see_columns_and_order():
    left, right = np.array([1, 2], np.int32), np.array([2, 1], np.int32)
    assert len(set(signatures(left, right).tolist())) == 2
    assert np.array_equal(signatures(left, right), signatures(np.stack([left, right], axis=1)))
