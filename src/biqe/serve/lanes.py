"""Lanes: threads that work for coroutines, with fair queues and a time limit for each request.

A lane has a few places. Requests of one kind wait for the places of their lane, so that many of one kind do not delay
another. Within a lane clients take turns: a free place goes to the client that has the fewest, and no client has all of
them. So a client with one small request waits for a turn, not for the thousand requests of somebody else.

Work that is cancelled while it waits never begins; work that has begun stops at its next check point; work that never
reaches one is counted as stuck for as long as it occupies its place.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

from biqe.errors import Busy, TookTooLong
from biqe.exact.answers import checked_by

Result = TypeVar("Result")
Item = TypeVar("Item")

GRACE = 5.0
"""Seconds beyond its time limit after which work counts as stuck."""

current_client: ContextVar[str] = ContextVar("current_client", default="")
"""Who sent the request that is being answered: a token, or an address (see ``guard``)."""


class _Cancelled(Exception):
    """Nobody waits for this work any more. Never reaches a caller."""


class NeedsLonger(Exception):
    """Work used up its short time; it may be done again with more. Never reaches a caller."""


class Deadline:
    """When one piece of work has to stop: after so many seconds, or when its caller has gone."""

    def __init__(self, seconds: float, *, short: float | None = None, is_background: bool = False) -> None:
        """``short`` are the seconds of running after which ``check`` raises NeedsLonger. Processes that work for
        something in the background leave the processor to others."""
        self.seconds = seconds
        self.stops = time.monotonic() + seconds
        self.client = current_client.get()
        self.is_background = is_background
        self.is_cancelled = False
        self.between: Callable[[], None] = lambda: None
        """Called at every check point."""
        self._short = short
        self._pauses = float("inf")
        self._kept: Kept | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the short time, if there is one and it has not begun."""
        if self._short is not None:
            self._pauses = min(self._pauses, time.monotonic() + self._short)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.stops - time.monotonic()

    def check(self) -> None:
        """Raise if the work has to stop."""
        if self.is_cancelled:
            raise _Cancelled
        now = time.monotonic()
        if now >= self.stops:
            raise self.too_long()
        if now >= self._pauses:
            raise NeedsLonger
        self.between()

    def cancel(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self.is_cancelled, kept, self._kept = True, self._kept, None
        if kept is not None:
            kept.drop()

    def keep(self, kept: Kept) -> None:
        """Keep what a second attempt can go on with."""
        with self._lock:
            if not self.is_cancelled:
                self._kept = kept
                return
        kept.drop()

    def take_kept(self) -> Kept | None:
        """What was kept, once."""
        with self._lock:
            kept, self._kept = self._kept, None
            return kept

    def too_long(self) -> TookTooLong:
        """The error for the caller."""
        return TookTooLong(
            f"the answer was not ready after {self.seconds:g} s",
            hint="ask for fewer unknowns, add a pattern or a LIMIT, or try again when the server is less busy",
        )


@dataclass(frozen=True)
class Kept:
    """Unfinished work of a process."""

    question: Any
    child: Any
    drop: Callable[[], None]


def in_turns(items: Iterable[Item], client: Callable[[Item], Hashable]) -> list[Item]:
    """The first item of each client, then the second of each, and so on.

    >>> in_turns(["a1", "a2", "a3", "b1", "c1", "c2"], lambda item: item[0])
    ['a1', 'b1', 'c1', 'a2', 'c2', 'a3']
    """
    of_client: dict[Hashable, list[Item]] = {}
    for item in items:
        of_client.setdefault(client(item), []).append(item)
    nothing = object()
    rounds = zip_longest(*of_client.values(), fillvalue=nothing)
    return [item for each in rounds for item in each if item is not nothing]  # type: ignore[misc]


@dataclass(eq=False)
class Job:
    """A request in a lane."""

    client: str
    work: Callable[[], Any] = lambda: None
    deadline: Deadline | None = None
    future: Future[Any] = field(default_factory=Future)


class FairQueue:
    """Which job gets the next free place. Not locked: its lane does that."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.each = max(1, places * 3 // 4)
        """Most places of one client, so that there is always one for somebody else."""
        self.running: dict[Job, None] = {}
        self._has: Counter[str] = Counter()
        self._waiting: dict[str, deque[Job]] = {}
        self._served: dict[str, int] = {}
        """When a client was served last, by a counter; of clients that have jobs here."""
        self._count = 0

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return sum(map(len, self._waiting.values()))

    def has_room(self, client: str) -> bool:
        """Whether a job of the client could begin at once."""
        return not self._waiting.get(client) and self._has[client] < self.each and len(self.running) < self.places

    def add(self, job: Job) -> None:
        """Let the job wait."""
        self._waiting.setdefault(job.client, deque()).append(job)

    def take(self) -> Job | None:
        """The job that begins now; None if none can. It is of the client with the fewest running jobs, and among
        those of the one that was not served for longest."""
        able = [client for client in self._waiting if self._has[client] < self.each]
        if len(self.running) >= self.places or not able:
            return None
        client = min(able, key=lambda client: (self._has[client], self._served.get(client, 0)))
        job = self._waiting[client].popleft()
        self.running[job] = None
        self._has[client] += 1
        self._count += 1
        self._served[client] = self._count
        self._tidy(client)
        return job

    def leave(self, job: Job) -> None:
        """Forget a job, whether it waits or runs."""
        if job in self.running:
            del self.running[job]
            self._has[job.client] -= 1
        elif job in self._waiting.get(job.client, ()):
            self._waiting[job.client].remove(job)
        self._tidy(job.client)

    def _tidy(self, client: str) -> None:
        """Forget what is nothing."""
        if not self._waiting.get(client):
            self._waiting.pop(client, None)
        if not self._has[client]:
            del self._has[client]
            if client not in self._waiting:
                self._served.pop(client, None)

    def clear(self) -> list[Job]:
        """Forget all jobs that wait; returns them."""
        waiting, self._waiting = self._waiting, {}
        return [job for jobs in waiting.values() for job in jobs]

    def excess(self, client: str) -> Job | None:
        """The newest waiting job of the client that has the most of them; None if that is ``client`` itself."""
        most = max(self._waiting, key=lambda other: len(self._waiting[other]), default=client)
        if len(self._waiting.get(most, ())) <= len(self._waiting.get(client, ())) + 1:
            return None
        return self._waiting[most][-1]


class Lane:
    """A few places, each with a thread, and a bounded fair queue."""

    def __init__(self, name: str, places: int, queue: int, *, grace: float | None = None) -> None:
        """``grace`` are the seconds beyond its time limit after which work counts as stuck."""
        self.name = name
        self.queue = queue
        self.done = 0
        self._grace = grace
        self._jobs = FairQueue(places)
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(places, f"biqe-{name}")
        self._mean = 0.05

    @property
    def waiting(self) -> int:
        """Number of requests that have not begun."""
        with self._lock:
            return self._jobs.waiting

    @property
    def running(self) -> int:
        """Number of requests that have begun."""
        return len(self._jobs.running)

    @property
    def stuck(self) -> int:
        """Number of requests past their deadline that have not reached a check point."""
        grace = GRACE if self._grace is None else self._grace
        with self._lock:
            return sum(job.deadline.left < -grace for job in self._jobs.running if job.deadline is not None)

    @property
    def is_stuck(self) -> bool:
        """Whether half of the places are lost to work that does not stop."""
        return 2 * self.stuck >= self._jobs.places

    def has_room(self, client: str) -> bool:
        """Whether a request of the client would begin at once."""
        with self._lock:
            return self._jobs.has_room(client)

    async def do(self, work: Callable[[Deadline], Result], deadline: Deadline, *, checked: bool = True) -> Result:
        """The result of ``work``, which runs in a thread of this lane until the deadline at most. Work that is not
        ``checked`` runs to its end once it has begun."""

        def begin() -> Result:
            deadline.check()
            start = time.monotonic()
            with checked_by(deadline.check if checked else None):
                found = work(deadline)
            self._mean += 0.05 * (time.monotonic() - start - self._mean)
            return found

        job = Job(deadline.client, begin, deadline)
        # A job whose future refers to it would stay, with its answer, until the garbage collector comes.
        itself = weakref.ref(job)
        job.future.add_done_callback(lambda _: self._ended(itself()))
        self._enter(job)
        try:
            async with asyncio.timeout(deadline.left) as clock:
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            if not clock.expired():
                raise
            raise deadline.too_long() from None
        finally:
            if not job.future.done():
                # Work that goes on from here counts as stuck after a while.
                deadline.cancel()
                deadline.stops = min(deadline.stops, time.monotonic())

    def _enter(self, job: Job) -> None:
        """Let the job wait or begin. If the queue is full, the client with the most waiting requests loses its newest
        one; Busy if that is this one."""
        surplus = None
        with self._lock:
            if self._jobs.waiting >= self.queue and not self._jobs.has_room(job.client):
                surplus = self._jobs.excess(job.client)
                if surplus is None:
                    raise self._busy()
                self._jobs.leave(surplus)
            self._jobs.add(job)
        if surplus is not None:
            _refuse(surplus, self._busy())
        self._begin_next()

    def _busy(self) -> Busy:
        after = round(self.waiting * self._mean / self._jobs.places)
        return Busy(
            f"{self.waiting} requests are waiting already",
            hint="try again in a moment",
            retry_after=min(max(after, 1), 60),
        )

    def _begin_next(self) -> None:
        while True:
            with self._lock:
                job = self._jobs.take()
            if job is None:
                return
            self._pool.submit(self._run, job)

    @staticmethod
    def _run(job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            found = job.work()
        except BaseException as error:
            job.future.set_exception(error)
        else:
            job.future.set_result(found)

    def _ended(self, job: Job | None) -> None:
        with self._lock:
            if job is not None:
                self._jobs.leave(job)
            self.done += 1
        self._begin_next()

    def close(self, seconds: float) -> bool:
        """Finish what runs and waits within that time; returns whether all of it ended."""
        stops = time.monotonic() + seconds
        while (self.running or self.waiting) and time.monotonic() < stops:
            time.sleep(0.01)
        with self._lock:
            running, waiting = list(self._jobs.running), self._jobs.clear()
        for job in waiting:
            _refuse(job, Busy("the server is stopping", hint="try again when it is back"))
        for job in running:
            if job.deadline is not None:
                job.deadline.cancel()
        self._pool.shutdown(wait=False)
        return not running and not waiting


def _refuse(job: Job, error: Busy) -> None:
    """End a job that has not begun."""
    if job.future.set_running_or_notify_cancel():
        job.future.set_exception(error)
