"""Threads that work for coroutines, with a bound on what waits, and a clock for each piece of work.

A lane is a few threads and a queue. Cheap and dear questions have lanes of their own, so that no number of one kind
keeps the other waiting. Whoever is cancelled while it waits never begins; whoever has begun stops at its next check
point; and what does not come to one is counted as stuck, as long as its thread is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from biqe.errors import Busy, TookTooLong
from biqe.exact.checkpoint import checked_by

Result = TypeVar("Result")

GRACE = 5.0
"""Seconds after which a piece of work that should have stopped counts as stuck."""


class _Dropped(Exception):
    """Nobody waits for this work any more. No caller ever sees it."""


class Request:
    """One piece of work: how long it may take, and whether somebody still wants it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = time.monotonic()
        self.stops = self.begun + seconds
        self.is_dropped = False

    @property
    def left(self) -> float:
        """Seconds that it still has."""
        return self.stops - time.monotonic()

    def check(self) -> None:
        """Raise where the work is to stop."""
        if self.is_dropped:
            raise _Dropped
        if self.left <= 0:
            raise self.too_long()

    def too_long(self) -> TookTooLong:
        """What its caller is told."""
        return TookTooLong(
            f"the answer was not there after {self.seconds:g} s",
            hint="ask for fewer unknowns, add a pattern or a LIMIT, or ask again when the server has less to do",
        )


class Lane:
    """A few threads and a bounded queue."""

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.name = name
        self.threads = threads
        self.queue = queue
        self.done = 0
        self._requests: dict[Future[Any], Request] = {}
        self._pool = ThreadPoolExecutor(threads, f"biqe-{name}")
        self._mean = 0.05

    @property
    def size(self) -> int:
        """Pieces of work that run or wait."""
        return len(self._requests)

    @property
    def waiting(self) -> int:
        """Pieces of work that have not begun."""
        return max(0, self.size - self.threads)

    @property
    def stuck(self) -> int:
        """Pieces of work that nobody waits for and that have not come to a check point for a while."""
        return sum(request.left < -GRACE for request in list(self._requests.values()))

    async def do(self, work: Callable[[Request], Result], seconds: float, *, checked: bool = True) -> Result:
        """What ``work`` returns. It runs in a thread of this lane; ``seconds`` count from now. Work that is not
        ``checked`` goes to its end once it has begun."""
        if self.size >= self.threads + self.queue:
            after = round(self.waiting * self._mean / self.threads)
            raise Busy(
                f"{self.waiting} questions are waiting already",
                hint="ask again in a moment",
                retry_after=min(max(after, 1), 60),
            )
        request = Request(seconds)

        def begin() -> Result:
            request.check()
            start = time.monotonic()
            with checked_by(request.check if checked else None):
                found = work(request)
            self._mean += 0.05 * (time.monotonic() - start - self._mean)
            return found

        future = self._pool.submit(begin)
        self._requests[future] = request
        future.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(seconds) as clock:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not clock.expired():
                raise
            raise request.too_long() from None
        finally:
            if not future.done():
                # For the count of stuck work: from now on nobody waits.
                request.is_dropped, request.stops = True, min(request.stops, time.monotonic())

    def _ended(self, future: Future[Any]) -> None:
        self._requests.pop(future, None)
        self.done += 1

    def close(self, seconds: float) -> bool:
        """Finish what runs and waits, for so long; whether all of it came to an end."""
        stops = time.monotonic() + seconds
        self._pool.shutdown(wait=False)
        while self._requests and time.monotonic() < stops:
            time.sleep(0.01)
        for request in list(self._requests.values()):
            request.is_dropped = True
        return not self._requests
