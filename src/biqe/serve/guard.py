"""Checks before every request: sizes, tokens, and which site the request came from.

Pages of other sites can make a browser send requests to a server on this machine, or to a name that they point at it.
So a server on loopback answers only to loopback names (Host), and requests that may change something are refused when
they come from a page of another site (Origin, Sec-Fetch-Site), unless the settings name that site.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from biqe.errors import BiqeError, RequestRefused, UnreadableFile
from biqe.graph.whole_folder import read_regular
from biqe.serve.config import ServeConfig
from biqe.serve.error_response import error_response
from biqe.serve.lanes import current_client

READ, WRITE = "read", "write"
SHORTEST = 16
"""Least characters of a token."""
MAX_TOKEN_FILE_BYTES = 1 << 20
TOKEN_HINT = "make a token with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
OPEN = ("/health", "/ready")
"""Paths that need no token: they only show that the server is there."""
DATA = ("/sparql", "/update", "/api", "/metrics")
"""Paths that show or change data. All others are files of the page, which hold no data."""
UPLOAD = "/api/load"
CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""For answers that are data: a browser that shows one runs nothing in it."""
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]*)(?::[0-9]{0,5})?")
"""A valid Host header: a name or an address, and perhaps a port."""
HTTP_VERSIONS = ("1", "2", "3")
"""Major versions of HTTP that are accepted; those above 1 come through a proxy."""
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
"""Headers of every response that does not set them itself."""


