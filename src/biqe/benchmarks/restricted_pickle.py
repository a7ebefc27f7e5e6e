"""Pickles of other people's benchmarks, read without running anything that they say.

A pickle is a small program. This reader knows the opcodes that Python 2 and 3 write for numbers, strings, lists,
tuples, dicts and sets, and no others; it imports nothing and calls nothing that a file names. Its limits keep a
small file from costing much time or memory: an object that is used again counts with all that is within it, keys
must not be nested deeply or share their hash, and whole numbers have 64 bits, since multiples of 2^61 - 1 all have
the same hash.
"""

from __future__ import annotations

import gc
import pickletools
import reprlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from biqe.errors import UnreadableFile
from biqe.graph.whole_folder import read_regular

MAX_BYTES = 1 << 29
"""Largest file; the largest of the known releases is a third of it. Objects take ten to twenty times as much."""
MAX_REPEATED = 50_000_000
"""Objects within all containers and tuples that are taken from the memo, counted each time."""
MAX_CONTAINERS = 20_000_000
"""Lists, dicts and sets: an empty one takes a byte in the file and up to 200 in memory."""
MAX_DEPTH = 50
"""Tuples within tuples in a key: the hash of a tuple recurses on the stack of the process."""
MAX_CLASHES = 100
"""Different tuples among the keys with the hash of another one. In an honest file there is none."""

_FACTORIES: dict[str, type] = {"list": list, "dict": dict, "set": set, "frozenset": frozenset}
_NAMES = {f"{module} {name}" for module in ("builtins", "__builtin__") for name in _FACTORIES}
_NAMES |= {"collections defaultdict"}
_HOLDERS = frozenset({tuple, list, dict, set, frozenset, defaultdict})


class _Damaged(ValueError):
    """The file is damaged; caught within this module."""


class _Refused(Exception):
    """The file asks for something that is not allowed; caught within this module."""


