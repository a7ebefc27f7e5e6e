"""Start, continue and resume runs: from a graph, queries and settings to a trained model in a run folder.

settings(model, ...)  ->  TrainConfig: the model's own defaults, changed by what the user asks for
start(...)            ->  a new run; with continues=RUN it begins with the weights of another run
settings_of(run, ...) ->  model and settings of a run that is to be continued
resume(run)           ->  the rest of a stopped run, on the same graph, queries and settings
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import BiqeError, EmptyResult, InvalidOption, RunFailed, VocabularyMismatch
from biqe.evaluate.machine import allocator
from biqe.graph.knowledge_graph import Splits
from biqe.models import _catalogue, store
from biqe.models._contract import ComparesWithSample, QueryModel, StartsFromLinks, has_entity_table, use_graph
from biqe.models._device import device_named
from biqe.models._entity_loss import sample_entities
from biqe.models._grown_graph import take_over
from biqe.query.bound import QuerySet
from biqe.training import checkpoint, held_out, links_first
from biqe.training.config import MOST_THREADS, TrainConfig
from biqe.training.loop import Listener, Result, train
from biqe.training.memory import keep_freed_memory
from biqe.training.plot import draw
from biqe.training.processes import processes_of
from biqe.training.ranks import Ranks, job, joined, restarted
from biqe.training.run import Run, is_run_folder, open_graph, source_fingerprint, versions
from biqe.training.stream import Stream
from biqe.training.training_data import TrainingData, Validation, open_recorded_data, open_training_data, validation
from biqe.training.weigh_links import weigh_links

SAMPLED_FROM = 100_000
"""Number of entities from which softmax=auto samples."""

LITTLE = 200
"""Training triples below which the user is told not to expect much."""

Note = Callable[[str], None]
"""Called with a sentence that the user should read before training begins."""


def settings(model: str, **options: Any) -> TrainConfig:
    """Training settings of ``model``: its own defaults, changed by ``options``."""
    return TrainConfig(**{**getattr(_catalogue.class_of(model), "train_defaults", {}), **options})


def settings_of(origin: str | os.PathLike[str], **options: Any) -> tuple[str, dict[str, Any], TrainConfig]:
    """Model name, model options and training settings of a run or model folder; the latter changed by ``options``."""
    manifest = store.read_manifest(_model_folder(origin))
    own: dict[str, Any] = {}
    if is_run_folder(origin):
        # Length, seed, data and processes are decided anew for each run.
        of_one_run = ("minutes", "links_minutes", "epochs", "seed", "online", "threads", "shard_entities")
        own = {name: value for name, value in Run.open(origin).record["train"].items() if name not in of_one_run}
    return manifest["model"], dict(manifest["config"]), settings(manifest["model"], **{**own, **options})


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


@dataclass(frozen=True)
class _Prepared:
    """What a run needs, opened and checked before anything is written."""

    graph: str
    """Graph folder as the user named it, or ``atlas``."""
    place: Path
    whole: Splits
    """The splits of the graph folder."""
    splits: Splits
    """The splits that the run uses: some training triples may be held out."""
    model: QueryModel
    data: TrainingData | None
    validation: Validation


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
    preset: str | None = None,
    device: str = "cpu",
    keep_interrupted: bool = False,
    listener: Listener,
    note: Note = lambda text: None,
) -> Result:
    """Train ``model`` on ``graph`` (a graph folder, or ``atlas``) in the new run folder ``out``.

    ``query_set`` is the folder of a mined set or the name of a benchmark, whose files lie in ``data``. ``start_from``
    is a run or model folder of a link predictor on the same graph, whose embeddings the model begins with.
    ``continues`` is a run or model folder whose weights the model begins with; its graph may have been smaller.
    ``preset`` is the name of the settings, which is recorded. ``device`` is where it is trained, one of
    _device.DEVICES. A run that is refused leaves nothing behind. With ``keep_interrupted``, a run that Ctrl-C stops has
    a model of what was learnt until then, and can still be resumed.
    """

    def prepare() -> _Prepared:
        place, whole = open_graph(graph)
        if len(whole.vocabulary.entities) < 2:
            raise EmptyResult(
                "a graph of one entity has nothing to predict", hint="import a graph that has links between entities"
            )
        options = dict(model_options or {})
        if train_config.links_minutes:
            entities, begun = len(whole.vocabulary.entities), (start_from or continues) is not None
            options = links_first.options(model, options, entities, train_config.links_minutes, begun, ranks)
        torch.manual_seed(train_config.seed)
        fresh = _build(model, options, whole, start_from, continues)
        opened = None if query_set is None else open_training_data(query_set, whole, data)
        if not train_config.online and opened is None:
            raise EmptyResult(
                "fixed training queries need a query set",
                hint="name one with --set, or leave out --fixed to mine online",
            )
        # The queries of a set were made from all training triples, so none of these can be held out.
        splits = held_out.held_out(whole, train_config.seed) if opened is None else whole
        return _Prepared(
            graph, place, whole, splits, fresh, opened, _validation(splits, opened, train_config, fresh, ranks)
        )

    place = device_named(device)
    with joined(train_config.rank_timeout) as ranks, ExitStack() as locks:
        _set_threads(train_config, ranks)
        prepared = ranks.all_or_none(prepare)
        ranks.check_same(*_shared_facts(prepared, train_config))

        def create() -> dict[str, Any]:
            begun = Run.open(out) if job() is not None and is_run_folder(out) else None
            if begun is not None and begun.record.get("job") == job():  # torchrun has restarted the ranks
                locks.enter_context(begun.locked())
                return begun.record
            triples, opened = held_out.moved(prepared.whole, prepared.splits), prepared.data
            run = Run.create(
                out,
                model=prepared.model.name,
                model_config=dataclasses.asdict(prepared.model.config),
                train=train_config,
                graph={"name": graph, "path": str(prepared.place), "fingerprint": prepared.whole.fingerprint},
                query_set=None if opened is None else {**opened.record, "queries": opened.fingerprint},
                held_out=triples if len(triples) else None,
                start_from=None if start_from is None else str(Path(start_from).resolve()),
                continues=None if continues is None else str(Path(continues).resolve()),
                job=job(),
                preset=preset,
            )
            locks.enter_context(run.locked())
            return run.record

        run = Run(out, ranks.from_first(create), writes=ranks.first)
        try:
            return _train(run, prepared, listener, ranks, note, place, keep_interrupted)
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
    device: str = "cpu",
    note: Note = lambda text: None,
) -> Result:
    """Train the run in ``folder`` to its end, on the graph that it began with, and on any device."""
    place = device_named(device)
    with joined(_timeout_of(folder)) as ranks, ExitStack() as locks:

        def lock() -> dict[str, Any]:
            run = Run.open(folder)
            locks.enter_context(run.locked())
            return run.record

        run = Run(folder, ranks.from_first(lock), writes=ranks.first)
        _set_threads(run.train_config, ranks)
        newest = checkpoint.newest(run.checkpoints, ranks)
        prepared = ranks.all_or_none(lambda: _prepare_again(run, graph, newest, ranks))
        ranks.check_same(*_shared_facts(prepared, run.train_config))
        return _train(run, prepared, listener, ranks, note, place)


def _prepare_again(run: Run, graph: str | None, newest: Path | None, ranks: Ranks) -> _Prepared:
    """Open what the run began with, and check that it is still the same. ``newest`` is its newest checkpoint."""
    config = run.train_config
    place, whole = run.graph(graph)
    data = open_recorded_data(run.record.get("set"), whole, run.folder)
    splits = run.splits(whole)
    torch.manual_seed(config.seed)
    # A checkpoint replaces the weights that the run began with; without one it begins again.
    origins = [run.record.get(name) if newest is None else None for name in ("start_from", "continues")]
    model = _build(run.record["model"], run.record["model_config"], whole, *origins)
    if newest is not None and checkpoint.read_place(newest).finished and not restarted():
        raise RunFailed(
            f"{run.folder} has finished; there is nothing to resume",
            hint=f"evaluate it with: biqe evaluate {run.folder} --set SET",
        )
    where = graph or ("atlas" if run.record["graph"].get("name") == "atlas" else str(place))
    validated = _validation(splits, data, config, model, ranks)
    return _Prepared(where, place, whole, splits, model, data, validated)


def _validation(
    splits: Splits, data: TrainingData | None, config: TrainConfig, model: QueryModel, ranks: Ranks
) -> Validation:
    """How the run is validated. Only rank 0 validates, so the others mine no validation queries."""
    if not ranks.first:
        return Validation(lambda model: {})
    return validation(splits, data, config, by_links=getattr(model, "learns_from", "queries") == "triples")


def _timeout_of(folder: str | os.PathLike[str]) -> float:
    """The rank timeout of a run. If its record cannot be read, the ranks still have to connect to say so."""
    try:
        return Run.open(folder).train_config.rank_timeout
    except BiqeError:
        return TrainConfig(epochs=1).rank_timeout


def _shared_facts(prepared: _Prepared, config: TrainConfig) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What must be the same on all ranks, and hints for the user where it is not."""
    model, data = prepared.model, prepared.data
    settings = {"model": model.name, **dataclasses.asdict(model.config), **dataclasses.asdict(config)}
    for own in ("threads", "rank_timeout"):
        del settings[own]
    facts = {
        "graphs": {"fingerprint": prepared.splits.fingerprint},
        "settings": settings,
        "query sets": {} if data is None else {"fingerprint": data.fingerprint},
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
    continues: str | os.PathLike[str] | None,
) -> QueryModel:
    """A new model for the graph, with weights taken from another model if the run begins with one."""
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


