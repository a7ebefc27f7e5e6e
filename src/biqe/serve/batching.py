"""One thread calls the model for all questions that need scores.

A question puts its queries into a queue and waits. The model's thread takes what is queued, groups queries of similar
length into calls, and returns to each question its own scores. It never waits for a batch to fill: while one call
runs, the next batch gathers.

Each call takes a few queries of every question in turn, and one question of every client before the second of any. So
neither a question with a thousand queries nor a client with many questions delays the others. Questions whose client
has gone, or whose time is up, are removed between calls.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from biqe.errors import Busy
from biqe.query.bound import QuerySet, concatenate
from biqe.serve.gil_scheduler import GilScheduler, Ticket
from biqe.serve.lanes import Deadline, in_turns

if TYPE_CHECKING:
    import torch

    from biqe.models._contract import QueryModel, SolvesOtherwise

QUERIES = 128
"""Most queries of one call. Every call reads all weights; beyond this size its time grows in proportion."""
SCORES = 4_000_000
"""Most scores (queries times entities) of one call; on graphs with many entities this bounds the queries."""
QUANTUM = 32
"""Queries of one question that go into a call before the next question's turn."""
PADDED = 400
"""Padding tokens that are accepted to avoid a second call, which would read the weights again."""
PAIRS = 500_000
"""Most pairs of tokens in the attention of one call."""
PATIENCE = 0.01
"""Seconds after which the model is called although more questions could still join the batch."""
SCORES_AT_ONCE = 8_000_000
"""Scores that one question may hold at a time (32 MB); it asks for more in several steps."""

Scores = NDArray[np.float32]


class QueuedQueries:
    """Queries of one question that wait for the model."""

    def __init__(self, model: QueryModel, queries: QuerySet, deadline: Deadline | None, ticket: Ticket) -> None:
        self.model = model
        self.queries = queries
        self.deadline = deadline
        self.rows = queries.target_offsets
        """(Q+1,) bounds of each query's rows in ``scores``."""
        self.scores: Scores = np.empty((int(self.rows[-1]), model.entity_count), np.float32)  # (V, E)
        self.done = 0
        self.since = time.monotonic()
        self.ticket = ticket
        self.error: BaseException | None = None

    @property
    def left(self) -> int:
        """Number of queries without scores."""
        return len(self.queries) - self.done

    @property
    def is_over(self) -> bool:
        """Whether all queries have scores, or an error ended them."""
        return self.error is not None or self.left == 0

    def check_deadline(self) -> None:
        """Note the error if the question has to stop."""
        if self.deadline is not None and self.error is None:
            try:
                self.deadline.check()
            except Exception as error:
                self.error = error

    def part(self, count: int) -> QuerySet:
        """The next ``count`` queries."""
        if count == len(self.queries):
            return self.queries
        return self.queries.take(np.arange(self.done, self.done + count))


Share = tuple[QueuedQueries, int]
"""A question, and how many of its next queries go into a call."""


