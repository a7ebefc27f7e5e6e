"""Where benchmark files lie, and graphs read from them once.

The data folder is the one that is given, else the one that BIQE_DATA names, else ``shared/data`` beside the checkout,
else ``data`` in the working folder. In it, each benchmark has its own folder; see docs/concepts/benchmarks.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from biqe.benchmarks._cache import cache_folder, key_of
from biqe.errors import UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.importer import import_files
from biqe.graph.knowledge_graph import Splits

FINGERPRINTS = {"FB15k-237": "280ef5cc286f9a8f", "WN18RR": "96d6a587748ac720", "NELL-995": "098f93b8bc95ea30"}
"""Fingerprint of each public graph, imported from its files as they were published."""

GRAPH_FILES = ("train.txt", "valid.txt", "test.txt")


def data_folder(data: str | Path | None = None) -> Path:
    """The folder of benchmark files; it need not exist."""
    if data is not None:
        return Path(data)
    if named := os.environ.get("BIQE_DATA"):
        return Path(named)
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    return beside if beside.is_dir() else Path("data")


def missing_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Those of the files ``names`` that ``folder`` lacks."""
    return [folder / name for name in names if not (folder / name).is_file()]


def refuse_missing(what: str, missing: Sequence[Path], how: str) -> None:
    """UnreadableFile if any file of ``what`` is missing; ``how`` says how to get it."""
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise UnreadableFile(f"the files of {what} are not at hand: {missing[0]}{more} missing", hint=how)


def text_graph(name: str, data: Path) -> Splits:
    """The public graph ``name`` from its text files in the data folder, imported once into the cache."""
    folder = data / name
    files = [folder / file for file in GRAPH_FILES]
    labels = folder / "labels.tsv"
    key = key_of("graph", graph_folder.VERSION, files=[*files, labels] if labels.is_file() else files)
    place = cache_folder() / "graphs" / f"{name}-{key}"
    if graph_folder.is_graph_folder(place):
        try:
            return check_graph(name, graph_folder.load(place))
        except UnreadableFile:
            pass  # damaged or of another version: made again below
    import_files([folder], place, force=True)
    return check_graph(name, graph_folder.load(place))


def check_graph(name: str, splits: Splits) -> Splits:
    """``splits``; VocabularyMismatch unless they are the public graph ``name`` to the bit."""
    pinned = FINGERPRINTS[name]
    if splits.fingerprint != pinned:
        raise VocabularyMismatch(
            f"this graph has fingerprint {splits.fingerprint}; {name} as published has {pinned}",
            hint="its files were changed, or it was imported from other files; import the published ones again",
        )
    return splits
