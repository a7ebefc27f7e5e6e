"""Programs that people use, against the program as people start it: ``biqe serve``, in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

QUERY = "SELECT ?city WHERE { ?city :located_on :Rhine }"
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@contextmanager
def program(*arguments: str, target: str = "atlas", home=None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``biqe serve``; its address, and the process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"XDG_STATE_HOME": str(home)} if home else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "biqe", "serve", target, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        address = None
        for line in process.stdout:
            address = address or re.search(r"page +(http://\S+)/$", line.rstrip())
            if line.startswith("Ctrl-C"):
                break
        assert address is not None, process.stderr.read()
        while True:
            assert process.poll() is None, process.stderr.read()
            try:
                with urllib.request.urlopen(f"{address[1]}/ready", timeout=30):
                    break
            except OSError:
                time.sleep(0.05)
        yield address[1], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with program("--read-only") as (address, _):
        yield address


@pytest.fixture(scope="module")
def cities(atlas_kb) -> set[str]:
    return {f"urn:biqe:name:{row.city}" for row in atlas_kb.ask(QUERY, mode="known")}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("form", ["json", "xml", "csv", "tsv"])
def test_sparqlwrapper_reads_every_form(address, cities, form, method):
    from SPARQLWrapper import SPARQLWrapper

    client = SPARQLWrapper(f"{address}/sparql")
    client.setQuery(QUERY)
    client.setMethod(method)
    client.setReturnFormat(form)
    found = client.query().convert()
    if form == "json":
        values = {row["city"]["value"] for row in found["results"]["bindings"]}
    elif form == "xml":
        values = {node.firstChild.data for node in found.getElementsByTagName("uri")}
    else:
        values = {line.strip("<>") for line in found.decode().split()[1:]}
    assert values == cities


@pytest.mark.slow
def test_sparqlwrapper_gets_predictions_by_parameter_and_by_service(address, cities):
    from SPARQLWrapper import JSON, POSTDIRECTLY, SPARQLWrapper

    client = SPARQLWrapper(f"{address}/sparql", returnFormat=JSON)
    client.setQuery(QUERY)
    client.addParameter("mode", "both")
    client.addParameter("extra", "probability,status")
    by_parameter = client.queryAndConvert()["results"]["bindings"]
    predicted = {row["city"]["value"] for row in by_parameter if row["status"]["value"] == "predicted"}
    assert len(predicted) == 20 and {row["city"]["value"] for row in by_parameter} == predicted | cities
    client = SPARQLWrapper(f"{address}/sparql", returnFormat=JSON)
    client.setRequestMethod(POSTDIRECTLY)
    client.setMethod("POST")
    client.setQuery(
        "SELECT ?city ?probability { SERVICE <urn:biqe:predict?mode=predicted> { ?city :located_on :Rhine } }"
    )
    by_service = client.queryAndConvert()["results"]["bindings"]
    assert {row["city"]["value"] for row in by_service} == predicted
    assert all(0 < float(row["probability"]["value"]) < 1 for row in by_service)


@pytest.mark.slow
def test_sparqlwrapper_constructs_asks_and_fails_as_it_should(address, cities):
    from SPARQLWrapper import JSON, TURTLE, SPARQLWrapper
    from SPARQLWrapper.SPARQLExceptions import QueryBadFormed

    client = SPARQLWrapper(f"{address}/sparql", returnFormat=TURTLE)
    client.setQuery("CONSTRUCT { ?city <http://ex.org/on> :Rhine } WHERE { ?city :located_on :Rhine }")
    from rdflib import Graph

    assert {str(subject) for subject in Graph().parse(data=client.queryAndConvert()).subjects()} == cities
    client.setReturnFormat(JSON)
    client.setQuery("ASK { :Cologne :located_on :Rhine }")
    assert client.queryAndConvert()["boolean"] is True
    client.setQuery("SELECT ?x WHERE { ?x }")
    with pytest.raises(QueryBadFormed, match="line 1"):
        client.query()


@pytest.mark.slow
def test_rdflib_treats_it_as_a_graph(address, cities):
    from rdflib import Graph, URIRef
    from rdflib.plugins.stores.sparqlstore import SPARQLStore

    name = "urn:biqe:name:".__add__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for options in ({}, {"returnFormat": "json"}, {"returnFormat": "csv"}, {"method": "POST"}):
            graph = Graph(SPARQLStore(f"{address}/sparql", **options))
            found = graph.subjects(URIRef(name("located_on")), URIRef(name("Rhine")))
            assert {str(city) for city in found} == cities
            if options.get("returnFormat") == "csv":
                continue  # rdflib does not read the answer to ASK from CSV
            assert (URIRef(name("Cologne")), URIRef(name("located_on")), URIRef(name("Rhine"))) in graph
            assert (URIRef(name("Tokyo")), URIRef(name("located_on")), URIRef(name("Rhine"))) not in graph
            rows = graph.query("SELECT ?c WHERE { ?c <urn:biqe:name:capital_of> <urn:biqe:name:France> }")
            assert [str(row.c) for row in rows] == [name("Paris")]


@pytest.mark.slow
def test_rdflib_treats_it_as_a_dataset(address, cities):
    from rdflib import Dataset
    from rdflib.plugins.stores.sparqlstore import SPARQLStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for options in ({}, {"method": "POST"}, {"method": "POST_FORM"}):
            dataset = Dataset(store=SPARQLStore(f"{address}/sparql", **options))
            rows = dataset.query("SELECT ?c WHERE { ?c <urn:biqe:name:located_on> <urn:biqe:name:Rhine> }")
            assert {str(row.c) for row in rows} == cities


@pytest.mark.slow
def test_curl_as_the_guide_shows_it(address, cities):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [curl, "--silent", "--show-error", *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = run("-H", "Accept: text/csv", "--data-urlencode", f"query={QUERY}", f"{address}/sparql")
    assert set(listed.split()[1:]) == cities
    direct = run("-H", "Content-Type: application/sparql-query", "--data-binary", QUERY, f"{address}/sparql")
    assert len(json.loads(direct)["results"]["bindings"]) == len(cities)
    got = run("--get", "--data-urlencode", f"query={QUERY}", "-d", "format=tsv", f"{address}/sparql")
    assert {line.strip("<>") for line in got.split()[1:]} == cities
    status = run("-o", os.devnull, "-w", "%{http_code}", "-d", "update=INSERT DATA { :a :b :c }", f"{address}/update")
    assert status == "403"
    assert "biqe" in run(f"{address}/")


@pytest.mark.slow
def test_rdflib_writes_what_is_there_after_a_restart(tmp_path, odd_kb):
    from rdflib import Graph, Literal, URIRef
    from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore

    name = "urn:biqe:name:".__add__
    triple = URIRef(name("Atlantis")), URIRef(name("located_on")), URIRef(name("Rhine"))
    depth = URIRef(name("Atlantis")), URIRef("http://ex.org/depth"), Literal(4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with program(target=odd_kb.name, home=tmp_path) as (address, _):
            graph = Graph(SPARQLUpdateStore(f"{address}/sparql", f"{address}/update", context_aware=False))
            graph.add(triple)
            graph.add(depth)
            assert triple in graph
            graph.add((triple[2], triple[1], triple[0]))
            graph.remove((triple[2], triple[1], triple[0]))
        with program("--workers", "2", target=odd_kb.name, home=tmp_path) as (address, _):
            graph = Graph(SPARQLUpdateStore(f"{address}/sparql", f"{address}/update", context_aware=False))
            assert triple in graph and (triple[2], triple[1], triple[0]) not in graph
            assert graph.value(*depth[:2]) == depth[2]
    assert [path.name.startswith("g-") for path in (tmp_path / "biqe").iterdir()] == [True]


@pytest.mark.slow
def test_several_workers_answer_add_up_and_end_together(cities):
    with program("--read-only", "--workers", "2") as (address, process):
        began = [process.stderr.readline()]
        while began[-1] and sum('"event": "ready"' in line for line in began) < 2:  # one alone may answer all below
            began.append(process.stderr.readline())
        for _ in range(40):
            request = urllib.request.Request(
                f"{address}/sparql?query={urllib.request.quote(QUERY)}", headers={"Connection": "close"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                found = {row["city"]["value"] for row in json.load(response)["results"]["bindings"]}
                assert found == cities
        # A request is counted after its last byte was sent, so the count may come a moment later.
        stops, total = time.monotonic() + 30, ""
        while total != "40.0" and time.monotonic() < stops:
            with urllib.request.urlopen(f"{address}/metrics", timeout=60) as response:
                numbers = response.read().decode()
            counted = r'^biqe_requests_total\{method="GET",path="/sparql",status="200"\} (\S+)$'
            [total] = re.findall(counted, numbers, re.M)
        assert total == "40.0"
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        connection.request("GET", "/health", headers=WEBSOCKET)  # answered as plain HTTP, without a word in the log
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGTERM)
        _, ended = process.communicate(timeout=60)
    log = "".join(began) + ended
    assert "websocket" not in log.lower() and "upgrade" not in log.lower()
    assert process.returncode == 0, log
    assert [line for line in log.splitlines() if not line.startswith("{")] == []
    events = [json.loads(line) for line in log.splitlines()]
    seen = {event["process"] for event in events if event["event"] == "worker started"}
    assert len(seen) == 2
    assert sum(event["event"] == "stopped" for event in events) == 2


@pytest.mark.slow
def test_a_port_in_use_is_one_sentence(address, capsys):
    from biqe.cli import main

    port = address.rpartition(":")[2]
    assert main(["serve", "atlas", "--port", port, "--read-only"]) == 2
    error = capsys.readouterr().err
    assert "cannot listen" in error and "Traceback" not in error


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom biqe.cli import main\nassert main(['serve', '--help']) == 0\n"
        "print(sorted({'torch', 'fastapi', 'uvicorn', 'numpy', 'pyoxigraph'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_extra_is_named(monkeypatch, capsys):
    import importlib.util

    from biqe.cli import main

    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    assert main(["serve", "atlas"]) == 2
    error = capsys.readouterr().err
    assert "uvicorn" in error and "biqe[serve]" in error


def test_changes_of_another_graph_are_refused(atlas_kb, odd_kb, tmp_path):
    from biqe.errors import InvalidOption, VocabularyMismatch
    from biqe.serve.start import open_live

    open_live(odd_kb, tmp_path / "live", read_only=False).close()
    open_live(odd_kb, tmp_path / "live", read_only=True).close()
    with pytest.raises(VocabularyMismatch):
        open_live(atlas_kb, tmp_path / "live", read_only=False)
    with pytest.raises(InvalidOption):
        open_live(atlas_kb, tmp_path / "none", read_only=True)
    assert open_live(atlas_kb, None, read_only=True) is None
