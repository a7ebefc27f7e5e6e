"""The text of a query that a command was given: as it stands, from a file, or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from biqe.errors import InvalidOption, UnreadableFile


def query_text(query: str | None, target: str, *, command: str = "ask") -> str:
    """What ``query`` says: text, ``@FILE``, or ``-`` for standard input, which is also read where it is None.

    An input without a query is refused with an example for ``command`` and what it was to be asked of.
    """
    if query is None or query == "-":
        try:
            text = "" if sys.stdin is None else sys.stdin.read()
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"standard input is not UTF-8 text: {error}") from error
        if query is None and not text.strip():
            raise InvalidOption(
                "no query was given",
                hint=f"biqe {command} {target} 'SELECT ?x WHERE {{ ... }}'; @FILE reads a file, - standard input",
            )
        return text
    if query.startswith("@"):
        path = Path(query[1:])
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise UnreadableFile(f"query file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"query file {path} is not UTF-8 text: {error}") from error
    return query
