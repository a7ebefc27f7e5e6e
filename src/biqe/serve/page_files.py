"""The built files of the page: /, /yasgui and /assets.

Assets have a hash in their name, so that browsers may cache them for good; the two documents are revalidated each time.
A Content-Security-Policy allows only scripts and connections of this server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from biqe.errors import UnreadableFile

PAGE: Final = Path(__file__).parent / "page"
"""The built page; ``make page`` writes it from ``web/``."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_STRICT: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}
# Yasgui creates style elements and images, and builds parts of itself from HTML text.
_YASGUI: Mapping[str, str] = {
    name: {"style-src": "'self' 'unsafe-inline'", "img-src": "'self' data:"}.get(name, sources)
    for name, sources in _STRICT.items()
    if name != "require-trusted-types-for"
}
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_DOCUMENTS = {"/": "index.html", "/yasgui": "yasgui.html"}


@dataclass(frozen=True)
class PageFile:
    """One built file, in memory."""

    name: str
    content: bytes
    etag: str
    """Entity tag, for requests with If-None-Match."""

    @classmethod
    def of(cls, name: str, content: bytes) -> PageFile:
        """A file with its entity tag."""
        return cls(name, content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    @property
    def media_type(self) -> str:
        """Media type, by the end of its name."""
        return _TYPES[Path(self.name).suffix]

    @property
    def is_hashed(self) -> bool:
        """Whether its name contains a hash, so that its content never changes."""
        return self.name.startswith("assets/")

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        policy = _YASGUI if self.name == "yasgui.html" else _STRICT
        return {
            **_ALWAYS,
            "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
            "Cache-Control": "public, max-age=31536000, immutable" if self.is_hashed else "no-cache",
            "ETag": self.etag,
            "Vary": "Accept-Encoding",
        }


def read_page(folder: Path = PAGE) -> dict[str, PageFile]:
    """All files of the built page by path; UnreadableFile if the page was not built."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES]
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    if "index.html" not in files:
        raise UnreadableFile(f"the page is not built: {folder} has no index.html", hint="build it with: make page")
    return {name: PageFile.of(name, path.read_bytes()) for name, path in files.items()}


def routes(folder: Path = PAGE) -> Sequence[BaseRoute]:
    """The routes of the page."""
    files = read_page(folder)

    def document(file: PageFile) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return _answer(request, file)

        return answer

    async def asset(request: Request) -> Response:
        # Looked up among the files read at the start: no part of a request becomes a path on disk.
        file = files.get(f"assets/{request.path_params['name']}")
        if file is None:
            return Response("There is no such file.\n", 404, headers=_ALWAYS, media_type="text/plain")
        return _answer(request, file)

    documents = [Route(path, document(files[name])) for path, name in _DOCUMENTS.items() if name in files]
    return [*documents, Route("/assets/{name}", asset)]


def _answer(request: Request, file: PageFile) -> Response:
    headers = file.headers
    if file.etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(None, 304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
