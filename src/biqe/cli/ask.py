"""``biqe ask``: a SPARQL query in, known and predicted rows out."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.answer import formats
from biqe.cli._console import out
from biqe.cli._options import Device, GraphFolder, Known, Target, Top, query_text
from biqe.errors import InvalidOption
from biqe.predict.config import JOINT, MODES, TOP, WIDTH

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase


def ask(
    target: Target,
    query: Annotated[
        str | None,
        typer.Argument(
            help="SPARQL text; @FILE reads a file, - standard input. None: typed one by one.", show_default=False
        ),
    ] = None,
    mode: Annotated[str, typer.Option(help="Rows wanted: both, known or predicted.")] = MODES[0],
    top: Top = TOP,
    min_probability: Annotated[float, typer.Option(help="Leave out predicted rows below this probability.")] = 0.0,
    known_limit: Annotated[
        int | None,
        typer.Option(help="Known rows to print, at most. Default: 50 in a table, else all.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help=f"{', '.join(formats.names()[:-1])} or {formats.names()[-1]}.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    graph: GraphFolder = None,
    device: Device = "cpu",
    known: Known = None,
    joint: Annotated[
        str | None,
        typer.Option(
            help=f"How models without calibrated links find rows: {', '.join(JOINT)}. Default: links or beam.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Partial rows that the beam keeps after each variable.")] = WIDTH,
    model: Annotated[
        str | None,
        typer.Option(help="Which of several models; auto: the best for the query's shape.", show_default=False),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="As many rows as hold a missing answer this often, such as 0.9.", show_default=False),
    ] = None,
    injective: Annotated[bool, typer.Option("--injective", help="No entity twice in a predicted row.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Tell why the first rows are there.")] = False,
) -> None:
    """Answer a SPARQL query: what the graph holds, and what the model predicts beyond it.

    Known rows come first and are complete. Each predicted row has a probability and the links that the graph would
    have to hold for the row to be known. In mode known, all of SPARQL 1.1 is answered.

        biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'

        biqe ask runs/mine @question.rq --top 5 --format csv

        biqe ask runs/mine - --mode known < question.rq

        biqe ask atlas
    """
    from biqe.knowledge_base import open as open_knowledge_base

    form = "json" if as_json else format
    if form not in formats.names():
        raise InvalidOption(f"--format must be one of {', '.join(formats.names())}. Got {form!r}")
    if known_limit is not None and known_limit < 0:
        raise InvalidOption(f"--known-limit must be at least 0. Got {known_limit}")
    if explain and form not in ("table", "json"):
        raise InvalidOption(f"--explain goes with --format table or json. Got {form!r}")
    # Read before anything is opened: a missing file should not wait for a graph.
    is_typed = query is None and sys.stdin is not None and sys.stdin.isatty()
    text = None if is_typed else query_text(query, target)
    kb = open_knowledge_base(target, graph=graph, known=known, device=device)

    def answer(question: str) -> Any:
        return kb.ask(
            question,
            mode=mode,
            top=top,
            min_probability=min_probability,
            joint=joint,
            width=width,
            model=model,
            coverage=coverage,
            injective=injective,
        )

    def show(answers: Any) -> None:
        _write(kb, answers, form, known_limit, explain)

    if text is None:
        from biqe.cli._shell import Shell, line_editing

        with line_editing(kb):
            Shell(kb, answer, show).run()
    else:
        show(answer(text))


def _write(kb: KnowledgeBase, answers: Any, form: str, known_limit: int | None, explain: bool) -> None:
    written = answers.write(form, width=out.width, colour=_colour(), known_rows=known_limit)
    if explain:
        explained = _explained(kb, answers)
        if form == "json":
            reasons = [{"number": row.number + 1, **json.loads(why.write("json"))} for row, why in explained]
            written = json.dumps({**json.loads(written), "explanations": reasons}, indent=2) + "\n"
        else:
            written += "".join(f"\nrow {row.number + 1}\n{why.to_text().rstrip()}\n" for row, why in explained)
    if form == "csv" and sys.stdout.isatty():
        # CSV has no escapes: names go out as they are, but not to a terminal, which would obey them.
        from biqe.graph.words import visible

        written = "\n".join(map(visible, written.split("\r\n")))
    sys.stdout.write(written)


EXPLAINED = 3
"""Rows that --explain explains: the first predicted ones, or the first known ones where there are no others."""


def _explained(kb: KnowledgeBase, answers: Any) -> list[tuple[Any, Any]]:
    rows = list(answers[-answers.predicted_count :] if getattr(answers, "predicted_count", 0) else answers[:EXPLAINED])
    return [(row, kb.explain(row)) for row in rows[:EXPLAINED]]


def _colour() -> bool:
    return out.is_terminal and not os.environ.get("NO_COLOR")