def triples_of(name: str) -> int:
    """How many training triples a graph folder, or ``atlas``, holds."""
    return len(open_graph(name)[1].train)


def _train(
    run: Run,
    prepared: _Prepared,
    listener: Listener,
    ranks: Ranks,
    note: Note,
    device: torch.device,
    keep_interrupted: bool = False,
) -> Result:
    """Train the link predictor, where the run has one of its own, and then the model."""
    config, model, whole, splits = run.train_config, prepared.model, prepared.whole, prepared.splits
    newest = checkpoint.newest(run.checkpoints, ranks)
    if newest is not None and checkpoint.read_place(newest).finished:  # a rank died at the very end, and all restarted
        return Result(checkpoint.read_place(newest), "finished")
    if newest is None and ranks.first:
        _note_validation(prepared, note)

    def keep(best: QueryModel, facts: dict[str, Any]) -> None:
        length = {"seed": config.seed, "budget": _budget(config), "validation_queries": prepared.validation.queries}
        store.save(
            best,
            run.model_folder,
            vocabulary=whole.vocabulary,
            graph_fingerprint=whole.fingerprint,
            trained={**facts, **length},
        )

    def weighed(result: Result) -> Result:
        if result.reason != "interrupted" or keep_interrupted:
            result.weighed = weigh_links(run, splits, prepared.validation)
        return result

    if config.links_minutes:
        assert config.minutes is not None
        share = config.links_minutes / config.minutes
        if newest is None:
            part = links_first.Part(listener, 0.0, share, of="link predictor")
            links = _train_links(run, prepared, part, note, device, keep_interrupted)
            interrupted = links if links is not None and links.reason == "interrupted" else None
            if interrupted is not None and not keep_interrupted:
                return interrupted
            assert isinstance(model, StartsFromLinks)
            model.start_from(store.load(run.links_folder / "model").model)
            if interrupted is not None:
                keep(model, {"step": 0, "epoch": 0})
                return weighed(interrupted)
            torch.manual_seed(config.seed)
        listener = links_first.Part(listener, share, 1.0)
    keep_freed_memory()
    model.to(device)
    run.log("started", allocator=allocator(), threads=torch.get_num_threads(), ranks=ranks.world, device=str(device))
    use_graph(model, splits["train"])
    processes = processes_of(model, ranks, config)
    if samples(model, config):
        if has_entity_table(model):
            sample_entities(model, splits["train"], config.negatives)
        elif isinstance(model, ComparesWithSample):
            model.compare_with_sample(config.negatives)

    given = None if prepared.data is None else prepared.data.train
    stream = Stream(
        splits["train"],
        model,
        config,
        fixed=given if isinstance(given, QuerySet) else None,
        questions=given if isinstance(given, ShapedQueries) else None,
        ranks=ranks,
    )
    validate = prepared.validation.measure
    result = train(
        run,
        model,
        stream,
        validate=validate,
        keep=keep,
        listener=listener,
        processes=processes,
        keep_interrupted=keep_interrupted,
    )
    if not ranks.first:
        return result
    draw(run)
    return weighed(result)