class _Name:
    """A class that the file names, alone or as the one element of a tuple. Only a call may use it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str, in_tuple: bool = False) -> None:
        self.name, self.in_tuple = name, in_tuple


class _Reader:
    """The stack, the marks and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        """Length of the stack at each open mark."""
        self.memo: dict[int, Any] = {}
        self.used: dict[int, int] = {}
        """Objects within each container that was taken from the memo, by its id; it must not change any more."""
        self.repeated = self.containers = self.clashes = 0
        self.open_names = 0
        """Names on the stack, or wherever they were put, that no call has used."""
        self.tuple_keys: dict[int, tuple[Any, ...]] = {}
        """The first tuple of each hash that became a key."""

    def load(self, data: bytes) -> Any:
        actions, push, at = _ACTIONS, self.stack.append, None
        for opcode, argument, at in pickletools.genops(data):  # noqa: B007 - the last place is looked at below
            name = opcode.name
            if name in _PLAIN:
                push(argument)
            elif name in actions:
                actions[name](self, argument)
            elif name != "STOP":
                raise _Refused(f"the opcode {name}, which no plain value has")
        left = len(data) - (at or 0) - 1
        if len(self.stack) != 1 or self.marks or left:
            raise _Damaged(f"it ends with {len(self.stack)} objects, and {left:,} bytes follow its end mark")
        if self.open_names:
            raise _Refused("a class where a value belongs")
        return self.stack[0]

    def whole_number(self, value: int) -> None:
        if not -(2**63) <= value < 2**64:
            raise _Refused("a whole number of more than 64 bits")
        self.stack.append(value)

    def container(self, value: Any) -> None:
        """Push a list, dict or set."""
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            raise _Refused(f"more than {MAX_CONTAINERS:,} containers")
        self.stack.append(value)

    def pop(self, count: int | None = None) -> list[Any]:
        """The last ``count`` objects since the last mark; None for all of them, and the mark is closed."""
        bottom = self.marks[-1] if self.marks else 0
        start = bottom if count is None else len(self.stack) - count
        if count is None:
            self.marks.pop()
        if start < bottom:
            raise IndexError
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def top(self, *kinds: type) -> Any:
        """The object that is to be filled."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0) or type(self.stack[-1]) not in kinds:
            raise _Damaged("it fills something that is not there or cannot be filled")
        if id(self.stack[-1]) in self.used:
            raise _Refused("to fill an object that it has used already")
        return self.stack[-1]

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        keys, values = self.keys(items[::2]), items[1::2]
        self.top(dict, defaultdict).update(zip(keys, values, strict=True))

    def add_items(self, items: list[Any]) -> None:
        self.top(set).update(self.keys(items))

    def make_dict(self, items: list[Any]) -> None:
        self.container({})
        self.set_items(items)

    def keys(self, keys: list[Any]) -> list[Any]:
        """``keys``, if hashing and comparing them is cheap."""
        for key in keys:
            if type(key) is tuple:
                _check_depth(key, MAX_DEPTH)
                first = self.tuple_keys.setdefault(hash(key), key)
                if first is not key and first != key:
                    self.clashes += 1
                    if self.clashes > MAX_CLASHES:
                        raise _Refused("keys that were made to have the same hash")
        return keys

    def make_tuple(self, parts: list[Any]) -> None:
        alone = parts[0] if len(parts) == 1 else None
        if type(alone) is _Name and not alone.in_tuple:
            self.stack.append(_Name(alone.name, in_tuple=True))
        else:
            self.stack.append(tuple(parts))

    def put(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def get(self, number: int) -> None:
        """Push what the memo holds, and count what is within it."""
        if number not in self.memo:
            raise _Damaged(f"object {number} is asked for and was never remembered")
        value = self.memo[number]
        if type(value) in _HOLDERS:
            if id(value) not in self.used:
                self.used[id(value)] = self.size(value)
            self.count(self.used[id(value)])
        self.open_names += type(value) is _Name
        self.stack.append(value)

    def size(self, value: Any) -> int:
        """Objects within ``value``, each as often as it is reached."""
        total, todo = 1, [value]
        while todo:
            holder = todo.pop()
            if id(holder) in self.used:
                total += self.used[id(holder)]
                continue
            parts = [*holder, *holder.values()] if isinstance(holder, dict) else holder
            total += len(parts)
            self.count(len(parts))  # the walk itself costs as much
            todo += [part for part in parts if type(part) in _HOLDERS]
        return total

    def count(self, objects: int) -> None:
        self.repeated += objects
        if self.repeated > MAX_REPEATED:
            raise _Refused(f"more than {MAX_REPEATED:,} objects in containers that it uses again")

    def name(self, words: Any) -> None:
        """``words`` are module and name with a space between them."""
        if words not in _NAMES:
            raise _Refused(str(words)[:200].replace(" ", ".", 1))
        self.open_names += 1
        self.stack.append(_Name(words.split(" ")[1]))

    def stack_name(self) -> None:
        parts = self.pop(2)
        self.name(" ".join(parts) if set(map(type, parts)) == {str} else "a name that is no text")

    def call(self) -> None:
        """set([...]), frozenset([...]) and defaultdict(list), as old protocols write them."""
        called, given = self.pop(2)
        name = called.name if type(called) is _Name and not called.in_tuple else ""
        self.open_names -= 1
        if name == "defaultdict" and type(given) is _Name and given.in_tuple and given.name in _FACTORIES:
            self.open_names -= 1
            self.container(defaultdict(_FACTORIES[given.name]))
        elif name == "defaultdict" and given == ():
            self.container(defaultdict())
        elif name in ("set", "frozenset") and type(given) is tuple and list(map(type, given)) in ([], [list]):
            self.container(_FACTORIES[name](self.keys(given[0] if given else [])))
        else:
            raise _Refused("a call as no container is written")


def _check_depth(key: tuple[Any, ...], levels: int) -> None:
    if not levels:
        raise _Refused(f"a key of more than {MAX_DEPTH} tuples within each other")
    for part in key:
        if type(part) is tuple:
            _check_depth(part, levels - 1)


_PLAIN = {"BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT", "NONE"}
_PLAIN |= {"STRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
"""Opcodes that push their argument as it is."""
_ACTIONS: dict[str, Callable[[_Reader, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda reader, _: None),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), _Reader.whole_number),
    # Python 2 wrote its byte strings for names: they are text here.
    **dict.fromkeys(
        ("BINSTRING", "SHORT_BINSTRING"), lambda reader, text: reader.stack.append(text.encode("latin-1").decode())
    ),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Reader.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Reader.get),
    "MEMOIZE": lambda reader, _: reader.put(len(reader.memo)),
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "NEWTRUE": lambda reader, _: reader.stack.append(True),
    "NEWFALSE": lambda reader, _: reader.stack.append(False),
    "EMPTY_TUPLE": lambda reader, _: reader.stack.append(()),
    "EMPTY_LIST": lambda reader, _: reader.container([]),
    "EMPTY_DICT": lambda reader, _: reader.container({}),
    "EMPTY_SET": lambda reader, _: reader.container(set()),
    "TUPLE": lambda reader, _: reader.make_tuple(reader.pop()),
    "TUPLE1": lambda reader, _: reader.make_tuple(reader.pop(1)),
    "TUPLE2": lambda reader, _: reader.make_tuple(reader.pop(2)),
    "TUPLE3": lambda reader, _: reader.make_tuple(reader.pop(3)),
    "LIST": lambda reader, _: reader.container(reader.pop()),
    "DICT": lambda reader, _: reader.make_dict(reader.pop()),
    "FROZENSET": lambda reader, _: reader.container(frozenset(reader.keys(reader.pop()))),
    "APPEND": lambda reader, _: reader.append(reader.pop(1)),
    "APPENDS": lambda reader, _: reader.append(reader.pop()),
    "SETITEM": lambda reader, _: reader.set_items(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.set_items(reader.pop()),
    "ADDITEMS": lambda reader, _: reader.add_items(reader.pop()),
    "GLOBAL": _Reader.name,
    "STACK_GLOBAL": lambda reader, _: reader.stack_name(),
    "REDUCE": lambda reader, _: reader.call(),
}
"""What is done for each opcode, with its argument; all others are refused."""


class _Brief(reprlib.Repr):
    """A few elements of a few levels, however many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = 4
        self.maxstring = self.maxlong = self.maxother = 40

    def repr_set(self, value: Any, level: int) -> str:
        return f"<{type(value).__name__} of {len(value):,}>"

    repr_frozenset = repr_dict = repr_defaultdict = repr_set  # type: ignore[assignment]


