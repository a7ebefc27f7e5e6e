"""``biqe backup`` and ``biqe restore``: copies of a graph that changes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._options import Json

Live = Annotated[
    Path, typer.Argument(metavar="LIVE", help="Folder of a live graph, as of serve --live.", show_default=False)
]
Out = Annotated[Path, typer.Option("--out", help="Folder to write.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace a live graph that is there and that nobody serves.")]


def backup(source: Live, out: Out, force: Force = False, json: Json = False) -> None:
    """Copy a live graph, also while it is served and updated.

    The copy has every update that was acknowledged before the command was started. All files are compared with their
    checksums. The copy is a live graph itself: it can be served, or put back with biqe restore.

        biqe backup kg/live --out backups/monday
    """
    _copy(source, out, repair=False, force=force, as_json=json)


def restore(
    source: Live,
    out: Out,
    repair: Annotated[
        bool, typer.Option("--repair", help="Save what can be read of a damaged folder, and list what cannot.")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a live graph anew: from a back-up, from an older version of biqe, or from a damaged folder.

    The folder that is read stays as it is. All its files are compared with their checksums.

        biqe restore backups/monday --out kg/live

        biqe restore kg/damaged --out kg/live --repair
    """
    _copy(source, out, repair=repair, force=force, as_json=json)


def _copy(source: Path, out: Path, *, repair: bool, force: bool, as_json: bool) -> None:
    from biqe.cli._console import print_json
    from biqe.serve.live.copying import copy

    done = copy(source, out, repair=repair, force=force)
    if as_json:
        print_json({"folder": str(out), **asdict(done)})
        return
    print(
        f"{out}: version {done.version:,} with {done.triples:,} triples, {done.entities:,} entities and "
        f"{done.literals:,} literals"
    )
    for lost in done.given_up:
        print(f"given up: {lost}")