def _note_validation(prepared: _Prepared, note: Note) -> None:
    """Tell the user if the graph is too small to learn much from, if facts are held out, or if there is nothing to
    validate on."""
    whole, held = prepared.whole, len(held_out.moved(prepared.whole, prepared.splits))
    if held:
        few = f"only {len(whole.valid):,} validation triples" if len(whole.valid) else "no validation triples"
        note(
            f"the graph has {few}, so {held:,} of its {len(whole.train):,} training triples are held out to validate "
            "on; they still count as known when the model is asked"
        )
    if len(whole.train) < LITTLE:
        note(
            f"a graph of {len(whole.train):,} training triples is too small to learn much from: expect guesses, and "
            "believe the reasons that 'biqe explain' gives more than the ranks"
        )
    if prepared.validation.measure is None:
        note(
            f"the graph has no validation triples, and none of its {len(whole.train):,} training triples can be held "
            "out, so this run is not validated: it keeps its last weights, and -O patience has no effect"
        )


def _train_links(
    run: Run, prepared: _Prepared, listener: Listener, note: Note, device: torch.device, keep_interrupted: bool = False
) -> Result | None:
    """Train the run's own link predictor in RUN/links, or resume it; None if it has finished."""
    folder, config, query_set = run.links_folder, run.train_config, run.record.get("set") or {}
    if is_run_folder(folder):
        newest = checkpoint.latest(Run.open(folder).checkpoints)
        if newest is not None and checkpoint.read_place(newest).finished:
            return None
        return resume(folder, graph=prepared.graph, device=device.type, listener=listener)
    if folder.exists():  # a kill while the folder was being made; nothing was trained in it
        shutil.rmtree(folder)
    note(
        f"the first {config.links_minutes:g} of {config.minutes:g} minutes train the link predictor, the rest the "
        "encoder of whole queries"
    )
    rank = run.record["model_config"]["rank"]
    own = links_first.settings(config, prepared.splits, rank, torch.get_num_threads())
    return start(
        prepared.graph,
        folder,
        train_config=settings(links_first.PREDICTOR, **own),
        query_set=query_set.get("benchmark") or query_set.get("path"),
        data=query_set.get("data"),
        model=links_first.PREDICTOR,
        model_options={
            "rank": rank,
            "relation_weight": links_first.relation_weight_for(
                len(prepared.splits.train), len(prepared.splits.vocabulary.entities)
            ),
        },
        keep_interrupted=keep_interrupted,
        device=device.type,
        listener=listener,
    )


def _set_threads(config: TrainConfig, ranks: Ranks) -> None:
    """Threads as told; else as OMP_NUM_THREADS says, which torchrun sets to 1; else the cores of the machine."""
    given = os.environ.get("OMP_NUM_THREADS", "") if not ranks.several else ""
    threads = int(given) if given.isdecimal() and 0 < int(given) <= MOST_THREADS else os.cpu_count() or 1
    torch.set_num_threads(config.threads or max(1, threads // ranks.here))


def samples(model: QueryModel, config: TrainConfig) -> bool:
    """Whether targets are compared with a sample of the entities instead of all; InvalidOption if they cannot be."""
    can_sample = has_entity_table(model) or isinstance(model, ComparesWithSample)
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
