"""``biqe evaluate``: how well a trained model ranks the answers of a query set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import Device, Threads

if TYPE_CHECKING:
    from biqe.cli._evaluation_queries import EvaluationQueries
    from biqe.evaluate.missing_links import MissingLinks
    from biqe.evaluate.qar import QarReport
    from biqe.graph.knowledge_graph import Splits
    from biqe.models._contract import QueryModel


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="Run folder (its best model is used) or model folder.", show_default=False)
    ],
    query_set: Annotated[
        str | None, typer.Option("--set", help="Folder of a mined set, or a benchmark's name.", show_default=False)
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option("--release", help="Folder of the authors' CQ or Paths release (JSON).", show_default=False),
    ] = None,
    split: Annotated[
        str,
        typer.Option(help="valid, test, or train to see how much was memorised; dev is another word for valid."),
    ] = "valid",
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of benchmark files. Default: BIQE_DATA.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Questions of each shape, sampled: a quick look.", show_default=False)
    ] = None,
    filter_graph: Annotated[
        str | None,
        typer.Option(
            help="Whose true answers are filtered: complete, split or reach. Default: complete for a set, "
            "the released filters for a release.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of a release: dag or path. Default: dag where it has DAGs.", show_default=False)
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            "--graph",
            help="Graph from which --filter-graph computes filters that a release lacks. Default: the run's own.",
            show_default=False,
        ),
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out and count names of a release that the model lacks.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Skip also queries that the model can read but not tell apart.")
    ] = False,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=100_000, help="Draws behind the confidence intervals; 0 for none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of draws and samples.")] = 0,
    batch_targets: Annotated[
        int | None, typer.Option(min=1, help="Targets scored in one go; less needs less memory.", show_default=False)
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File for the report. Default: RUN/reports/SET-SPLIT-FILTER.json.", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Rank the true answers of queries against all entities; MRR and HITS@k.

    Examples:

        biqe evaluate runs/cq
        biqe evaluate atlas
        biqe evaluate runs/cq --set sets/cq --split valid
        biqe evaluate runs/q2b --set fb15k237-q2b --limit 500
        biqe evaluate runs/wn --set wn18rr-qa
        biqe evaluate runs/nell --set anycq-nell-qar --limit 100
        biqe evaluate runs/cq --set sets/cq --filter-graph split --json
        biqe evaluate runs/cq --release FB15K-237-CQ --split dev

    Without --set or --release: how a run finds the facts that it held out of training, whether its probabilities are
    right, and the questions that it was validated on.

    A benchmark has its own protocol (cq, q2b, betae, bio or qar); mined sets and releases go through cq. True answers
    other than the one being ranked are filtered out, and ties count half. The report, with all tie rules, groups and
    settings, is written as JSON; the table goes to standard output. docs/concepts/protocols.md says what each figure
    means.
    """
    from biqe.errors import InvalidOption

    if query_set is not None and release is not None:
        raise InvalidOption(
            "give either --set or --release, not both",
            hint="biqe evaluate RUN --set sets/cq, or biqe evaluate RUN --release DIR",
        )
    if release is None:
        for option, given in (("--kind", kind), ("--graph", graph), ("--skip-unknown", skip_unknown)):
            if given:
                raise InvalidOption(f"{option} is for --release only", hint=f"leave {option} out")
    if query_set is None and release is None:
        for option, given in (("--split", split != "valid"), ("--filter-graph", filter_graph), ("--data", data)):
            if given:
                raise InvalidOption(
                    f"{option} is for --set and --release; without them a run's own held-out questions are asked",
                    hint=f"leave {option} out, or name queries with --set",
                )

    import torch

    from biqe.benchmarks.anycq import TupleQuestions
    from biqe.cli._console import err, print_json, progress, so_far
    from biqe.cli._console import out as stdout
    from biqe.cli._evaluation_queries import graph_of, is_benchmark, of_benchmark, of_release, of_run, of_set
    from biqe.evaluate import loop
    from biqe.evaluate.missing_links import MissingLinks
    from biqe.evaluate.protocols import protocol_named
    from biqe.evaluate.report import check_target
    from biqe.models import store
    from biqe.models._contract import use_graph
    from biqe.models._device import device_named

    if out is not None:
        check_target(out)
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = store.load(_model_folder(run), device_named(device))
    if query_set is not None and is_benchmark(query_set):
        asked = of_benchmark(query_set, split, filter_graph, data, run, loaded.vocabulary)
    elif query_set is not None:
        if data is not None:
            raise InvalidOption("--data is for benchmarks only", hint="a mined set lies in its own folder")
        asked = of_set(Path(query_set), split, filter_graph, loaded.vocabulary)
    elif release is not None:
        graph = graph or graph_of(run)
        asked = of_release(release, split, filter_graph, kind, graph, skip_unknown, loaded.vocabulary)
    else:
        asked = of_run(run, loaded)
    splits = asked.splits or _splits_of(run)
    asked_split = {"dev": "valid"}.get(asked.notes["split"], asked.notes["split"])
    missing = None if splits is None else MissingLinks.of_split(splits, asked_split)
    if missing is not None:
        use_graph(loaded.model, missing.known)
    if limit is not None:
        asked = _limited(asked, limit, seed)
    path = out if out is not None else _own_place(run, asked)
    if path is not None:
        check_target(path)
    if query_set is None and release is None:
        asked = _with_hidden_facts(asked, loaded.model, missing, limit)
    fingerprints = {"vocabulary": loaded.vocabulary.fingerprint, **asked.fingerprints}
    if "graph_fingerprint" in loaded.manifest:
        fingerprints["model_graph"] = loaded.manifest["graph_fingerprint"]
    if isinstance(asked.queries, TupleQuestions):
        if splits is None:
            raise InvalidOption("the run's graph is gone, and these questions are asked on it")
        assert query_set is not None
        found = _qar(loaded.model, asked, splits, query_set, data, bootstrap, seed, fingerprints)
        if path is not None:
            found.save(path)
        if json:
            print_json(found.to_json())
        else:
            stdout.print(found.to_table(), end="", soft_wrap=True)
        if path is not None:
            err.print(f"report written to {path}", soft_wrap=True)
        return
    protocol = protocol_named(
        asked.protocol,
        filter_graph=asked.filter_graph or "complete",
        candidates=asked.candidates,
        missing=missing,
    )

    with progress("ranking", len(asked.queries)) as advance:
        report = loop.evaluate(
            loaded.model,
            asked.queries,
            protocol,
            strict=strict,
            batch_targets=batch_targets,
            bootstrap=bootstrap,
            seed=seed,
            progress=so_far(advance),
            fingerprints=fingerprints,
            notes={
                "run": str(run),
                "model_config": loaded.manifest["config"],
                "trained": loaded.manifest.get("trained", {}),
                "training": _training_of(run),
                **asked.notes,
            },
        )
    if path is not None:
        report.save(path)
    if json:
        print_json(report.to_json())
    else:
        stdout.print(report.to_table(), end="", soft_wrap=True)
    if path is not None:
        err.print(f"report written to {path}", soft_wrap=True)


