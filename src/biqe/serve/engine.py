"""Answers for many callers at once, within limits.

The web side is asynchronous and must never block; answering blocks. The engine stands between: it takes questions from
coroutines and answers them in threads.

    predicted lane   questions that need a model; their model calls are made together (batching)
    exact lane       known answers, and everything else that blocks
    exact store      all of SPARQL 1.1, in processes that can be killed (exact_process)

The threads take turns (gil_scheduler). Each question has a deadline. When it has passed, or the caller has gone, a
waiting question never begins, a running one stops at its next check point, and a query of the exact store is killed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from biqe.errors import Busy, InvalidOption
from biqe.exact.store import ExactStore, Solutions
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.knowledge_base import KnowledgeBase
from biqe.serve.batching import ModelQueue, SharedModel
from biqe.serve.exact_process import MEMORY, ExactClient, ExactService, service_of
from biqe.serve.gil_scheduler import GilScheduler
from biqe.serve.lanes import Lane, Request
from biqe.serve.workers import warm

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.answer.terms import TermTable
    from biqe.explain import Explanation
    from biqe.predict.predictor import Predictor
    from biqe.serve.live.changes import Changes
    from biqe.serve.live.versions import Used, View

Result = TypeVar("Result")


@dataclass(frozen=True)
class EngineConfig:
    """How much is answered at a time, and for how long."""

    threads: int = 12
    """Questions with predictions that run at a time."""
    exact_threads: int = 4
    """Questions without predictions that run at a time."""
    queue: int = 128
    """Questions of each kind that may wait; further ones are refused at once."""
    seconds: float = 30.0
    """Time limit of one question, its waiting included, unless its caller sets less."""
    stop_seconds: float = 20.0
    """Time that running questions get when the server stops."""
    memory: int = MEMORY
    """Bytes that one query of the exact store may use."""
    batching: bool = True
    """Whether questions that arrive together share calls of the model."""

    def __post_init__(self) -> None:
        for name in ("threads", "exact_threads", "memory"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if self.queue < 0:
            raise InvalidOption(f"'queue' must not be negative. Got {self.queue}")
        for name in ("seconds", "stop_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidOption(f"{name!r} must be more than 0. Got {getattr(self, name)}")


class _CurrentRequest(threading.local):
    """The request that the current thread answers."""

    request: Request | None = None


@dataclass(frozen=True)
class ServedKnowledgeBase(KnowledgeBase):
    """A knowledge base whose model calls and exact queries go through an engine."""

    engine: Engine | None = field(default=None, repr=False)
    plain: KnowledgeBase | None = field(default=None, repr=False)
    """The same without the engine."""

    @classmethod
    def of(cls, plain: KnowledgeBase, engine: Engine) -> ServedKnowledgeBase:
        """``plain`` behind ``engine``."""
        own = {entry.name: getattr(plain, entry.name) for entry in fields(KnowledgeBase)}
        return cls(**own, engine=engine, plain=plain)

    @property
    def store(self) -> ExactStore:  # type: ignore[override]
        """The exact store in another process: the engine stands for it, with the one method that ``ask`` needs."""
        return cast(ExactStore, self.engine)

    def predictor_of(self, model: str | None) -> Predictor:
        """The predictor, with its model behind the queue."""
        assert self.engine is not None
        with self.engine.loading:  # so that two threads do not load one model
            return super().predictor_of(model)

    def _load(self, folder: Path) -> Predictor:
        assert self.engine is not None and self.plain is not None
        if folder not in self.plain._loaded:
            self.plain._loaded[folder] = self.plain._load(folder)
        return self.engine.shared(self.plain._loaded[folder])


class KnownTriples:
    """A view of a live graph with its known triples as the only split. Answers need no other split, and computing the
    splits takes as long as ten answers."""

    known = "train"

    def __init__(self, view: View) -> None:
        self.splits = Splits(view.vocabulary, view.graph.triples)
        self.splits._graphs[self.known] = view.graph
        self.store: ExactStore = view.store
        self.literal_relations = view.literal_relations


class Engine:
    """Answers for many callers at once, within limits."""

    def __init__(
        self, kb: KnowledgeBase, config: EngineConfig | None = None, live: Any = None, *, exact: str | None = None
    ) -> None:
        """``exact`` is the address of an ExactService that several engines share; without it the engine starts one."""
        self.kb = kb
        self.config = config or EngineConfig()
        self.live = live
        self.loading = threading.RLock()

        self._served = ServedKnowledgeBase.of(kb, self)
        self._view: View | None = None
        self._here = _CurrentRequest()
        self._scheduler = GilScheduler()
        self._models = ModelQueue(self._scheduler, batching=self.config.batching)
        self._predicted = Lane("predicted", self.config.threads, self.config.queue)
        self._exact = Lane("exact", self.config.exact_threads, self.config.queue)
        self._writes = Lane("writes", 1, self.config.queue)
        self._lanes = (self._writes, self._predicted, self._exact)
        self._service = None if exact is not None else service_of(kb, live, self.config.memory)
        self._client = ExactClient(exact or cast(ExactService, self._service).address)
        self._stopping = False

    async def start(self) -> None:
        """Load what the first request would otherwise wait for."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        if self._service is not None:
            self._service.start()
        warm(self.kb, self.live)
        if self.kb.model_folder is not None and (self.kb.model_folder / "manifest.json").is_file():
            self.current.predictor_of(None)

    async def stop(self) -> None:
        """Finish running requests and refuse new ones."""
        self._stopping = True
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        ended = [lane.close(self.config.stop_seconds) for lane in self._lanes]
        if all(ended):
            self._models.stop()
        self._client.close()
        if self._service is not None:
            self._service.stop()

    def tidy(self) -> None:
        """Free what nobody uses; to be called from time to time."""
        self._client.tidy()

    async def ask(self, text: str, *, deadline: float | None = None, **options: Any) -> Answers | TermTable:
        """As ``KnowledgeBase.ask``. ``deadline`` is in seconds from now."""
        predicts = options.get("mode", "both") != "known" and self.kb.model_folder is not None
        lane = self._predicted if predicts else self._exact
        return await self._do(lane, lambda: self.current.ask(text, **options), deadline)

    async def exact(self, text: str, *, deadline: float | None = None, **options: Any) -> Any:
        """All of SPARQL 1.1 over the known triples: rows, triples as rows, or a truth value. With
        ``written=(form, extra columns)``, the same as a Document."""
        # Another process does the work, so this thread needs no turn.
        work = partial(self._query, text, **{"prefixes": self.kb.prefixes, **options})
        return await self._run(self._exact, work, deadline)

    async def explain(self, text: str, row: int, *, deadline: float | None = None, **options: Any) -> Explanation:
        """Why row number ``row`` of the answers is one."""

        def explained() -> Explanation:
            kb = self.current
            answers = kb.ask(text, **options)
            if not 0 <= row < len(answers):
                raise InvalidOption(f"'row' must be one of the {len(answers):,} rows, counted from 0. Got {row}")
            # An explanation reads the model's internals, so it gets the model without the queue.
            assert kb.plain is not None
            return kb.plain.explain(answers[row])  # type: ignore[arg-type]

        return await self._do(self._predicted, explained, deadline)

    async def run(self, function: Callable[..., Result], *args: Any, deadline: float | None = None) -> Result:
        """Any other blocking work."""
        return await self._do(self._exact, lambda: function(*args), deadline)

    async def update(self, operations: Any, *, deadline: float | None = None) -> Any:
        """Change the live graph; returns the receipt once the change is on disk."""
        if self.live is None:
            raise InvalidOption("this server does not take changes", hint="it serves a graph that stays as it is")

        def write(request: Request) -> Any:
            def ask(steps: Sequence[Changes], text: str) -> list[Any]:
                return self._query(text, request, after=steps)

            return self.live.apply(operations, ask=ask)

        # A write that has begun runs to its end, even if its caller goes away. Its WHERE part is evaluated in a process
        # that can be killed, because no other write can run meanwhile.
        return await self._run(self._writes, write, deadline, checked=False)

    @property
    def current(self) -> ServedKnowledgeBase:
        """The knowledge base at the newest version of its graph. May read files: call it in a thread."""
        if self.live is None:
            return self._served
        view = self.live.snapshot()
        with self.loading:
            if view is not self._view:
                self._view = view
                self._served = ServedKnowledgeBase.of(self.kb.at(KnownTriples(view)), self)
            return self._served

    @property
    def graph(self) -> tuple[Graph, Used | None, int | None]:
        """The graph as it is now, which of its names are in use (None for all), and its version (None if it cannot
        change). May read files: call it in a thread."""
        if self.live is None:
            return self.kb.graph, None, None
        view = self.live.snapshot()
        return view.graph, view.used, view.version

    @property
    def stats(self) -> dict[str, Any]:
        """What the engine is doing, for metrics."""
        models = self._models
        found: dict[str, Any] = {
            "stopping": self._stopping,
            "queue": self.config.queue,
            "waiting": sum(lane.waiting for lane in self._lanes),
            "running": sum(lane.size - lane.waiting for lane in self._lanes),
            "stuck": sum(lane.stuck for lane in self._lanes),
            "batching": self.config.batching,
            "model_waiting": models.length,
            "model_calls": models.calls,
            "model_queries": models.queries,
            "model_shared": models.shared,
            "model_seconds": models.seconds,
            "batch_sizes": dict(models.sizes),
            "killed_queries": self._client.killed,
        }
        for lane in self._lanes:
            found |= {f"{lane.name}_waiting": lane.waiting, f"{lane.name}_done": lane.done}
        return found

    @property
    def is_stuck(self) -> bool:
        """Whether half the threads of a lane are lost to work that does not stop: the process has to be replaced."""
        return any(2 * lane.stuck >= lane.threads for lane in (self._predicted, self._exact))

    async def _do(self, lane: Lane, work: Callable[[], Result], deadline: float | None) -> Result:
        """Run ``work`` in a thread of the lane, in turn with the other threads."""

        def turn(request: Request) -> Result:
            self._here.request = request
            try:
                with self._scheduler.running(request.check):
                    return work()
            finally:
                self._here.request = None

        return await self._run(lane, turn, deadline)

    async def _run(
        self, lane: Lane, work: Callable[[Request], Result], deadline: float | None, *, checked: bool = True
    ) -> Result:
        if self._stopping:
            raise Busy("the server is stopping", hint="try again in a moment", retry_after=5)
        seconds = self.config.seconds if deadline is None else min(deadline, self.config.seconds)
        return await lane.do(work, seconds, checked=checked)

    def query(self, text: str, **options: Any) -> Solutions | bool:
        """As ``ExactStore.query``, from a thread of the engine."""
        request = self._here.request
        assert request is not None
        with self._scheduler.paused():
            return self._query(text, request, **options)

    def _query(self, text: str, request: Request, **options: Any) -> Any:
        if self._service is not None:
            self._service.start()  # returns at once if it runs
        return self._client.query(text, request, **options)

    def shared(self, predictor: Predictor) -> Predictor:
        """The predictor with its model behind the queue."""
        from biqe.predict.predictor import Predictor

        def check() -> Callable[[], None] | None:
            return None if self._here.request is None else self._here.request.check

        return Predictor(cast(Any, SharedModel(predictor.model, self._models, check)), predictor.calibration)
