"""Which files make up a graph, in which format, and for which split.

The format follows from the file's extension, without ``.gz``. A folder that holds ``train``, and
``valid`` or ``test`` or both, keeps these splits; one with ``train`` alone is a graph without splits, and an empty
``valid`` or ``test`` counts as none; any other folder is read file by file. ``-`` is the standard input. A
``labels.tsv`` beside what is read, or named together with it, holds labels, not triples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from biqe.errors import InvalidOption, UnreadableFile
from biqe.graph.blocks import STANDARD_INPUT, blocks
from biqe.graph.whole_folder import cannot_be_read

FORMATS = {
    "tsv": (".tsv", ".txt", ".tab"),
    "csv": (".csv",),
    "ntriples": (".nt", ".ntriples"),
    "nquads": (".nq", ".nquads"),
    "turtle": (".ttl", ".turtle"),
    "trig": (".trig",),
    "rdfxml": (".rdf", ".xml", ".owl"),
    "parquet": (".parquet", ".pq"),
}
"""Format names, as ``--format`` takes them, and the extensions that stand for them."""
SHORT_NAMES = {"nt": "ntriples", "nq": "nquads", "ttl": "turtle", "txt": "tsv", "xml": "rdfxml", "rdf": "rdfxml"}
RDF_FORMATS = frozenset({"ntriples", "nquads", "turtle", "trig", "rdfxml"})
_READ_TWICE = frozenset({"parquet", "rdfxml"})
"""Formats that are not read from start to end in one go, as a pipe must be."""

SPLIT_NAMES = {
    "train": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
"""Stem of a file -> the split it holds."""
LABELS_FILES = ("labels.tsv", "labels.tsv.gz")

_BY_EXTENSION = {extension: name for name, extensions in FORMATS.items() for extension in extensions}


@dataclass(frozen=True)
class Source:
    """One file to read."""

    path: Path
    format: str
    split: str
    """``train``, ``valid`` or ``test``; ``train`` where the input came without splits."""


@dataclass(frozen=True)
class Sources:
    """Everything that one import reads."""

    files: tuple[Source, ...]
    labels: tuple[Path, ...]
    has_splits: bool
    ignored: tuple[Path, ...] = ()
    """Files of the given folders that are not read, except hidden ones."""

    @property
    def size(self) -> int | None:
        """Bytes on disk; None where a pipe, whose size is unknown, is among the files."""
        if not all(source.path.is_file() for source in self.files):
            return None
        return sum(source.path.stat().st_size for source in self.files)


def format_of(path: Path) -> str | None:
    """Format that the extension of ``path`` stands for, or None.

    >>> format_of(Path("facts.nt.gz")), format_of(Path("README.md"))
    ('ntriples', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _BY_EXTENSION.get(suffixes[-1]) if suffixes else None


def check_format(name: str | None) -> str | None:
    """The full name of a format; InvalidOption if there is no such format."""
    if name is None:
        return None
    full = SHORT_NAMES.get(name.lower(), name.lower())
    if full not in FORMATS:
        raise InvalidOption(
            f"format must be one of {', '.join(FORMATS)}. Got {name!r}",
            hint="without --format, the extension of each file decides",
        )
    return full


def find_sources(
    paths: Sequence[str | Path], *, format: str | None = None, labels: str | Path | None = None
) -> Sources:
    """The files behind ``paths``: files as given, folders looked into (not below).

    Refused: a path that does not exist, a file of unknown format, a folder without a readable file, one folder
    with splits among other inputs, two files for one split, a pipe of a format that is read more than once.
    """
    forced = check_format(format)
    if not paths:
        raise InvalidOption(
            "nothing to import: give at least one file or folder", hint="for example: biqe import facts.tsv --out kg"
        )
    given = [_place(path) for path in paths]
    for path in given:
        if not _exists(path):
            raise UnreadableFile(f"{path} does not exist", hint=_nearest(path))
    chosen = [_place(labels)] if labels is not None else []
    if labels is not None and (not _exists(chosen[0]) or chosen[0].is_dir()):
        raise UnreadableFile(
            f"labels file {labels} does not exist", hint=_nearest(chosen[0]) or "give the file after --labels"
        )
    # Named together with triples, as dir/*.tsv names it, it holds labels; alone, it is what there is to read.
    named = [path for path in given if path.name in LABELS_FILES and not path.is_dir()]
    if len(named) == len(given):
        named = []

    files: list[Source] = []
    beside: list[Path] = []
    ignored: list[Path] = []
    split_folders: list[Path] = []
    for path in given:
        if path in named:
            continue
        if not path.is_dir():
            files.append(Source(path, forced or _known_format(path), "train"))
            _check_pipe(files[-1])
            beside += [path.parent / name for name in LABELS_FILES] if path.name not in LABELS_FILES else []
            continue
        beside += [path / name for name in LABELS_FILES]
        inside, other = _readable_files(path, forced)
        splits = _splits_among(path, inside)
        if len(splits) > 1:
            split_folders.append(path)
        files.extend(splits or inside)
        ignored += other
        if splits:
            ignored += [source.path for source in inside if SPLIT_NAMES.get(_stem(source.path)) is None]
    if split_folders and len(given) - len(named) > 1:
        raise InvalidOption(
            f"{split_folders[0]} has splits of its own (train, valid, test) and cannot be joined with other inputs",
            hint="import it alone, or name its files one by one to join them into one graph without splits",
        )
    repeated = {source.path.resolve() for source in files}
    if len(repeated) < len(files):
        raise InvalidOption("a file is given twice: every file may be named once", hint="leave one of them out")
    if labels is None:
        named += [path for path in beside if path.is_file()]
    # The last label of a name stands, so what --labels chooses comes last.
    label_files = {path.resolve(): path for path in (*named, *chosen)}
    return Sources(tuple(files), tuple(label_files.values()), bool(split_folders), tuple(sorted(ignored)))


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; UnreadableFile where the system refuses to say."""
    try:
        return path.exists()
    except OSError as error:
        raise cannot_be_read(path, error) from error


def _place(path: str | Path) -> Path:
    return STANDARD_INPUT if str(path) == "-" else Path(path)


def _check_pipe(source: Source) -> None:
    if source.format in _READ_TWICE and not source.path.is_file():
        raise UnreadableFile(
            f"{source.path} is a pipe or a device, and {source.format} cannot be read from one",
            hint="save it as a file first, and import that",
        )


def _known_format(path: Path) -> str:
    found = format_of(path)
    if found is None:
        known = ", ".join(extension for extensions in FORMATS.values() for extension in extensions)
        raise UnreadableFile(
            f"{path}: the extension tells no format; known are {known}, and .gz after any of them",
            hint=f"name the format with --format ({', '.join(FORMATS)})",
        )
    return found


def _readable_files(folder: Path, forced: str | None) -> tuple[list[Source], list[Path]]:
    """Files of ``folder`` to read, and what else there is; by name, without labels and hidden files.

    Files with a known extension are read. Where the format is given, so are splits with any other, or none; and all
    files of a folder that has neither.
    """
    files: list[Path] = []
    other: list[Path] = []
    found: list[Source] = []
    try:
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(".") and path.name not in LABELS_FILES:
                (files if path.is_file() else other).append(path)
    except OSError as error:
        raise UnreadableFile(
            f"folder {folder} cannot be read: {error.strerror or error}", hint="are you allowed to read it?"
        ) from error
    for path in files:
        format = format_of(path) or (forced if _stem(path) in SPLIT_NAMES else None)
        if format is not None:
            found.append(Source(path, forced or format, "train"))
    if forced and not found:
        found = [Source(path, forced, "train") for path in files]
    if not found:
        raise UnreadableFile(
            f"folder {folder} holds no file to read",
            hint="triples are read from "
            + ", ".join(f"*{extension}" for extensions in FORMATS.values() for extension in extensions[:1])
            + "; other names need --format, and a graph folder that biqe wrote needs no import",
        )
    read = {source.path for source in found}
    return found, [path for path in (*files, *other) if path not in read]


def _splits_among(folder: Path, files: list[Source]) -> list[Source]:
    by_split: dict[str, Source] = {}
    for source in files:
        split = SPLIT_NAMES.get(_stem(source.path))
        if split is None:
            continue
        if split in by_split:
            raise InvalidOption(
                f"folder {folder} has two files for the {split} split: {by_split[split].path.name} "
                f"and {source.path.name}",
                hint="keep one of them there",
            )
        by_split[split] = Source(source.path, source.format, split)
    if not by_split:
        return []
    if "train" not in by_split:
        names = ", ".join(source.path.name for source in by_split.values())
        raise UnreadableFile(
            f"folder {folder} has {names} but no train file",
            hint="call the file of the known triples train; or name files one by one to join them without splits",
        )
    kept = [by_split[split] for split in ("valid", "test") if split in by_split and not _is_empty(by_split[split])]
    return [by_split["train"], *kept]


def _is_empty(source: Source) -> bool:
    """Whether the file holds nothing but blank lines and comments; one that cannot be read is left to its reader."""
    try:
        if source.path.stat().st_size == 0:
            return True
        if source.format not in ("tsv", "csv", "ntriples", "nquads"):
            return False
        lines = (line for block in blocks(source.path) for line in block.data.split(b"\n"))
        return all(not line.strip() or line.startswith(b"#") for line in lines)
    except (OSError, UnreadableFile):
        return False


def _stem(path: Path) -> str:
    name = path.name.lower()
    return name.removesuffix(".gz").rsplit(".", 1)[0]


def _nearest(path: Path) -> str | None:
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return None
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None
