"""Pickles of other people's benchmarks, read without running anything that they say.

Two gates stand in a row. ``_pickle_scan`` looks at every opcode first and refuses the file before one of them runs;
the unpickler that then reads it knows no names but those of the built-in containers.
"""

from __future__ import annotations

import gc
import io
import pickle
import reprlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from biqe.benchmarks._pickle_scan import ALLOWED, scan
from biqe.errors import UnreadableFile

MAX_BYTES = 1 << 29
"""Largest file that is read; the largest of the known releases is a third of it. Objects take ten to twenty times
the bytes of their pickle."""

_OBJECTS: dict[str, type] = {"list": list, "dict": dict, "set": set, "frozenset": frozenset, "defaultdict": defaultdict}


class _Unpickler(pickle.Unpickler):
    """Knows the built-in containers and no other name."""

    def __init__(self, data: bytes, path: Path) -> None:
        # Python 2 wrote its byte strings for names: they are text here.
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="strict")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise UnreadableFile(f"{self._path} is refused: it wants {module}.{name}")
        return _OBJECTS[name]

    def persistent_load(self, pid: Any) -> Any:
        raise UnreadableFile(f"{self._path} is refused: it wants an object from elsewhere")


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

    UnreadableFile, with file and reason, for anything else, for a file that is missing, damaged or longer than
    ``max_bytes``. A file that wants more than that is refused before any of it runs.
    """
    path = Path(path)
    data = _bytes(path, max_bytes)
    scan(data, path)
    # Millions of small tuples, none in a cycle: the collector would look at all of them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Unpickler(data, path).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
        MemoryError,
        RecursionError,
    ) as error:
        raise UnreadableFile(f"{path} is damaged: {error}") from error
    finally:
        if collecting:
            gc.enable()


def _bytes(path: Path, max_bytes: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise UnreadableFile(f"{path} has {size:,} bytes; a pickle of at most {max_bytes:,} is read")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
