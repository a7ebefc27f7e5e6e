"""``biqe calibrate``: fit a run's probabilities of links again, and choose again how it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._options import Threads


def calibrate(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Fit a run's probabilities of links again, on the facts that it held out.

    Example:

        biqe calibrate runs/mine

    'biqe train' does the same at its end, so this is for runs whose model or graph changed since. Rules and kinds are
    learnt anew, the probability of a link is fitted to the run's held-out facts, and what answers its held-out
    questions of each shape best is chosen: links, encoder or both. docs/concepts/probabilities.md says what is fitted.
    """
    import dataclasses

    import torch

    from biqe.cli._console import out, print_json
    from biqe.errors import InvalidOption, UnknownName, UnsupportedQuery
    from biqe.knowledge_base.locate import EMBEDDED
    from biqe.training.run import Run, is_run_folder
    from biqe.training.weigh_links import weigh_run

    if run.as_posix() in EMBEDDED:
        raise InvalidOption(
            f"{run} is part of biqe itself, and its model is not written to",
            hint=f"train one of your own, biqe train {run} --out RUN, and calibrate that",
        )
    if not is_run_folder(run):
        kind = UnknownName if not run.exists() else InvalidOption
        raise kind(f"{run} is no run folder", hint="train one with: biqe train GRAPH --out RUN")
    if threads is not None:
        torch.set_num_threads(threads)
    model = Run.open(run).model_folder
    weighed = weigh_run(run)
    if weighed is None:
        raise UnsupportedQuery(
            f"the model of {run} has no links, so its numbers are shares and there is nothing to calibrate",
            hint="biqe train GRAPH --out RUN makes a hybrid, which has links",
        )
    if json:
        print_json(dataclasses.asdict(weighed))
        return
    out.print(weighed.sentence(), soft_wrap=True)
    for line in weighed.lines():
        out.print(line, soft_wrap=True)
    out.print(f"written to {model}", soft_wrap=True)