@dataclass(frozen=True)
class Tokens:
    """Digests of the tokens; a write token may also read."""

    read: tuple[bytes, ...]
    write: tuple[bytes, ...]

    @classmethod
    def of_file(cls, path: Path) -> Tokens:
        """Read lines of ``read TOKEN`` and ``write TOKEN``; empty lines and lines that begin with # are skipped."""
        try:
            lines = read_regular(path, MAX_TOKEN_FILE_BYTES).decode().splitlines()
        except OSError as error:
            raise UnreadableFile(f"token file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"token file {path} is not UTF-8 text") from error
        found: dict[str, list[bytes]] = {READ: [], WRITE: []}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            wrong = ""  # errors never show the line itself: it may hold a secret
            if len(words) != 2 or words[0] not in found:
                wrong = "a line is 'read TOKEN' or 'write TOKEN'"
            elif len(words[1]) < SHORTEST or not words[1].isascii():
                wrong = f"a token has at least {SHORTEST} ASCII characters"
            if wrong:
                raise UnreadableFile(f"token file {path}, line {number}: {wrong}", hint=TOKEN_HINT)
            found[words[0]].append(_digest(words[1]))
        if not any(found.values()):
            raise UnreadableFile(f"token file {path} holds no token", hint="a line is 'read TOKEN' or 'write TOKEN'")
        return cls(tuple(found[READ]), tuple(found[WRITE]))

    def allows(self, token: str) -> set[str]:
        """What the token allows; an empty set for an unknown token.

        All digests are compared, each in constant time, so that the time taken reveals nothing about them.
        """
        digest = _digest(token)
        may_write = sum([hmac.compare_digest(digest, known) for known in self.write]) > 0
        may_read = sum([hmac.compare_digest(digest, known) for known in self.read]) > 0
        return {READ, WRITE} if may_write else {READ} if may_read else set()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def is_world_readable(path: Path) -> bool:
    """Whether every user of this machine can read the file."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False


def client_of(scope: Scope, token: str | None) -> str:
    """Whose turn a request takes: that of its token, or of its address. One user may have as many IPv6 addresses as
    there are in a network of 64 bits, so such a network is one client."""
    if token is not None:
        return f"token {_digest(token).hex()[:16]}"
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False).network_address
    return str(address)


def is_within(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is one of these places, or below one."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


class Guard:
    """Refuses requests that are too large or not allowed; passes the rest on with the body read."""

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
            self._check(scope)
            body = await self._body(scope, receive)
        except BiqeError as error:
            scope["state"]["about"]["error"] = type(error).__name__
            await error_response(error, scope["state"]["request_id"])(scope, receive, send)
            return
        if body is not None:
            await _run_while_connected(self.app, scope, body, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        version = scope.get("http_version", "1.1")
        if version.partition(".")[0] not in HTTP_VERSIONS:
            raise RequestRefused(f"HTTP/{version[:10]} is not supported", hint="use HTTP/1.1", status=505)
        if "transfer-encoding" in headers and ("content-length" in headers or version == "1.0"):
            # A proxy may have found another end of the body, and take part of it for the next request (RFC 9112, 6.1).
            other = "Content-Length" if "content-length" in headers else "HTTP/1.0"
            raise RequestRefused(f"the request has both {other} and Transfer-Encoding", headers={"Connection": "close"})
        self._check_sizes(scope)
        self._check_host(headers)
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD", "OPTIONS"):
            self._check_origin(headers)
        if method == "OPTIONS" or not is_within(path, DATA) or is_within(path, OPEN):
            return
        token, allowed = self._allowed(headers)
        current_client.set(client_of(scope, token))
        scope["state"]["allowed"] = allowed
        needed = WRITE if path in ("/update", UPLOAD) else READ
        if needed not in allowed:
            raise denied(needed)

    def _check_sizes(self, scope: Scope) -> None:
        limits = self.config.limits
        line = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if line > limits.header:
            raise RequestRefused(
                f"the address is longer than {limits.header:,} bytes", status=414, hint="send the query by POST"
            )
        if line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > limits.header:
            raise RequestRefused(f"the headers are longer than {limits.header:,} bytes", status=431)

    def _check_host(self, headers: Headers) -> None:
        given = headers.get("host")
        if given is None:
            # HTTP/1.0 has no Host. Every browser sends one, and a page of another site needs a browser.
            return
        try:
            host = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            host = None
        if host is None or not HOST.fullmatch(given):
            raise RequestRefused(f"the Host header is neither a name nor an address. Got {given[:60]!r}")
        if not self.config.is_loopback or self.tokens is not None or self.config.open_to_all:
            return
        if host != "localhost" and not _is_loopback(host) and host != self.config.host:
            raise RequestRefused(
                f"this server answers to names of this machine only. Got Host {host[:60]!r}",
                hint="ask at 127.0.0.1, or serve with --token-file or --open-to-all for other names",
                status=403,
            )

    def _check_origin(self, headers: Headers) -> None:
        """RequestRefused for what a browser sends on behalf of another site's page, unless ``cors`` names the site."""
        origins = headers.getlist("origin")
        if len(origins) > 1:
            raise RequestRefused("the request has more than one Origin header")
        origin = origins[0] if origins else None
        if "*" in self.config.cors or origin in self.config.cors:
            return
        try:
            place = None if origin is None else urlsplit(origin).netloc
        except ValueError:
            place = None
        is_own = origin is None or (place is not None and place == headers.get("host"))
        # Browsers that leave Origin out still say where the request came from; other clients send neither.
        is_cross_site = any("cross-site" in value.lower() for value in headers.getlist("sec-fetch-site"))
        if is_cross_site or not is_own:
            got = "Sec-Fetch-Site: cross-site" if is_own else f"Origin {str(origin)[:60]!r}"
            raise RequestRefused(
                f"requests from pages of other sites are refused. Got {got}",
                hint="the option --cors names sites that may send them",
                status=403,
            )

    def _allowed(self, headers: Headers) -> tuple[str | None, set[str]]:
        """The token of the request, and what it may do; RequestRefused (401) without a known token."""
        if self.tokens is None:
            return None, {READ, WRITE}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorized("a token is needed", REALM)
        token = token.strip()
        allowed = self.tokens.allows(token)
        if not allowed:
            raise _unauthorized("this token is unknown", f'{REALM}, error="invalid_token"')
        return token, allowed

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client went away. RequestRefused if it is too long or too slow."""
        limits, seconds = self.config.limits, self.config.engine.seconds
        most = limits.upload if scope["path"] == UPLOAD else limits.body
        too_large = RequestRefused(
            f"the body is larger than {most:,} bytes", status=413, headers={"Connection": "close"}
        )
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length) > most:
            await _drain(scope, receive)
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        await _drain(scope, receive)
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestRefused(
                f"the body was incomplete after {seconds:g} s",
                status=408,
                headers={"Connection": "close"},
            ) from None


async def _drain(scope: Scope, receive: Receive) -> None:
    """Read on for a moment: a client that is cut off while it sends would not read why it is refused."""
    if "expect" in Headers(scope=scope):  # the client waits for permission to send
        return
    try:
        async with asyncio.timeout(LINGER):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        return


def denied(needed: str) -> RequestRefused:
    """The refusal of a token that does not allow this."""
    challenge = f'{REALM}, error="insufficient_scope", scope="{needed}"'
    return RequestRefused(f"this token may not {needed}", status=403, headers={"WWW-Authenticate": challenge})


def _unauthorized(message: str, challenge: str) -> RequestRefused:
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


async def _run_while_connected(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application; cancel it when the client goes away."""
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
            work.cancel()  # the engine then drops what it has not begun
        await asyncio.wait({work})
    finally:
        watcher.cancel()
        if not work.done():
            work.cancel()
    if not work.cancelled() and work.exception() is not None:
        raise work.exception()  # type: ignore[misc]
