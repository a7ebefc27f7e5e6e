"""Which functions of biqe a command goes through, file by file, in order of first call.

    python tools/journey.py ask atlas 'SELECT ?river ?city WHERE { ... }'
    python tools/journey.py --warm ask atlas 'SELECT ...'    # what a second question goes through
    python tools/journey.py --files ask atlas 'SELECT ...'   # files alone

The command runs in this process under a profiler hook; what it prints goes to standard error. Code that numba compiled,
and what other processes do, is not seen.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import biqe

SOURCE = Path(biqe.__file__).resolve().parent
OPTIONS = ("--warm", "--files")


class Journey:
    """Functions of ours by file, in order of first call."""

    def __init__(self) -> None:
        self.functions: dict[str, dict[str, None]] = {}
        self._files: dict[str, str | None] = {}

    def hook(self, frame: FrameType, event: str, argument: Any) -> None:
        """Notes a call of a function of ours."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename not in self._files:
            path = Path(code.co_filename)
            self._files[code.co_filename] = str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else None
        name = self._files[code.co_filename]
        # What runs while a module is imported, and comprehensions, are no functions of their own.
        if name is not None and not code.co_name.startswith("<"):
            self.functions.setdefault(name, {})[code.co_qualname] = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Everything that this thread, and threads that it starts, call meanwhile."""
        threading.setprofile(self.hook)
        sys.setprofile(self.hook)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def run(arguments: list[str]) -> int:
    """The command, with its output on standard error."""
    from biqe.cli import main

    with contextlib.redirect_stdout(sys.stderr):
        return main(arguments)


def warm_ask(arguments: list[str]) -> Any:
    """A function that asks the last argument of the knowledge base before it, after it was asked once."""
    if len(arguments) != 3 or arguments[0] != "ask":
        sys.exit("--warm goes with: ask TARGET QUERY")
    kb = biqe.open(arguments[1])
    list(kb.ask(arguments[2]))
    return lambda: [str(row) for row in kb.ask(arguments[2] + " ")]  # another text, which was not read before


def main() -> int:
    """Read the options, run the command, print where it went."""
    given = sys.argv[1:]
    options = [word for word in given if word in OPTIONS]
    command = [word for word in given if word not in OPTIONS]
    if not command:
        sys.exit(__doc__)
    journey = Journey()
    status = 0
    if "--warm" in options:
        ask = warm_ask(command)
        with journey.watched():
            ask()
    else:
        with journey.watched():
            status = run(command)
    for name, functions in journey.functions.items():
        print(name if "--files" in options else f"{name}\n    {', '.join(functions)}")
    print(f"{len(journey.functions)} files, {sum(map(len, journey.functions.values()))} functions")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
