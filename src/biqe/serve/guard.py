"""What stands before every request: sizes, tokens, and where the request came from.

Pages of other sites can make a browser send requests to a server on this machine, or to a name that they point at it.
So a server on loopback answers only to loopback names (Host), and nothing that changes something is taken from a page
of another origin (Origin), unless the settings name that origin.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from biqe.errors import BiqeError, RequestRefused
from biqe.serve.config import ServeConfig
from biqe.serve.refusal import refusal
from biqe.serve.tokens import READ, WRITE, Tokens

OPEN = ("/health", "/ready")
"""Paths that need no token: they tell no more than that the server is there."""
DATA = ("/sparql", "/update", "/api", "/metrics")
"""Paths that tell or change something. All others are files of the page, which hold no data."""
UPLOAD = "/api/load"
CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""For answers that are data: a browser that shows one runs nothing in it."""
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]*)(?::[0-9]{0,5})?")
"""What a Host header may look like: a name or an address, and perhaps a port."""
SPOKEN = ("1", "2", "3")
"""Versions of HTTP, but for what is behind their dot; those above 1 by a proxy or another server."""
REALM = 'Bearer realm="biqe"'
LINGER = 1.0
"""Seconds for which a refused client may go on sending."""
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": CONTENT_POLICY,
    "Cache-Control": "no-store",
}
"""Headers of every answer that does not set them itself."""


def is_within(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is one of these places, or below one."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


class Guard:
    """Refuses what is too large or not allowed; hands the rest on with its body read."""

    def __init__(self, app: ASGIApp, config: ServeConfig, tokens: Tokens | None) -> None:
        self.app = app
        self.config = config
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_security(send, shared=bool(self.config.cors))
        try:
            self._refuse(scope)
            body = await self._body(scope, receive)
        except BiqeError as error:
            scope["state"]["about"]["error"] = type(error).__name__
            await refusal(error, scope["state"]["request_id"])(scope, receive, send)
            return
        if body is not None:
            await _attended(self.app, scope, body, receive, send)

    def _refuse(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        version = scope.get("http_version", "1.1")
        if version.partition(".")[0] not in SPOKEN:
            raise RequestRefused(f"HTTP/{version[:10]} is not spoken here", hint="ask by HTTP/1.1", status=505)
        self._refuse_sizes(scope)
        self._refuse_host(headers)
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD", "OPTIONS"):
            self._refuse_origin(headers)
        if method == "OPTIONS" or not is_within(path, DATA) or is_within(path, OPEN):
            return
        allowed = self._allowed(headers)
        scope["state"]["allowed"] = allowed
        needed = WRITE if path in ("/update", UPLOAD) else READ
        if needed not in allowed:
            raise denied(needed)

    def _refuse_sizes(self, scope: Scope) -> None:
        limits = self.config.limits
        line = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if line > limits.header:
            raise RequestRefused(
                f"the address is longer than {limits.header:,} bytes", status=414, hint="send the query by POST"
            )
        if line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > limits.header:
            raise RequestRefused(f"the headers are longer than {limits.header:,} bytes", status=431)

    def _refuse_host(self, headers: Mapping[str, str]) -> None:
        given = headers.get("host")
        if given is None:
            # HTTP/1.0 does without it. No browser does, and the page of another site comes by a browser.
            return
        try:
            host = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            host = None
        if host is None or not HOST.fullmatch(given):
            raise RequestRefused(f"the Host header is no name and no address. Got {given[:60]!r}")
        if not self.config.is_loopback or self.tokens is not None:
            return
        if host != "localhost" and not _is_loopback(host) and host != self.config.host:
            raise RequestRefused(
                f"this server answers to names of this machine only. Got Host {host[:60]!r}",
                hint="ask at 127.0.0.1, or serve with --token-file for other names",
                status=403,
            )

    def _refuse_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self.config.cors or "*" in self.config.cors:
            return
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            place = None
        if place is None or place != headers.get("host"):
            raise RequestRefused(
                f"a page of another site may not send this. Got Origin {origin[:60]!r}",
                hint="the setting --cors names sites that may",
                status=403,
            )

    def _allowed(self, headers: Mapping[str, str]) -> set[str]:
        """What the request may do; RequestRefused (401) where it brings no token, or none of ours."""
        if self.tokens is None:
            return {READ, WRITE}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("a token is needed here", REALM)
        allowed = self.tokens.allows(token.strip())
        if not allowed:
            raise _unknown("this token is not known here", f'{REALM}, error="invalid_token"')
        return allowed

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client went away. What is too long, or too slow, is refused."""
        limits = self.config.limits
        most = limits.upload if scope["path"] == UPLOAD else limits.body
        too_large = RequestRefused(
            f"the body is larger than {most:,} bytes", status=413, headers={"Connection": "close"}
        )
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length) > most:
            await _drained(scope, receive)
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        await _drained(scope, receive)
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestRefused(
                f"the body was not there after {limits.seconds:g} s", status=408, headers={"Connection": "close"}
            ) from None


async def _drained(scope: Scope, receive: Receive) -> None:
    """Let a client send on for a moment: were it cut off in the middle, it would not read why it is refused."""
    if "expect" in Headers(scope=scope):  # it waits to be told
        return
    try:
        async with asyncio.timeout(LINGER):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        return


def denied(needed: str) -> RequestRefused:
    """The refusal of a token that may not do this."""
    challenge = f'{REALM}, error="insufficient_scope", scope="{needed}"'
    return RequestRefused(f"this token may not {needed} here", status=403, headers={"WWW-Authenticate": challenge})


def _unknown(message: str, challenge: str) -> RequestRefused:
    """The refusal of a request that does not say who sent it."""
    hint = "send the header Authorization: Bearer TOKEN"
    return RequestRefused(message, hint=hint, status=401, headers={"WWW-Authenticate": challenge})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _with_security(send: Send, *, shared: bool) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY.items():
                headers.setdefault(name, value)
            if not shared:
                headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        await send(message)

    return wrapped


async def _attended(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application while its client is there; cancel it when the client goes away."""
    is_read = False
    gone = asyncio.Event()

    async def from_memory() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    work = asyncio.ensure_future(app(scope, from_memory, send))
    watcher = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            # The answer has nobody to go to; the engine drops what it has not begun.
            work.cancel()
        await asyncio.wait({work})
    finally:
        watcher.cancel()
        if not work.done():
            work.cancel()
    if not work.cancelled() and work.exception() is not None:
        raise work.exception()  # type: ignore[misc]
