"""``biqe explain``: why one row is an answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._console import err
from biqe.cli._options import GraphFolder, Known, Target, Top, query_text
from biqe.errors import InvalidOption
from biqe.predict.config import MODES, TOP


def explain(
    target: Target,
    query: Annotated[
        str | None, typer.Argument(help="SPARQL text; @FILE reads a file, - reads standard input.", show_default=False)
    ] = None,
    row: Annotated[int, typer.Option(help="Number of the row, from 1: known rows first, then predicted ones.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .txt, .json, .svg or .png.", show_default=False)
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="text, json, svg or png. Default: as FILE ends, else text.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    views: Annotated[
        str,
        typer.Option(
            help="What to show beside the reasons: any of witness, attention, counterfactual, separated by commas."
        ),
    ] = "witness",
    mode: Annotated[str, typer.Option(help="Rows that are numbered: both, known or predicted.")] = MODES[0],
    top: Top = TOP,
    model: Annotated[
        str | None, typer.Option(help="One of several models, or auto. Default: as 'biqe ask'.", show_default=False)
    ] = None,
    graph: GraphFolder = None,
    known: Known = None,
) -> None:
    """Explain why one row is an answer: in words, as JSON, or as a picture.

    First a sentence, then the stored facts and the missing links that together make the row (the witness), and for
    each missing link what speaks for it and against it: rules with their record on this graph, how the kinds of its
    ends fit, and what else was considered. Two views of a model that reads the whole question are made on request, with
    --views witness,attention,counterfactual: where it looked, and what becomes of the row when a pattern is dropped or
    a stored fact withheld. Rows are numbered as 'biqe ask' lists them with the same --mode and --top.

        biqe explain atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }' \\
            --mode predicted --row 1

        biqe explain runs/mine @question.rq --row 3 --out why.svg
    """
    from biqe.answer.explain_request import row_of
    from biqe.explain.explanation import FORMATS
    from biqe.explain.parts import VIEWS
    from biqe.knowledge_base import open as open_knowledge_base

    form = _form("json" if as_json else format, out, FORMATS)
    chosen = [view.strip() for view in views.split(",") if view.strip()]
    for view in chosen or [""]:
        if view not in VIEWS:
            raise InvalidOption(f"--views must be one or more of {', '.join(VIEWS)}, separated by commas. Got {view!r}")
    if row < 1:
        raise InvalidOption(f"--row must be at least 1. Got {row}", hint="rows are numbered from 1, as they are listed")
    if query is None:
        raise InvalidOption("no query was given", hint=f"biqe explain {target} 'SELECT ?x WHERE {{ ... }}' --row 1")
    text = query_text(query, target, command="explain")
    kb = open_knowledge_base(target, graph=graph, known=known)
    answers = kb.ask(text, mode=mode, top=top, model=model)
    why = kb.explain(row_of(answers, row - 1), views=chosen)
    if out is not None:
        why.save(out, form)
        err.print(f"explanation written to {out}", soft_wrap=True)
    else:
        sys.stdout.write(why.write(form).decode())


def _form(form: str | None, out: Path | None, forms: dict[str, str]) -> str:
    if form is None and out is not None:
        form = next((name for name, ending in forms.items() if out.suffix.lower() == f".{ending}"), None)
        if form is None:
            endings = ", ".join(f".{ending}" for ending in forms.values())
            raise InvalidOption(
                f"the name of --out must end in one of {endings}. Got {out.name!r}",
                hint="or say the form with --format",
            )
    form = form or "text"
    if form not in forms:
        raise InvalidOption(f"--format must be one of {', '.join(forms)}. Got {form!r}")
    if form == "png" and out is None:
        raise InvalidOption("a PNG picture is no text, so it needs a file", hint="add --out why.png")
    return form