def _qar(
    model: QueryModel,
    asked: EvaluationQueries,
    splits: Splits,
    name: str,
    data: Path | None,
    bootstrap: int,
    seed: int,
    fingerprints: dict[str, str],
) -> QarReport:
    """Protocol qar: a tuple a question."""
    from biqe import benchmarks
    from biqe.benchmarks.anycq import TupleQuestions
    from biqe.cli._console import progress, so_far
    from biqe.evaluate import qar
    from biqe.evaluate.loop import fingerprint

    assert isinstance(asked.queries, TupleQuestions)
    model.eval()
    with progress("searching", len(asked.queries)) as advance:
        return qar.evaluate_split(
            model,
            asked.queries,
            benchmarks.open(name, data=data, splits=splits),
            asked.notes["split"],
            bootstrap=bootstrap,
            seed=seed,
            progress=so_far(advance),
            notes=asked.notes,
            fingerprints={"queries": fingerprint(asked.queries), **fingerprints},
        )


def _own_place(run: Path, asked: EvaluationQueries) -> Path | None:
    """Where the report goes by itself; with the queries' fingerprint where other queries of that name have theirs. None
    for what is part of biqe itself, and is not written to."""
    from biqe.evaluate.loop import fingerprint
    from biqe.evaluate.report import queries_of
    from biqe.knowledge_base.locate import EMBEDDED

    if run.as_posix() in EMBEDDED:
        return None
    path, own = run / "reports" / f"{asked.name}.json", fingerprint(asked.queries)
    return path if queries_of(path) in (None, own) else path.with_name(f"{asked.name}-{own[:8]}.json")


