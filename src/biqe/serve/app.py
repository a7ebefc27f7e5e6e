"""The ASGI application: protocol, API and page behind the middleware.

RequestLog ─ GzipResponses ─ CORS ─ Guard ─ routes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from biqe import __version__
from biqe.errors import BiqeError, RequestRefused
from biqe.serve import api
from biqe.serve.config import ServeConfig
from biqe.serve.error_response import error_response, status_of
from biqe.serve.guard import Guard, Tokens
from biqe.serve.metrics_and_logs import Metrics, RequestLog, new_log, trace_settings
from biqe.serve.protocol import Protocol, add_routes

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

ABOUT = "Ask a knowledge graph a SPARQL query; get the answers it holds and the answers it is missing."

EXPOSED = ("X-Request-Id", "X-Biqe-Truncated", "X-Biqe-Probability", "X-Biqe-Expected", "X-Biqe-Note", "Retry-After")
"""Response headers that pages of other sites may read."""


def build(engine: Engine, config: ServeConfig, *, page: Sequence[BaseRoute] = (), log: Any = None) -> ASGIApp:
    """The application. It starts and stops the engine with itself."""
    log = log or new_log()
    tokens = None if config.token_file is None else Tokens.of_file(config.token_file)
    metrics = Metrics(engine)
    protocol = Protocol(engine, config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        await engine.start()
        app.state.ready = True
        log.info("ready", graph=engine.kb.name, model=next(iter(engine.kb.models), None))
        yield {}
        app.state.ready = False
        await engine.stop()
        log.info("stopped")

    app = FastAPI(
        title="biqe",
        version=__version__,
        description=ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry=trace_settings(config.telemetry),
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    add_routes(app, protocol)
    app.include_router(api.router(engine, config, protocol))
    _add_monitoring(app, engine, metrics)
    _add_error_handlers(app)
    app.router.routes.extend(page)
    guarded: ASGIApp = Guard(app, config, tokens)
    if config.cors:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=config.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    return RequestLog(GzipResponses(guarded), metrics, log)


def _add_monitoring(app: FastAPI, engine: Engine, metrics: Metrics) -> None:
    app.state.ready = False

    @app.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
    async def health() -> dict[str, str]:
        """The process runs and its event loop responds."""
        return {"status": "alive"}

    @app.api_route("/ready", methods=["GET", "HEAD"], include_in_schema=False)
    async def ready(request: Request) -> dict[str, str]:
        """The model is loaded, the live graph can be read, and requests of every kind are answered; otherwise 503."""
        if not app.state.ready or engine.stats["stopping"]:
            raise RequestRefused("not ready: the server is starting or stopping", status=503)
        if engine.is_stuck:
            raise RequestRefused("not ready: requests hang in this worker, which is being replaced", status=503)
        if engine.live is not None:
            try:
                await asyncio.to_thread(engine.live.snapshot)
            except BiqeError as error:
                request.scope["state"]["about"]["message"] = str(error)  # for the log only
                raise RequestRefused(
                    "not ready: the graph's folder cannot be read; the server's log says why", status=503
                ) from error
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        """Metrics for Prometheus."""
        body, media_type = metrics.page()
        return Response(body, media_type=media_type)


def _add_error_handlers(app: FastAPI) -> None:
    def refused(request: Request, error: BiqeError) -> Response:
        about = request.scope["state"]["about"]
        about["error"] = type(error).__name__
        if status_of(error) == 500:
            about["message"] = str(error)  # for the log only
        return error_response(error, request.scope["state"]["request_id"])

    @app.exception_handler(BiqeError)
    async def of_biqe(request: Request, error: BiqeError) -> Response:
        return refused(request, error)

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        # RequestLog logs it with its traceback.
        return error_response(None, request.scope["state"]["request_id"])

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refused(request, _invalid_request(error))

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        messages = {
            400: "the body cannot be read as JSON in UTF-8",  # the only 400 of the router
            404: "there is nothing at this address",
            405: "this address does not allow this method",
        }
        message = messages.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # If an address has several routes, the router lists the methods of the first only.
            methods = {
                method
                for route in app.routes
                if getattr(route, "path", None) == request.scope["path"]
                for method in getattr(route, "methods", None) or ()
            }
            headers["Allow"] = ", ".join(sorted(methods)) or headers.get("Allow", "")
        return refused(request, RequestRefused(message, status=error.status_code, headers=headers))


def _invalid_request(error: RequestValidationError) -> RequestRefused:
    """The first invalid field. Its value may be long, so it is not repeated."""
    first = error.errors()[0]
    place, *within = first.get("loc", ()) or ("body",)
    name, what = ".".join(map(str, within)), str(first.get("msg", "not as described"))
    is_missing = first.get("type") == "missing"
    if first.get("type") == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        message = f"the body is not JSON: {reason} at character {within[0] if within else 0}"
    elif not within:
        message = f"the {place} is missing" if is_missing else f"the {place} must be a JSON object"
    else:
        message = f"{name!r} is missing" if is_missing else f"{name!r}: {what[:1].lower()}{what[1:]}"
    return RequestRefused(message, hint="/api/openapi.json describes the fields")


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document without FastAPI's own error type, which is never sent."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in found["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{}, {"token": []}]
        app.openapi_schema = found
    return app.openapi_schema


# Compression

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
    """Compresses the responses of an application for clients that accept it.

    Starlette's middleware compresses, long bodies in a thread. It only looks for the word gzip in Accept-Encoding; here
    a client that forbids it (``gzip;q=0``) is respected.
    """

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
