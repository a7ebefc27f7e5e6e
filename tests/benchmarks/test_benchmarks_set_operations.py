"""Many sorted sets at once, against Python's sets; drawing from them and outside of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from biqe.benchmarks.set_operations import merge_rows, pick_members, pick_outside, sorted_sets, subtract

ragged = st.lists(st.sets(st.integers(0, 19)), min_size=1, max_size=6)


def sets_of(members: list[set[int]]):
    owner = [place for place, some in enumerate(members) for _ in some]
    return sorted_sets(
        np.array(owner, np.int64), np.array([v for some in members for v in some], np.int64), len(members)
    )


@given(members=ragged, most=st.integers(1, 8), seed=st.integers(0, 99), kinds=st.integers(1, 3))
def test_drawing_inside_and_outside(members, most, seed, kinds):
    sets = sets_of(members)
    picked = pick_members(sets, most, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    types = rng.integers(0, kinds, 20)
    wanted = rng.integers(0, kinds, len(members))
    outside = pick_outside(sets, types, wanted, most, rng)
    for place, some in enumerate(members):
        inside = picked[place].tolist()
        assert inside == sorted(set(inside)) and set(inside) <= some and len(inside) == min(most, len(some))
        free = {entity for entity in range(20) if types[entity] == wanted[place]} - some
        found = outside[place].tolist()
        assert found == sorted(set(found)) and set(found) <= free and len(found) == min(most, len(free))


def test_every_outsider_is_as_likely():
    count = 6_000
    sets = sets_of([{1, 4, 5}] * count)
    found = pick_outside(sets, np.zeros(10, np.int64), np.zeros(count, np.int64), 3, np.random.default_rng(0))
    shares = np.bincount(found.values, minlength=10) / count
    np.testing.assert_allclose(shares[[0, 2, 3, 6, 7, 8, 9]], 3 / 7, atol=0.03)
    assert shares[[1, 4, 5]].tolist() == [0, 0, 0]


@given(a=ragged, b=ragged)
def test_subtraction_and_union_are_those_of_sets(a, b):
    b = (b + [set()] * len(a))[: len(a)]
    left = subtract(sets_of(a), sets_of(b))
    assert [set(left[place].tolist()) for place in range(len(a))] == [x - y for x, y in zip(a, b, strict=True)]
    merged = merge_rows(sets_of([*a, *b]), np.tile(np.arange(len(a)), 2), len(a))
    assert [set(merged[place].tolist()) for place in range(len(a))] == [x | y for x, y in zip(a, b, strict=True)]
