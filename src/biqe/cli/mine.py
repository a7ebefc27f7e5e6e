"""``biqe mine``: paths and DAG queries out of a graph, with filters, as the paper mines them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biqe.cli._options import Graph, Json, default_folder, graph_place
from biqe.mine.dataset import MineConfig

_DEFAULT = MineConfig()


def mine(
    graph: Graph,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the new query set. Default: sets/NAME, by the graph.", show_default=False
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="cq: paths and DAGs to train on, DAGs to evaluate on. paths: paths for both.")
    ] = _DEFAULT.recipe,
    seed: Annotated[int, typer.Option(help="The same seed on the same graph gives the same queries.")] = _DEFAULT.seed,
    paths: Annotated[int, typer.Option(help="Maximum number of training paths.")] = _DEFAULT.paths,
    dags: Annotated[int, typer.Option(help="Maximum number of training DAGs.")] = _DEFAULT.dags,
    eval_paths: Annotated[
        int, typer.Option(help="Maximum number of paths of valid, and of test.")
    ] = _DEFAULT.eval_paths,
    eval_dags: Annotated[int, typer.Option(help="Maximum number of DAGs of valid, and of test.")] = _DEFAULT.eval_dags,
    eval_passes: Annotated[
        int, typer.Option(help="How often walks of valid and test are combined into DAGs, at most.")
    ] = _DEFAULT.eval_passes,
    depths: Annotated[
        str, typer.Option(help="distinct: one unknown a depth of a DAG, as in the paper; others are given. any: all.")
    ] = _DEFAULT.depths,
    equal_branches: Annotated[
        bool, typer.Option(help="Keep DAGs with two equal branches, as the authors' release does.")
    ] = _DEFAULT.equal_branches,
    at_ends: Annotated[
        bool, typer.Option(help="Let walks also meet at their last entity, not only at intermediate ones.")
    ] = _DEFAULT.at_ends,
    train_filters: Annotated[
        bool, typer.Option(help="Compute filters for training queries; valid and test always have them.")
    ] = _DEFAULT.train_filters,
    threads: Annotated[int, typer.Option(help="Processor threads that compute filters.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Replace the query set in that folder.")] = False,
    json: Json = False,
) -> None:
    """Mine training and evaluation queries from the splits of a graph, with their answers as filters.

    Examples:

        biqe mine kg/g --recipe cq --seed 0 --out sets/cq
        biqe mine kg/wn18rr --paths 10000 --dags 10000 --out sets/wn

    Random walks of 2 to 5 edges become paths; walks that meet become DAGs with two or three branches and a tail.
    Each split is mined from its own triples. Prints the paper's dataset table.
    """
    from biqe.cli._console import err, print_json, progress, table
    from biqe.cli._console import out as stdout
    from biqe.graph import folder as graph_folder
    from biqe.mine import dataset, folder
    from biqe.mine.statistics import DEFINITIONS, ROWS, statistics_rows

    config = MineConfig(
        recipe=recipe,
        seed=seed,
        paths=paths,
        dags=dags,
        eval_paths=eval_paths,
        eval_dags=eval_dags,
        eval_passes=eval_passes,
        depths=depths,
        equal_branches=equal_branches,
        at_ends=at_ends,
        train_filters=train_filters,
    )
    out = out or default_folder("sets", graph)
    folder.check_target(out, force=force)
    splits = graph_folder.load(graph_place(graph))
    with progress("mining") as advance:
        mined = dataset.mine(splits, config, threads=threads, on_step=lambda step: advance(1, note=step))
        advance(1, note="writing")
        manifest = folder.save(mined, out, force=force)
    if json:
        print_json({"folder": str(out), **{key: value for key, value in manifest.items() if key != "files"}})
        return
    stdout.print(f"{out}: recipe {config.recipe}, seed {config.seed}")
    table(["", *mined.queries], [[title, *cells] for title, cells in statistics_rows(mined.statistics)])
    for title, key in ROWS:
        stdout.print(f"{title}: {DEFINITIONS[key]}.")
    for split, queries in mined.queries.items():
        if len(queries) == 0:
            more = "" if recipe == "paths" else ", and --recipe paths needs fewer of them"
            err.print(
                f"note: the {len(splits[split].triples):,} triples of {split} gave no query; a larger share of the "
                f"graph for {split} has more walks{more}"
            )
    for split, count in mined.leakage.answerable_from_train.items():
        if count:
            err.print(f"note: {count:,} queries of {split} hold in the training triples alone")
    for split, count in mined.leakage.same_as_train.items():
        if count:
            err.print(f"note: {count:,} queries of {split} are training queries, too")
