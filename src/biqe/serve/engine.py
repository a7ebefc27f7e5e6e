"""Answers for many callers at once, within limits.

The web side is asynchronous and must never block; answering blocks. The engine stands between: it takes questions from
coroutines and answers them in threads.

    light lane       what takes milliseconds: completions, the graph's counts, parsing
    exact lane       known answers and uploads, for a short time each
    long lane        those that need longer, in the background
    predicted lane   questions that need a model; their model calls are made together (batching)
    writes lane      updates, one at a time (updates)
    exact store      all of SPARQL 1.1, and files that are uploaded, in processes that can be killed (exact_process)

In each lane clients take turns (lanes), and so do the threads that compute (gil_scheduler). Each question has a
deadline. When it has passed, or the caller has gone, a waiting question never begins, a running one stops at its next
check point, and a query of the exact store is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from biqe.errors import BiqeError, Busy, InvalidOption, TookTooLong
from biqe.exact.store import ExactStore, Solutions
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.knowledge_base import KnowledgeBase
from biqe.serve.batching import ModelQueue, SharedModel
from biqe.serve.config import EngineConfig
from biqe.serve.exact_process import ExactClient, ExactService, service_of
from biqe.serve.gil_scheduler import GilScheduler
from biqe.serve.lanes import Deadline, Lane, NeedsLonger
from biqe.serve.live.upload import Upload, UploadedStatements
from biqe.serve.updates import Evaluated, apply, evaluate
from biqe.serve.workers import warm

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.answer.terms import TermTable
    from biqe.explain import Explanation
    from biqe.links.probability import LinkProbability
    from biqe.predict.predictor import Predictor
    from biqe.serve.live.changes import Receipt
    from biqe.serve.live.live_graph import LiveGraph
    from biqe.serve.live.versions import Used, View

Result = TypeVar("Result")

SHORT = 0.25
"""Seconds that a known answer has before it waits for a place in the long lane."""
SHORT_WRITE = 0.25
"""Seconds that the WHERE part of an update may hold up other updates."""
WRITE_GRACE = 60.0
"""Seconds beyond its time limit after which an update counts as stuck: it may have a large graph to write anew."""


class _CurrentDeadline(threading.local):
    """The deadline of what the current thread works on."""

    deadline: Deadline | None = None


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
        self,
        kb: KnowledgeBase,
        config: EngineConfig | None = None,
        live: LiveGraph | None = None,
        *,
        exact: str | None = None,
    ) -> None:
        """``exact`` is the address of an ExactService that several engines share; without it the engine starts one."""
        self.kb = kb
        self.config = config or EngineConfig()
        self.live = live
        self.loading = threading.RLock()

        self._served = ServedKnowledgeBase.of(kb, self)
        self._view: View | None = None
        self._here = _CurrentDeadline()
        self._scheduler = GilScheduler()
        self._models = ModelQueue(self._scheduler, batching=self.config.batching)
        self._predicted = Lane("predicted", self.config.threads, self.config.queue)
        self._exact = Lane("exact", self.config.exact_threads, self.config.queue)
        self._long = Lane("long", self.config.long_threads, self.config.queue)
        self._light = Lane("light", 4, self.config.queue)
        self._writes = Lane("writes", 1, self.config.queue, grace=WRITE_GRACE)
        self._lanes = (self._writes, self._predicted, self._exact, self._long, self._light)
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
        with contextlib.suppress(BiqeError):
            _ = self.current  # an older version, which nobody has asked since, would keep all changes after it

    async def ask(self, text: str, *, seconds: float | None = None, **options: Any) -> Answers | TermTable:
        """As ``KnowledgeBase.ask``; in at most ``seconds``, and never longer than the configuration says."""
        predicts = options.get("mode", "both") != "known" and self.kb.model_folder is not None
        work = self._in_turn(lambda: self.current.ask(text, **options))
        return await (self._do(self._predicted, work, seconds) if predicts else self._short_first(work, seconds))

    async def exact(self, text: str, *, seconds: float | None = None, **options: Any) -> Any:
        """All of SPARQL 1.1 over the known triples: rows, triples as rows, or a truth value. With
        ``written=(form, extra columns)``, the same as a Document."""
        # Another process does the work, so this thread needs no turn.
        work = partial(self._ask_process, text, **{"prefixes": self.kb.prefixes, **options})
        return await self._short_first(work, seconds)

    async def explain(
        self,
        text: str,
        row: int,
        *,
        views: Sequence[str] | None = None,
        seconds: float | None = None,
        **options: Any,
    ) -> Explanation:
        """Why row number ``row`` of the answers is one."""

        def explained() -> Explanation:
            kb = self.current
            answers = kb.ask(text, **options)
            if not 0 <= row < len(answers):
                raise InvalidOption(f"'row' must be one of the {len(answers):,} rows, counted from 0. Got {row}")
            # An explanation reads the model's internals, so it gets the model without the queue.
            assert kb.plain is not None
            return kb.plain.explain(answers[row], views=views)  # type: ignore[arg-type]

        return await self._do(self._predicted, self._in_turn(explained), seconds)

    @property
    def links(self) -> LinkProbability | None:
        """Probabilities of single links over the present graph, where the main model has them."""
        plain = self.current.plain
        if plain is None or plain.model_folder is None:
            return None
        try:
            self.current.predictor_of(None)  # loaded once, whoever comes first
            return plain.predictor_of(None).links
        except BiqeError:
            return None  # whoever asks the model is told what is wrong with it

    async def run(self, function: Callable[..., Result], *args: Any, seconds: float | None = None) -> Result:
        """Any other blocking work, which takes little time."""
        return await self._do(self._light, self._in_turn(lambda: function(*args), is_light=True), seconds)

    async def update(self, change: str | Upload, *, seconds: float | None = None) -> Receipt:
        """Change the live graph; returns the receipt once the change is on disk."""
        live = self.live
        if live is None:
            raise InvalidOption("this server does not take changes", hint="it serves a graph that stays as it is")
        stops = time.monotonic() + self._limit(seconds)
        ready: str | UploadedStatements
        if isinstance(change, Upload):
            # Read beside other writes, where it can be killed.
            ready = await self._short_first(partial(self._ask_process, change), seconds)
        else:
            ready = change
        evaluated = Evaluated()

        def write(deadline: Deadline) -> Receipt:
            return apply(live, ready, evaluated, lambda steps, text: self._ask_process(text, deadline, after=steps))

        def look(deadline: Deadline) -> Evaluated:
            assert isinstance(ready, str)
            return evaluate(live, ready, lambda steps, text: self._ask_process(text, deadline, after=steps))

        while True:
            # A write that has begun runs to its end, even if its caller goes away.
            deadline = self._deadline(stops - time.monotonic(), short=SHORT_WRITE)
            try:
                return await self._writes.do(write, deadline, checked=False)
            except NeedsLonger:
                pass  # its WHERE part is evaluated while others write, and then the update is tried again
            finally:
                deadline.cancel()
            if evaluated.version >= 0 and stops - time.monotonic() < SHORT_WRITE:
                raise TookTooLong(
                    "the graph changed each time before the WHERE part of this update was evaluated",
                    hint="make the WHERE part cheaper, or send the update while fewer others write",
                )
            deadline = self._deadline(stops - time.monotonic(), is_background=True)
            evaluated = await self._long.do(look, deadline)

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
            "running": sum(lane.running for lane in self._lanes),
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
            found |= {
                f"{lane.name}_waiting": lane.waiting,
                f"{lane.name}_running": lane.running,
                f"{lane.name}_done": lane.done,
            }
        return found

    @property
    def is_stuck(self) -> bool:
        """Whether half the places of a lane are lost to work that does not stop: the process has to be replaced."""
        return any(lane.is_stuck for lane in self._lanes)

    def _in_turn(self, work: Callable[[], Result], *, is_light: bool = False) -> Callable[[Deadline], Result]:
        """The same work, in turn with other threads."""

        def turn(deadline: Deadline) -> Result:
            self._here.deadline = deadline
            try:
                with self._scheduler.running(deadline.check, is_light=is_light):
                    deadline.begin()
                    deadline.between = self._scheduler.share
                    return work()
            finally:
                self._here.deadline = None

        return turn

    async def _do(self, lane: Lane, work: Callable[[Deadline], Result], seconds: float | None) -> Result:
        """Run ``work`` in a thread of the lane."""
        return await lane.do(work, self._deadline(self._limit(seconds)))

    async def _short_first(self, work: Callable[[Deadline], Result], seconds: float | None) -> Result:
        """Run ``work`` for a short time; if it is not done then, once more, in the long lane. A process that works for
        it goes on if the long lane has room."""
        first = self._deadline(self._limit(seconds), short=SHORT)
        try:
            return await self._exact.do(work, first)
        except NeedsLonger:
            second = self._deadline(first.left, is_background=True)
            second.seconds, second.stops = first.seconds, first.stops
            kept = first.take_kept()
            if kept is not None and self._long.has_room(second.client):
                second.keep(kept)
            elif kept is not None:
                kept.drop()
        finally:
            first.cancel()
        try:
            return await self._long.do(work, second)
        finally:
            second.cancel()

    def _limit(self, seconds: float | None) -> float:
        return self.config.seconds if seconds is None else min(seconds, self.config.seconds)

    def _deadline(self, seconds: float, **options: Any) -> Deadline:
        if self._stopping:
            raise Busy("the server is stopping", hint="try again in a moment", retry_after=5)
        return Deadline(max(seconds, 0.001), **options)

    def query(self, text: str, **options: Any) -> Solutions | bool:
        """As ``ExactStore.query``, from a thread of the engine."""
        deadline = self._here.deadline
        assert deadline is not None
        with self._scheduler.paused():
            return self._ask_process(text, deadline, **options)

    def _ask_process(self, asked: str | Upload, deadline: Deadline, **options: Any) -> Any:
        """Ask a process of the exact store."""
        if self._service is not None:
            self._service.start()  # returns at once if it runs
        deadline.begin()
        return self._client.ask(asked, deadline, **options)

    def shared(self, predictor: Predictor) -> Predictor:
        """The predictor with its model behind the queue."""
        from biqe.predict.predictor import Predictor

        return Predictor(cast(Any, SharedModel(predictor.model, self._models, lambda: self._here.deadline)))
