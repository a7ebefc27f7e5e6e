"""Which file of a release's folder holds what.

File names differ between copies of a release, so the content tells queries from filters and DAGs from paths,
and ``dev`` (or ``valid``, ``val``) or ``test`` in the name, or in the name of a folder above it, tells the split.
Where several files fit, the one under the name in ``FILE_NAMES`` is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from biqe.benchmarks._json_list import json_items
from biqe.errors import InvalidOption, UnreadableFile

FILE_NAMES = {
    "dag": "dags_{split}.json",
    "dag filters": "dags_{split}_filters.json",
    "path": "paths_{split}.json",
    "path filters": "paths_{split}_filters.json",
}
SPLIT_WORDS = {"dev": re.compile(r"dev|valid|(?<![a-z])val(?![a-z])"), "test": re.compile("test")}

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
        return "broken JSON" if path.suffix.lower() == ".json" else None
    return None
