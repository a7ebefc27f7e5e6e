"""Responses are compressed with gzip for clients that accept it.

Starlette's middleware compresses, long bodies in a thread. It only looks for the word gzip in Accept-Encoding; here a
client that forbids it (``gzip;q=0``) is respected.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEAST = 2048
"""Bytes from which a response is compressed; a shorter one fits into a packet or two."""
LEVEL = 4
"""Of 1 (fast) to 9 (small). Rows repeat so much that higher levels gain next to nothing."""


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header allows gzip; ``gzip;q=0`` forbids it, whatever ``*`` says."""
    weights = {}
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = weight.replace(" ", "").removeprefix("q=").strip("0.") != "" if weight else True
    return weights.get("gzip", weights.get("*", False))


class GzipResponses:
    """Compresses the responses of an application; files of the page are compressed already and pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.compressing = GZipMiddleware(app, minimum_size=LEAST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
            # The middleware looks for this one word.
            others = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
            await self.compressing({**scope, "headers": [*others, (b"accept-encoding", b"gzip")]}, receive, send)
        else:
            await self.app(scope, receive, send)
