"""Pickles are read if they hold built-in containers, and refused in bounded time if they want more."""

from __future__ import annotations

import collections
import os
import pickle
import pickletools
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.benchmarks.restricted_pickle import brief, load_pickle
from biqe.errors import UnreadableFile

RAN: list[str] = []


def ran(*arguments: object) -> str:
    """What a hostile pickle would call."""
    RAN.append(repr(arguments))
    return "ran"


class Calls:
    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.clear()
    yield
    assert RAN == []


@pytest.fixture
def written(tmp_path: Path):
    def write(data: bytes) -> Path:
        path = tmp_path / "hostile.pkl"
        path.write_bytes(data)
        return path

    return write


def plain() -> st.SearchStrategy:
    keys = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=30),
        lambda inner: st.lists(inner, max_size=4).map(tuple),
        max_leaves=5,
    )
    return st.recursive(
        keys | st.sets(keys, max_size=4) | st.frozensets(keys, max_size=4),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(keys, inner, max_size=4)
        ),
        max_leaves=8,
    )


@settings(max_examples=40)
@given(value=plain(), protocol=st.integers(0, pickle.HIGHEST_PROTOCOL), shared=st.booleans())
def test_plain_values_come_back_whatever_the_protocol(value, protocol, shared, tmp_path_factory):
    value = [value, value] if shared else value
    path = tmp_path_factory.getbasetemp() / "value.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    assert load_pickle(path) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_default_dicts_of_containers_are_read(written, protocol):
    value = collections.defaultdict(list, {("protein", "binds", "drug"): [1, 2]})
    nested = {"adjacency": collections.defaultdict(set, {1: {2, 3}}), "lists": value, "sets": [frozenset({1}), {2}]}
    found = load_pickle(written(pickle.dumps(nested, protocol)))
    assert found == nested and found["lists"].default_factory is list


def test_python_2_wrote_its_sets_and_strings_so(written):
    data = b"\x80\x02}q\x01U\x04drugq\x02c__builtin__\nset\nq\x03]q\x04(K\x01K\x02e\x85q\x05Rq\x06s."
    assert load_pickle(written(data)) == {"drug": {1, 2}}


