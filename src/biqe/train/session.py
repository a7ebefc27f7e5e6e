"""From a graph, a query set and settings to a trained run; and from a stopped run to its end.

start(...)  ->  run folder  ->  train  ->  model folder
resume(run) ->  the same graph, set and settings, checked by fingerprint  ->  train
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biqe import atlas
from biqe.errors import EmptyResult, RunFailed, VocabularyMismatch
from biqe.evaluate.loop import evaluate
from biqe.exact.answers import answer_sets
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.mine import folder as set_folder
from biqe.mine.dataset import MineConfig, mine_split
from biqe.models import _catalogue, store
from biqe.models._contract import QueryModel
from biqe.query.queryset import QuerySet
from biqe.train import checkpoint
from biqe.train.config import TrainConfig
from biqe.train.loop import Listener, Result, train
from biqe.train.memory import allocator, keep_freed_memory
from biqe.train.plot import draw
from biqe.train.run import Run
from biqe.train.stream import Stream, triple_queries

FEWEST_DAGS = 50
"""Below so many validation DAGs, the validation triples themselves are a steadier measure."""


def start(
    graph: str,
    out: str | os.PathLike[str],
    *,
    train_config: TrainConfig,
    query_set: str | os.PathLike[str] | None = None,
    model: str = "biqe",
    model_options: Mapping[str, Any] | None = None,
    listener: Listener,
) -> Result:
    """Train ``model`` on ``graph`` (a graph folder, or ``atlas``) in the new run folder ``out``."""
    place, splits = open_graph(graph)
    _set_threads(train_config)
    torch.manual_seed(train_config.seed)
    # Built before the folder is made: a wrong option must leave nothing behind.
    fresh = _catalogue.build(
        model, dict(model_options or {}), len(splits.vocabulary.entities), len(splits.vocabulary.relations)
    )
    mined = None if query_set is None else set_folder.load(Path(query_set), splits)
    if not train_config.online and mined is None:
        raise EmptyResult("fixed training queries need a query set",
                          hint="name one with --set, or leave out --fixed to mine online")  # fmt: skip
    run = Run.create(
        out,
        model=model,
        model_config=dataclasses.asdict(fresh.config),
        train=train_config,
        graph={"name": graph, "path": str(place), "fingerprint": splits.fingerprint},
        query_set=None
        if query_set is None or mined is None
        else {"path": str(Path(query_set).resolve()), "recipe": mined.config.recipe, "seed": mined.config.seed},
    )
    with run.locked():
        return _train(run, fresh, splits, None if mined is None else mined.queries, listener)


def resume(folder: str | os.PathLike[str], *, listener: Listener, graph: str | None = None) -> Result:
    """Go on with the run in ``folder``. Its graph must be the one it began with."""
    run = Run.open(folder)
    recorded = run.record["graph"]
    with run.locked():
        place, splits = open_graph(graph or ("atlas" if recorded.get("name") == "atlas" else recorded["path"]))
        if splits.fingerprint != recorded["fingerprint"]:
            raise VocabularyMismatch(
                f"the graph at {place} is not the one that {folder} was trained on "
                f"(fingerprints {splits.fingerprint} and {recorded['fingerprint']})",
                hint="a run is resumed on the graph it began with; start a new run for a changed graph",
            )
        config = run.train_config
        _set_threads(config)
        queries = None if run.record.get("set") is None else set_folder.load(Path(run.record["set"]["path"]), splits)
        torch.manual_seed(config.seed)
        model = _catalogue.build(
            run.record["model"],
            run.record["model_config"],
            len(splits.vocabulary.entities),
            len(splits.vocabulary.relations),
        )
        newest = checkpoint.latest(run.checkpoints)
        if newest is not None and checkpoint.read_place(newest).finished:
            raise RunFailed(f"{folder} has finished; there is nothing to resume",
                            hint=f"evaluate it with: biqe evaluate {folder} --set SET")  # fmt: skip
        return _train(run, model, splits, None if queries is None else queries.queries, listener)


def open_graph(name: str) -> tuple[Path, Splits]:
    """Where a graph lies, and its splits: ``atlas`` is the embedded one, anything else a graph folder."""
    place = atlas.path() if name == "atlas" else Path(name)
    return place.resolve(), graph_folder.load(place)


def _train(
    run: Run, model: QueryModel, splits: Splits, queries: Mapping[str, QuerySet] | None, listener: Listener
) -> Result:
    config = run.train_config
    keep_freed_memory()
    run.log("started", allocator=allocator(), threads=torch.get_num_threads())
    held_out = validation_queries(splits, queries, config)

    def validate(trained: QueryModel) -> dict[str, float]:
        report = evaluate(trained, held_out, filter_graph="complete", bootstrap=0)
        return {name: round(report.value(name), 6) for name in ("mrr", "hits@1", "hits@3", "hits@10")}

    def keep(weights: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        trained = {**facts, "seed": config.seed, "budget": _budget(config), "validation_queries": len(held_out)}
        store.save(
            model,
            run.model_folder,
            vocabulary=splits.vocabulary,
            graph_fingerprint=splits.fingerprint,
            weights=weights,
            trained=trained,
        )

    stream = Stream(splits["train"], model, config, None if queries is None else queries.get("train"))
    result = train(run, model, stream, validate=validate, keep=keep, listener=listener)
    draw(run)
    return result


def validation_queries(splits: Splits, queries: Mapping[str, QuerySet] | None, config: TrainConfig) -> QuerySet:
    """What the run is validated on: the set's validation queries, or DAGs mined from the validation split, or,
    where it is too small for those, its triples; drawn once by seed. Filters come from train and valid."""
    rng = np.random.default_rng([config.seed, 2])
    if queries is not None and len(queries.get("valid", ())):
        found = queries["valid"]
    else:
        if len(splits.valid) == 0:
            raise EmptyResult("the graph has no validation split, so a run could not choose its best model",
                              hint="import it with --split 0.05,0.05")  # fmt: skip
        found = mine_split(splits, "valid", MineConfig(seed=config.seed, eval_dags=config.validation_queries))
        if len(found) < FEWEST_DAGS:
            found = triple_queries(splits["valid"], rng)
    if len(found) > config.validation_queries:
        found = found.take(np.sort(rng.choice(len(found), config.validation_queries, replace=False)))
    # A set's own filters know the test triples; choosing a model must not. These know train and valid only.
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    found = dataclasses.replace(found, filters={})
    return found.with_filters(complete=answer_sets(seen, found))


def _set_threads(config: TrainConfig) -> None:
    torch.set_num_threads(config.threads or os.cpu_count() or 1)


def _budget(config: TrainConfig) -> str:
    return f"{config.minutes:g} minutes" if config.minutes is not None else f"{config.epochs:g} epochs"
