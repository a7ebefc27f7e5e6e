"""``biqe ask RUN`` without a query: questions typed one after the other.

Names are completed with the Tab key, lines are remembered from one session to the next, and a query may run over
several lines: it ends with the brace that closes it, or with an empty line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.errors import BiqeError, InvalidOption
from biqe.query.complete import complete, is_finished

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase

PROMPT = "biqe> "
MORE = "  ... "
HELP = """Type a query, over several lines if you like; it ends with its closing brace or an empty line.

    SELECT ?city WHERE { ?city :located_on :Rhine }
    ASK { :Bonn :located_on :Rhine }

Tab completes names of the graph after a colon. 'explain 3' tells why row 3 of the last answer is there.
'quit' or Ctrl-D leaves."""
HISTORY = 1_000
"""Lines that are remembered."""


class Shell:
    """A conversation with one knowledge base."""

    def __init__(self, kb: KnowledgeBase, ask: Callable[[str], Any], show: Callable[[Any], None]) -> None:
        self.kb = kb
        self._ask = ask
        self._show = show
        self._last: Any = None

    def run(self, read: Callable[[str], str] | None = None) -> None:
        """Read and answer until the input ends. Errors are shown, and the conversation goes on."""
        read = read or input
        print(f"{self._greeting()}\n'help' explains, 'quit' leaves.", file=sys.stderr)
        while True:
            try:
                text = self._read(read)
            except EOFError:
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)  # the line that was begun is dropped, as in other shells
                continue
            if text.strip().casefold() in ("quit", "exit"):
                return
            try:
                self.answer(text)
            except BiqeError as error:
                print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                print("stopped", file=sys.stderr)

    def _greeting(self) -> str:
        names = self.kb.vocabulary
        models = ", ".join(self.kb.models) or "none: known answers only"
        return (f"{self.kb.name}: {len(names.entities):,} entities, {len(names.relations):,} relations; "
                f"model{'s' if len(self.kb.models) > 1 else ''} {models}")  # fmt: skip

    def answer(self, text: str) -> None:
        """Answer one thing that was typed."""
        words = text.split()
        if not words:
            return
        if words[0].casefold() == "help":
            print(HELP)
        elif words[0].casefold() == "explain":
            print(self.kb.explain(self._row(words[1:])).to_text())
        else:
            self._last = self._ask(text)
            self._show(self._last)

    def _row(self, words: list[str]) -> Any:
        rows = 0 if self._last is None else len(self._last)
        if len(words) != 1 or not words[0].isdecimal() or not 1 <= int(words[0]) <= rows:
            raise InvalidOption(
                f"'explain' wants the number of a row of the last answer, 1 to {rows}. Got {' '.join(words)!r}"
                if rows
                else "there is no answer yet to explain",
                hint="ask something first, then: explain 1",
            )
        return self._last[int(words[0]) - 1]

    def _read(self, read: Callable[[str], str]) -> str:
        lines = [read(PROMPT)]
        # A query has braces; a command has none, and is one line.
        while lines[-1].strip() and _goes_on("\n".join(lines)):
            lines.append(read(MORE))
        return "\n".join(lines)


def _goes_on(text: str) -> bool:
    first = text.split(maxsplit=1)[0].casefold()
    return first not in ("help", "quit", "exit", "explain") and not is_finished(text)


@contextmanager
def line_editing(kb: KnowledgeBase) -> Iterator[None]:
    """Completion and history of the standard library's line editor, where Python was built with one."""
    try:
        import readline
    except ImportError:
        yield
        return
    before = readline.get_completer(), readline.get_completer_delims()
    found: list[str] = []

    def completer(word: str, state: int) -> str | None:
        if state == 0:
            found[:] = complete(word, kb.vocabulary, kb.prefixes)
        return found[state] if state < len(found) else None

    readline.set_completer(completer)
    # Neither a colon nor an angle bracket ends a word: they begin names.
    readline.set_completer_delims(" \t\n{}();,")
    readline.parse_and_bind("tab: complete")
    place = history_file()
    try:
        readline.read_history_file(place)
    except OSError:
        readline.clear_history()  # there is none yet, or it cannot be read
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.set_history_length(HISTORY)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(place)
        except OSError as error:
            print(f"the history was not kept: {error.strerror or error}", file=sys.stderr)


def history_file() -> Path:
    """Where the lines are remembered: BIQE_HISTORY, or the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(os.environ.get("BIQE_HISTORY") or os.path.join(state, "biqe", "history"))