HOSTILE = {
    "os.system": Calls(os.system, ("true",)),
    "a function of ours": Calls(ran, ("called",)),
    "eval": Calls(eval, ("1",)),
    "exec": Calls(exec, ("1",)),
    "getattr": Calls(getattr, ("", "join")),
    "__import__": Calls(__import__, ("os",)),
    "open": Calls(open, ("/dev/null",)),
    "map over a call": [1, (2, {"deep": Calls(ran, (1,))})],
    "state of an object": Calls(ran, (), {"state": 1}),
    "list of a call": Calls(list, (Calls(ran, ()),)),
    "str": Calls(str, (1,)),
    "numpy": np.arange(3),
    "numpy scalar": np.int64(3),
    "a default dict of calls": collections.defaultdict(ran),
    "a counter": collections.Counter("ab"),
    "an exception": ValueError("x"),
    "bytes": b"abc",
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", HOSTILE)
def test_everything_else_is_refused(name, protocol, written):
    path = written(pickle.dumps(HOSTILE[name], protocol))
    with pytest.raises(UnreadableFile, match="hostile.pkl is refused, and nothing of it was run"):
        load_pickle(path)


def test_the_message_names_what_it_wanted(written):
    with pytest.raises(UnreadableFile, match=r"it wants posix\.system"):
        load_pickle(written(pickle.dumps(HOSTILE["os.system"], 2)))


STOP = b"."
CRAFTED = {
    "a name from pieces": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "a module remembered under a harmless name": b"\x80\x04\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x8c\x011\x85R.",
    "a name taken from the memo": b"\x80\x04\x8c\x04eval\x940\x8c\x08builtinsh\x00\x93.",
    "a protocol 4 global in a tuple": b"\x80\x04\x8c\x08builtins\x8c\x06system\x93.",
    "list called": b"c__builtin__\nlist\n]\x85R.",
    "set of a remembered list": b"c__builtin__\nset\n](K\x01e\x94h\x00\x85R.",
    "defaultdict of a list": b"ccollections\ndefaultdict\n]\x85R.",
    "a call of a number": b"K\x01]\x85R.",
    "a persistent id": b"Pabc\n.",
    "a binary persistent id": b"K\x01Q.",
    "an extension": b"\x82\x01.",
    "an old instance": b"(ios\nsystem\n.",
    "an old object": b"(cos\nsystem\no.",
    "a new object": b"c__builtin__\nset\n)\x81.",
    "state": b"](K\x01e}b.",
    "a buffer": b"\x80\x05\x97.",
    "an attribute path": b"\x80\x04cbuiltins\nlist.append\n.",
    "a bare class": b"\x80\x04\x8c\x08builtins\x8c\x04list\x93.",
    "a class in a list": b"](cbuiltins\nlist\ne.",
    "a class in a pair": b"K\x01cbuiltins\nlist\n\x86.",
    "a class for a value": b"}K\x01cbuiltins\nlist\ns.",
    "the arguments of a default dict": b"cbuiltins\nlist\n\x85.",
    "the same, remembered": b"](cbuiltins\nlist\n\x85\x94h\x00e.",
    "a list filled once it is used": b"\x80\x04](]\x94h\x00K\x01ae.",
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_pickles_are_refused(name, written):
    with pytest.raises(UnreadableFile, match="hostile.pkl"):
        load_pickle(written(CRAFTED[name]))


def deep_tuple(depth: int) -> bytes:
    return b"K\x01" + b"\x85" * depth


def wide_tuple(depth: int) -> bytes:
    """A tuple of the one before, twice, again and again: 2^depth leaves in a few bytes."""
    return b"\x80\x04K\x01\x94" + b"".join(b"h" + bytes([place]) + b"\x86\x94" for place in range(depth))


PRIMES = 11400714785074694791, 14029467366897019727, 2870177450012600261
"""Of xxHash, which Python hashes tuples by."""


def pair_of_one_hash(first: int) -> bytes:
    """A pair of whole numbers, pickled, that has the hash of all others made so; nothing where there is none."""
    one, two, five = PRIMES
    turned = (five + first * two) % 2**64
    turned = (turned << 31 | turned >> 33) % 2**64 * one % 2**64
    second = (12345 - turned) * pow(two, -1, 2**64) % 2**64
    second -= 2**64 if second >= 2**63 else 0
    if abs(second) >= 2**61 - 1:
        return b""
    pair = (first, second)
    assert hash(pair) == hash_of_all(12345)
    return pickle.dumps(pair, 2)[2:-1].replace(b"q\x00", b"")


def hash_of_all(lane: int) -> int:
    """The hash of a pair after whose second number the state, before it is turned, is ``lane``."""
    one, _, five = PRIMES
    found = ((lane << 31 | lane >> 33) % 2**64 * one + (2 ^ five ^ 3527539)) % 2**64
    return found - 2**64 if found >= 2**63 else found


def laughs(depth: int, close: bytes) -> bytes:
    """A container of ten of the one before, again and again: 10^depth leaves in a few bytes."""
    ten = b"(" + b"K\x01" * 10 + close + b"\x94"
    return (
        b"\x80\x04(("
        + ten
        + b"".join(b"(" + (b"h" + bytes([place])) * 10 + close + b"\x94" for place in range(depth))
        + b"ll."
    )


BOMBS = {
    "lists of 10^30 leaves": laughs(30, b"l"),
    "lists in tuples of 10^30 leaves": laughs(30, b"l\x85"),
    "sets of 2^60 leaves": b"\x80\x04((K\x01\x91\x94"
    + b"".join(b"(h" + bytes([2 * i]) + b"(h" + bytes([2 * i]) + b"K\x01\x91\x94\x91\x94" for i in range(60))
    + b"l.",
    "dicts of 2^60 leaves": b"\x80\x04((K\x01K\x01d\x94"
    + b"".join(b"(K\x01h" + bytes([i]) + b"K\x02h" + bytes([i]) + b"d\x94" for i in range(60))
    + b"l.",
    "lists filled one by one": b"\x80\x04(]K\x01a\x94"
    + b"".join(b"]" + (b"h" + bytes([i]) + b"a") * 10 + b"\x94" for i in range(30))
    + b"l.",
    "a key of 2^60 leaves": b"\x80\x04}" + wide_tuple(60)[2:] + b"K\x01s.",
    "a key deeper than the stack": b"\x80\x04}" + deep_tuple(200_000) + b"K\x01s.",
    "a string of 4 GB": b"X" + struct.pack("<I", 2**32 - 1) + b"abc.",
    "a string of 2^60": b"\x8d" + struct.pack("<Q", 2**60) + b"abc.",
    "a number of 2 GB": b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\x01.",
    "a number of a thousand bytes": b"\x8b" + struct.pack("<i", 1000) + b"\x01" * 1000 + b".",
    "a number of ten thousand digits": b"L" + b"9" * 10_000 + b"L\n.",
    "a string of a million digits in quotes": b"S'" + b"9" * 1_000_000 + b"'\nL" + b"9" * 1_000_000 + b"\n.",
    "one key after the other, each costly": b"\x80\x04\x8f" + wide_tuple(15)[2:] + b"(" + b"h\x0f" * 5_000 + b"\x90.",
    "keys that are multiples of 2^61 - 1": pickle.dumps([number * (2**61 - 1) for number in range(1, 100_000)])[:-1]
    + b"\x8f(K\x01\x90.",
    "pairs of one hash": b"\x80\x04\x8f(" + b"".join(map(pair_of_one_hash, range(2_000))) + b"\x90.",
    "a list of itself": b"\x80\x04]\x94h\x00a.",
    "a list that grows after it was used": b"\x80\x04]\x94(" + b"h\x00" * 1_000 + b"lK\x01a.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_time(name, written):
    path = written(BOMBS[name])
    begin = time.process_time()
    with pytest.raises(UnreadableFile):
        load_pickle(path)
    assert time.process_time() - begin < 20


PROMISES = {
    "a memo of 4 billion": b"]r" + struct.pack("<I", 2**32 - 1) + b".",
    "a memo in text": b"]p999999999\n.",
    "a frame of 2^60": b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"].",
}


@pytest.mark.parametrize("name", PROMISES)
def test_nothing_is_allocated_for_a_promise(name, written):
    assert load_pickle(written(PROMISES[name])) == []


def test_shared_containers_are_read(written):
    few, lists = {1, 2, 3}, [[number] for number in range(5)]
    value = {"twice": [few, few], "lists": (lists, lists, lists * 100), "many": [list(range(10_000))] * 50}
    assert load_pickle(written(pickle.dumps(value))) == value


def test_a_message_is_short_and_made_at_once():
    nested: list = [1]
    for _ in range(60):
        nested = [nested] * 10
    assert brief(nested).startswith("[[[[...], [...], ") and len(brief(nested)) == 100
    assert brief({number: nested for number in range(2_000)}) == "<dict of 2,000>"
    assert len(brief("x" * 10_000)) <= 100 and len(brief((10**1_000,) * 9)) <= 100


def test_deep_nesting_outside_of_keys_is_read_and_let_go(written):
    for nested in (b"]" * 100_000 + b"a" * 99_999, b"(" * 50_000 + b"l" * 50_000, deep_tuple(100_000)):
        assert type(load_pickle(written(nested + b"."))) in (list, tuple)


def test_a_file_that_is_too_long_is_not_read(written):
    with pytest.raises(UnreadableFile, match="more than 10 bytes"):
        load_pickle(written(pickle.dumps("x" * 100)), max_bytes=10)


@pytest.mark.parametrize("path", ["nowhere.pkl", "."])
def test_a_file_that_cannot_be_read_is_named(path, tmp_path):
    with pytest.raises(UnreadableFile, match="cannot be read|is not a regular file"):
        load_pickle(tmp_path / path)


VALUE = {("a", (1, 2)): {3, 4}, "b": [1.5, None, True, 2**40, frozenset({1})]}


@given(protocol=st.integers(0, pickle.HIGHEST_PROTOCOL), data=st.data())
def test_a_file_cut_off_anywhere_is_refused(protocol, data, tmp_path_factory):
    whole = pickle.dumps(VALUE, protocol)
    path = tmp_path_factory.getbasetemp() / "cut.pkl"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(UnreadableFile):
        load_pickle(path)


@given(
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
    place=st.integers(0, 200),
    byte=st.integers(0, 255),
    more=st.binary(max_size=4),
)
def test_damage_gives_plain_values_or_our_error(protocol, place, byte, more, tmp_path_factory):
    whole = bytearray(pickle.dumps([VALUE, HOSTILE["a function of ours"]], protocol))
    whole[place % len(whole)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.pkl"
    path.write_bytes(bytes(whole) + more)
    try:
        load_pickle(path)
    except UnreadableFile:
        pass
    assert RAN == []


@given(
    data=st.binary(max_size=300)
    | st.lists(st.sampled_from([o.code for o in pickletools.opcodes])).map(
        lambda codes: "".join(codes).encode("latin-1")
    )
)
def test_random_bytes_give_plain_values_or_our_error(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "random.pkl"
    path.write_bytes(data)
    try:
        load_pickle(path)
    except UnreadableFile as error:
        assert "random.pkl" in str(error)


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_regular_file_is_told_and_not_waited_for(tmp_path, kind):
    path = tmp_path / "queries.pkl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(UnreadableFile, match="not a regular file"):
        load_pickle(path)


def test_keys_that_were_made_to_have_the_same_hash_cost_little(tmp_path):
    """The worst that 64 bits allow: a few dozen numbers of one hash, however many are written."""
    prime = 2**61 - 1
    whole = [prime * factor for factor in range(-4, 8)]
    floats = [sign * 2.0**power for power in range(-1022, 1024) if power % 61 == 0 for sign in (1, -1)]
    keys = (whole + floats) * 2_000
    path = tmp_path / "queries.pkl"
    path.write_bytes(pickle.dumps(dict.fromkeys(keys)))
    assert load_pickle(path) == dict.fromkeys(keys)
    assert max(collections.Counter(map(hash, set(keys))).values()) < 100
    path.write_bytes(pickle.dumps({prime * factor: 0 for factor in range(200)}, protocol=2))
    with pytest.raises(UnreadableFile, match="more than 64 bits"):
        load_pickle(path)
