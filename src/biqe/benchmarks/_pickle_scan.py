"""The opcodes of a pickle looked at one by one, before any of them runs.

Only what pickle writes for numbers, strings and the built-in containers is let through. Calls are limited to a set
or frozenset of a list written for it, and to a defaultdict with a container as factory: Python 2 and old protocols
write such containers that way. The stack is followed without making any object, so a pickle is refused for what
it would do, however it hides it. Costs are followed too: a key made of tuples within tuples is hashed from its
leaves up every time, lists of one list many times over grow with every layer once they are walked through, a large
memo number makes the unpickler allocate up to it, and none of these needs a large file.
"""

from __future__ import annotations

import pickletools
from pathlib import Path

from biqe.errors import UnreadableFile

MAX_MEMO = 50_000_000
"""Remembered objects."""
MAX_TUPLE = 4_096
"""Leaves and tuples within one tuple, each counted as often as it is reached."""
MAX_WORK = 1_000_000_000
"""The same, summed over all tuples made or taken from the memo."""
MAX_AGAIN = 50_000_000
"""Leaves and containers within lists, dicts and sets that are taken from the memo, each time anew."""
MAX_MARKS = 1_000
"""Containers open at once."""
MAX_TEXT = 1 << 20
"""Bytes of one string."""
MAX_INT = 16
"""Bytes of one whole number."""

MODULES = ("builtins", "__builtin__", "collections", "copy_reg", "copyreg")
CONTAINERS = ("list", "dict", "set", "frozenset")
ALLOWED = frozenset(
    {(module, name) for module in ("builtins", "__builtin__") for name in CONTAINERS} | {("collections", "defaultdict")}
)
"""What a pickle may name. Everything else is refused, whether it is called or not."""

# What stands on the followed stack. Positive: the cost of hashing the object. The others say what it is.
_FACTORY, _NOTHING = -4, -5
_NAMED = -1_000  # at or below: a global, by its place in _GLOBALS
_TEXT = -100  # from here down to _NAMED: a string that may be a global's module or name, by its place in _WORDS
_HELD = 1 << 40  # at or below minus this: a container, or a tuple with one in it; its kind, then its place in _Held
_KEPT, _LIST, _AGAIN, _ARGUMENTS = (kind * _HELD for kind in (1, 2, 3, 4))
# _KEPT may be filled, _LIST is a list where it was made, _AGAIN is no more to be filled, _ARGUMENTS is (list,).
_GLOBALS = sorted(ALLOWED)
_WORDS = [*MODULES, *CONTAINERS, "defaultdict"]
_WORD_BYTES = {word.encode(): _TEXT - place for place, word in enumerate(_WORDS)}
_LONGEST_WORD = max(map(len, _WORD_BYTES))

_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


def scan(data: bytes, path: str | Path) -> None:
    """UnreadableFile, naming ``path`` and what is wrong, unless ``data`` is a pickle of built-in containers alone."""
    try:
        _follow(data, path)
    except IndexError as error:
        # Every read beyond the bytes and every pop from an empty stack ends here.
        raise UnreadableFile(
            f"{path} is no whole pickle: it ends, or takes from an empty stack, before its end mark",
            hint="was it cut off while it was copied or downloaded?",
        ) from error


