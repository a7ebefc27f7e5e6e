"""From a graph, a query set and settings to a trained run; and from a stopped run to its end.

settings(model, ...)  ->  TrainConfig: the model's own defaults under what the user asks for
start(...)            ->  run folder  ->  train  ->  model folder
settings_of(run, ...) ->  likewise, under what the run had; start(..., continues=run) goes on from its model
resume(run)           ->  the same graph, set and settings, checked by fingerprint  ->  train
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from biqe import atlas
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import BiqeError, EmptyResult, InvalidOption, RunFailed, VocabularyMismatch
from biqe.evaluate.machine import allocator
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.models import _catalogue, store
from biqe.models._contract import QueryModel, StartsFromLinks, has_entity_table, use_graph
from biqe.models._entity_loss import sample_entities
from biqe.models._split_entities import split
from biqe.models._warm_start import take_over
from biqe.query.queryset import QuerySet
from biqe.train import checkpoint, links_first
from biqe.train.config import TrainConfig
from biqe.train.loop import Listener, Result, train
from biqe.train.material import Material, open_material
from biqe.train.memory import keep_freed_memory
from biqe.train.plot import draw
from biqe.train.ranks import Ranks, exchange, job, joined, restarted
from biqe.train.run import Run, is_run_folder, source_fingerprint, versions
from biqe.train.stream import Stream
from biqe.train.validation import NOT_VALIDATED, Validate, validation

SAMPLED_FROM = 100_000
"""Entities from which softmax=auto samples."""


def settings(model: str, **options: Any) -> TrainConfig:
    """Training settings of a run of ``model``: its own defaults, and ``options`` over them."""
    return TrainConfig(**{**getattr(_catalogue.class_of(model), "train_defaults", {}), **options})


def settings_of(origin: str | os.PathLike[str], **options: Any) -> tuple[str, dict[str, Any], TrainConfig]:
    """Name, options and training settings of a run, or of a model folder, with ``options`` over the latter."""
    manifest = store.read_manifest(_model_folder(origin))
    own: dict[str, Any] = {}
    if is_run_folder(origin):
        recorded = Run.open(origin).record["train"]
        # How long it took, on what, and how many ran it are matters of the new run.
        own = {name: value for name, value in recorded.items() if name not in _OF_ONE_RUN}
    return manifest["model"], dict(manifest["config"]), settings(manifest["model"], **{**own, **options})


_OF_ONE_RUN = ("minutes", "links_minutes", "epochs", "seed", "online", "threads", "shard_entities")


DEFAULT_MODEL, WITHOUT_LINKS = "hybrid", "biqe"
"""What is trained unless told otherwise; and where no link predictor can be trained first."""


def choose(
    model: str | None, graph: str, length: Mapping[str, float | None], links_minutes: float | None = None
) -> tuple[str, float]:
    """The model of a new run on ``graph``, where the user may have named none, and the minutes that train a link
    predictor first, where the user may have given none."""
    if links_minutes is not None:
        return model or (DEFAULT_MODEL if links_minutes else WITHOUT_LINKS), links_minutes
    if model is not None and not links_first.starts_from_links(model):
        return model, 0.0
    minutes = length.get("minutes")
    reason = None
    if minutes is None:
        reason = "the length of the run is given in epochs, not in minutes"
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        reason = "several processes train it"
    elif (entities := len(open_graph(graph)[1].vocabulary.entities)) >= SAMPLED_FROM:
        reason = f"the graph has {entities:,} entities, and its softmax is over all of them"
    if reason is None and minutes is not None:
        return model or DEFAULT_MODEL, links_first.default_minutes(minutes)
    if model is None:
        return WITHOUT_LINKS, 0.0
    raise InvalidOption(
        f"{model} begins with a link predictor, and none is trained by default because {reason}",
        hint=f"give --links-minutes or --start-from, or train --model {WITHOUT_LINKS}",
    )


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
    continues: str | os.PathLike[str] | None = None,
    listener: Listener,
    note: Callable[[str], None] = lambda text: None,
) -> Result:
    """Train ``model`` on ``graph`` (a graph folder, or ``atlas``) in the new run folder ``out``.

    ``query_set`` is the folder of a mined set or the name of a benchmark, whose files lie in ``data``. ``start_from``
    is a run or model folder of a link predictor on the same graph, whose embeddings the model begins with.
    ``continues`` is a run or model folder whose weights the model begins with; its graph may have been smaller.
    ``note`` is told what the user should know about the run before it begins. A refused run leaves nothing behind.
    """

    def options(splits: Splits) -> dict[str, Any]:
        given = dict(model_options or {})
        if not train_config.links_minutes:
            return given
        sizes = len(splits.vocabulary.entities), len(splits.vocabulary.relations)
        return links_first.options(model, given, sizes, (start_from or continues) is not None, ranks)

    def prepare() -> tuple[Path, Splits, QueryModel, Material | None, _Validation]:
        place, splits = open_graph(graph)
        torch.manual_seed(train_config.seed)
        # Built before the folder is made: a wrong option must leave nothing behind.
        fresh = _build(model, options(splits), splits, start_from, continues)
        material = None if query_set is None else open_material(query_set, splits, data)
        if not train_config.online and material is None:
            raise EmptyResult(
                "fixed training queries need a query set",
                hint="name one with --set, or leave out --fixed to mine online",
            )
        return place, splits, fresh, material, _validation(splits, material, train_config, ranks)

    with joined(train_config.rank_timeout) as ranks, ExitStack() as held:
        _set_threads(train_config, ranks)
        place, splits, fresh, material, judging = ranks.all_or_none(prepare)
        ranks.same(*_seen(splits, fresh, material, train_config))

        def create() -> dict[str, Any]:
            begun = Run.open(out) if job() is not None and is_run_folder(out) else None
            if begun is not None and begun.record.get("job") == job():  # torchrun has started the ranks again
                held.enter_context(begun.locked())
                return begun.record
            run = Run.create(
                out,
                model=fresh.name,
                model_config=dataclasses.asdict(fresh.config),
                train=train_config,
                graph={"name": graph, "path": str(place), "fingerprint": splits.fingerprint},
                query_set=None if material is None else {**material.record, "queries": material.fingerprint},
                start_from=None if start_from is None else str(Path(start_from).resolve()),
                continues=None if continues is None else str(Path(continues).resolve()),
                job=job(),
            )
            held.enter_context(run.locked())
            return run.record

        run = Run(out, ranks.from_first(create), writes=ranks.first)
        try:
            return _train(run, fresh, splits, material, judging, listener, ranks, note, graph)
        except RunFailed:
            raise
        except BiqeError:
            if ranks.first:
                run.discard()
            raise


def resume(
    folder: str | os.PathLike[str],
    *,
    listener: Listener,
    graph: str | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Result:
    """Go on with the run in ``folder``. Its graph must be the one it began with."""
    with joined(_timeout_of(folder)) as ranks, ExitStack() as held:

        def lock() -> dict[str, Any]:
            run = Run.open(folder)
            held.enter_context(run.locked())
            return run.record

        run = Run(folder, ranks.from_first(lock), writes=ranks.first)
        config, recorded, noted = run.train_config, run.record["graph"], run.record.get("set")
        _set_threads(config, ranks)
        newest = checkpoint.newest(run.checkpoints, ranks)

        where = graph or ("atlas" if recorded.get("name") == "atlas" else recorded["path"])

        def prepare() -> tuple[Splits, QueryModel, Material | None, _Validation]:
            place, splits = open_graph(where)
            if splits.fingerprint != recorded["fingerprint"]:
                raise VocabularyMismatch(
                    f"the graph at {place} is not the one that {folder} was trained on "
                    f"(fingerprints {splits.fingerprint} and {recorded['fingerprint']})",
                    hint="a run is resumed on the graph it began with; start a new run for a changed graph",
                )
            material = None
            if noted is not None:
                name = noted.get("benchmark") or noted["path"]
                material = open_material(name, splits, noted.get("data"))
                if noted.get("queries", material.fingerprint) != material.fingerprint:
                    raise VocabularyMismatch(
                        f"the query set {name} is not the one that {folder} was trained on "
                        f"(fingerprints {material.fingerprint} and {noted['queries']})",
                        hint="a run is resumed on the set it began with; start a new run for a changed set",
                    )
            torch.manual_seed(config.seed)
            # A checkpoint holds what the run began with; without one it begins again.
            begin = [run.record.get(name) if newest is None else None for name in ("start_from", "continues")]
            model = _build(run.record["model"], run.record["model_config"], splits, *begin)
            if newest is not None and checkpoint.read_place(newest).finished and not restarted():
                raise RunFailed(
                    f"{folder} has finished; there is nothing to resume",
                    hint=f"evaluate it with: biqe evaluate {folder} --set SET",
                )
            return splits, model, material, _validation(splits, material, config, ranks)

        splits, model, material, judging = ranks.all_or_none(prepare)
        ranks.same(*_seen(splits, model, material, config))
        return _train(run, model, splits, material, judging, listener, ranks, note, where)


_Validation = tuple[Validate | None, int]
"""How a run is validated, and on how many queries."""


def _validation(splits: Splits, material: Material | None, config: TrainConfig, ranks: Ranks) -> _Validation:
    """How the run is validated; nothing to do on ranks that never are asked to."""
    return validation(splits, material, config) if ranks.first else (lambda judged: {}, 0)


def _timeout_of(folder: str | os.PathLike[str]) -> float:
    """How long the ranks of a run wait for each other; where its record cannot be read, they meet to say so."""
    try:
        return Run.open(folder).train_config.rank_timeout
    except BiqeError:
        return TrainConfig(epochs=1).rank_timeout


def _seen(
    splits: Splits, model: QueryModel, material: Material | None, config: TrainConfig
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What all ranks must see alike, and what to do where they do not."""
    settings = {"model": model.name, **dataclasses.asdict(model.config), **dataclasses.asdict(config)}
    for own in ("threads", "rank_timeout"):
        del settings[own]
    facts = {
        "graphs": {"fingerprint": splits.fingerprint},
        "settings": settings,
        "query sets": {} if material is None else {"fingerprint": material.fingerprint},
        "programs": {**versions(), "source": source_fingerprint()},
    }
    hints = {
        "graphs": "copy one graph folder to all machines, or put it where all of them see it",
        "settings": "give every rank the same command",
        "query sets": "copy one set to all machines, or put it where all of them see it",
        "programs": "install the same versions on all machines",
    }
    return facts, hints


