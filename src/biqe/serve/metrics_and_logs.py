"""The log (one JSON object per line), metrics for Prometheus, request ids, and traces by OpenTelemetry.

The log has the length of a query, not its text, which may be private. A request id is returned in the header
X-Request-Id and in every error, and stands in the log; a client may choose its own.

Traces need the extra ``telemetry``. OTEL_TRACES_EXPORTER names an installed exporter (default: console), and
OTEL_SERVICE_NAME the service.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import time
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from biqe.errors import InvalidOption
from biqe.serve.config import SHARED_METRICS
from biqe.serve.error_response import error_response

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

REQUEST_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 2.5, 5.0, 10.0, 30.0)
QUIET = ("/health", "/ready", "/metrics")
"""Paths that monitors ask for every few seconds: logged only on errors."""
LABELS = frozenset(
    ["/sparql", "/update", *QUIET]
    + [f"/api/{name}" for name in ("ask", "explain", "parse", "complete", "graph", "models", "load", "openapi.json")]
)
"""Paths that are labels of metrics; all others count as ``page``."""


def new_log(stream: TextIO | None = None) -> Any:
    """A logger that writes JSON lines to a stream, by default standard error.

    Each line is one write, because several workers share the stream.
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
    """Write the log messages of libraries, and Python's warnings, to our log."""
    handler = ForwardingHandler(log)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    return handler


class ForwardingHandler(logging.Handler):
    """Passes messages of other libraries to our log, so that all lines are JSON."""

    def __init__(self, log: Any) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        fault = {"exc_info": record.exc_info} if record.exc_info else {}
        self.log.warning("server", message=record.getMessage(), source=record.name, **fault)


class Metrics:
    """Metrics for Prometheus."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=SECONDS)
        self.requests = counter("biqe_requests", "Requests", ["path", "method", "status"])
        self.errors = counter("biqe_errors", "Requests that ended in an error", ["type"])
        self.rows = counter("biqe_rows", "Rows sent", ["mode"])
        self.seconds = histogram("biqe_request_seconds", "Time from first to last byte of a request", ["path", "mode"])
        self.running = gauge("biqe_requests_running", "Requests being answered", multiprocess_mode="livesum")
        model = gauge("biqe_model_info", "The model that predicts", ["model", "graph"], multiprocess_mode="max")
        self.of_engine: dict[str, Gauge] = {}
        model.labels(next(iter(engine.kb.models), "none"), Path(engine.kb.name).name).set(1)

    def refresh(self) -> None:
        """Copy the engine's statistics: its queue, its batches."""
        for name, value in self.engine.stats.items():
            if isinstance(value, dict):
                for size, count in value.items():
                    self._gauge(name, ["size"]).labels(str(size)).set(count)
            elif not isinstance(value, bool):
                self._gauge(name, []).set(value)

    def _gauge(self, name: str, labels: list[str]) -> Gauge:
        if name not in self.of_engine:
            self.of_engine[name] = Gauge(
                f"biqe_engine_{name}",
                f"The engine's {name.replace('_', ' ')}",
                labels,
                registry=self.registry,
                multiprocess_mode="livesum",
            )
        return self.of_engine[name]

    def page(self) -> tuple[bytes, str]:
        """All metrics, of all workers, in Prometheus's text format; and its media type."""
        self.refresh()
        if os.environ.get(SHARED_METRICS):
            from prometheus_client.multiprocess import MultiProcessCollector

            together = CollectorRegistry()
            MultiProcessCollector(together)  # type: ignore[no-untyped-call]
            return generate_latest(together), CONTENT_TYPE_LATEST
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class RequestLog:
    """The outermost middleware: an id, a log line and metrics for each request, and a response to unexpected errors."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Any) -> None:
        self.app = app
        self.metrics = metrics
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        # "about" collects what the log line says of the request.
        state = scope["state"] = {**scope.get("state", {}), "request_id": request_id, "about": {}}
        start = time.perf_counter()
        sent: dict[str, Any] = {"status": None, "bytes": 0}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "http.response.body":
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        self.metrics.running.inc()
        try:
            await self.app(scope, receive, counted)
        except Exception as error:
            state["about"]["error"] = type(error).__name__
            self.log.error("fault", id=request_id, path=scope["path"], exc_info=error)
            if sent["status"] is None:
                await error_response(None, request_id)(scope, receive, counted)
        finally:
            self.metrics.running.dec()
            self.metrics.refresh()
            self._record(scope, state, sent, time.perf_counter() - start)

    def _record(self, scope: Scope, state: dict[str, Any], sent: dict[str, Any], seconds: float) -> None:
        about = state["about"]
        label = scope["path"] if scope["path"] in LABELS else "page"
        mode = str(about.get("mode", ""))
        status = sent["status"] or 499  # the client went away first
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self.metrics.requests.labels(label, method, str(status)).inc()
        self.metrics.seconds.labels(label, mode).observe(seconds)
        if "rows" in about:
            self.metrics.rows.labels(mode).inc(about["rows"])
        if "error" in about:
            self.metrics.errors.labels(about["error"]).inc()
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
            bytes=sent["bytes"],
            client=client[0] if client else None,
            **about,
        )


# Traces


def trace_settings(wanted: bool) -> Any:
    """FastAPI's settings for OpenTelemetry: a span for each request if ``wanted``; never its metrics and logs."""
    settings: dict[str, Any] = {
        "tracing": wanted,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
    }
    if wanted:
        settings |= {"tracer_provider": _trace_provider(), "exclude": lambda scope: scope.get("path") in QUIET}
    return settings


def _trace_provider() -> Any:
    """The provider that is already set up, or a new one that exports as the environment variables say."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidOption(
            f"traces need the package {error.name!r}, which is not installed", hint="pip install 'biqe[telemetry]'"
        ) from None
    present = trace.get_tracer_provider()
    if isinstance(present, TracerProvider):
        return present
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "console")
    exporters = {entry.name: entry for entry in entry_points(group="opentelemetry_traces_exporter")}
    if wanted not in exporters:
        raise InvalidOption(
            f"OTEL_TRACES_EXPORTER must be one of {', '.join(sorted(exporters))}. Got {wanted!r}",
            hint="install the exporter's package",
        )
    service = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "biqe")})
    provider = TracerProvider(resource=service)
    provider.add_span_processor(BatchSpanProcessor(exporters[wanted].load()()))
    return provider
