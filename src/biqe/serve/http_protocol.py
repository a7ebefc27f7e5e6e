"""HTTP connections: how they are shared among workers, and what is refused before there is a request.

The kernel gives a connection to the worker that asks first. When many arrive at once, an idle worker takes a dozen of
them before another has woken up, and keeps them for as long as their clients stay. So a worker that has more
connections than another leaves the next one to it for a moment; if nobody takes it, it does so itself.

Requests are parsed by uvicorn and h11. Added here are errors as JSON, a time limit for headers, and a limit on the
connections of one client.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from biqe.errors import RequestRefused
from biqe.serve.error_response import error_response
from biqe.serve.guard import LINGER

HEAD_SECONDS = 20.0
"""Time limit for the headers of a request, from the opening of the connection or from their first byte."""
CONNECTIONS = 1_000
"""Connections of one address to one worker, unless it is a proxy's."""
_MESSAGES = {431: "the headers are longer than any that are read", 400: "this is not a valid HTTP request"}

NAP = 0.001
"""Seconds between checks whether another worker took a connection."""
LOOKS = 100
"""Checks after which a worker takes the connection itself."""
ALONE = 1.0
"""Seconds for which it then leaves nothing to the others, who seem to hang."""
AWAY = 1 << 62
"""Number of connections of a worker that accepts none."""


class Connections:
    """How many connections each worker has: shared memory, made before the workers are forked."""

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
    """The non-blocking listening socket of one worker."""

    def __init__(self, listening: socket.socket, connections: Connections, worker: int) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=os.dup(listening.fileno()))
        self._connections = connections
        self._worker = worker
        self._looks = 0
        self._looked = 0.0
        self._alone_until = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """As ``socket.accept``; BlockingIOError, as if no client were there, if it is another worker's turn."""
        now = time.monotonic()
        if self._connections.is_ahead(self._worker) and now > self._alone_until:
            # After a long pause the connection that was left before has been taken by somebody.
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


class HttpProtocol(H11Protocol):
    """One connection."""

    of_address: Counter[str] = Counter()
    """Number of connections by client address."""
    is_proxy: Callable[[str], bool] = staticmethod(lambda address: False)
    """Whether this is the address of a reverse proxy, which brings the connections of many clients."""
    is_refused = False
    address = ""
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and start the clock for its first headers."""
        super().connection_made(transport)
        self._before_headers = self.conn.their_state
        self.address = self.client[0] if self.client else ""
        self.of_address[self.address] += 1
        if self.of_address[self.address] > CONNECTIONS and not self.is_proxy(self.address):
            self._refuse(503, "this address has too many connections", {"Retry-After": "5"})
            return
        self._clock = self.loop.call_later(HEAD_SECONDS, self._headers_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_clock()
        self.of_address[self.address] -= 1
        if self.of_address[self.address] <= 0:
            del self.of_address[self.address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends, unless it was refused."""
        if self.is_refused:
            return
        super().data_received(data)
        if self.conn.their_state is not self._before_headers:  # the headers are complete
            self._stop_clock()
        elif self._clock is None and not self.is_refused:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._headers_late)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(status, _MESSAGES.get(status, msg))

    def _headers_late(self) -> None:
        self._clock = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"the headers were incomplete after {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Send an error, and read no more."""
        error = RequestRefused(message, status=status, headers=headers or {})
        answer = error_response(error, secrets.token_hex(8))
        lines = [*answer.raw_headers, (b"connection", b"close")]
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        head += b"".join(b"%s: %s\r\n" % line for line in lines)
        self.transport.write(head + b"\r\n" + bytes(answer.body))
        # A client that is cut off while it sends would not read why it is refused.
        self.is_refused = True
        self._stop_clock()
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """No warning: a request to upgrade to WebSocket is answered as plain HTTP (RFC 9110, 7.8)."""
