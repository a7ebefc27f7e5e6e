"""Turns among threads: one goes on while the others wait, so that they do not fight for the interpreter's lock.

Python runs one thread at a time. Left alone, threads that compute hand its lock round every few milliseconds, and a
model call, which gives the lock up at each of its hundred steps, waits for it a hundred times. Here a thread has the
floor until it waits for something; whoever began first is next, so that a question of many steps does not queue up
behind all others at each of them. The caller of the model goes last: by then every
question that could go on has gone on to its own next model call, so that one call serves them all, and where nobody
else waits it goes at once.

Nobody keeps the floor for longer than the lease: then the next one goes on beside.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEASE = 0.02
"""Seconds after which the next one goes on beside a thread that keeps the floor."""


class Ticket:
    """A place in the queue for the floor."""

    def __init__(self, since: float | None = None) -> None:
        self.since = time.monotonic() if since is None else since
        """When the work began that the floor is wanted for."""
        self._given = threading.Lock()
        self._given.acquire()

    def give(self) -> None:
        self._given.release()

    def wait(self, seconds: float) -> bool:
        return self._given.acquire(timeout=seconds)


class Floor:
    """Who may go on."""

    def __init__(self, lease: float = LEASE) -> None:
        self.lease = lease
        self._lock = threading.Lock()
        self._queue: list[Ticket] = []
        """Who waits, the one that began last in front."""
        self._here = threading.local()
        self._last: Ticket | None = None
        self._urgent: Callable[[], bool] = lambda: False
        self._holders = 0
        self._since = 0.0

    def ask(self, ticket: Ticket) -> None:
        """Put the ticket into the queue; its owner then calls ``take``."""
        with self._lock:
            insort(self._queue, ticket, key=lambda waiting: -waiting.since)
            self._hand_on()

    def take(self, ticket: Ticket, check: Callable[[], None] | None = None) -> None:
        """Wait for the floor. ``check`` is called now and then, and may raise: the place is then given up."""
        try:
            while not ticket.wait(self.lease):
                with self._lock:
                    self._hand_on()
                if check is not None:
                    check()
        except BaseException:
            self.forget(ticket)
            raise

    def take_last(self, urgent: Callable[[], bool]) -> None:
        """Wait until nobody else wants the floor, or it is ``urgent``. For one thread only."""
        ticket = Ticket()
        with self._lock:
            self._last, self._urgent = ticket, urgent
            self._hand_on()
        while not ticket.wait(self.lease):
            with self._lock:
                self._hand_on()

    def again(self) -> Ticket:
        """A ticket for a thread that has had the floor before: as old as what it works on."""
        return Ticket(getattr(self._here, "since", None))

    def leave(self) -> None:
        """Give the floor up."""
        with self._lock:
            self._holders -= 1
            self._hand_on()

    def forget(self, ticket: Ticket) -> None:
        """Take the ticket out of the queue; if it was given the floor meanwhile, that is given up."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
            elif ticket.wait(0):
                self._holders -= 1
                self._hand_on()

    @contextmanager
    def held(self, check: Callable[[], None] | None = None) -> Iterator[None]:
        """With the floor."""
        ticket = Ticket()
        self.ask(ticket)
        self.take(ticket, check)
        self._here.since = ticket.since
        try:
            yield
        finally:
            self._here.since = None
            self.leave()

    @contextmanager
    def left(self, check: Callable[[], None] | None = None) -> Iterator[None]:
        """Within ``held``: without the floor, as while waiting for another process."""
        self.leave()
        try:
            yield
        finally:
            ticket = self.again()
            self.ask(ticket)
            # Without a check: whatever happens, ``held`` gives up afterwards what is taken here.
            self.take(ticket)

    def _hand_on(self) -> None:
        """Give the floor to the next one, if it is free or was kept for too long. The lock is held."""
        now = time.monotonic()
        if self._holders and now - self._since <= self.lease:
            return
        if self._last is not None and (not self._queue or self._urgent()):
            given, self._last = self._last, None
        elif self._queue:
            given = self._queue.pop()
        else:
            return
        self._holders += 1
        self._since = now
        given.give()
