"""From a graph, a query set and settings to a trained run; and from a stopped run to its end.

settings(model, ...)  ->  TrainConfig: the model's own defaults under what the user asks for
start(...)            ->  run folder  ->  train  ->  model folder
resume(run)           ->  the same graph, set and settings, checked by fingerprint  ->  train
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from biqe import atlas
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult, RunFailed, VocabularyMismatch
from biqe.evaluate.machine import allocator
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.models import _catalogue, store
from biqe.models._contract import QueryModel
from biqe.query.queryset import QuerySet
from biqe.train import checkpoint
from biqe.train.config import TrainConfig
from biqe.train.loop import Listener, Result, train
from biqe.train.material import Material, open_material
from biqe.train.memory import keep_freed_memory
from biqe.train.plot import draw
from biqe.train.run import Run
from biqe.train.stream import Stream
from biqe.train.validation import validation


def settings(model: str, **options: Any) -> TrainConfig:
    """Training settings of a run of ``model``: its own defaults, and ``options`` over them."""
    return TrainConfig(**{**_catalogue.class_of(model).train_defaults, **options})


def start(
    graph: str,
    out: str | os.PathLike[str],
    *,
    train_config: TrainConfig,
    query_set: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    model: str = "biqe",
    model_options: Mapping[str, Any] | None = None,
    start_from: str | os.PathLike[str] | None = None,
    listener: Listener,
) -> Result:
    """Train ``model`` on ``graph`` (a graph folder, or ``atlas``) in the new run folder ``out``.

    ``query_set`` is the folder of a mined set or the name of a benchmark, whose files lie in ``data``. ``start_from``
    is a run or model folder of a link predictor on the same graph, whose embeddings the model begins with.
    """
    place, splits = open_graph(graph)
    _set_threads(train_config)
    torch.manual_seed(train_config.seed)
    # Built before the folder is made: a wrong option must leave nothing behind.
    fresh = _build(model, dict(model_options or {}), splits, start_from)
    material = None if query_set is None else open_material(query_set, splits, data)
    if not train_config.online and material is None:
        raise EmptyResult("fixed training queries need a query set",
                          hint="name one with --set, or leave out --fixed to mine online")  # fmt: skip
    run = Run.create(
        out,
        model=fresh.name,
        model_config=dataclasses.asdict(fresh.config),
        train=train_config,
        graph={"name": graph, "path": str(place), "fingerprint": splits.fingerprint},
        query_set=None if material is None else material.record,
        start_from=None if start_from is None else str(Path(start_from).resolve()),
    )
    with run.locked():
        return _train(run, fresh, splits, material, listener)


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
        noted = run.record.get("set")
        material = None
        if noted is not None:
            material = open_material(noted.get("benchmark") or noted["path"], splits, noted.get("data"))
        torch.manual_seed(config.seed)
        newest = checkpoint.latest(run.checkpoints)
        # A checkpoint holds what the run began with; without one it begins again.
        begin = run.record.get("start_from") if newest is None else None
        model = _build(run.record["model"], run.record["model_config"], splits, begin)
        if newest is not None and checkpoint.read_place(newest).finished:
            raise RunFailed(f"{folder} has finished; there is nothing to resume",
                            hint=f"evaluate it with: biqe evaluate {folder} --set SET")  # fmt: skip
        return _train(run, model, splits, material, listener)


def _build(
    model: str, options: Mapping[str, Any], splits: Splits, start_from: str | os.PathLike[str] | None
) -> QueryModel:
    vocabulary = splits.vocabulary
    sizes = len(vocabulary.entities), len(vocabulary.relations)
    if start_from is None:
        return _catalogue.build(model, dict(options), *sizes)  # type: ignore[no-any-return]
    folder = Path(start_from)
    loaded = store.load(folder / "model" if (folder / "model").is_dir() else folder)
    if loaded.vocabulary.fingerprint != vocabulary.fingerprint:
        raise VocabularyMismatch(
            f"{start_from} was trained on another graph: it knows {len(loaded.vocabulary.entities):,} entities, this "
            f"graph has {sizes[0]:,} (fingerprints {loaded.vocabulary.fingerprint} and {vocabulary.fingerprint})",
            hint="train the link predictor on the graph folder that this run uses",
        )
    room = _catalogue.class_of(model).options_from(loaded.model)
    built: QueryModel = _catalogue.build(model, {**room, **options}, *sizes)
    built.start_from(loaded.model)
    return built


def open_graph(name: str) -> tuple[Path, Splits]:
    """Where a graph lies, and its splits: ``atlas`` is the embedded one, anything else a graph folder."""
    place = atlas.path() if name == "atlas" else Path(name)
    return place.resolve(), graph_folder.load(place)


def _train(run: Run, model: QueryModel, splits: Splits, material: Material | None, listener: Listener) -> Result:
    config = run.train_config
    keep_freed_memory()
    run.log("started", allocator=allocator(), threads=torch.get_num_threads())
    model.use_graph(splits["train"])
    validate, held_out = validation(splits, material, config)

    def keep(weights: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        trained = {**facts, "seed": config.seed, "budget": _budget(config), "validation_queries": held_out}
        store.save(
            model,
            run.model_folder,
            vocabulary=splits.vocabulary,
            graph_fingerprint=splits.fingerprint,
            weights=weights,
            trained=trained,
        )

    train_queries = None if material is None else material.train
    questions = train_queries if isinstance(train_queries, ShapedQueries) else None
    fixed = train_queries if isinstance(train_queries, QuerySet) else None
    stream = Stream(splits["train"], model, config, fixed, questions)
    result = train(run, model, stream, validate=validate, keep=keep, listener=listener)
    draw(run)
    return result


def _set_threads(config: TrainConfig) -> None:
    torch.set_num_threads(config.threads or os.cpu_count() or 1)


def _budget(config: TrainConfig) -> str:
    if config.minutes is None:
        return f"{config.epochs:g} epochs"
    return f"{config.minutes:g} minutes" + (" of processor time" if config.clock == "processor" else "")
