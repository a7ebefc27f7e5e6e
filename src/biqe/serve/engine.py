"""Answers for many callers at once, within limits.

The web side is asynchronous and must never block; asking blocks. The engine stands between: it takes questions from
coroutines and works on them in threads.

    predicted lane   questions that need a model; their model calls are made together (batching)
    exact lane       known answers, and everything else that blocks
    exact store      all of SPARQL 1.1, in processes that can be killed (exact_process)

The threads take turns (floor). Each question has a clock; when it is up, or the caller has gone, a question that has
not begun never does, one that has begun stops at its next check point, and a query of the exact store is killed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from biqe.errors import Busy, InvalidOption, TookTooLong
from biqe.exact.store import ExactStore, Solutions
from biqe.graph.knowledge_graph import Splits
from biqe.knowledge_base import KnowledgeBase
from biqe.serve.batching import ModelQueue, SharedModel
from biqe.serve.exact_process import MEMORY, ExactProcesses, ExactService, service_of
from biqe.serve.floor import Floor
from biqe.serve.lanes import Lane, Request
from biqe.serve.workers import warm

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.answer.terms import TermTable
    from biqe.explain import Explanation
    from biqe.predict.predictor import Predictor
    from biqe.serve.live.changes import Changes
    from biqe.serve.live.view import View

__all__ = ["Busy", "Engine", "EngineConfig", "TookTooLong"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class EngineConfig:
    """How much is worked on at a time, and for how long."""

    threads: int = 12
    """Questions with predictions that are worked on at a time."""
    exact_threads: int = 4
    """Questions without predictions that are worked on at a time."""
    queue: int = 128
    """Questions of each kind that may wait; any more are turned away at once."""
    seconds: float = 30.0
    """Time for one question, its waiting included, unless its caller sets less."""
    stop_seconds: float = 20.0
    """Time that questions get to end when the server stops."""
    memory: int = MEMORY
    """Bytes that one query of the exact store may take."""
    batching: bool = True
    """Whether questions that come together share calls of the model."""

    def __post_init__(self) -> None:
        for name in ("threads", "exact_threads", "memory"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if self.queue < 0:
            raise InvalidOption(f"'queue' must not be negative. Got {self.queue}")
        for name in ("seconds", "stop_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidOption(f"{name!r} must be more than 0. Got {getattr(self, name)}")


class _Here(threading.local):
    """What the current thread works on."""

    request: Request | None = None


@dataclass(frozen=True)
class Served(KnowledgeBase):
    """A knowledge base whose model calls and exact queries go through an engine."""

    engine: Engine | None = field(default=None, repr=False)
    plain: KnowledgeBase | None = field(default=None, repr=False)
    """The same without the engine."""

    @classmethod
    def of(cls, plain: KnowledgeBase, engine: Engine) -> Served:
        """``plain`` behind ``engine``."""
        return cls(
            **{entry.name: getattr(plain, entry.name) for entry in fields(KnowledgeBase)}, engine=engine, plain=plain
        )

    @property
    def store(self) -> ExactStore:  # type: ignore[override]
        """The exact store, in another process."""
        assert self.engine is not None
        return cast(ExactStore, self.engine.remote_store)

    def predictor_of(self, model: str | None) -> Predictor:
        """The predictor, with its model behind the queue."""
        assert self.engine is not None
        with self.engine.loading:  # of two threads, one loads it
            return super().predictor_of(model)

    def _load(self, folder: Path) -> Predictor:
        assert self.engine is not None and self.plain is not None
        if folder not in self.plain._loaded:
            self.plain._loaded[folder] = self.plain._load(folder)
        return self.engine.shared(self.plain._loaded[folder])


class Known:
    """A view of a live graph with its known triples as the only split: answers need no others, and to tell them apart
    takes as long as ten answers."""

    known = "train"

    def __init__(self, view: View) -> None:
        self.splits = Splits(view.vocabulary, view.graph.triples)
        self.splits._graphs[self.known] = view.graph
        self.store: ExactStore = view.store
        self.literal_relations = view.literal_relations


class RemoteStore:
    """The exact store of an engine, as ``KnowledgeBase.ask`` uses it within one of the engine's threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def query(self, text: str, **options: Any) -> Solutions | bool:
        """As ``ExactStore.query``."""
        return self._engine.query_store(text, **options)


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
        self.remote_store = RemoteStore(self)
        self._served = Served.of(kb, self)
        self._view: Any = None
        self._here = _Here()
        self._floor = Floor()
        self._models = ModelQueue(self._floor, batching=self.config.batching)
        self._predicted = Lane("predicted", self.config.threads, self.config.queue)
        self._exact = Lane("exact", self.config.exact_threads, self.config.queue)
        self._writes = Lane("writes", 1, self.config.queue)
        self._service = None if exact is not None else service_of(kb, live, self.config.memory)
        self._processes = ExactProcesses(exact or cast(ExactService, self._service).address)
        self._stopping = False

    async def start(self) -> None:
        """Make ready: what the first caller would wait for is loaded."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        if self._service is not None:
            self._service.start()
        warm(self.kb, self.live)
        if self.kb.model_folder is not None and (self.kb.model_folder / "manifest.json").is_file():
            self.current.predictor_of(None)

    async def stop(self) -> None:
        """Finish what runs, refuse what comes."""
        self._stopping = True
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        ended = [lane.close(self.config.stop_seconds) for lane in (self._writes, self._predicted, self._exact)]
        if all(ended):
            self._models.stop()
        self._processes.close()
        if self._service is not None:
            self._service.stop()

    def tidy(self) -> None:
        """Let go of what nobody uses; to be called now and then."""
        self._processes.tidy()

    async def ask(self, text: str, *, deadline: float | None = None, **options: Any) -> Answers | TermTable:
        """As ``KnowledgeBase.ask``. ``deadline`` is in seconds from now."""
        predicts = options.get("mode", "both") != "known" and self.kb.model_folder is not None
        return await self._do(
            self._predicted if predicts else self._exact, lambda: self.current.ask(text, **options), deadline
        )

    async def exact(self, text: str, *, deadline: float | None = None, **options: Any) -> Any:
        """All of SPARQL 1.1 over the known triples: rows, triples as rows, or true or false; with ``written``, a form
        and extra columns, all that as a Document."""
        if self._stopping:
            raise _stopping()
        # Somebody else does the work, so nobody has to wait for a turn.
        work = partial(self._query, text, **{"prefixes": self.kb.prefixes, **options})
        return await self._exact.do(work, self._seconds(deadline))

    async def explain(self, text: str, row: int, *, deadline: float | None = None, **options: Any) -> Explanation:
        """Why row number ``row`` of the answers is one; ``views`` as in ``KnowledgeBase.explain``."""
        views = options.pop("views", None)

        def explained() -> Explanation:
            kb = self.current
            answers = kb.ask(text, **options)
            if not 0 <= row < len(answers):
                raise InvalidOption(f"'row' must be one of the {len(answers):,} rows, counted from 0. Got {row}")
            # An explanation looks inside the model, so it gets the model itself.
            assert kb.plain is not None
            return kb.plain.explain(answers[row], views=views)  # type: ignore[arg-type]

        return await self._do(self._predicted, explained, deadline)

    async def run(self, function: Callable[..., Result], *args: Any, deadline: float | None = None) -> Result:
        """Any other blocking work."""
        return await self._do(self._exact, lambda: function(*args), deadline)

    async def update(self, operations: Any, *, deadline: float | None = None) -> Any:
        """Change the live graph; a receipt is given once the change is on disk."""
        if self.live is None:
            raise InvalidOption("this server does not take changes", hint="it serves a graph that stays as it is")
        if self._stopping:
            raise _stopping()

        def write(request: Request) -> Any:
            def ask(steps: Sequence[Changes], text: str) -> list[Any]:
                return self._query(text, request, after=steps)

            return self.live.apply(operations, ask=ask)

        # Once begun, a write goes to its end: its caller may have gone, but what is on disk is there. Before that, what
        # its WHERE stands for is found in a process that can be killed: nobody else can write meanwhile.
        return await self._writes.do(write, self._seconds(deadline), checked=False)

    @property
    def current(self) -> Served:
        """The knowledge base as it is now. It may read files: to be called in a thread."""
        if self.live is None:
            return self._served
        view = self.live.snapshot()
        with self.loading:
            if view is not self._view:
                self._view, self._served = view, Served.of(self.kb.at(Known(view)), self)
            return self._served

    @property
    def facts(self) -> dict[str, Any]:
        """What the engine is doing: for metrics and for the page."""
        lanes = (self._predicted, self._exact, self._writes)
        models = self._models
        found: dict[str, Any] = {
            "stopping": self._stopping,
            "queue": self.config.queue,
            "waiting": sum(lane.waiting for lane in lanes),
            "running": sum(lane.size - lane.waiting for lane in lanes),
            "stuck": sum(lane.stuck for lane in lanes),
            "batching": self.config.batching,
            "model_waiting": models.length,
            "model_calls": models.calls,
            "model_queries": models.queries,
            "model_shared": models.shared,
            "model_seconds": models.seconds,
            "batch_sizes": dict(models.sizes),
            "killed_queries": self._processes.killed,
        }
        for lane in lanes:
            found |= {f"{lane.name}_waiting": lane.waiting, f"{lane.name}_done": lane.done}
        return found

    @property
    def is_stuck(self) -> bool:
        """Whether half the threads of a lane are lost to work that does not stop: time for a new process."""
        return any(2 * lane.stuck >= lane.threads for lane in (self._predicted, self._exact))

    async def _do(self, lane: Lane, work: Callable[[], Result], deadline: float | None) -> Result:
        if self._stopping:
            raise _stopping()

        def turn(request: Request) -> Result:
            self._here.request = request
            try:
                with self._floor.held(request.check):
                    return work()
            finally:
                self._here.request = None

        return await lane.do(turn, self._seconds(deadline))

    def _seconds(self, deadline: float | None) -> float:
        return self.config.seconds if deadline is None else min(deadline, self.config.seconds)

    def query_store(self, text: str, **options: Any) -> Solutions | bool:
        """A query of the exact store, from within a thread of the engine."""
        request = self._here.request
        assert request is not None
        with self._floor.left():
            return self._query(text, request, **options)

    def _query(self, text: str, request: Request, **options: Any) -> Any:
        if self._service is not None:
            self._service.start()  # nothing where it runs; who comes while it is being started waits for it
        return self._processes.query(text, request, **options)

    def shared(self, predictor: Predictor) -> Predictor:
        """The predictor with its model behind the queue."""
        from biqe.predict.predictor import Predictor

        def check() -> Callable[[], None] | None:
            return None if self._here.request is None else self._here.request.check

        return Predictor(cast(Any, SharedModel(predictor.model, self._models, check)), predictor.calibration)


def _stopping() -> Busy:
    return Busy("the server is stopping", hint="ask again in a moment", retry_after=5)
