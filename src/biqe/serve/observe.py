"""What the server tells about its work: a log of one JSON object a line, numbers for Prometheus, and request ids.

A query's text is not logged, only its length: it may be private. A request id comes back in the header X-Request-Id,
in every error, and in the log; a client may choose its own.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from biqe.serve.guard import DATA, OPEN, is_within
from biqe.serve.refusal import refusal

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

REQUEST_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Set by whoever starts several workers: the folder in which they add up their numbers."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 2.5, 5.0, 10.0, 30.0)
QUIET = ("/health", "/ready", "/metrics")
"""Paths that are asked for every few seconds: logged only where something is wrong."""


def new_log(stream: TextIO | None = None) -> Any:
    """A logger that writes JSON lines, to standard error unless told otherwise.

    A line and its end are written at once: several workers share the stream.
    """
    return structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )


def forward(log: Any) -> logging.Handler:
    """From now on, what libraries report, and Python's warnings, are lines of our log."""
    handler = Forwarded(log)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    return handler


class Forwarded(logging.Handler):
    """Hands what others report to our log: a line of their own would be one that is no JSON."""

    def __init__(self, log: Any) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        fault = {"exc_info": record.exc_info} if record.exc_info else {}
        self.log.warning("server", message=record.getMessage(), source=record.name, **fault)


class Numbers:
    """What Prometheus reads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "biqe_requests", "Requests that were answered", ["path", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "biqe_request_seconds",
            "Time from a request's first byte to its answer's last",
            ["path", "mode"],
            buckets=SECONDS,
            registry=registry,
        )
        self.running = Gauge(
            "biqe_requests_running", "Requests that are being answered", registry=registry, multiprocess_mode="livesum"
        )
        self.errors = Counter(
            "biqe_errors", "Requests that ended in an error, by its kind", ["type"], registry=registry
        )
        self.rows = Counter("biqe_rows", "Rows that went out", ["mode"], registry=registry)
        self.model = Gauge(
            "biqe_model_info",
            "1 for the model that predicts",
            ["model", "graph"],
            registry=registry,
            multiprocess_mode="max",
        )
        self.facts: dict[str, Gauge] = {}
        self.model.labels(next(iter(engine.kb.models), "none"), Path(engine.kb.name).name).set(1)

    def refresh(self) -> None:
        """Take over the numbers that the engine keeps: its queue, its batches."""
        for name, value in self.engine.facts.items():
            if isinstance(value, dict):
                for size, count in value.items():
                    self._fact(name, ["size"]).labels(str(size)).set(count)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self._fact(name, []).set(value)

    def _fact(self, name: str, labels: list[str]) -> Gauge:
        if name not in self.facts:
            self.facts[name] = Gauge(
                f"biqe_engine_{re.sub(r'[^a-z0-9_]', '_', name.lower())}",
                f"The engine's {name.replace('_', ' ')}",
                labels,
                registry=self.registry,
                multiprocess_mode="livesum",
            )
        return self.facts[name]

    def page(self) -> tuple[bytes, str]:
        """All numbers in Prometheus's text form, with its media type; of all workers where there are several."""
        self.refresh()
        if os.environ.get(SHARED):
            from prometheus_client.multiprocess import MultiProcessCollector

            together = CollectorRegistry()
            MultiProcessCollector(together)  # type: ignore[no-untyped-call]
            return generate_latest(together), CONTENT_TYPE_LATEST
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


def place_of(path: str) -> str:
    """A path as a label: one of a fixed few, whatever clients ask for."""
    return path if is_within(path, (*DATA, *OPEN)) and path.count("/") <= 2 and path in LABELS else "page"


LABELS = frozenset(
    ["/sparql", "/update", "/health", "/ready", "/metrics"]
    + [f"/api/{name}" for name in ("ask", "explain", "parse", "complete", "graph", "models", "load", "openapi.json")]
)


class Observe:
    """Around everything: an id, a line in the log, and numbers for each request; and an answer where there was none."""

    def __init__(self, app: ASGIApp, numbers: Numbers, log: Any) -> None:
        self.app = app
        self.numbers = numbers
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        # A fresh state for each request; what the lifespan put there stays readable.
        state = scope["state"] = {**scope.get("state", {}), "request_id": request_id, "about": {}}
        start = time.perf_counter()
        told: dict[str, Any] = {"status": None, "bytes": 0}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "http.response.body":
                told["bytes"] += len(message.get("body", b""))
            await send(message)

        self.numbers.running.inc()
        try:
            await self.app(scope, receive, counted)
        except Exception as error:
            state["about"]["error"] = type(error).__name__
            self.log.error("fault", id=request_id, path=scope["path"], exc_info=error)
            if told["status"] is None:
                await refusal(None, request_id)(scope, receive, counted)
        finally:
            self.numbers.running.dec()
            self.numbers.refresh()
            self._tell(scope, state, told, time.perf_counter() - start)

    def _tell(self, scope: Scope, state: dict[str, Any], told: dict[str, Any], seconds: float) -> None:
        about = state["about"]
        place, mode = place_of(scope["path"]), str(about.get("mode", ""))
        status = told["status"] or 499  # the client went away first
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self.numbers.requests.labels(place, method, str(status)).inc()
        self.numbers.seconds.labels(place, mode).observe(seconds)
        if "rows" in about:
            self.numbers.rows.labels(mode).inc(about["rows"])
        if "error" in about:
            self.numbers.errors.labels(about["error"]).inc()
        if scope["path"] in QUIET and status < 400:
            return
        client = scope.get("client")
        self.log.info(
            "request",
            id=state["request_id"],
            method=scope["method"][:20],
            path=scope["path"][:200],
            status=status,
            ms=round(seconds * 1000, 2),
            bytes=told["bytes"],
            client=client[0] if client else None,
            **about,
        )
