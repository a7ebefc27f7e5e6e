"""``biqe try``: from files to found facts and an open page, in one command."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biqe.errors import BadLine, BiqeError, InvalidOption

if TYPE_CHECKING:
    from biqe.graph.importer import Imported
    from biqe.knowledge_base import KnowledgeBase

ENCODING = "windows-1252"
"""Of lines that are not UTF-8."""
QUESTIONS, SUGGESTIONS, OF_EACH = 3, 5, 2
RELATIONS = 15
"""Relations that are listed."""
LEAST = 0.1
"""Probability of what is suggested."""
MANY_BAD = 0.1
"""Share of bad lines from which on it is asked whether to go on."""


def try_files(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of facts, or folders of them.", show_default=False),
    ],
    minutes: Annotated[float, typer.Option(help="Time for training.")] = 1.5,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the page at the end, until Ctrl-C.")] = True,
    port: Annotated[
        int | None, typer.Option(help="Port of the page. Default: 7878, or a free one.", show_default=False)
    ] = None,
) -> None:
    """Try biqe on your own files: import, train, ask, suggest, and open the page.

        biqe try films.csv

        biqe try facts.nt.gz more.ttl --minutes 5

        biqe try triples/ --no-page

    Takes what 'biqe import' takes. Tables may have a row for each fact or for each entity. Lines that cannot be read
    are left out and reported. The graph goes to kg/NAME and the run to runs/NAME, in the folder that you are in; the
    other commands take them. Files that were tried before are not trained on again.
    """
    from biqe.cli._console import out

    if not 0 < minutes < 1e6:
        raise InvalidOption(f"--minutes must be above 0. Got {minutes}")
    if port is not None and not 0 <= port < 1 << 16:
        raise InvalidOption(f"--port must be in 0..65535. Got {port}")
    if page:
        from biqe.serve.start import refuse_without_extra

        refuse_without_extra()
    graph, run, is_new = _imported(inputs)
    out.print()
    _show_relations(graph)
    if is_new:
        _heading(f"Training for {minutes:g} minute{'s' * (minutes != 1)}")
        kb = _trained(graph, run, minutes)
    else:
        from biqe.knowledge_base import open as open_knowledge_base

        out.print(f"{run} was trained on these facts before")
        kb = open_knowledge_base(run)
    _show_found(kb)
    _show_suggestions(kb)
    _heading("What next")
    for command, what in (
        (f"biqe ask {run}", "ask; Tab completes names"),
        (f"biqe suggest {run} --review", "accept or reject what is missing"),
        (f"biqe train {graph} --minutes 20", "learn for longer"),
        (f"biqe serve {run}", "the page again"),
    ):
        out.print(f"  {command:<42}  # {what}", soft_wrap=True)
    if page:
        _serve(kb, port)


def _heading(text: str) -> None:
    from biqe.cli._console import out

    out.print(f"\n{text}\n", style="bold")


def _imported(inputs: list[Path]) -> tuple[Path, Path, bool]:
    """The graph folder, the run folder, and whether the run has to be made."""
    from biqe.cli._options import default_folder
    from biqe.cli.import_graph import show_import
    from biqe.graph import folder
    from biqe.graph.import_process import import_in_child

    name = default_folder("kg", inputs[0].resolve()).name
    taken: list[tuple[Path, Path]] = []
    for number in itertools.count(1):
        own = name if number == 1 else f"{name}-{number}"
        graph, run = Path("kg") / own, Path("runs") / own
        if not os.path.lexists(graph) and not os.path.lexists(run):
            break
        taken.append((graph, run))
    imported = import_in_child(inputs, graph, skip_bad=True, encoding=ENCODING)
    try:
        _heading("What the files hold")
        show_import(graph, imported)
        _refuse_many_bad(imported)
    except BaseException:
        shutil.rmtree(graph)
        raise
    for old, old_run in taken:
        try:
            is_same = folder.load_manifest(old)["fingerprint"] == imported.manifest["fingerprint"]
        except BiqeError:
            continue
        if is_same and (old_run / "model" / "links.safetensors").is_file():
            shutil.rmtree(graph)
            return old, old_run, False
    return graph, run, True


def _refuse_many_bad(imported: Imported) -> None:
    """Ask whether to go on without many lines; without a terminal, go on unless most of them are bad."""
    from biqe.cli._console import err

    counts = imported.manifest["source"]["counts"]
    bad = counts["bad_lines"]
    share = bad / max(1, bad + counts["triples"] + counts["literals"])
    if share < MANY_BAD:
        return
    message = f"{bad:,} lines cannot be read, {100 * share:.0f} % of all"
    if sys.stdin is not None and sys.stdin.isatty():
        if not typer.confirm(f"{message}. Go on without them?", default=share < 0.5, err=True):
            raise typer.Abort()
    elif share >= 0.5:
        raise BadLine(Path(imported.manifest["source"]["files"][0]), 1, message, hint="is it the right file?")
    else:
        err.print(f"warning: {message}", soft_wrap=True)


def _show_relations(graph: Path) -> None:
    from biqe.cli.graph import show_schema
    from biqe.knowledge_base import open as open_knowledge_base

    show_schema(open_knowledge_base(graph).schema(), RELATIONS)


def _trained(graph: Path, run: Path, minutes: float) -> KnowledgeBase:
    from biqe.knowledge_base.training import train

    return train(graph, minutes=minutes, out=run)


def _show_found(kb: KnowledgeBase) -> None:
    """Questions that find facts which the model was not shown."""
    import numpy as np

    from biqe.answer.answers import Answers
    from biqe.cli._console import out
    from biqe.graph.words import probability, visible, wrapped
    from biqe.knowledge_base import open as open_knowledge_base
    from biqe.suggest.found_again import LISTED, found_again

    splits = kb.splits
    hidden = np.concatenate([splits["valid"].triples, splits["test"].triples])
    links = kb.predictor.links
    if links is None or not len(hidden):
        return
    learnt = open_knowledge_base(kb.name, known="train")
    links = learnt.predictor.links
    assert links is not None
    questions = found_again(links, hidden, kb.prefixes or {}, QUESTIONS)
    _heading("Hidden facts, found again")
    told = f"{len(hidden):,} of your facts were kept from the model. "
    if not questions:
        told += "It finds none of them among its first answers: it has learnt little, or they follow from nothing else."
    else:
        told += "Questions whose answers are among them:"
    for line in wrapped(told, out.width):
        out.print(line)
    for question in questions:
        out.print()
        out.print(question.query, soft_wrap=True)
        answers = learnt.ask(question.query, top=LISTED)
        assert isinstance(answers, Answers)
        known = [visible(row.labels["x"]) for row in list(answers.known)]
        if known:
            more = f" and {len(known) - 4:,} more" if len(known) > 4 else ""
            for line in wrapped(f"known: {', '.join(known[:4])}{more}", out.width, first="  ", rest="         "):
                out.print(line, soft_wrap=True)
        for row in answers.predicted:
            is_true = row.ids[0] in question.hidden
            mark = "  <- a hidden fact" if is_true else ""
            out.print(f"  {probability(row.probability)}  {visible(row.labels['x'])}{mark}", soft_wrap=True)
            if is_true:
                for line in wrapped(visible(row.why), out.width, first="         "):
                    out.print(line, soft_wrap=True)


def _show_suggestions(kb: KnowledgeBase) -> None:
    """The likeliest facts that the files lack."""
    from biqe.cli._console import out
    from biqe.cli.suggest import lines_of
    from biqe.suggest import Suggester

    if kb.predictor.links is None:
        return
    found = Suggester(kb.predictor, kb.prefixes).suggest(
        top=SUGGESTIONS, each=OF_EACH, min_probability=LEAST, seconds=60
    )
    _heading("Facts that your files may be missing")
    if found.note:
        out.print(f"note: {found.note}")
    if not found:
        out.print(f"None has a probability of {LEAST:g} or more.")
    for one in found:
        for line in lines_of(one, out.width):
            out.print(line, soft_wrap=True)


def _serve(kb: KnowledgeBase, port: int | None) -> None:
    from biqe.cli.serve import serve_here

    _heading("The page")
    serve_here(kb, port)
