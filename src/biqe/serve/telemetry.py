"""Traces by OpenTelemetry, for those who collect them (extra ``telemetry``).

FastAPI makes a span of every request by itself; here it is said whether it does, and where the spans go:
OTEL_TRACES_EXPORTER names an installed exporter (console by default), OTEL_SERVICE_NAME the service.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Any

from biqe.errors import InvalidOption

GROUP = "opentelemetry_traces_exporter"
QUIET = ("/health", "/ready", "/metrics")


def settings(wanted: bool) -> Any:
    """What FastAPI is told: spans where they are wanted; never its own numbers and logs, we have ours."""
    quiet = {"metrics": False, "logs": False, "operation_spans": False, "auto_configure": False}
    if not wanted:
        return {"tracing": False, **quiet}
    return {
        "tracing": True,
        "tracer_provider": _provider(),
        "exclude": lambda scope: scope.get("path") in QUIET,
        **quiet,
    }


def _provider() -> Any:
    """A provider that is already set up is used as it is; else one is made that exports as the variables say."""
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
    exporters = {entry.name: entry for entry in entry_points(group=GROUP)}
    if wanted not in exporters:
        raise InvalidOption(
            f"OTEL_TRACES_EXPORTER must be one of {', '.join(sorted(exporters))}. Got {wanted!r}",
            hint="install the exporter's package",
        )
    service = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "biqe")})
    provider = TracerProvider(resource=service)
    provider.add_span_processor(BatchSpanProcessor(exporters[wanted].load()()))
    return provider
