"""``biqe mcp``: a knowledge base as tools for language-model agents."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._options import GraphFolder, Known, Target
from biqe.errors import InvalidOption


def mcp(
    target: Target,
    abstain_below: Annotated[
        float, typer.Option(help="Predictions below this probability come with the advice to abstain.")
    ] = 0.5,
    allow_updates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tsv", help="Add a tool that appends facts to this file, once checked.", show_default=False
        ),
    ] = None,
    graph: GraphFolder = None,
    known: Known = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print what a client's configuration needs, as JSON, and stop.")
    ] = False,
) -> None:
    """Offer a graph and its model to language-model agents, over the Model Context Protocol on standard input and
    output.

    The tools are schema, find, ask, explain and suggest. They tell known from predicted, give each prediction's
    probability and reasons, and read only. A client starts this command by itself; --json prints how:

        biqe mcp runs/mine --json

        biqe mcp runs/mine --abstain-below 0.3

        biqe mcp runs/mine --allow-updates accepted.tsv

    With --allow-updates there is one more tool, accept, which appends a fact between names of the graph to that file;
    'biqe import kg.tsv accepted.tsv --out NEW' takes it into a graph. docs/guides/agents.md shows more.
    """
    if find_spec("mcp") is None:
        raise InvalidOption(
            "biqe mcp needs the package 'mcp', which is not installed", hint="pip install 'biqe[agents]'"
        )
    from biqe import __version__
    from biqe.agents.tools import Tools
    from biqe.cli._console import print_json
    from biqe.knowledge_base import open as open_knowledge_base

    if allow_updates is not None and (allow_updates.is_dir() or not allow_updates.parent.is_dir()):
        raise InvalidOption(f"{allow_updates} is no file that can be written", hint="name a file: accepted.tsv")
    tools = Tools(
        open_knowledge_base(target, graph=graph, known=known), abstain_below=abstain_below, accepted=allow_updates
    )
    if json:
        place = target if target == "atlas" else str(Path(target).resolve())
        arguments = ["mcp", place, *(["--abstain-below", f"{abstain_below:g}"] if abstain_below != 0.5 else [])]
        for name, path in (("--allow-updates", allow_updates), ("--graph", graph)):
            arguments += [] if path is None else [name, str(path.resolve())]
        arguments += [] if known is None else ["--known", known]
        print_json({"mcpServers": {"biqe": {"command": sys.executable, "args": ["-m", "biqe", *arguments]}}})
        return
    from biqe.agents.server import build

    tools.warm()
    build(tools, __version__).run()