_BRIEF = _Brief()


def brief(value: Any) -> str:
    """What was read, for a message: short, and made in no time whatever it is.

    >>> brief(("2-chain", ["x"] * 1000, {1: 2}))
    "('2-chain', ['x', 'x', 'x', 'x', ...], <dict of 1>)"
    """
    text = _BRIEF.repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def load_pickle(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """What the pickle at ``path`` holds: numbers, strings, lists, tuples, dicts and sets.

    UnreadableFile, with file and reason, for anything else, and for a file that is missing, damaged or longer than
    ``max_bytes``.
    """
    path = Path(path)
    try:
        data = read_regular(path, max_bytes)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    # Millions of small tuples, none in a cycle: the collector would look at all of them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Reader().load(data)
    except _Refused as error:
        raise UnreadableFile(
            f"{path} is refused, and nothing of it was run: it wants {error}",
            hint="a benchmark's pickle holds numbers, strings, lists, tuples, dicts and sets, and nothing else",
        ) from error
    except IndexError as error:
        raise UnreadableFile(f"{path} is damaged: it takes from an empty stack") from error
    except (ValueError, TypeError, OverflowError, MemoryError, Warning) as error:
        raise UnreadableFile(
            f"{path} is damaged: {str(error)[:200]}", hint="was it cut off while it was copied or downloaded?"
        ) from error
    finally:
        if collecting:
            gc.enable()
