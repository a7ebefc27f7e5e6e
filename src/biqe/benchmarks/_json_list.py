"""Items of a large JSON list, one at a time.

Filter files of a release run to hundreds of megabytes. Parsed whole, every name in them becomes a Python
string that lives as long as the list; parsed item by item, only one query's names are alive. It also lets an
error say which item is broken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from biqe.errors import UnreadableFile

READ_CHARS = 1 << 20
ITEM_CHARS = 1 << 26
"""An item longer than this is refused: no query is, and a broken file could otherwise fill the memory."""

_SPACE = " \t\r\n"
_IN_NUMBER = "0123456789.eE+-"


def json_items(path: Path, *, read_chars: int = READ_CHARS, item_chars: int = ITEM_CHARS) -> Iterator[object]:
    """Yield the items of the JSON list in ``path``.

    UnreadableFile names the file and the item that is broken; items count from 0.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from _Items(path, file.read, read_chars, item_chars)
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 text: {error.reason} at byte {error.start:,}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


class _Items:
    """A window on the text that grows to the right until it holds a whole item, and then moves on."""

    def __init__(self, path, read, read_chars: int, item_chars: int) -> None:  # type: ignore[no-untyped-def]
        self.path = path
        self.read = read
        self.read_chars = read_chars
        self.item_chars = item_chars
        self.text = ""
        self.at = 0
        self.number = 0

    def more(self) -> bool:
        """Read on; False at the end of the file. The window doubles, so that a long item is not parsed often."""
        kept = self.text[self.at :]
        if len(kept) > self.item_chars:
            raise self.broken(f"is longer than {self.item_chars:,} characters")
        chunk = self.read(max(self.read_chars, len(kept)))
        self.text, self.at = kept + chunk, 0
        return bool(chunk)

    def next_char(self) -> str:
        """The next character that is no white space, left where it is; '' at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def broken(self, what: str) -> UnreadableFile:
        return UnreadableFile(
            f"{self.path}, item {self.number:,} {what}", hint="the file may be cut off or damaged; fetch it again"
        )

    def __iter__(self) -> Iterator[object]:
        if self.next_char() != "[":
            raise UnreadableFile(f"{self.path} is not a JSON list: it does not start with '['")
        self.at += 1
        if self.next_char() == "]":
            self.at += 1
        else:
            while True:
                yield self.item()
                closing = self.next_char()
                self.at += 1
                if closing == "]":
                    break
                if not closing:
                    raise self.broken("is the last, but no ']' follows")
                if closing != ",":
                    raise self.broken("is followed by neither ',' nor ']'")
                self.number += 1
        if self.next_char():
            raise UnreadableFile(f"{self.path} goes on after the end of its list (after {self.number + 1:,} items)")

    def item(self) -> object:
        decoder = json.JSONDecoder()
        self.next_char()
        while True:
            try:
                item, end = decoder.raw_decode(self.text, self.at)
                length = end - self.at
                # A number that the window cuts, as in '1.' of '1.5', is read as a shorter one.
                may_go_on = end == len(self.text) or (isinstance(item, int | float) and self.text[end] in _IN_NUMBER)
                if not may_go_on or not self.more():
                    self.at += length
                    return item
            except json.JSONDecodeError as error:
                if not self.more():
                    raise self.broken(f"is not valid JSON: {error.msg}") from error
            except RecursionError as error:
                raise self.broken("is nested too deeply") from error
