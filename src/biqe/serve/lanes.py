"""Threads that work for coroutines, with a bounded queue and a time limit for each piece of work.

A lane is a few threads and a queue. Cheap and expensive questions have separate lanes, so that many of one kind do not
delay the other. Work that is cancelled while it waits never begins; work that has begun stops at its next check point;
work that never reaches one is counted as stuck for as long as it occupies its thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from biqe.errors import Busy, TookTooLong
from biqe.exact.answers import checked_by

Result = TypeVar("Result")

GRACE = 5.0
"""Seconds beyond its time limit after which work counts as stuck."""


class _Cancelled(Exception):
    """Nobody waits for this work any more. Never reaches a caller."""


class Deadline:
    """When one piece of work has to stop: after so many seconds, or when its caller has gone."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stops = time.monotonic() + seconds
        self.is_cancelled = False

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.stops - time.monotonic()

    def check(self) -> None:
        """Raise if the work has to stop."""
        if self.is_cancelled:
            raise _Cancelled
        if self.left <= 0:
            raise self.too_long()

    def too_long(self) -> TookTooLong:
        """The error for the caller."""
        return TookTooLong(
            f"the answer was not ready after {self.seconds:g} s",
            hint="ask for fewer unknowns, add a pattern or a LIMIT, or try again when the server is less busy",
        )


class Lane:
    """A few threads and a bounded queue."""

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.name = name
        self.threads = threads
        self.queue = queue
        self.done = 0
        self._deadlines: dict[Future[Any], Deadline] = {}
        self._pool = ThreadPoolExecutor(threads, f"biqe-{name}")
        self._mean = 0.05

    @property
    def size(self) -> int:
        """Number of requests that run or wait."""
        return len(self._deadlines)

    @property
    def waiting(self) -> int:
        """Number of requests that have not begun."""
        return max(0, self.size - self.threads)

    @property
    def stuck(self) -> int:
        """Number of requests past their deadline that have not reached a check point."""
        return sum(deadline.left < -GRACE for deadline in list(self._deadlines.values()))

    async def do(self, work: Callable[[Deadline], Result], seconds: float, *, checked: bool = True) -> Result:
        """The result of ``work``, which runs in a thread of this lane; ``seconds`` count from now. Work that is not
        ``checked`` runs to its end once it has begun."""
        if self.size >= self.threads + self.queue:
            after = round(self.waiting * self._mean / self.threads)
            raise Busy(
                f"{self.waiting} requests are waiting already",
                hint="try again in a moment",
                retry_after=min(max(after, 1), 60),
            )
        deadline = Deadline(seconds)

        def begin() -> Result:
            deadline.check()
            start = time.monotonic()
            with checked_by(deadline.check if checked else None):
                found = work(deadline)
            self._mean += 0.05 * (time.monotonic() - start - self._mean)
            return found

        future = self._pool.submit(begin)
        self._deadlines[future] = deadline
        future.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(seconds) as clock:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not clock.expired():
                raise
            raise deadline.too_long() from None
        finally:
            if not future.done():
                # Nobody waits any more; work that goes on for GRACE seconds from here counts as stuck.
                deadline.is_cancelled, deadline.stops = True, min(deadline.stops, time.monotonic())

    def _ended(self, future: Future[Any]) -> None:
        self._deadlines.pop(future, None)
        self.done += 1

    def close(self, seconds: float) -> bool:
        """Finish what runs and waits within that time; returns whether all of it ended."""
        stops = time.monotonic() + seconds
        self._pool.shutdown(wait=False)
        while self._deadlines and time.monotonic() < stops:
            time.sleep(0.01)
        for deadline in list(self._deadlines.values()):
            deadline.is_cancelled = True
        return not self._deadlines
