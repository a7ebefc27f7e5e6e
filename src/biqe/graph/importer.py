"""From files to a graph folder: read, split where the files bring no splits, save."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption
from biqe.graph import folder
from biqe.graph.blocks import Advance
from biqe.graph.files import find_sources
from biqe.graph.knowledge_graph import Splits
from biqe.graph.read import ReadGraph, read_graph
from biqe.graph.split import check_seed
from biqe.graph.split import split as split_graph

DEFAULT_SHARES = (0.05, 0.05)
"""Shares of valid and test where the input brings no splits and none are asked for."""


@dataclass(frozen=True)
class Imported:
    """What an import made."""

    splits: Splits
    manifest: dict[str, Any]
    how_split: str
    """``given`` by the files, ``random``, or ``none``."""


def import_files(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    format: str | None = None,
    labels: str | Path | None = None,
    shares: tuple[float, float] | None = DEFAULT_SHARES,
    asked_to_split: bool = False,
    seed: int = 0,
    force: bool = False,
    skip_bad: bool = False,
    encoding: str | None = None,
    values: bool = True,
    advance: Advance | None = None,
) -> Imported:
    """Read ``paths`` and write the graph folder ``out``.

    ``shares`` of valid and test are drawn at random where the files bring no splits; None keeps everything in train.
    With ``asked_to_split``, files with splits of their own are refused instead of left as they are. With ``skip_bad``,
    lines that cannot be read are left out and counted. Lines of tables that are not UTF-8 are read in ``encoding``.
    Without ``values``, numbers and dates of tables are names of entities.
    """
    check_seed(seed)
    folder.check_target(out, force=force)
    if asked_to_split and find_sources(paths, format=format, labels=labels).has_splits:
        raise InvalidOption(
            f"{paths[0]} has splits of its own (train, valid, test); --split is for inputs without",
            hint="leave --split out, or name the files one by one to join them into one graph first",
        )
    start = time.monotonic()
    read = read_graph(
        paths, format=format, labels=labels, advance=advance, skip_bad=skip_bad, encoding=encoding, values=values
    )
    splits, how = read.splits, "given" if read.has_splits else "none"
    if not read.has_splits and shares is not None and sum(shares) > 0:
        splits, how = split_graph(splits["train"], *shares, seed=seed), "random"
    manifest = folder.save(
        splits, out, prefixes=read.prefixes, extra=_source(read, how, shares, seed, start), force=force
    )
    return Imported(splits, manifest, how)


def _source(read: ReadGraph, how: str, shares: tuple[float, float] | None, seed: int, start: float) -> dict[str, Any]:
    # File names without their folders: where they stood on one machine means nothing on another.
    source: dict[str, Any] = {"files": [path.name for path in read.files], "counts": asdict(read.counts), "split": how}
    if how == "random" and shares is not None:
        source |= {"shares": {"valid": shares[0], "test": shares[1]}, "seed": seed}
    return source | {"seconds": round(time.monotonic() - start, 3)}
