"""What a server tells about itself: ids, a log that can be read by machines, numbers, traces."""

from __future__ import annotations

import io
import json
import logging
import time
import warnings
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from biqe.serve.metrics_and_logs import forward, new_log, trace_settings

QUERY = {"query": "SELECT ?x { ?x :knows ?y }"}


@pytest.fixture
def logged(serve, odd_kb):
    stream = io.StringIO()
    with serve(odd_kb, log=new_log(stream)) as client:
        client.lines = partial(lines, stream)
        yield client


def lines(stream: io.StringIO, count: int) -> list[dict]:
    """The first lines of the log; a line may be written a moment after the answer that it is about."""
    patience = time.monotonic() + 20
    while stream.getvalue().count("\n") < count and time.monotonic() < patience:
        time.sleep(0.01)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(found) >= count
    return found


def numbers(client) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.values())] = sample.value
    return found


def test_a_request_has_one_id_everywhere(logged):
    chosen = logged.get("/sparql", params={"query": "nonsense"}, headers={"X-Request-Id": "mine-1.2_3"})
    assert chosen.headers["X-Request-Id"] == chosen.json()["error"]["request_id"] == "mine-1.2_3"
    for odd in ("", "a b", "x" * 100, "<script>", 'a"b'):
        given = logged.get("/health", headers={"X-Request-Id": odd}).headers["X-Request-Id"]
        assert given != odd and given.isalnum()
    [line] = [line for line in logged.lines(2) if line.get("id") == "mine-1.2_3"]
    assert (line["status"], line["error"], line["path"]) == (400, "SparqlSyntax", "/sparql")


def test_the_log_is_json_without_what_was_asked(logged):
    logged.get("/sparql", params={"query": "SELECT ?secret { ?secret :knows ?y }"})
    logged.get("/health")
    logged.get("/no/such/%1b[31m%0a{place}", headers={"User-Agent": 'evil"{}'})
    lines = logged.lines(3)
    assert [line["event"] for line in lines] == ["ready", "request", "request"]
    line = lines[1]
    assert (line["method"], line["status"], line["mode"], line["rows"]) == ("GET", 200, "known", 11)
    assert line["length"] == 36 and line["ms"] > 0 and line["client"] == "127.0.0.1"
    assert "secret" not in json.dumps(lines)


def test_numbers_count_what_happened(logged):
    before = numbers(logged)
    for _ in range(3):
        logged.get("/sparql", params=QUERY)
    logged.get("/sparql", params={"query": "nonsense"})
    logged.get("/a/b/c")
    logged.request("BREW", "/sparql")
    after = numbers(logged)

    def grown(*key: str) -> float:
        return after.get(key, 0) - before.get(key, 0)

    assert grown("biqe_requests_total", "/sparql", "200", "GET") == 3
    assert grown("biqe_requests_total", "/sparql", "400", "GET") == 1
    assert grown("biqe_requests_total", "404", "GET", "page") == 1
    assert grown("biqe_requests_total", "/sparql", "405", "other") == 1
    assert grown("biqe_rows_total", "known") == 33
    assert grown("biqe_errors_total", "SparqlSyntax") == 1
    assert grown("biqe_request_seconds_count", "/sparql", "known") == 4
    assert after["biqe_requests_running",] == 1
    assert after["biqe_engine_queue",] > 0


def test_labels_are_few_whatever_is_asked_for(logged):
    paths = ["/sparql/x", "/api/" + "x" * 50, "/assets/a.js", "/metrics/x", "/api/ask/"]
    for path in paths:
        logged.get(path)
    told = logged.get("/metrics").text
    assert 'path="page"' in told and not [path for path in paths if path in told]


def test_a_fault_is_500_with_an_id_and_its_trace_in_the_log_only(logged, monkeypatch):
    async def broken(*_, **__):
        return {}["the secret inside"]

    monkeypatch.setattr(logged.engine, "exact", broken)
    response = logged.get("/sparql", params=QUERY)
    assert response.status_code == 500
    assert response.headers["x-content-type-options"] == "nosniff"
    error = response.json()["error"]
    assert error["type"] == "InternalError" and "secret" not in response.text and "Traceback" not in response.text
    [fault] = [line for line in logged.lines(3) if line["event"] == "fault"]
    assert fault["id"] == error["request_id"] and "the secret inside" in fault["exception"]
    monkeypatch.undo()
    assert logged.get("/sparql", params=QUERY).status_code == 200


def test_ready_says_no_while_it_stops(logged):
    assert logged.get("/ready").status_code == 200
    logged.engine._stopping = True
    try:
        assert logged.get("/ready").status_code == 503
        assert logged.get("/health").status_code == 200
        busy = logged.get("/sparql", params=QUERY)
        assert busy.status_code == 503 and int(busy.headers["Retry-After"]) > 0
    finally:
        logged.engine._stopping = False


def test_a_full_queue_is_503_with_retry_after(serve, odd_kb, monkeypatch):
    from biqe.errors import Busy

    with serve(odd_kb) as client:

        async def full(*_, **__):
            raise Busy("128 questions wait already", retry_after=3)

        monkeypatch.setattr(client.engine, "exact", full)
        response = client.get("/sparql", params=QUERY)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
        assert response.json()["error"]["type"] == "Busy"


def test_traces_name_the_route(serve, odd_kb):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from biqe.serve.config import ServeConfig

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    for telemetry, names in ((True, ["GET /sparql"]), (False, [])):
        spans.clear()
        with serve(odd_kb, ServeConfig(telemetry=telemetry)) as client:
            client.get("/sparql", params=QUERY)
            client.get("/health")
        assert [span.name for span in spans.get_finished_spans()] == names


def test_an_exporter_that_is_not_there_is_one_sentence(monkeypatch):
    from opentelemetry import trace

    from biqe.errors import InvalidOption

    monkeypatch.setattr(trace, "get_tracer_provider", object)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(InvalidOption, match="carrier-pigeon"):
        trace_settings(True)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert trace_settings(True)["tracing"] is True


def test_what_libraries_report_is_json_too():
    """asyncio speaks up where a connection breaks: without a handler, Python prints it as it is."""
    stream = io.StringIO()
    handler = forward(new_log(stream))
    try:
        logging.getLogger("asyncio").error("Task exception was never\nretrieved", exc_info=ValueError("gone"))
        logging.getLogger("uvicorn.error").info("nobody asked")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.captureWarnings(False)
    task, warning = lines(stream, 2)
    assert (task["source"], task["message"]) == ("asyncio", "Task exception was never\nretrieved")
    assert "ValueError: gone" in task["exception"]
    assert "DeprecationWarning: old" in warning["message"]


def test_a_line_of_the_log_is_written_at_once():
    """Unbuffered, as containers like it, every write is a call: an end of line of its own could land in the middle of
    another worker's."""
    writes = []

    class Unbuffered(io.StringIO):
        def write(self, text):
            writes.append(text)
            return len(text)

    log = new_log(Unbuffered())
    log.info("started", worker=1)
    log.warning("odd", message="two\nlines")
    assert [json.loads(text)["event"] for text in writes] == ["started", "odd"]
    assert all(text.endswith("}\n") and text.count("\n") == 1 for text in writes)