def _model_folder(place: str | os.PathLike[str]) -> Path:
    """The model folder of a run, or the folder itself."""
    folder = Path(place)
    return folder / "model" if (folder / "model").is_dir() else folder


def _build(
    model: str,
    options: Mapping[str, Any],
    splits: Splits,
    start_from: str | os.PathLike[str] | None,
    continues: str | os.PathLike[str] | None = None,
) -> QueryModel:
    vocabulary = splits.vocabulary
    sizes = len(vocabulary.entities), len(vocabulary.relations)
    if start_from is None:
        fresh: QueryModel = _catalogue.build(model, dict(options), *sizes)
        if continues is not None:
            take_over(fresh, store.load(_model_folder(continues)), splits["train"])
        return fresh
    loaded = store.load(_model_folder(start_from))
    if loaded.vocabulary.fingerprint != vocabulary.fingerprint:
        raise VocabularyMismatch(
            f"{start_from} was trained on another graph: it knows {len(loaded.vocabulary.entities):,} entities, this "
            f"graph has {sizes[0]:,} (fingerprints {loaded.vocabulary.fingerprint} and {vocabulary.fingerprint})",
            hint="train the link predictor on the graph folder that this run uses",
        )
    kind = _catalogue.class_of(model)
    if not issubclass(kind, StartsFromLinks):
        raise InvalidOption(
            f"{model} cannot start from another model's weights", hint="leave out --start-from, or train a hybrid"
        )
    built = _catalogue.build(model, {**kind.options_from(loaded.model), **options}, *sizes)
    built.start_from(loaded.model)
    return built  # type: ignore[no-any-return]


