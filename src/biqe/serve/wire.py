"""HTTP as uvicorn reads it, but for what is refused before there is a request: our form of errors, a time for the
headers to come, a bound on the connections of one client, and no log lines about packages to install.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from http import HTTPStatus

from uvicorn.protocols.http.h11_impl import H11Protocol

from biqe.errors import RequestRefused
from biqe.serve.guard import LINGER
from biqe.serve.refusal import refusal

HEAD_SECONDS = 20.0
"""Seconds in which the headers of a request have to come, from the connection or from their first byte."""
CONNECTIONS = 1_000
"""Connections of one address that a worker keeps. Many users behind one proxy are one address."""
TOO_LONG = 431
_MESSAGES = {TOO_LONG: "the headers are longer than any that are read", 400: "this is no HTTP request"}


class Wire(H11Protocol):
    """One connection."""

    of_address: Counter[str] = Counter()
    """Connections by the address at their other end."""
    is_refused = False
    address = ""
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has to say what he wants."""
        super().connection_made(transport)
        self._before_headers = self.conn.their_state
        self.address = self.client[0] if self.client else ""
        self.of_address[self.address] += 1
        if self.of_address[self.address] > CONNECTIONS:
            self._refuse(503, "this address has too many connections", {"Retry-After": "5"})
            return
        self._clock = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end has gone."""
        self._stop_clock()
        self.of_address[self.address] -= 1
        if self.of_address[self.address] <= 0:
            del self.of_address[self.address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What the client sends; nobody reads it once it was refused."""
        if self.is_refused:
            return
        super().data_received(data)
        if self.conn.their_state is not self._before_headers:  # they are there
            self._stop_clock()
        elif self._clock is None and not self.is_refused:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """The error document for bytes that are no request; uvicorn calls it where its parser, h11, has given up."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(status, _MESSAGES.get(status, msg))

    def _give_up(self) -> None:
        """The headers did not come."""
        self._clock = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"the headers were not there after {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Send the error document, and read no more."""
        error = RequestRefused(message, status=status, headers=headers or {})
        answer = refusal(error, secrets.token_hex(8))
        lines = [*answer.raw_headers, (b"connection", b"close")]
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        head += b"".join(b"%s: %s\r\n" % line for line in lines)
        self.transport.write(head + b"\r\n" + bytes(answer.body))
        # Were it cut off while it sends, it would not read why.
        self.is_refused = True
        self._stop_clock()
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: a request to go on as a WebSocket is answered as if it had not asked; see RFC 9110, 7.8."""
