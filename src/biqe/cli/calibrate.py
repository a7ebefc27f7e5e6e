"""``biqe calibrate``: make a model's probabilities mean what they say, from validation queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biqe.cli._options import Threads
from biqe.predict.config import JOINT, TOP

if TYPE_CHECKING:
    from biqe.graph.vocabulary import Vocabulary
    from biqe.predict.fit_calibration import Calibrated
    from biqe.query.queryset import QuerySet


def calibrate(
    run: Annotated[
        Path, typer.Argument(help="Run folder (its best model is used) or model folder.", show_default=False)
    ],
    query_set: Annotated[
        str, typer.Option("--set", help="Folder of a mined set, or a CQ benchmark's name.", show_default=False)
    ],
    split: Annotated[str, typer.Option(help="Split of the set: valid, or train to try the command out.")] = "valid",
    limit: Annotated[
        int | None, typer.Option(min=6, help="Validation queries, sampled. Default: all.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows of each query that are fitted on.")] = TOP,
    joint: Annotated[
        str | None,
        typer.Option(
            help=f"How rows are found: {', '.join(JOINT)}. Default: links or beam, as the model can.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample and of the halves.")] = 0,
    graph: Annotated[
        Path | None, typer.Option(help="Graph folder to use, where a run's own was moved.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of benchmark files. Default: BIQE_DATA.", show_default=False)
    ] = None,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File for the picture. Default: calibration.svg in the model folder.", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Make a model's probabilities mean what they say, from validation queries.

    Examples:

        biqe calibrate runs/cq --set sets/cq
        biqe calibrate runs/cq --set sets/cq --limit 600

    One half of the validation queries is fitted on, the other measured on. The fit is written into the model folder
    as calibration.json, and 'biqe ask' uses it from then on. The table shows the expected calibration error (ECE) of
    listed rows before and after, and how often answer sets hold the answer. docs/concepts/probabilities.md says what
    is calibrated.
    """
    import torch

    from biqe.cli._console import err, print_json, progress
    from biqe.errors import InvalidOption
    from biqe.evaluate import pictures
    from biqe.evaluate.reliability import diagrams
    from biqe.evaluate.scoring import sample_groups
    from biqe.knowledge_base import open as open_knowledge_base
    from biqe.knowledge_base.locate import EMBEDDED
    from biqe.models import store
    from biqe.models._contract import use_graph
    from biqe.predict import calibration, fit_calibration
    from biqe.predict.config import Joint
    from biqe.predict.predictor import Predictor

    if split not in ("valid", "train"):
        raise InvalidOption(f"--split must be valid or train; test queries are held out. Got {split!r}")
    if joint is not None and joint not in JOINT:
        raise InvalidOption(f"--joint must be one of {', '.join(JOINT)}. Got {joint!r}")
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        # Before minutes of asking, rather than after them.
        why = "it is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise InvalidOption(f"--out {out} cannot be written: {why}", hint="name a file in a folder that exists")
    if out is not None:
        pictures.check(out)
    if threads is not None:
        torch.set_num_threads(threads)
    base = open_knowledge_base(run, graph=graph)
    if base.model_folder is None:
        raise InvalidOption(
            f"{run} is a graph without a model, so there is nothing to calibrate",
            hint=f"train one with: biqe train {run} --out RUN",
        )
    if run.as_posix() in EMBEDDED:
        raise InvalidOption(
            f"{run} is part of biqe itself, and its model is not written to",
            hint=f"train one of your own, biqe train {run} --out RUN, and calibrate that",
        )
    loaded = store.load(base.model_folder)
    queries = _queries(query_set, split, run, data, loaded.vocabulary)
    if limit is not None:
        queries = queries.take(sample_groups(queries.kinds * 0, limit, seed))
    known, complete = base.splits["train"], base.splits["complete"]
    use_graph(loaded.model, known)
    asked = fit_calibration.validation_questions(queries, seed)
    with progress("asking", len(asked)) as advance:
        done = 0

        def show(count: int, total: int) -> None:
            nonlocal done
            advance(count - done)
            done = count

        predictor = Predictor(loaded.model)
        joint = joint or predictor.joint
        listed = fit_calibration.list_rows(
            predictor, asked, known, complete, joint=Joint(joint), top=top, progress=show
        )
    found = fit_calibration.calibrate(listed, seed=seed, decode=joint, top=top)
    place = calibration.save(found.calibration, base.model_folder)
    if out is not None or pictures.installed():
        drawn = {
            "before, all rows": found.before["all"],
            "after, all rows": found.after["all"],
            "after, first rows": found.after["first"],
        }
        picture = out if out is not None else base.model_folder / "calibration.svg"
        pictures.save(lambda: diagrams(drawn), picture, "reliability of probabilities")
    if json:
        print_json(
            {
                **found.calibration.to_json(),
                "before": {name: value.to_json() for name, value in found.before.items()},
                "after": {name: value.to_json() for name, value in found.after.items()},
            }
        )
    else:
        _tables(found)
    err.print(f"calibration written to {place}", soft_wrap=True)


def _queries(query_set: str, split: str, run: Path, data: Path | None, vocabulary: Vocabulary) -> QuerySet:
    from biqe.cli._evaluation_queries import is_benchmark, of_benchmark, of_set
    from biqe.errors import EmptyResult, InvalidOption
    from biqe.query.queryset import QuerySet

    if is_benchmark(query_set):
        queries = of_benchmark(query_set, split, None, data, run, vocabulary).queries
    else:
        if data is not None:
            raise InvalidOption("--data is for benchmarks only", hint="a mined set lies in its own folder")
        queries = of_set(Path(query_set), split, None, vocabulary).queries
    if not isinstance(queries, QuerySet):
        raise InvalidOption(
            f"{query_set} has questions by shape, whose other variables have no known values",
            hint="use a mined set: biqe mine GRAPH --out SET",
        )
    if len(queries) == 0:
        raise EmptyResult(
            f"{query_set} has no queries in its {split} split", hint="mine a set from a graph with a valid split"
        )
    return queries


def _tables(found: Calibrated) -> None:
    from biqe.cli._console import table

    report = found.calibration.report
    names = {"all": "all listed rows", "first": "first rows", "1 targets": "1 target"}
    table(
        ["rows", "number", "true", "ECE before", "ECE after"],
        [
            (names.get(name, name), after.rows, after.true_share, found.before[name].error, after.error)
            for name, after in found.after.items()
        ],
        title=f"{report['queries_measured']:,} queries that were not fitted on",
    )
    if report["coverage"]:
        table(
            ["answer sets", "stated", "found", "rows, median", "queries"],
            [
                (
                    f"{part['targets']} target{'s' if part['targets'] != 1 else ''}",
                    part["stated"],
                    part["found"],
                    part["median_rows"],
                    part["queries"],
                )
                for part in report["coverage"]
            ],
            title="how often a set holds the missing answer",
        )
