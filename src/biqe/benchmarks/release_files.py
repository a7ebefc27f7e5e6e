"""Which file of a release's folder holds what, and how its large JSON lists are read.

File names differ between copies of a release, so the content tells queries from filters and DAGs from paths,
and ``dev`` (or ``valid``, ``val``) or ``test`` in the name, or in the name of a folder above it, tells the split.
Where several files fit, the one under the name in ``FILE_NAMES`` is taken.

Filter files run to hundreds of megabytes. Parsed whole, every name in them would become a Python string that lives
as long as the list; ``json_items`` parses item by item, and an error says which item is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from biqe.errors import InvalidOption, UnreadableFile
from biqe.graph.whole_folder import open_regular

FILE_NAMES = {
    "dag": "dags_{split}.json",
    "dag filters": "dags_{split}_filters.json",
    "path": "paths_{split}.json",
    "path filters": "paths_{split}_filters.json",
}
BROKEN = "broken JSON"
"""What a file holds that claims to be JSON and is not."""
SPLIT_WORDS = {"dev": re.compile(r"dev|valid|(?<![a-z])val(?![a-z])"), "test": re.compile("test")}

READ_CHARS = 1 << 20
ITEM_CHARS = 1 << 26
"""An item longer than this is refused: no query is, and a broken file could otherwise fill the memory."""

_SPACE = " \t\r\n"
_IN_NUMBER = "0123456789.eE+-"
_FILES_LISTED = 20
_ITEMS_SNIFFED = 100


def release_split(split: str) -> str:
    """``dev`` or ``test``; ``valid`` is another word for ``dev``."""
    split = {"valid": "dev"}.get(split, split)
    if split not in SPLIT_WORDS:
        raise InvalidOption(f"split of a release must be one of dev, valid, test. Got {split!r}")
    return split


@dataclass(frozen=True)
class Files:
    """What a release's folder holds: content and split of each file, None where it could not be told."""

    directory: Path
    entries: tuple[tuple[Path, str | None, str | None], ...]

    def of(self, content: str, split: str) -> list[Path]:
        """Files of this content and split; the one under our own name alone, where it is there."""
        paths = [path for path, *known in self.entries if known == [content, split]]
        own = [path for path in paths if path.name == FILE_NAMES[content].format(split=split)]
        return own if len(own) == 1 else paths

    def one(self, content: str, split: str) -> Path:
        """The file of this content and split; an error that lists what was found if there is not exactly one."""
        paths = self.of(content, split)
        if len(paths) == 1:
            return paths[0]
        described = {"dag": "DAG queries", "path": "path queries"}.get(content, content.replace("dag", "DAG"))
        listing = [
            f"  {path.relative_to(self.directory)}: {what or 'no release content'}, {where or 'no split in its name'}"
            for path, what, where in self.entries
        ]
        if len(listing) > _FILES_LISTED:
            listing[_FILES_LISTED:] = [f"  and {len(listing) - _FILES_LISTED:,} more"]
        seen = "found:\n" + "\n".join(listing) if listing else "the folder has no file"
        if paths:
            raise InvalidOption(
                f"{self.directory} has {len(paths)} files with {described} of split {split!r}; one is needed; {seen}",
                hint="give the folder of one data set, or put its files into a folder of their own",
            )
        raise UnreadableFile(
            f"{self.directory} has no file with {described} of split {split!r}; {seen}",
            hint=f"name it {FILE_NAMES[content].format(split=split)!r}; the format is in docs/concepts/protocols.md",
        )


def find_files(directory: Path) -> Files:
    """Every file below ``directory``, with its content (one of the keys of FILE_NAMES) and its split."""
    if not directory.is_dir():
        raise UnreadableFile(f"{directory} is not a folder", hint="give the folder that holds the release's JSON files")
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    return Files(directory, tuple((path, _content(path), _split(path.relative_to(directory))) for path in paths))


def _split(path: Path) -> str | None:
    # The file's own name first, then its folder, then the folder above.
    for part in (path.stem, *(folder.name for folder in path.parents)):
        splits = [split for split, word in SPLIT_WORDS.items() if word.search(part.lower())]
        if splits:
            return splits[0] if len(splits) == 1 else None
    return None


def _content(path: Path) -> str | None:
    try:
        for item in islice(json_items(path), _ITEMS_SNIFFED):
            if isinstance(item, str):
                return "path"
            if isinstance(item, dict):
                return "dag filters"
            if isinstance(item, list) and item:
                return "dag" if isinstance(item[0], str) else "path filters" if isinstance(item[0], list) else None
    except UnreadableFile:
        # Walks and read-me files are no JSON; a file that claims to be is named as broken where files are listed.
        return BROKEN if path.suffix.lower() == ".json" else None
    return None


def json_items(path: Path, *, read_chars: int = READ_CHARS, item_chars: int = ITEM_CHARS) -> Iterator[object]:
    """Yield the items of the JSON list in ``path``.

    UnreadableFile names the file and the item that is broken; items count from 0.
    """
    try:
        with open(open_regular(path), encoding="utf-8-sig") as file:
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