class ModelQueue:
    """The model's thread and its queue."""

    def __init__(self, scheduler: GilScheduler, *, batching: bool = True) -> None:
        self._scheduler = scheduler
        self._batching = batching
        self._waiting: list[QueuedQueries] = []
        self._changed = threading.Condition()
        self._stopping = False
        self.calls = 0
        self.queries = 0
        self.shared = 0
        """Number of batches that served more than one question."""
        self.sizes: Counter[int] = Counter()
        """Number of calls by their number of queries."""
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="biqe-model", daemon=True)
        self._thread.start()

    def scores(self, model: QueryModel, queries: QuerySet, deadline: Deadline | None = None) -> Scores:
        """(V, E) scores of the model. The calling thread gives its turn up while it waits."""
        job = QueuedQueries(model, queries, deadline, self._scheduler.next_ticket())
        if job.left == 0:
            return job.scores
        with self._changed:
            if self._stopping:
                raise Busy("the server is stopping", hint="try again when it is back")
            self._waiting.append(job)
            self._changed.notify()
        self._scheduler.release()
        self._scheduler.acquire(job.ticket)
        if job.error is not None:
            raise job.error
        return job.scores

    def stop(self) -> None:
        """End the thread once the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def length(self) -> int:
        """Number of questions that wait for the model."""
        return len(self._waiting)

    def _urgent(self) -> bool:
        waiting = self._waiting
        full = sum(job.left for job in waiting) >= QUERIES
        return full or bool(waiting) and time.monotonic() - waiting[0].since > PATIENCE

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._stopping:
                        return
                    self._changed.wait()
            self._scheduler.acquire_last(self._urgent)
            start = time.perf_counter()
            with self._changed:
                waiting = list(self._waiting)
            served = self._serve(waiting)
            self.seconds += time.perf_counter() - start
            with self._changed:
                over = [job for job in self._waiting if job.is_over]
                # Questions that were served and need more go behind those that were not.
                unfinished = [job for job in self._waiting if not job.is_over]
                self._waiting = sorted(unfinished, key=lambda job: job in served)
            # Finished questions are queued before this turn ends, so that they run before the next call.
            for job in over:
                self._scheduler.enqueue(job.ticket)
            self._scheduler.release()

    def _serve(self, waiting: Sequence[QueuedQueries]) -> list[QueuedQueries]:
        """Call one model for a share of the queue; returns the questions that had a share."""
        for job in waiting:
            job.check_deadline()
        waiting = [job for job in waiting if not job.is_over]
        if not waiting:
            return []
        model = waiting[0].model
        alike = [job for job in waiting if job.model is model] if self._batching else waiting[:1]
        alike = in_turns(alike, lambda job: job.deadline and job.deadline.client)
        taken = shares(alike, max(1, min(QUERIES, SCORES // model.entity_count)))
        try:
            self._answer(model, taken)
        except Exception:
            # An error caused by one question must not reach the others.
            for share in taken:
                try:
                    self._answer(model, [share])
                except Exception as error:
                    share[0].error = error
        return [job for job, _ in taken]

    def _answer(self, model: QueryModel, taken: Sequence[Share]) -> None:
        """Compute the scores of these shares and hand them to their questions."""
        import torch

        from biqe.models._device import device_of, on_device

        parts = [job.part(count) for job, count in taken]
        encoded = model.encode(parts[0] if len(parts) == 1 else concatenate(parts))
        places = [(job, job.done + number) for job, count in taken for number in range(count)]
        for group in by_length(encoded.sizes):
            with torch.inference_mode():
                batch = on_device(encoded.batch(group), device_of(model))
                scores = model.scores(batch).cpu().numpy()  # (rows of the group, E)
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


def shares(waiting: Sequence[QueuedQueries], room: int) -> list[Share]:
    """The next ``room`` queries: QUANTUM of each question in turn, round robin."""
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
    """Indices of the queries of each call, sorted by length: a call is padded to its longest query."""
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
    """A model whose scores come through the queue; everything else is the model's own."""

    scores_at_once = SCORES_AT_ONCE

    def __init__(self, model: QueryModel, queue: ModelQueue, deadline: Callable[[], Deadline | None]) -> None:
        self.model = model
        self._queue = queue
        self._deadline = deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def solving(self, **options: Any) -> SharedModel:
        """The model with other options, through the same queue."""
        found = cast("SolvesOtherwise", self.model).solving(**options)
        return self if found is self.model else SharedModel(found, self._queue, self._deadline)

    def encoder(self, queries: QuerySet) -> QuerySet:
        """The queries unchanged: the model's thread encodes a whole batch at once."""
        return queries

    def scores(self, batch: QuerySet) -> torch.Tensor:
        """(V, E) log-probabilities of the model."""
        import torch

        return torch.from_numpy(self._queue.scores(self.model, batch, self._deadline()))
