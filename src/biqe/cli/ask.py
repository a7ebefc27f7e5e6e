"""``biqe ask``: a SPARQL query in, known and predicted rows out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._console import out
from biqe.errors import InvalidOption, UnreadableFile


def ask(
    target: Annotated[
        str, typer.Argument(metavar="RUN|atlas", help="atlas, or a run, model or graph folder.", show_default=False)
    ],
    query: Annotated[
        str | None, typer.Argument(help="SPARQL text; @FILE reads a file, - reads standard input.", show_default=False)
    ] = None,
    mode: Annotated[str, typer.Option(help="Rows wanted: both, known or predicted.")] = "both",
    top: Annotated[int, typer.Option(help="Predicted rows, at most.")] = 20,
    min_probability: Annotated[float, typer.Option(help="Leave out predicted rows below this probability.")] = 0.0,
    known_limit: Annotated[
        int | None,
        typer.Option(help="Known rows to print, at most. Default: 50 in a table, else all.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="table, json, sparql-json, csv, tsv or xml.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    graph: Annotated[
        Path | None, typer.Option(help="Graph folder to use, where a run's own was moved.", show_default=False)
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(help="What counts as known: complete or train. Default: as the graph says.", show_default=False),
    ] = None,
    joint: Annotated[str, typer.Option(help="How tuples are ranked: beam or product.")] = "beam",
    width: Annotated[int, typer.Option(help="Tuples that the beam keeps after each variable.")] = 50,
) -> None:
    """Answer a SPARQL query: what the graph holds, and what the model predicts beyond it.

    Known rows come first and are complete. Each predicted row has a probability and the links that the graph would
    have to hold for the row to be known.

        biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'

        biqe ask runs/mine @question.rq --top 5 --format csv

        biqe ask runs/mine - --mode known < question.rq
    """
    from biqe.answer import formats
    from biqe.knowledge_base import open as open_knowledge_base

    form = "json" if as_json else format
    if form not in formats.FORMATS:
        raise InvalidOption(f"--format must be one of {', '.join(formats.FORMATS)}. Got {form!r}")
    if known_limit is not None and known_limit < 0:
        raise InvalidOption(f"--known-limit must be at least 0. Got {known_limit}")
    text = _query_text(query, target)
    answers = open_knowledge_base(target, graph=graph, known=known).ask(
        text, mode=mode, top=top, min_probability=min_probability, joint=joint, width=width
    )
    if form == "table":
        rows = formats.TABLE_ROWS if known_limit is None else known_limit
        print(formats.table(answers, width=out.width, colour=_colour(), known_rows=rows))
        return
    written = formats.write(answers.with_known(known_limit), form)
    if form == "csv" and sys.stdout.isatty():
        # CSV has no escapes: names go out as they are, but not to a terminal, which would obey them.
        written = "\n".join(map(formats.visible, written.split("\r\n")))
    sys.stdout.write(written)


def _colour() -> bool:
    return out.is_terminal and not os.environ.get("NO_COLOR")


def _query_text(query: str | None, target: str) -> str:
    if query is None:
        raise InvalidOption(
            "no query was given",
            hint=f"biqe ask {target} 'SELECT ?x WHERE {{ ... }}'; @FILE reads it from a file, - from standard input",
        )
    if query == "-":
        try:
            return sys.stdin.read()
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"standard input is not UTF-8 text: {error}") from error
    if query.startswith("@"):
        path = Path(query[1:])
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise UnreadableFile(f"query file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"query file {path} is not UTF-8 text: {error}") from error
    return query