def open_graph(name: str) -> tuple[Path, Splits]:
    """Where a graph lies, and its splits: ``atlas`` is the embedded one, anything else a graph folder."""
    place = atlas.path() if name == "atlas" else Path(name)
    return place.resolve(), graph_folder.load(place)


def _train(
    run: Run,
    model: QueryModel,
    splits: Splits,
    material: Material | None,
    judging: _Validation,
    listener: Listener,
    ranks: Ranks,
    note: Callable[[str], None],
    graph: str,
) -> Result:
    config = run.train_config
    validate, held_out = judging
    newest = checkpoint.newest(run.checkpoints, ranks)
    if newest is not None and checkpoint.read_place(newest).finished:  # a rank died on the way out, and all came back
        return Result(checkpoint.read_place(newest), "finished")
    if config.links_minutes:
        assert config.minutes is not None
        share = config.links_minutes / config.minutes
        if newest is None:
            led = _train_links(run, graph, links_first.Part(listener, 0.0, share, of="link predictor"), note)
            if led is not None and led.reason == "interrupted":
                return led
            assert isinstance(model, StartsFromLinks)
            model.start_from(store.load(run.links_folder / "model").model)
            torch.manual_seed(config.seed)
        listener = links_first.Part(listener, share, 1.0)
    keep_freed_memory()
    run.log("started", allocator=allocator(), threads=torch.get_num_threads(), ranks=ranks.world)
    use_graph(model, splits["train"])
    table = None
    if config.shard_entities and ranks.several:
        with exchange("splitting the entities"):
            table = split(model, ranks.rank, ranks.world, config.rank_timeout)
    if samples(model, config) and has_entity_table(model):
        sample_entities(model, splits["train"], config.negatives)
    if validate is None:
        note(NOT_VALIDATED)

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
    stream = Stream(splits["train"], model, config, fixed, questions, ranks)
    result = train(run, model, stream, validate=validate, keep=keep, listener=listener, ranks=ranks, split=table)
    if ranks.first:
        draw(run)
    return result


