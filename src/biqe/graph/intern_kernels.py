"""Compiled interning: ids for byte strings in an open-addressing hash table over one growing blob.

A slot holds the low 32 bits of a name's hash in its upper half and its id + 1 in its lower half; 0 is free. So most
look-ups of a wrong slot end without touching the names themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from biqe.graph.compiled import compiled
from biqe.graph.vocabulary import Names

COUNT, USED = 0, 1
"""Places in ``Table.state``: number of names, bytes used in the blob."""


class Table(NamedTuple):
    """The arrays of an interner, as kernels take them."""

    slots: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    blob: NDArray[np.uint8]
    state: NDArray[np.int64]


class HashInterner:
    """An Interner whose table is open to kernels. They call ``has_room`` first, and Python ``grow`` if it fails."""

    def __init__(self, names: int = 1 << 14, size: int = 1 << 19) -> None:
        slots = 1 << (2 * names - 1).bit_length()
        self.table = Table(
            np.zeros(slots, np.uint64), np.zeros(names + 1, np.int64), np.empty(size, np.uint8), np.zeros(2, np.int64)
        )

    def __len__(self) -> int:
        return int(self.table.state[COUNT])

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        encoded = [name.encode() for name in names]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=offsets[1:])
        data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        ids = np.empty(len(encoded), np.int32)
        done = 0
        while done < len(encoded):
            done = intern_all(self.table, data, offsets, ids, done)
            if done < len(encoded):
                self.grow(int(offsets[done + 1] - offsets[done]))
        return ids

    def grow(self, size: int = 0) -> None:
        """Room for twice as many names, and for at least ``size`` more bytes."""
        slots, offsets, blob, state = self.table
        count, used = int(state[COUNT]), int(state[USED])
        if count + 2 >= len(offsets) - 1:
            larger = np.zeros(2 * (len(offsets) - 1) + 1, np.int64)
            larger[: count + 1] = offsets[: count + 1]
            offsets = larger
            slots = rehash(slots, np.zeros(2 * len(slots), np.uint64))
        if used + size >= len(blob):
            larger_blob = np.empty(max(2 * len(blob), used + 2 * size), np.uint8)
            larger_blob[:used] = blob[:used]
            blob = larger_blob
        self.table = Table(slots, offsets, blob, state)

    def names(self) -> Names:
        count, used = int(self.table.state[COUNT]), int(self.table.state[USED])
        return Names(self.table.blob[:used].copy(), self.table.offsets[: count + 1].copy())


@compiled(nogil=True, inline="always")
def has_room(table, names, size):  # type: ignore[no-untyped-def]
    """Whether ``names`` more names of ``size`` bytes in all fit."""
    return table.state[0] + names < len(table.offsets) - 1 and table.state[1] + size < len(table.blob)


@intrinsic
def load_word(typing_context, data, place):  # type: ignore[no-untyped-def]
    """Eight bytes from ``data[place]`` on as one number; the place need not be aligned, and is not checked."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.ptrtoint(array.data, cgutils.intp_t)
        address = builder.add(address, arguments[1])
        word = context.get_value_type(types.uint64)
        return builder.load(builder.inttoptr(address, word.as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


@compiled(nogil=True, inline="always")
def _hash(data, start, size):  # type: ignore[no-untyped-def]
    """32 bits over ``size`` bytes. The last word overlaps the one before it, so that nothing beyond is read."""
    value = np.uint64(0xCBF29CE484222325) ^ np.uint64(size)
    if size < 8:
        for i in range(size):
            value = (value ^ np.uint64(data[start + i])) * np.uint64(0x100000001B3)
    else:
        last = size - 8
        i = 0
        while i < last:
            value = (value ^ load_word(data, start + i)) * np.uint64(0x9E3779B97F4A7C15)  # type: ignore[call-arg]
            value ^= value >> np.uint64(29)
            i += 8
        value = (value ^ load_word(data, start + last)) * np.uint64(0x9E3779B97F4A7C15)  # type: ignore[call-arg]
    value ^= value >> np.uint64(32)
    value *= np.uint64(0xD6E8FEB86659FD93)
    return value >> np.uint64(32)


@compiled(nogil=True, inline="always")
def _same(a, a_start, b, b_start, size):  # type: ignore[no-untyped-def]
    if size < 8:
        for i in range(size):
            if a[a_start + i] != b[b_start + i]:
                return False
        return True
    last = size - 8
    i = 0
    while i < last:
        if load_word(a, a_start + i) != load_word(b, b_start + i):  # type: ignore[call-arg]
            return False
        i += 8
    return load_word(a, a_start + last) == load_word(b, b_start + last)  # type: ignore[call-arg]


@compiled(nogil=True)
def intern(table, data, start, stop):  # type: ignore[no-untyped-def]
    """Id of the bytes ``data[start:stop]``; the table must have room for them."""
    slots, offsets, blob, state = table.slots, table.offsets, table.blob, table.state
    size = stop - start
    value = _hash(data, start, size)
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while True:
        entry = slots[slot]
        if entry == np.uint64(0):
            break
        if entry >> np.uint64(32) == value:
            id_ = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            begin = offsets[id_]
            if offsets[id_ + 1] - begin == size and _same(blob, begin, data, start, size):
                return id_
        slot = (slot + np.uint64(1)) & mask
    id_ = state[0]
    used = state[1]
    for i in range(size):
        blob[used + i] = data[start + i]
    offsets[id_ + 1] = used + size
    slots[slot] = (value << np.uint64(32)) | np.uint64(id_ + 1)
    state[0] = id_ + 1
    state[1] = used + size
    return id_


@compiled(nogil=True)
def intern_all(table, data, offsets, ids, first):  # type: ignore[no-untyped-def]
    """Ids of names ``first`` and following; the number of names that are done when the table is full."""
    for i in range(first, len(ids)):
        if not has_room(table, 1, offsets[i + 1] - offsets[i]):
            return i
        ids[i] = intern(table, data, offsets[i], offsets[i + 1])
    return len(ids)


@compiled(nogil=True)
def rehash(slots, larger):  # type: ignore[no-untyped-def]
    """All entries of ``slots`` put into ``larger``, an array of zeros."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(slots)):
        entry = slots[i]
        if entry != np.uint64(0):
            slot = (entry >> np.uint64(32)) & mask
            while larger[slot] != np.uint64(0):
                slot = (slot + np.uint64(1)) & mask
            larger[slot] = entry
    return larger
