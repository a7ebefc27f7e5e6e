"""HTTP as uvicorn reads it, but for what is refused before there is a request: our form of errors, and no log lines
about packages to install.
"""

from __future__ import annotations

import secrets
import sys
from http import HTTPStatus

from uvicorn.protocols.http.h11_impl import H11Protocol

from biqe.errors import RequestRefused
from biqe.serve.guard import LINGER
from biqe.serve.refusal import refusal

TOO_LONG = 431
_MESSAGES = {TOO_LONG: "the headers are longer than any that are read", 400: "this is no HTTP request"}


class Wire(H11Protocol):
    """One connection."""

    is_refused = False

    def data_received(self, data: bytes) -> None:
        """What the client sends; nobody reads it once it was refused."""
        if not self.is_refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """The error document for bytes that are no request; uvicorn calls it where its parser, h11, has given up."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        error = RequestRefused(_MESSAGES.get(status, msg), status=status)
        answer = refusal(error, secrets.token_hex(8))
        headers = [*answer.raw_headers, (b"connection", b"close")]
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self.transport.write(head + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n")
        self.transport.write(bytes(answer.body))
        # Were it cut off while it sends, it would not read why.
        self.is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: a request to go on as a WebSocket is answered as if it had not asked; see RFC 9110, 7.8."""