class _Held:
    """Containers, and tuples with one in them, by number."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.sizes: list[int] = []
        """Leaves and containers within each, as often as they are reached."""
        self.hashes: list[int] = []
        """What hashing it costs; the hash of a container is refused, or kept with it."""

    def new(self, kind: int, size: int, cost: int = 1) -> int:
        """The token of a new one."""
        self.sizes.append(size)
        self.hashes.append(cost)
        return -kind - len(self.sizes) + 1

    def weigh(self, tokens: list[int]) -> tuple[int, int, bool]:
        """Size of some objects, the cost of their hashes, and whether a container is among them or within."""
        if min(tokens, default=1) > 0:
            size = sum(tokens)
            return size, size, False
        size = cost = 0
        held = False
        for token in tokens:
            if token > 0:
                size, cost = size + token, cost + token
            elif token <= -_HELD:
                number = -token % _HELD
                size, cost, held = size + self.sizes[number], cost + self.hashes[number], True
            elif token <= _NAMED or token == _FACTORY:
                raise _refused(self.path, "a class where a value belongs")
            else:
                size, cost = size + 1, cost + 1
        return size, cost, held

    def fill(self, token: int, tokens: list[int], at: int) -> None:
        """Put objects into the container ``token``."""
        size = self.weigh(tokens)[0]
        if token <= -_AGAIN:
            raise _refused(self.path, f"at byte {at:,} to fill an object that it has used already")
        if token <= -_HELD:
            self.sizes[-token % _HELD] += size


def _remembered(token: int) -> int:
    """What a token is once it is taken from the memo."""
    return token if token > -_HELD else -_AGAIN - (-token % _HELD)


def _follow(data: bytes, path: str | Path) -> None:
    size, at = len(data), 0
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    held = _Held(path)
    work = again = 0
    while True:
        code = data[at]
        at += 1
        if code == 0x94:  # MEMOIZE
            memo[len(memo)] = _remembered(stack[-1])
            if len(memo) > MAX_MEMO:
                raise _too_much(path, at, f"more than {MAX_MEMO:,} remembered objects")
        elif code in _FIXED:  # numbers, None, True, False
            at += _FIXED[code]
            if at > size:
                raise IndexError
            stack.append(1)
        elif 0x85 <= code <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
            cost = _tuple_cost(stack, len(stack) - (code - 0x84), code, held)
            work += cost
            if cost > MAX_TUPLE or work > MAX_WORK:
                raise _too_much(path, at, "tuples within tuples that are too costly to compare")
        elif code in _GETS:
            at, number = _number(data, at, _GETS[code], path)
            if number not in memo:
                raise _damaged(path, at, f"object {number} is asked for and was never remembered")
            found = memo[number]
            stack.append(found)
            if found <= -_HELD:
                again += held.sizes[-found % _HELD]
                if again > MAX_AGAIN:
                    raise _too_much(path, at, f"more than {MAX_AGAIN:,} objects in containers that it uses again")
                found = held.hashes[-found % _HELD]
            work += max(found, 1)
            if work > MAX_WORK:
                raise _too_much(path, at, "tuples that are too costly to compare")
        elif code == 0x28:  # MARK
            marks.append(len(stack))
            if len(marks) > MAX_MARKS:
                raise _too_much(path, at, f"more than {MAX_MARKS:,} containers within each other")
        elif code in _FILL_MARKED:  # APPENDS, SETITEMS, ADDITEMS
            start = marks.pop()
            if start < 1 or start > len(stack):
                raise IndexError
            held.fill(stack[start - 1], stack[start:], at)
            del stack[start:]
        elif code in _FILL:  # APPEND, SETITEM
            count = _FILL[code]
            if len(stack) <= count or (marks and len(stack) - count <= marks[-1]):
                raise IndexError
            held.fill(stack[-count - 1], stack[-count:], at)
            del stack[-count:]
        elif code in _EMPTY:
            stack.append(_NOTHING if code == 0x29 else held.new(_EMPTY[code], 1))
        elif code in _FROM_MARK:  # TUPLE, LIST, DICT, FROZENSET
            start = marks.pop()
            if start > len(stack):
                raise IndexError
            if code != 0x74:
                made = held.new(_LIST if code == 0x6C else _KEPT, 1 + held.weigh(stack[start:])[0])
                del stack[start:]
                stack.append(made)
                continue
            cost = _tuple_cost(stack, start, 0x85 if len(stack) - start == 1 else code, held)
            work += cost
            if cost > MAX_TUPLE or work > MAX_WORK:
                raise _too_much(path, at, "tuples within tuples that are too costly to compare")
        elif code in _TEXTS:
            at, text = _text(data, at, _TEXTS[code], path)
            stack.append(_WORD_BYTES.get(text, 1) if len(text) <= _LONGEST_WORD else 1)
        elif code in _LINES:  # INT, LONG, FLOAT, STRING, UNICODE in text
            at, line = _line(data, at, MAX_TEXT if code in (0x53, 0x56) else 4 * MAX_INT, path)
            stack.append(_WORD_BYTES.get(line.strip(b"'\""), 1) if len(line) <= _LONGEST_WORD + 2 else 1)
        elif code in _LONGS:  # LONG1, LONG4
            at, length = _number(data, at, _LONGS[code], path)
            if length > MAX_INT:
                raise _too_much(path, at, f"a number of {length:,} bytes; at most {MAX_INT} are read")
            at += length
            if at > size:
                raise IndexError
            stack.append(1)
        elif code in _PUTS:
            at, number = _number(data, at, _PUTS[code], path)
            # Writers count up from 0 or 1; a number far beyond makes the unpickler allocate up to it.
            if number > len(memo) + 1 or number > MAX_MEMO:
                raise _too_much(path, at, f"object {number:,} to be remembered after only {len(memo):,}")
            memo[number] = _remembered(stack[-1])
        elif code == 0x63:  # GLOBAL
            at, module = _line(data, at, MAX_TEXT, path)
            at, name = _line(data, at, MAX_TEXT, path)
            stack.append(_global(module.decode("utf-8", "replace"), name.decode("utf-8", "replace"), path))
        elif code == 0x93:  # STACK_GLOBAL
            name_token, module_token = stack.pop(), stack.pop()
            if not _NAMED < name_token <= _TEXT or not _NAMED < module_token <= _TEXT:
                raise _refused(path, "a name that is not one of the built-in containers")
            stack.append(_global(_WORDS[_TEXT - module_token], _WORDS[_TEXT - name_token], path))
        elif code == 0x52:  # REDUCE
            arguments, called = stack.pop(), stack.pop()
            _check_call(called, arguments, path)
            stack.append(held.new(_KEPT, held.sizes[-arguments % _HELD] if arguments <= -_HELD else 1))
        elif code == 0x95:  # FRAME
            at, length = _number(data, at, 8, path)
            if at + length > size:
                raise IndexError
        elif code == 0x80:  # PROTO
            if data[at] > 5:
                raise _damaged(path, at, f"it says protocol {data[at]}; Python writes 0 to 5")
            at += 1
        elif code == 0x2E:  # STOP
            if len(stack) != 1 or marks:
                raise _damaged(path, at, f"it ends with {len(stack)} objects and {len(marks)} open containers")
            if at != size:
                raise _damaged(path, at, f"{size - at:,} bytes follow its end mark")
            held.weigh(stack)  # refuses a class
            return
        else:
            instruction = _NAMES.get(code)
            if instruction is None:
                raise _damaged(path, at, f"byte {code:#04x} begins no instruction of a pickle")
            raise _refused(path, f"the instruction {instruction}")
        if marks and len(stack) < marks[-1]:
            raise IndexError


_FIXED = {0x4B: 1, 0x4D: 2, 0x4A: 4, 0x47: 8, 0x4E: 0, 0x88: 0, 0x89: 0}
"""Bytes after BININT1, BININT2, BININT, BINFLOAT, NONE, NEWTRUE, NEWFALSE."""
_GETS = {0x68: 1, 0x6A: 4, 0x67: 0}
"""Bytes after BINGET, LONG_BINGET; 0 for GET, whose number is a line of text."""
_PUTS = {0x71: 1, 0x72: 4, 0x70: 0}
_FILL_MARKED = frozenset({0x65, 0x75, 0x90})
_FILL = {0x61: 1, 0x73: 2}
_EMPTY = {0x5D: _LIST, 0x7D: _KEPT, 0x8F: _KEPT, 0x29: 0}
"""EMPTY_LIST, EMPTY_DICT, EMPTY_SET, and EMPTY_TUPLE, which is no container."""
_FROM_MARK = frozenset({0x74, 0x6C, 0x64, 0x91})
_TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8, 0x55: 1, 0x54: 4}
"""Bytes of the length after SHORT_BINUNICODE, BINUNICODE, BINUNICODE8, SHORT_BINSTRING, BINSTRING."""
_LINES = frozenset({0x49, 0x4C, 0x46, 0x53, 0x56})
_LONGS = {0x8A: 1, 0x8B: 4}


def _tuple_cost(stack: list[int], start: int, code: int, held: _Held) -> int:
    """Put a tuple in the place of the objects from ``start`` on; returns what hashing it costs.

    A tuple of one fresh list or of one global is what a call takes, so it is remembered as such.
    """
    if start < 0:
        raise IndexError
    top = stack[-1] if stack else 1
    parts = stack[start:]
    if min(parts, default=1) > 0:  # most are of numbers and of such tuples
        made = cost = 1 + sum(parts)
    elif code == 0x85 and -_HELD < top <= _NAMED:
        made, cost = _FACTORY, 1
    else:
        size, cost, holds = held.weigh(parts)
        cost += 1
        kind = _ARGUMENTS if code == 0x85 and -_LIST - _HELD < top <= -_LIST else _AGAIN
        made = held.new(kind, size + 1, cost) if holds else cost
    del stack[start:]
    stack.append(made)
    return cost


def _number(data: bytes, at: int, width: int, path: str | Path) -> tuple[int, int]:
    if width == 0:
        at, line = _line(data, at, 4 * MAX_INT, path)
        if not line.isdigit():
            raise _damaged(path, at, f"{line!r} is no number of an object")
        return at, int(line)
    if at + width > len(data):
        raise IndexError
    return at + width, int.from_bytes(data[at : at + width], "little")


def _text(data: bytes, at: int, width: int, path: str | Path) -> tuple[int, bytes]:
    at, length = _number(data, at, width, path)
    if length > MAX_TEXT:
        raise _too_much(path, at, f"a string of {length:,} bytes; at most {MAX_TEXT:,} are read")
    if at + length > len(data):
        raise IndexError
    # Longer ones are no names of anything; their bytes need no copy.
    return at + length, data[at : at + length] if length <= _LONGEST_WORD else b" " * (_LONGEST_WORD + 1)


def _line(data: bytes, at: int, most: int, path: str | Path) -> tuple[int, bytes]:
    end = data.find(b"\n", at, at + most + 1)
    if end < 0:
        if len(data) - at <= most:
            raise IndexError
        raise _too_much(path, at, f"a line of more than {most:,} bytes")
    return end + 1, data[at:end]


def _global(module: str, name: str, path: str | Path) -> int:
    if (module, name) not in ALLOWED:
        raise _refused(path, f"{module}.{name}")
    return _NAMED - _GLOBALS.index((module, name))


def _check_call(called: int, arguments: int, path: str | Path) -> None:
    if not -_HELD < called <= _NAMED:
        raise _refused(path, "a call of something that is no built-in container")
    module, name = _GLOBALS[_NAMED - called]
    fits = arguments == _FACTORY if name == "defaultdict" else arguments <= -_ARGUMENTS
    fits |= arguments == _NOTHING
    if not fits or name in ("list", "dict"):
        raise _refused(path, f"a call of {module}.{name} as no container is written")


def _refused(path: str | Path, wanted: str) -> UnreadableFile:
    return UnreadableFile(
        f"{path} is refused, and nothing of it was run: it wants {wanted}",
        hint="a benchmark's pickle holds numbers, strings, lists, tuples, dicts and sets, and nothing else",
    )


def _too_much(path: str | Path, at: int, what: str) -> UnreadableFile:
    return UnreadableFile(f"{path} is refused, and nothing of it was run: at byte {at:,} it has {what}")


def _damaged(path: str | Path, at: int, what: str) -> UnreadableFile:
    return UnreadableFile(f"{path} is damaged at byte {at:,}: {what}")
