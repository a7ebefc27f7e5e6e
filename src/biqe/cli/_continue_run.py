"""``biqe train --continue``: the run that is continued, and the graph, which may have grown since."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, UnreadableFile


def origin_of(run: str, model_options: Mapping[str, Any], start_from: Path | None) -> tuple[str, str]:
    """Folder and model name of the run or model to continue; ``atlas`` is the embedded model. InvalidOption if options
    are given that only a new model takes."""
    from biqe import atlas
    from biqe.models.store import read_manifest

    if start_from is not None:
        raise InvalidOption("a run begins with one model's weights: give --continue or --start-from, not both")
    given = [name for name, value in model_options.items() if value is not None]
    if given:
        raise InvalidOption(
            f"a continued model stays as it was built. Got --{given[0]}", hint=f"leave out --{given[0]}"
        )
    folder = Path(atlas.model_path()) if run == "atlas" else Path(run)
    inner = folder / "model" if (folder / "run.json").is_file() else folder
    try:
        manifest = read_manifest(inner)
    except UnreadableFile as error:
        raise UnreadableFile(f"there is no model to continue: {error.message}", hint=error.hint) from error
    return str(folder), str(manifest["model"])


def as_graph_folder(graph: str, out: Path) -> str:
    """``graph`` itself if it is a graph folder; a live graph is copied into the run, as it is now."""
    from biqe.graph import folder as graph_folder
    from biqe.serve.live.generations import is_live_folder
    from biqe.training.run import GRAPH, check_free

    if graph == "atlas" or not is_live_folder(graph):
        return graph
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidOption(
            "several processes cannot train on a live graph, which may change while they read it",
            hint="use one process, or continue on a graph folder",
        )
    from biqe.serve.live import LiveGraph

    check_free(out)
    live = LiveGraph(graph)
    view = live.snapshot()
    copy = out / GRAPH
    extra = {"known": view.known, "live_version": view.version}
    splits = replace(view.splits, literals=live.literals)
    graph_folder.save(splits, copy, prefixes=live.prefixes, extra=extra, force=True)
    live.copied(splits.fingerprint)  # so that the new model may answer over later versions of the live graph
    return str(copy)
