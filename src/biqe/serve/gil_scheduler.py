"""Threads take turns holding the interpreter instead of competing for the GIL.

Python runs one thread at a time. Left alone, computing threads exchange the GIL every few milliseconds, and a model
call, which releases it at each of its hundred steps, waits for it a hundred times. Here a thread runs until it waits
for something; the thread whose work began first is next. The thread that calls the model goes last: by then every
question that could go on has reached its own next model call, so that one call serves them all.

No thread runs exclusively for longer than the lease; then the next one starts beside it.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEASE = 0.02
"""Maximum seconds that a thread runs exclusively."""


class Ticket:
    """A place in the queue of threads that want to run."""

    def __init__(self, since: float | None = None) -> None:
        self.since = time.monotonic() if since is None else since
        """When the work of this thread began."""
        self._granted = threading.Lock()
        self._granted.acquire()

    def grant(self) -> None:
        self._granted.release()

    def wait(self, seconds: float) -> bool:
        return self._granted.acquire(timeout=seconds)


class GilScheduler:
    """Decides which thread runs."""

    def __init__(self, lease: float = LEASE) -> None:
        self.lease = lease
        self._lock = threading.Lock()
        self._queue: list[Ticket] = []
        """Waiting threads, oldest work last."""
        self._here = threading.local()
        self._last: Ticket | None = None
        self._urgent: Callable[[], bool] = lambda: False
        self._running = 0
        self._since = 0.0

    def enqueue(self, ticket: Ticket) -> None:
        """Put the ticket into the queue; its owner then calls ``acquire``."""
        with self._lock:
            insort(self._queue, ticket, key=lambda waiting: -waiting.since)
            self._grant_next()

    def acquire(self, ticket: Ticket, check: Callable[[], None] | None = None) -> None:
        """Wait for the turn. ``check`` is called repeatedly; if it raises, the place in the queue is given up."""
        try:
            while not ticket.wait(self.lease):
                with self._lock:
                    self._grant_next()
                if check is not None:
                    check()
        except BaseException:
            self._cancel(ticket)
            raise

    def acquire_last(self, urgent: Callable[[], bool]) -> None:
        """Wait until no other thread wants to run, or ``urgent()`` is true. For one thread only."""
        ticket = Ticket()
        with self._lock:
            self._last, self._urgent = ticket, urgent
            self._grant_next()
        while not ticket.wait(self.lease):
            with self._lock:
                self._grant_next()

    def next_ticket(self) -> Ticket:
        """A ticket for the current thread, as old as the work that it is doing."""
        return Ticket(getattr(self._here, "since", None))

    def release(self) -> None:
        """End the turn."""
        with self._lock:
            self._running -= 1
            self._grant_next()

    @contextmanager
    def running(self, check: Callable[[], None] | None = None) -> Iterator[None]:
        """Run the block in a turn of this thread."""
        ticket = Ticket()
        self.enqueue(ticket)
        self.acquire(ticket, check)
        self._here.since = ticket.since
        try:
            yield
        finally:
            self._here.since = None
            self.release()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside ``running``: let other threads run during the block, as while waiting for another process."""
        self.release()
        try:
            yield
        finally:
            ticket = self.next_ticket()
            self.enqueue(ticket)
            self.acquire(ticket)  # without a check: ``running`` releases the turn that is taken here

    def _cancel(self, ticket: Ticket) -> None:
        """Take the ticket out of the queue; if it was granted meanwhile, end that turn."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
            elif ticket.wait(0):
                self._running -= 1
                self._grant_next()

    def _grant_next(self) -> None:
        """Let the next thread run if none does, or if the running one exceeded its lease. The lock is held."""
        now = time.monotonic()
        if self._running and now - self._since <= self.lease:
            return
        if self._last is not None and (not self._queue or self._urgent()):
            granted, self._last = self._last, None
        elif self._queue:
            granted = self._queue.pop()
        else:
            return
        self._running += 1
        self._since = now
        granted.grant()
