"""``biqe evaluate``: how well a trained model ranks the answers of a query set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from biqe.graph.vocabulary import Vocabulary
    from biqe.query.queryset import QuerySet


@dataclass(frozen=True)
class Asked:
    """The queries to rank, and what the report says about where they come from."""

    queries: QuerySet
    filter_graph: str
    name: str
    """Stem of the report's file."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="Run folder (its best model is used) or model folder.", show_default=False)
    ],
    query_set: Annotated[
        Path | None, typer.Option("--set", help="Mined set, as biqe mine writes it.", show_default=False)
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option("--release", help="Folder of the authors' CQ or Paths release (JSON).", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="valid or test; dev is another word for valid.")] = "valid",
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
            help="Graph folder from which filters that a release lacks are computed. Default: the run's own.",
            show_default=False,
        ),
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out and count names of a release that the model lacks.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Skip also queries that the model can read but not tell apart.")
    ] = False,
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws behind the confidence intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    batch_targets: Annotated[
        int | None, typer.Option(min=1, help="Targets scored in one go; less needs less memory.", show_default=False)
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads.", show_default=False)] = None,
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

        biqe evaluate runs/cq --set sets/cq --split valid
        biqe evaluate runs/cq --set sets/cq --filter-graph split --json
        biqe evaluate runs/cq --release FB15K-237-CQ --split dev

    Every target is ranked with its other true answers filtered out, each target counts once, and ties count
    half. The report, with all tie rules, positions and settings, is written as JSON; the table goes to
    standard output. docs/concepts/protocols.md says what each figure means.
    """
    from biqe.errors import InvalidOption

    if (query_set is None) == (release is None):
        raise InvalidOption(
            "give either --set or --release" + (", not both" if release is not None else "; neither was given"),
            hint="biqe evaluate RUN --set sets/cq, or biqe evaluate RUN --release DIR",
        )
    if query_set is not None:
        for option, given in (("--kind", kind), ("--graph", graph), ("--skip-unknown", skip_unknown)):
            if given:
                raise InvalidOption(f"{option} is for --release only")

    import torch

    from biqe.cli._console import err, print_json, progress
    from biqe.cli._console import out as stdout
    from biqe.evaluate.loop import evaluate as evaluate_queries
    from biqe.models import store

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = store.load(_model_folder(run))
    if query_set is not None:
        asked = _of_set(query_set, split, filter_graph, loaded.vocabulary)
    else:
        assert release is not None
        graph = graph or _graph_of(run)
        asked = _of_release(release, split, filter_graph, kind, graph, skip_unknown, loaded.vocabulary)
    fingerprints = {"vocabulary": loaded.vocabulary.fingerprint, **asked.fingerprints}
    if "graph_fingerprint" in loaded.manifest:
        fingerprints["model_graph"] = loaded.manifest["graph_fingerprint"]

    with progress("ranking", len(asked.queries)) as advance:
        done = 0

        def show(count: int, total: int) -> None:
            nonlocal done
            advance(count - done)
            done = count

        report = evaluate_queries(
            loaded.model,
            asked.queries,
            filter_graph=asked.filter_graph,
            strict=strict,
            batch_targets=batch_targets,
            bootstrap=bootstrap,
            seed=seed,
            progress=show,
            fingerprints=fingerprints,
            notes={
                "run": str(run),
                "model_config": loaded.manifest["config"],
                "trained": loaded.manifest.get("trained", {}),
                "training": _training_of(run),
                **asked.notes,
            },
        )
    path = out if out is not None else run / "reports" / f"{asked.name}.json"
    report.save(path)
    if json:
        print_json(report.to_json())
    else:
        stdout.print(report.to_table(), end="", soft_wrap=True)
    err.print(f"report written to {path}", soft_wrap=True)


def _training_of(run: Path) -> dict[str, Any] | None:
    """How the run was trained, for the report; None where only a model folder is left of it."""
    from biqe.train.run import Run, is_run_folder

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
    """The best model of a run, or the folder itself."""
    from biqe.errors import UnreadableFile

    if not run.is_dir():
        raise UnreadableFile(f"{run} is not a folder", hint="give a run folder, as biqe train writes it")
    if (run / "model").is_dir():
        return run / "model"
    if (run / "run.json").is_file():
        raise UnreadableFile(
            f"run {run} has no model yet: the first one is kept after its first validation",
            hint=f"wait for it, or continue the run with: biqe train --resume {run}",
        )
    return run


def _graph_of(run: Path) -> Path | None:
    """The graph folder that a run was trained on, if it is a run and the graph is still there."""
    from biqe.train.run import Run, is_run_folder

    if not is_run_folder(run):
        return None
    path = Path(Run.open(run).record["graph"]["path"])
    return path if path.is_dir() else None


def _of_set(folder: Path, split: str, filter_graph: str | None, vocabulary: Vocabulary) -> Asked:
    """Queries of a mined set."""
    from biqe.mine import folder as mined_folder

    split = {"dev": "valid"}.get(split, split)
    mined = mined_folder.load(folder)
    _compare(f"query set {folder}", mined.vocabulary_fingerprint, mined.entity_count, vocabulary)
    queries = mined[split]
    filter_graph = filter_graph or "complete"
    return Asked(
        queries,
        filter_graph,
        f"{folder.resolve().name}-{split}-{filter_graph}",
        {"graph": mined.graph_fingerprint},
        {"set": str(folder), "split": split, "recipe": mined.config.to_dict()},
    )


def _of_release(
    directory: Path,
    split: str,
    filter_graph: str | None,
    kind: str | None,
    graph: Path | None,
    skip_unknown: bool,
    vocabulary: Vocabulary,
) -> Asked:
    """Queries of the authors' release, with their own filters or with filters computed from a graph."""
    from biqe.benchmarks import FILTER_GRAPHS, read_release, release_kind
    from biqe.errors import InvalidOption

    kind = release_kind(directory, split, kind)
    filter_graph = filter_graph or FILTER_GRAPHS[kind]
    computed = filter_graph != FILTER_GRAPHS[kind]
    if computed and graph is None:
        raise InvalidOption(
            f"the release's own filters for {kind} queries are {FILTER_GRAPHS[kind]!r}; {filter_graph!r} filters have "
            "to be computed from the graph",
            hint="name the graph folder with --graph",
        )
    read = read_release(directory, vocabulary, split, kind=kind, with_filters=not computed, skip_unknown=skip_unknown)
    queries, fingerprints = read.queries, {}
    if graph is not None and computed:
        queries, fingerprints["graph"] = _with_computed_filters(queries, graph, filter_graph, read.split, vocabulary)
    return Asked(
        queries,
        filter_graph,
        f"{directory.resolve().name}-{read.kind}-{read.split}-{filter_graph}",
        fingerprints,
        {
            "release": str(directory),
            "split": read.split,
            "kind": read.kind,
            "files": [path.name for path in read.files],
            "filters": "computed from the graph" if computed else "released",
            "left_out": dict(read.skipped),
        },
    )


def _with_computed_filters(
    queries: QuerySet, folder: Path, filter_graph: str, split: str, vocabulary: Vocabulary
) -> tuple[QuerySet, str]:
    """The queries with true values from a graph folder, and the graph's fingerprint."""
    from biqe.errors import InvalidOption
    from biqe.exact.answers import answer_sets
    from biqe.graph import folder as graph_folder
    from biqe.mine.filters import reach_sets

    splits = graph_folder.load(folder)
    _compare(f"graph {folder}", splits.vocabulary.fingerprint, len(splits.vocabulary.entities), vocabulary)
    if filter_graph == "complete":
        answers = answer_sets(splits["complete"], queries)
    elif filter_graph == "split":
        answers = answer_sets(splits[{"dev": "valid"}.get(split, split)], queries)
    elif filter_graph == "reach":
        answers = reach_sets(splits["complete"], queries)
    else:
        raise InvalidOption(f"--filter-graph must be one of complete, split, reach. Got {filter_graph!r}")
    return queries.with_filters(**{filter_graph: answers}), splits.fingerprint


def _compare(what: str, fingerprint: str, entities: int, vocabulary: Vocabulary) -> None:
    from biqe.errors import VocabularyMismatch

    if fingerprint != vocabulary.fingerprint:
        raise VocabularyMismatch(
            f"{what} has {entities:,} entities, the model knows {len(vocabulary.entities):,}; they were built from "
            f"different graphs (fingerprints {fingerprint} and {vocabulary.fingerprint})",
            hint="mine the set from the graph that the model was trained on",
        )
