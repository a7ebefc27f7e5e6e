"""Threads take turns holding the interpreter instead of competing for the GIL.

Python runs one thread at a time. Left alone, computing threads exchange the GIL every few milliseconds, and a model
call, which releases it at each of its hundred steps, waits for it a hundred times. Here a thread runs until it waits
for something. The next one is the thread whose work began first; but work that has already run for long comes after
work that has not. Light work waits in a queue of its own, which has every second turn. The thread that calls the model
goes last: by then every question that could go on has reached its own next model call, so that one call serves them
all.

No thread runs exclusively for longer than the lease: at its next check point (``share``) it gives its turn to whoever
waits, and until then the next one runs beside it.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEASE = 0.02
"""Maximum seconds that a thread runs exclusively."""
LONG = 0.16
"""Seconds of running after which work comes behind work that has run for less; so again after twice that, and so on."""


class Ticket:
    """A place in the queue of threads that want to run."""

    def __init__(self, since: float | None = None, spent: float = 0.0, *, is_light: bool = False) -> None:
        self.since = time.monotonic() if since is None else since
        """When the work of this thread began."""
        self.spent = spent
        """Seconds for which it has run."""
        self.order = (int(spent / LONG).bit_length(), self.since)
        self.is_light = is_light and spent < LONG
        self._granted = threading.Lock()
        self._granted.acquire()

    def grant(self) -> None:
        self._granted.release()

    def wait(self, seconds: float) -> bool:
        return self._granted.acquire(timeout=seconds)


class _CurrentWork(threading.local):
    """What the current thread works on."""

    since: float | None = None
    """When it began; None if the thread works on nothing."""
    spent = 0.0
    """Seconds for which it has run, without the present turn."""
    turn: float | None = None
    """When the present turn began; None outside of a turn."""
    is_light = False
    """Whether it is of a kind that takes little time."""


class GilScheduler:
    """Decides which thread runs."""

    def __init__(self, lease: float = LEASE) -> None:
        self.lease = lease
        self._lock = threading.Lock()
        self._queue: list[Ticket] = []
        """Waiting threads, the next one last."""
        self._light: list[Ticket] = []
        """Those with light work, the next one last."""
        self._is_lights_turn = True
        self._here = _CurrentWork()
        self._last: Ticket | None = None
        self._urgent: Callable[[], bool] = lambda: False
        self._running = 0
        self._since = 0.0

    def enqueue(self, ticket: Ticket) -> None:
        """Put the ticket into the queue; its owner then calls ``acquire``."""
        queue = self._light if ticket.is_light else self._queue
        with self._lock:
            insort(queue, ticket, key=lambda waiting: (-waiting.order[0], -waiting.order[1]))
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
        self._here.turn = time.monotonic()

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
        """A ticket for the current thread, with the age and the running time of the work that it is doing."""
        here = self._here
        spent = here.spent + (time.monotonic() - here.turn if here.turn is not None else 0.0)
        return Ticket(here.since, spent, is_light=here.is_light)

    def release(self) -> None:
        """End the turn."""
        here = self._here
        if here.turn is not None:
            here.spent += time.monotonic() - here.turn
            here.turn = None
        with self._lock:
            self._running -= 1
            self._grant_next()

    @contextmanager
    def running(self, check: Callable[[], None] | None = None, *, is_light: bool = False) -> Iterator[None]:
        """Run the block in a turn of this thread."""
        ticket = Ticket(is_light=is_light)
        self.enqueue(ticket)
        self.acquire(ticket, check)
        self._here.since, self._here.spent, self._here.is_light = ticket.since, 0.0, is_light
        try:
            yield
        finally:
            self.release()
            self._here.since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside ``running``: let other threads run during the block, as while waiting for another process."""
        self.release()
        try:
            yield
        finally:
            self._resume()

    def share(self) -> None:
        """Inside ``running``, at a check point: give the turn to others that wait, if it exceeded its lease."""
        turn = self._here.turn
        is_due = turn is not None and time.monotonic() - turn > self.lease
        if is_due and (self._queue or self._light or self._last is not None):
            self.release()
            self._resume()

    def _resume(self) -> None:
        ticket = self.next_ticket()
        self.enqueue(ticket)
        self.acquire(ticket)  # without a check: ``running`` releases the turn that is taken here

    def _cancel(self, ticket: Ticket) -> None:
        """Take the ticket out of the queue; if it was granted meanwhile, end that turn."""
        with self._lock:
            queue = self._light if ticket.is_light else self._queue
            if ticket in queue:
                queue.remove(ticket)
            elif ticket.wait(0):
                self._running -= 1
                self._grant_next()

    def _grant_next(self) -> None:
        """Let the next thread run if none does, or if those that run exceeded their lease. The lease is four times as
        long for each thread more: each makes the others slower, and the event loop as well. The lock is held."""
        now = time.monotonic()
        if self._running and now - self._since <= self.lease * 4 ** min(self._running - 1, 8):
            return
        if self._light and (self._is_lights_turn or not (self._queue or self._last)):
            granted, self._is_lights_turn = self._light.pop(), False
        elif self._last is not None and (not self._queue or self._urgent()):
            granted, self._last, self._is_lights_turn = self._last, None, True
        elif self._queue:
            granted, self._is_lights_turn = self._queue.pop(), True
        else:
            return
        self._running += 1
        self._since = now
        granted.grant()
