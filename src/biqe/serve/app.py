"""One ASGI application out of the parts: protocol, API, page, guard, packing and log.

Observe ─ Squeeze ─ CORS ─ Guard ─ routes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from biqe import __version__
from biqe.errors import BiqeError, RequestRefused
from biqe.serve import api, openapi, telemetry
from biqe.serve.config import ServeConfig
from biqe.serve.guard import Guard
from biqe.serve.observe import Numbers, Observe, new_log
from biqe.serve.protocol import Protocol
from biqe.serve.refusal import refusal, status_of
from biqe.serve.squeeze import Squeeze
from biqe.serve.tokens import Tokens

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

ABOUT = "Ask a knowledge graph a SPARQL query; get the answers it holds and the answers it is missing."

TOLD = ("X-Request-Id", "X-Biqe-Truncated", "X-Biqe-Probability", "X-Biqe-Expected", "X-Biqe-Note", "Retry-After")
"""Headers of an answer that pages of other sites may read."""


def build(engine: Engine, config: ServeConfig, *, page: Sequence[BaseRoute] = (), log: Any = None) -> ASGIApp:
    """The application. It starts the engine when it starts, and stops it when it stops."""
    log = log or new_log()
    tokens = None if config.token_file is None else Tokens.of_file(config.token_file)
    numbers = Numbers(engine)
    protocol = Protocol(engine, config)
    app = FastAPI(
        title="biqe",
        version=__version__,
        description=ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(engine, log),
        telemetry=telemetry.settings(config.telemetry),
    )
    openapi.document(app)
    openapi.add_protocol(app, protocol)
    app.include_router(api.router(engine, config, protocol))
    _add_operation(app, engine, numbers, config)
    _add_refusals(app)
    app.router.routes.extend(page)
    guarded: ASGIApp = Guard(app, config, tokens)
    if config.cors:
        guarded = CORSMiddleware(
            guarded, allow_origins=config.cors, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=TOLD
        )
    return Observe(Squeeze(guarded), numbers, log)


def _lifespan(engine: Engine, log: Any) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        await engine.start()
        app.state.ready = True
        log.info("ready", graph=engine.kb.name, model=next(iter(engine.kb.models), None))
        yield {}
        app.state.ready = False
        await engine.stop()
        log.info("stopped")

    return lifespan


def _add_operation(app: FastAPI, engine: Engine, numbers: Numbers, config: ServeConfig) -> None:
    app.state.ready = False

    @app.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
    async def health() -> dict[str, str]:
        """The process is there and its loop turns."""
        return {"status": "alive"}

    @app.api_route("/ready", methods=["GET", "HEAD"], include_in_schema=False)
    async def ready() -> dict[str, str]:
        """The model is loaded and questions are taken; else 503."""
        if not app.state.ready or engine.facts.get("stopping"):
            raise RequestRefused("not ready: the server is starting or stopping", status=503)
        return {"status": "ready"}

    if config.metrics:

        @app.get("/metrics", include_in_schema=False)
        async def metrics() -> Response:
            """Numbers for Prometheus."""
            body, media_type = numbers.page()
            return Response(body, media_type=media_type)


def _add_refusals(app: FastAPI) -> None:
    def refused(request: Request, error: BiqeError) -> Response:
        about = request.scope["state"]["about"]
        about["error"] = type(error).__name__
        if status_of(error) == 500:
            about["message"] = str(error)  # for the log; the client is told an id only
        return refusal(error, request.scope["state"]["request_id"])

    @app.exception_handler(BiqeError)
    async def of_ours(request: Request, error: BiqeError) -> Response:
        return refused(request, error)

    @app.exception_handler(Exception)
    async def of_anything(request: Request, error: Exception) -> Response:
        # Observe logs it with its trace; the client is told an id only.
        return refusal(None, request.scope["state"]["request_id"])

    @app.exception_handler(RequestValidationError)
    async def of_shape(request: Request, error: RequestValidationError) -> Response:
        return refused(request, openapi.refused_shape(error))

    @app.exception_handler(HTTPException)
    async def of_routing(request: Request, error: HTTPException) -> Response:
        words = {
            400: "the body cannot be read as JSON in UTF-8",  # the router refuses nothing else so
            404: "there is nothing at this address",
            405: "this address does not take this method",
        }
        message = words.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # Of one address with several routes, the router tells the methods of the first.
            methods = {
                method
                for route in app.routes
                if getattr(route, "path", None) == request.scope["path"]
                for method in getattr(route, "methods", None) or ()
            }
            headers["Allow"] = ", ".join(sorted(methods)) or headers.get("Allow", "")
        return refused(request, RequestRefused(message, status=error.status_code, headers=headers))
