"""One thread calls the model, for all questions that wait for it.

A question comes to a point where it needs scores, puts its queries into the queue and waits. The model's thread takes
what waits, queries of one length into one call, and gives every question its own rows back. It never waits for a batch
to fill: while a call runs, the next batch gathers by itself.

Each call takes a few queries of every question in turn, so a question with a thousand queries is one among many, and
gets on by as much as there is room for. Whoever has gone, or has run out of time, is dropped between calls.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import Busy
from biqe.query.queryset import QuerySet, concatenate
from biqe.serve.floor import Floor, Ticket

if TYPE_CHECKING:
    import torch

    from biqe.models._contract import QueryModel

QUERIES = 128
"""Queries of one call. A call reads all weights, however few queries it is for; beyond this many it takes longer in
proportion, and others wait for it."""
SCORES = 4_000_000
"""Scores of one call, where the graph has so many entities that fewer queries make as many."""
QUANTUM = 32
"""Queries of one question that go into a call before the next question's turn."""
PADDED = 400
"""Tokens that a call may be padded with, rather than to make two calls of it and read the weights twice."""
PAIRS = 500_000
"""Pairs of tokens that look at each other in one call, where queries are long."""
PATIENCE = 0.01
"""Seconds after which the model is called although questions that could join the batch have not gone on yet. Those that
wait longest are questions of several calls: longer batches cost less time in all, and them the most."""
SCORES_AT_ONCE = 8_000_000
"""Scores that one question may hold (32 MB); it asks for more in several steps."""

Scores = NDArray[np.float32]
Check = Callable[[], None]


