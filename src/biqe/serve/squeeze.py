"""Answers sent gzipped to clients that take them so: rows repeat the same names, and shrink to a part.

Starlette's middleware does the packing, long bodies in a thread so that the loop goes on. It looks for the word gzip
in Accept-Encoding only; a client that forbids it (``gzip;q=0``) is heeded here.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEAST = 2048
"""Bytes from which an answer is packed: a shorter one fits a packet or two as it is."""
LEVEL = 4
"""Of 1 (fast) to 9 (small). Rows repeat so much that the highest levels take longer and gain next to nothing."""


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding allows gzip; ``gzip;q=0`` does not, whatever ``*`` says."""
    weights = {}
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = weight.replace(" ", "").removeprefix("q=").strip("0.") != "" if weight else True
    return weights.get("gzip", weights.get("*", False))


class Squeeze:
    """Packs what is behind it; files of the page come packed already, and are passed on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.packing = GZipMiddleware(app, minimum_size=LEAST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
            await self.packing(_asking_for_gzip(scope), receive, send)
        else:
            await self.app(scope, receive, send)


def _asking_for_gzip(scope: Scope) -> Scope:
    """The same request, with the one word in it that the middleware looks for."""
    others = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
    return {**scope, "headers": [*others, (b"accept-encoding", b"gzip")]}