def _train_links(run: Run, graph: str, listener: Listener, note: Callable[[str], None]) -> Result | None:
    """Train the run's own link predictor in RUN/links, or go on with it; None where it is there already."""
    folder, config, noted = run.links_folder, run.train_config, run.record.get("set") or {}
    if is_run_folder(folder):
        newest = checkpoint.latest(Run.open(folder).checkpoints)
        if newest is not None and checkpoint.read_place(newest).finished:
            return None
        return resume(folder, graph=graph, listener=listener)
    if folder.exists():  # a kill while the folder was being made; nothing was trained in it
        shutil.rmtree(folder)
    note(
        f"{config.links_minutes:g} of the {config.minutes:g} minutes first train a link predictor, which the model "
        "begins with; --links-minutes 0 leaves it out"
    )
    return start(
        graph,
        folder,
        train_config=settings(links_first.PREDICTOR, **links_first.settings(config)),
        query_set=noted.get("benchmark") or noted.get("path"),
        data=noted.get("data"),
        model=links_first.PREDICTOR,
        listener=listener,
    )


def _set_threads(config: TrainConfig, ranks: Ranks) -> None:
    torch.set_num_threads(config.threads or max(1, (os.cpu_count() or 1) // ranks.here))


def samples(model: QueryModel, config: TrainConfig) -> bool:
    """Whether a run compares each target with a sample of the entities instead of all; refused where it cannot."""
    can_sample = has_entity_table(model)
    if config.softmax == "auto":
        return can_sample and model.entity_count >= SAMPLED_FROM
    if config.softmax == "sampled" and not can_sample:
        raise InvalidOption(
            f"{model.name} has no softmax over entities that could be sampled", hint="leave out --softmax"
        )
    return config.softmax == "sampled"


def _budget(config: TrainConfig) -> str:
    if config.minutes is None:
        return f"{config.epochs:g} epochs"
    links = f", {config.links_minutes:g} of them for links" if config.links_minutes else ""
    return f"{config.minutes:g} minutes" + (" of processor time" if config.clock == "processor" else "") + links
