"""Arguments and options of commands that open a graph, or a knowledge base and ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[
    str, typer.Argument(metavar="RUN|atlas", help="atlas, or a run, model or graph folder.", show_default=False)
]
GraphFolder = Annotated[
    Path | None, typer.Option(help="Graph folder to use, where a run's own was moved.", show_default=False)
]
Known = Annotated[
    str | None,
    typer.Option(help="What counts as known: complete or train. Default: as the graph says.", show_default=False),
]
Top = Annotated[int, typer.Option(help="Predicted rows, at most.")]
# Far more of them than any machine has cores do not start, and end the program.
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Processor threads.", show_default=False)]


def graph_place(name: str) -> Path:
    """The graph folder that a user means: ``atlas`` is the embedded one, a run the graph that it was trained on."""
    from biqe import atlas
    from biqe.knowledge_base.locate import graph_of_run

    if name == "atlas":
        return Path(atlas.path())
    return graph_of_run(Path(name)) if (Path(name) / "run.json").is_file() else Path(name)