def _limited(asked: EvaluationQueries, limit: int, seed: int) -> EvaluationQueries:
    """A sample of the queries, named so that its report does not replace that of all; or all, where they are few."""
    from dataclasses import replace

    from biqe.evaluate.scoring import sample

    taken = sample(asked.queries, limit, seed)
    if len(taken) == len(asked.queries):
        return asked
    notes = {**asked.notes, "limit": limit, "of_queries": len(asked.queries)}
    return replace(asked, queries=taken, name=f"{asked.name}-limit{limit}", notes=notes)


def _splits_of(run: Path) -> Splits | None:
    """The graph that a run was trained on; None if it is unknown or gone."""
    from biqe.cli._evaluation_queries import graph_of
    from biqe.graph import folder as graph_folder

    folder = graph_of(run)
    return graph_folder.load(folder) if folder is not None else None


def _with_hidden_facts(
    asked: EvaluationQueries, model: QueryModel, missing: MissingLinks | None, limit: int | None
) -> EvaluationQueries:
    """A run's own questions, with what only they have: how single held-out facts are found, and held-out questions of
    each shape, by which ``biqe train`` chose how to answer."""
    from copy import copy
    from dataclasses import asdict, replace

    from biqe.errors import EmptyResult
    from biqe.evaluate import loop
    from biqe.evaluate.hidden_facts import hidden_facts
    from biqe.evaluate.scoring import sample

    assert asked.splits is not None
    notes: dict[str, Any] = {**asked.notes, "held_out_shapes": {}}
    if (found := hidden_facts(model, asked.splits)) is not None:
        notes["hidden_facts"] = asdict(found)
    for shape, (queries, protocol) in asked.by_shape.items():
        protocol = copy(protocol)
        protocol.missing = missing
        try:
            questions = queries if limit is None else sample(queries, limit)
            report = loop.evaluate(model, questions, protocol, bootstrap=0)
        except EmptyResult:  # a shape that the model does not read
            continue
        notes["held_out_shapes"][shape] = {
            "questions": report.counts["ranked_queries"],
            "metrics": report.metrics["realistic"],
            "by_missing": {number: part.metrics["realistic"] for number, part in report.by_missing.items()},
        }
    return replace(asked, notes=notes)


def _training_of(run: Path) -> dict[str, Any] | None:
    """How the run was trained, for the report; None where only a model folder is left of it."""
    from biqe.training.run import Run, is_run_folder

    if not is_run_folder(run):
        return None
    opened = Run.open(run)
    events = opened.trace()
    ends = [event for event in events if event.get("event") == "ended"]
    sizes = [event.get("resident_mib", event.get("peak_resident_mib", 0)) for event in events]
    return {
        "settings": opened.record["train"],
        "set": {key: value for key, value in (opened.record.get("set") or {}).items() if key != "path"},
        "versions": opened.record.get("versions"),
        "git": opened.record.get("git"),
        "ended": ends[-1]["reason"] if ends else "still running",
        "seconds": max((event.get("seconds", 0.0) for event in events), default=0.0),
        "largest_resident_mib": max(sizes, default=0),
        "parts": 1 + sum(event.get("event") == "resumed" for event in events),
    }


def _model_folder(run: Path) -> Path:
    """The best model of a run, the folder itself, or the embedded model."""
    from biqe.errors import UnreadableFile
    from biqe.knowledge_base.locate import EMBEDDED

    if run.as_posix() in EMBEDDED:
        from biqe import atlas

        return Path(atlas.model_path())
    if not run.is_dir():
        raise UnreadableFile(f"{run} is not a folder", hint="give a run folder, as biqe train writes it, or: atlas")
    if (run / "model").is_dir():
        return run / "model"
    if (run / "run.json").is_file():
        raise UnreadableFile(
            f"run {run} has no model yet: the first one is kept after its first validation",
            hint=f"wait for it, or continue the run with: biqe train --resume {run}",
        )
    return run
