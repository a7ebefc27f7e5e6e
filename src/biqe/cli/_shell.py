"""``biqe ask RUN`` without a query: an interactive shell.

The Tab key completes names, and the history is kept between sessions. A query may have several lines: it ends with its
closing brace or with an empty line. A clause after the brace, such as LIMIT, belongs to the query if it is pasted with
it; typed later, it asks the last query again.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.cli.graph import show_schema
from biqe.errors import BiqeError, InvalidOption
from biqe.query.complete import begins_clause, complete, complete_as_typed, is_finished, with_clauses

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase

PROMPT = "biqe> "
MORE = "  ... "
HELP = """Type a query, over several lines if you like; it ends with its closing brace or an empty line.

    SELECT ?city WHERE { ?city :located_on :Rhine }
    ASK { :Bonn :located_on :Rhine }

Tab completes names of the graph after a colon. 'schema' lists the relations, and what each joins.
'explain 3' tells why row 3 of the last answer is there.
'LIMIT 5', or another clause that may follow the closing brace, asks the last query again with it.
'quit' or Ctrl-D leaves."""
HISTORY = 1_000
"""Lines of history that are kept."""
PASTE = 0.05
"""Seconds within which the next line of pasted text arrives."""
NOTHING_IN_COMMON = " "
"""Extra completion. It has no common prefix with names, so the line editor lists them and does not change the word."""
LISTED = 1_000
"""Maximum number of completions by label or in other capitals."""
COMMANDS = ("help", "quit", "exit", "explain", "schema")


class Shell:
    """An interactive session with one knowledge base."""

    def __init__(self, kb: KnowledgeBase, ask: Callable[[str], Any], show: Callable[[Any], None]) -> None:
        self.kb = kb
        self._ask = ask
        self._show = show
        self._last: Any = None
        self._query = ""
        self._ahead: str | None = None  # a line that was read after the end of a query
        self._ended = False

    def run(self, read: Callable[[str], str] | None = None, waits: Callable[[], bool] | None = None) -> None:
        """Read and answer until the input ends. Errors are shown, and the session continues.

        ``read`` returns a line, and ``waits`` whether another one is waiting already; by default both use the terminal.
        """
        read, waits = read or input, waits or _input_waits
        print(f"{self._greeting()}\n'help' explains, 'quit' leaves.", file=sys.stderr)
        while not self._ended:
            try:
                text = self._read(read, waits)
            except EOFError:
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)  # drop the unfinished line, as other shells do
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
        return (
            f"{self.kb.name}: {len(names.entities):,} entities, {len(names.relations):,} relations; "
            f"model{'s' if len(self.kb.models) > 1 else ''} {models}"
        )

    def answer(self, text: str) -> None:
        """Answer a query, or run a command such as ``help``."""
        words = text.split()
        if not words:
            return
        if words[0].casefold() == "help":
            print(HELP)
        elif words[0].casefold() == "schema":
            show_schema(self.kb.schema())
        elif words[0].casefold() == "explain":
            print(self.kb.explain(self._row(words[1:])).to_text())
        elif begins_clause(text):
            self._ask_again(text)
        else:
            self._query = text  # kept even if it is refused: it may only lack a clause
            self._last = self._ask(text)
            self._show(self._last)

    def _ask_again(self, clauses: str) -> None:
        """Ask the last query with additional clauses. It becomes the last query unless it is refused."""
        shown = " ".join(clauses.split())
        if not self._query:
            raise InvalidOption(
                f"there is no query yet that {shown!r} could belong to", hint=f"ask something first, then: {shown}"
            )
        print(f"the last query again, with {shown}", file=sys.stderr)
        query = with_clauses(self._query, clauses)
        self._last = self._ask(query)
        self._query = query
        self._show(self._last)

    def _row(self, words: list[str]) -> Any:
        rows = 0 if self._last is None else len(self._last)
        if rows == 0:
            what = "there is no answer yet" if self._last is None else "the last answer has no row"
            raise InvalidOption(f"{what} to explain", hint="ask something first, then: explain 1")
        if len(words) != 1 or not words[0].isdecimal() or not 1 <= int(words[0]) <= rows:
            got = f"Got {' '.join(words)!r}" if words else "Got none"
            raise InvalidOption(
                f"'explain' wants the number of a row of the last answer, 1 to {rows:,}. {got}", hint="as in: explain 1"
            )
        return self._last[int(words[0]) - 1]

    def _read(self, read: Callable[[str], str], waits: Callable[[], bool]) -> str:
        lines = [read(PROMPT) if self._ahead is None else self._ahead]
        self._ahead = None
        # A query has braces; a command has none, and is one line.
        while lines[-1].strip():
            if _goes_on("\n".join(lines)):
                lines.append(read(MORE))
            elif _is_command(lines[0]) or not waits():
                break
            else:
                line = self._line_after(read)
                if line is None or not begins_clause(line):
                    self._ahead = line
                    break
                lines.append(line)
        return "\n".join(lines)

    def _line_after(self, read: Callable[[str], str]) -> str | None:
        """The line after the end of a query; None if the input ends. The query is answered before the shell leaves."""
        try:
            return read(MORE)
        except EOFError:
            self._ended = True
            return None


def _goes_on(text: str) -> bool:
    return not _is_command(text) and not is_finished(text)


def _is_command(text: str) -> bool:
    return text.split(maxsplit=1)[0].casefold() in COMMANDS


def _input_waits() -> bool:
    """Whether the terminal has unread input. The line editor reads one line at a time, so the rest is still there."""
    try:
        return bool(select.select([sys.stdin], [], [], PASTE)[0])
    except (OSError, ValueError):
        return False  # standard input is not a file


@contextmanager
def line_editing(kb: KnowledgeBase) -> Iterator[None]:
    """Completion and history by readline, if Python was built with it."""
    try:
        import readline
    except ImportError:
        yield
        return
    before = readline.get_completer(), readline.get_completer_delims()
    found: list[str] = []

    def completer(word: str, state: int) -> str | None:
        if state == 0:
            found[:] = _offered(word, kb)
        return found[state] if state < len(found) else None

    readline.set_completer(completer)
    # Colons and angle brackets begin names, so they do not separate words.
    readline.set_completer_delims(" \t\n{}();,")
    readline.parse_and_bind("tab: complete")
    place = history_file()
    try:
        readline.read_history_file(place)
    except OSError:
        readline.clear_history()  # no history yet, or not readable
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


def _offered(word: str, kb: KnowledgeBase) -> list[str]:
    """Completions of a word. The line editor replaces the word by their common prefix."""
    as_typed = complete_as_typed(word, kb.vocabulary, kb.prefixes)
    if as_typed:
        return as_typed
    # Names in other capitals, or whose label begins with the word; a single one replaces it.
    found = complete(word, kb.vocabulary, kb.prefixes, limit=LISTED)
    shortens = len(found) > 1 and not os.path.commonprefix(found).casefold().startswith(word.casefold())
    # If the list is cut off, the common prefix of all completions is not known.
    return [*found, NOTHING_IN_COMMON] if shortens or len(found) == LISTED else found


def history_file() -> Path:
    """File of the history: BIQE_HISTORY, or a file in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(os.environ.get("BIQE_HISTORY") or os.path.join(state, "biqe", "history"))