class Waiting:
    """Queries of one question that wait for the model."""

    def __init__(self, model: QueryModel, queries: QuerySet, check: Check | None, ticket: Ticket) -> None:
        self.model = model
        self.queries = queries
        self.check = check
        self.rows = queries.target_offsets
        """(Q+1,) slice of each query's rows in ``scores``."""
        self.scores: Scores = np.empty((int(self.rows[-1]), model.entity_count), np.float32)
        self.done = 0
        self.since = time.monotonic()
        self.ticket = ticket
        self.error: BaseException | None = None

    @property
    def left(self) -> int:
        """Queries that are not answered yet."""
        return len(self.queries) - self.done

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or will not be."""
        return self.error is not None or self.left == 0

    def look(self) -> None:
        """Drop it where its question is to stop."""
        if self.check is not None and self.error is None:
            try:
                self.check()
            except Exception as error:
                self.error = error

    def part(self, count: int) -> QuerySet:
        """The next ``count`` queries."""
        if count == len(self.queries):
            return self.queries
        return self.queries.take(np.arange(self.done, self.done + count))


Share = tuple[Waiting, int]
"""So many of the next queries of a question."""


class ModelQueue:
    """The model's thread and what waits for it."""

    def __init__(self, floor: Floor, *, batching: bool = True) -> None:
        self._floor = floor
        self._batching = batching
        self._waiting: list[Waiting] = []
        self._news = threading.Condition()
        self._stopping = False
        self.calls = 0
        self.queries = 0
        self.shared = 0
        """Times that more than one question was served."""
        self.sizes: Counter[int] = Counter()
        """Calls by their number of queries."""
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="biqe-model", daemon=True)
        self._thread.start()

    def scores(self, model: QueryModel, queries: QuerySet, check: Check | None = None) -> Scores:
        """(V, E) what ``model.scores`` says. The caller has the floor; it is given up meanwhile, and taken again."""
        job = Waiting(model, queries, check, self._floor.again())
        if job.left == 0:
            return job.scores
        with self._news:
            if self._stopping:
                raise Busy("the server is stopping", hint="ask again when it is back")
            self._waiting.append(job)
            self._news.notify()
        self._floor.leave()
        self._floor.take(job.ticket)
        if job.error is not None:
            raise job.error
        return job.scores

    def stop(self) -> None:
        """End the thread once nothing waits."""
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join()

    @property
    def length(self) -> int:
        """Questions that wait for the model."""
        return len(self._waiting)

    def _urgent(self) -> bool:
        waiting = self._waiting
        full = sum(job.left for job in waiting) >= QUERIES
        return full or bool(waiting) and time.monotonic() - waiting[0].since > PATIENCE

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._waiting:
                    if self._stopping:
                        return
                    self._news.wait()
            self._floor.take_last(self._urgent)
            start = time.perf_counter()
            with self._news:
                waiting = list(self._waiting)
            served = self._serve(waiting)
            self.seconds += time.perf_counter() - start
            with self._news:
                over = [job for job in self._waiting if job.is_over]
                # Who was served and has more to ask goes behind those who were not.
                going_on = [job for job in self._waiting if not job.is_over]
                self._waiting = sorted(going_on, key=lambda job: job in served)
            # They are queued before the floor is free, so that they come before the next call.
            for job in over:
                self._floor.ask(job.ticket)
            self._floor.leave()

    def _serve(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Call one model for a share of what waits; returns whose share it was."""
        for job in waiting:
            job.look()
        waiting = [job for job in waiting if not job.is_over]
        if not waiting:
            return []
        model = waiting[0].model
        alike = [job for job in waiting if job.model is model] if self._batching else waiting[:1]
        taken = shares(alike, max(1, min(QUERIES, SCORES // model.entity_count)))
        try:
            self._answer(model, taken)
        except Exception:
            # What one question breaks must not break the others.
            for share in taken:
                try:
                    self._answer(model, [share])
                except Exception as error:
                    share[0].error = error
        return [job for job, _ in taken]

    def _answer(self, model: QueryModel, taken: Sequence[Share]) -> None:
        """Scores of these queries, to those who asked for them."""
        import torch

        parts = [job.part(count) for job, count in taken]
        encoded = model.encode(parts[0] if len(parts) == 1 else concatenate(parts))
        places = [(job, job.done + number) for job, count in taken for number in range(count)]
        for group in by_length(encoded.sizes):
            with torch.inference_mode():
                scores = model.scores(encoded.batch(group)).numpy()
            start = 0
            for place in group.tolist():
                job, number = places[place]
                first, last = job.rows[number], job.rows[number + 1]
                job.scores[first:last] = scores[start : start + last - first]
                start += last - first
            self.calls += 1
            self.queries += len(group)
            self.sizes[len(group)] += 1
        for job, count in taken:
            job.done += count
        self.shared += len(taken) > 1


def shares(waiting: Sequence[Waiting], room: int) -> list[Share]:
    """What is asked next: a few queries of each question in turn, and round again while there is room."""
    taken = [0] * len(waiting)
    while room > 0:
        before = room
        for number, job in enumerate(waiting):
            more = min(QUANTUM, room, job.left - taken[number])
            taken[number] += more
            room -= more
        if room == before:
            break
    return [(job, count) for job, count in zip(waiting, taken, strict=True) if count > 0]


def by_length(sizes: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """Numbers of the queries of each call: short ones together, since all are padded to the longest."""
    groups: list[list[int]] = []
    tokens = 0
    for number in np.argsort(sizes, kind="stable").tolist():
        size = int(sizes[number])
        count = len(groups[-1]) + 1 if groups else 0
        tokens += size
        if groups and count * size - tokens <= PADDED and count * size**2 <= PAIRS:
            groups[-1].append(number)
        else:
            groups.append([number])
            tokens = size
    return [np.array(group, np.int64) for group in groups]


class SharedModel:
    """A model whose scores come through the queue; in all else the model itself."""

    scores_at_once = SCORES_AT_ONCE

    def __init__(self, model: QueryModel, queue: ModelQueue, check: Callable[[], Check | None]) -> None:
        self.model = model
        self._queue = queue
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encoder(self, queries: QuerySet) -> QuerySet:
        """The queries as they are: whoever calls the model encodes all that go together."""
        return queries

    def scores(self, batch: QuerySet) -> torch.Tensor:
        """(V, E) log-probabilities, as the model's."""
        import torch

        return torch.from_numpy(self._queue.scores(self.model, batch, self._check()))
