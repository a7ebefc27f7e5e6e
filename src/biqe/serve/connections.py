"""Connections, spread evenly over the workers that accept from one socket.

The kernel gives a connection to whoever asks first. When many come at once, an idle worker takes a dozen of them before
another has woken up, and keeps them for as long as their clients stay. So a worker that has more connections than
another leaves the next one to it, for a moment; if nobody takes it by then, it does so itself.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from typing import Any

NAP = 0.001
"""Seconds between looks at whether somebody took a connection."""
LOOKS = 100
"""Looks after which a worker takes it itself."""
ALONE = 1.0
"""Seconds for which it then leaves nothing to others, who do not seem to be well."""
AWAY = 1 << 62
"""Connections of a worker that takes none."""


class Connections:
    """How many connections each worker has. Made before the workers are forked, and shared by them."""

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")
        for worker in range(workers):
            self._counts[worker] = AWAY

    def __getitem__(self, worker: int) -> int:
        return self._counts[worker]

    def __setitem__(self, worker: int, count: int) -> None:
        self._counts[worker] = count

    def is_ahead(self, worker: int) -> bool:
        """Whether another worker has fewer."""
        return self._counts[worker] > min(self._counts)


class FairSocket(socket.socket):
    """A listening socket, as one of the workers uses it; to be read without blocking."""

    def __init__(self, listening: socket.socket, connections: Connections, worker: int) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=os.dup(listening.fileno()))
        self._connections = connections
        self._worker = worker
        self._looks = 0
        self._looked = 0.0
        self._alone_until = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """As ever; BlockingIOError, as if nobody had come, where it is another's turn."""
        now = time.monotonic()
        if self._connections.is_ahead(self._worker) and now > self._alone_until:
            # What was left long ago, somebody took.
            self._looks = 0 if now - self._looked > ALONE else self._looks + 1
            self._looked = now
            if self._looks < LOOKS:
                time.sleep(NAP)
                raise BlockingIOError
            self._alone_until = now + ALONE
        self._looks = 0
        accepted = super().accept()
        if self._connections[self._worker] < AWAY:
            self._connections[self._worker] += 1
        return accepted
