"""A graph from a SPARQL endpoint: from real servers on loopback, honest ones and others."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pyoxigraph
import pytest

from biqe.cli import main
from biqe.errors import InvalidOption, UnreadableFile
from biqe.graph import endpoint, folder
from biqe.graph.endpoint import fetch, pages_of
from biqe.graph.read import read_graph

TURTLE = """@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:ann :knows :bob ; :age 34 ; rdfs:label "Ann"@en, "Anna \\"A\\"\\n"@de .
:bob :knows :ann, :carl ; :lives [ :in :Bonn ; :street "Am Markt" ] .
:carl :knows :bob . <urn:biqe:name:New%20York> :knows :ann .
"""
JSON = "application/sparql-results+json"
Answer = Callable[[str], tuple[int, dict[str, str], bytes]]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server that answers queries by a function of their text; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
            code, headers, body = answer(text)
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/sparql"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def store_of(turtle: str = TURTLE) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    store.extend(quad for quad in pyoxigraph.parse(turtle, pyoxigraph.RdfFormat.TURTLE))
    return store


def honest(
    store: pyoxigraph.Store, *, form: str = "JSON", cap: int | None = None, asked: list[str] | None = None
) -> Answer:
    """Pages of a store; never more than ``cap`` rows of one."""
    kinds = {"JSON": JSON, "XML": "application/sparql-results+xml; charset=utf-8", "TSV": "text/tab-separated-values"}

    def answer(text: str) -> tuple[int, dict[str, str], bytes]:
        if asked is not None:
            asked.append(text)
        if cap is not None and "LIMIT" in text:
            head, _, tail = text.partition("LIMIT ")
            text = f"{head}LIMIT {min(cap, int(tail.split()[0]))} {tail.partition(' ')[2]}"
        body = store.query(text).serialize(format=getattr(pyoxigraph.QueryResultsFormat, form))
        return 200, {"Content-Type": kinds[form]}, body

    return answer


def counts(store: pyoxigraph.Store) -> list[tuple[object, ...]]:
    text = "SELECT ?p (COUNT(*) AS ?n) (COUNT(DISTINCT ?o) AS ?m) { ?s ?p ?o } GROUP BY ?p ORDER BY ?p"
    return [tuple(row) for row in store.query(text)]


def fetched(path: Path) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    store.extend(pyoxigraph.parse(path=path, format=pyoxigraph.RdfFormat.N_TRIPLES))
    return store


@pytest.mark.parametrize("form", ["JSON", "XML", "TSV"])
@pytest.mark.parametrize("cap", [None, 1, 3])
def test_all_triples_come_whatever_the_pages(tmp_path: Path, form: str, cap: int | None) -> None:
    store = store_of()
    with serving(honest(store, form=form, cap=cap)) as address:
        path = fetch(address, tmp_path / "pages")
    assert counts(fetched(path)) == counts(store)
    graph = read_graph([path])
    assert graph.counts.literals == 4 and "New York" in list(graph.vocabulary.entities)


def test_the_command_imports_and_leaves_no_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(honest(store_of(), cap=4)) as address:
        assert main(["import", address, "--out", str(tmp_path / "kg"), "--split", "none"]) == 0
        assert main(["import", address, "--out", str(tmp_path / "kg")]) == 2  # it is there
        assert main(["import", address, "more.tsv", "--out", str(tmp_path / "other")]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "already holds a graph folder" in err and "an endpoint is imported alone" in err
    splits = folder.load(tmp_path / "kg")
    assert (len(splits.train), len(splits.literals)) == (7, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["kg"]


def test_an_import_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    store, asked = store_of(), list[str]()
    good = honest(store, cap=3, asked=asked)

    def failing(text: str) -> tuple[int, dict[str, str], bytes]:
        return (404, {}, b"gone") if "OFFSET 6" in text else good(text)

    answers = [failing]
    with serving(lambda text: answers[0](text)) as address:
        with pytest.raises(UnreadableFile, match="refuses the query: 404 Not Found"):
            fetch(address, tmp_path / "pages")
        with (tmp_path / "pages" / "facts.nt").open("a") as stream:
            stream.write("<http://e/half")  # as a kill leaves it
        answers[0] = good
        asked.clear()
        path = fetch(address, tmp_path / "pages")
        assert not any("OFFSET 0" in text or "OFFSET 3" in text for text in asked)
        assert counts(fetched(path)) == counts(store)
    with pytest.raises(InvalidOption, match="are of http"):
        fetch("http://127.0.0.1:1/other", tmp_path / "pages")
    (tmp_path / "pages" / "pages.json").write_text("{")
    with pytest.raises(InvalidOption, match="cannot be read"):
        fetch(address, tmp_path / "pages")


def test_pages_that_are_too_much_become_smaller(tmp_path: Path) -> None:
    store = store_of()
    good = honest(store)

    def busy(text: str) -> tuple[int, dict[str, str], bytes]:
        too_much = "COUNT" in text or int(text.partition("LIMIT ")[2].split()[0]) > 200
        return (504, {}, b"timeout") if too_much else good(text)

    with serving(busy) as address:
        assert counts(fetched(fetch(address, tmp_path / "pages"))) == counts(store)
    with (
        serving(lambda _: (503, {}, b"")) as address,
        pytest.raises(UnreadableFile, match="503 .*to a page of 100"),
    ):
        fetch(address, tmp_path / "others")


def no_offset(text: str) -> tuple[int, dict[str, str], bytes]:
    return honest(store_of("<u:a> <u:p> 1, 2, 3 ."), cap=2)(text.partition("OFFSET")[0])


def endless(text: str) -> tuple[int, dict[str, str], bytes]:
    if "COUNT" in text:
        return honest(store_of())(text)
    start = int(text.partition("OFFSET ")[2] or 0)
    rows = "".join(f"<u:{start + place}>\t<u:p>\t<u:o>\n" for place in range(10_000))
    return 200, {"Content-Type": "text/tab-separated-values"}, f"?s\t?p\t?o\n{rows}".encode()


def of_new_blanks(text: str) -> tuple[int, dict[str, str], bytes]:
    return honest(store_of())(text)  # parsing gives the node without a label another random one


def tsv(body: str) -> Answer:
    return lambda _: (200, {"Content-Type": "text/tab-separated-values"}, body.encode())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda _: (200, {"Content-Type": "text/html"}, b"<html>Welcome"),
            "answers text/html .* begins '<html>Welcome'",
        ),
        (lambda _: (200, {"Content-Type": JSON}, b"{"), "answers what are no query results"),
        (lambda _: (200, {"Content-Type": JSON}, b""), "answers what are no query results"),
        (lambda _: (200, {"Content-Type": JSON}, b'{"head":{},"boolean":true}'), "answers what are no query results"),
        (tsv("?x\n<u:a>\n"), "it has not the variables"),
        (tsv("?s\t?p\t?o\n1\t<u:p>\t<u:o>\n"), "answers what is no triple"),
        (tsv("?s\t?p\t?o\n<u:s>\t<u:p>\t\n"), "answers what is no triple"),
        (tsv("?s\t?p\t?o\n"), "holds no triple"),
        (tsv("?s\t?p\t?o\n" + "<u:s>\t<u:p>\t<u:o>\n" * 10_001), "ignores LIMIT"),
        (tsv("?s\t?p\t?o\n<u:s>\t<u:p>\t<u:o>\n"), "ignores OFFSET"),
        (no_offset, "ignores OFFSET"),
        (endless, "does not end: .* it said 11 triples"),
        (of_new_blanks, "gives its blank nodes new labels"),
        (lambda _: (401, {}, b"log in"), r"refuses the query: 401 Unauthorized \(log in\)"),
        (lambda _: (302, {"Location": "/sparql"}, b""), "refuses the query: 302 .*redirect"),
        (lambda _: (302, {"Location": "file:///etc/passwd"}, b""), "refuses the query: 302"),
        (lambda _: (200, {"Content-Type": JSON, "Content-Length": "999"}, b"{}"), "cannot be asked|cut short"),
    ],
)
def test_servers_that_lie(tmp_path: Path, answer: Answer, message: str) -> None:
    def counted(text: str) -> tuple[int, dict[str, str], bytes]:
        # Most servers can count, whatever else is wrong with them.
        return answer(text) if "COUNT" not in text or answer is endless else honest(store_of())(text)

    with serving(counted) as address, pytest.raises(UnreadableFile, match=message):
        fetch(address, tmp_path / "pages")


def test_a_silent_server_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PAGE", endpoint.SMALLEST_PAGE)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/sparql"
        with pytest.raises(UnreadableFile, match="silent for 0.05 s"):
            fetch(address, tmp_path / "pages", seconds=0.05)
    with pytest.raises(UnreadableFile, match="cannot be asked: .*refused"):
        fetch(address, tmp_path / "others", seconds=1)
    with pytest.raises(InvalidOption, match="names no host"):
        fetch("http:///sparql", tmp_path / "none")


def test_redirects_are_followed(tmp_path: Path) -> None:
    store = store_of()
    with serving(honest(store)) as real:

        def elsewhere(text: str) -> tuple[int, dict[str, str], bytes]:
            from urllib.parse import urlencode

            return 307, {"Location": f"{real}?{urlencode({'query': text})}"}, b""

        with serving(elsewhere) as address:
            assert counts(fetched(fetch(address, tmp_path / "pages"))) == counts(store)


def test_our_own_server(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "g.ttl").write_text(TURTLE, encoding="utf-8")
    splits = read_graph([tmp_path / "g.ttl"]).splits
    folder.save(splits, tmp_path / "g")
    command = [sys.executable, "-m", "biqe", "serve", str(tmp_path / "g"), "--port", "0"]
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, env=state) as server:
        try:
            assert server.stdout is not None
            lines = list[str]()
            while not lines or "http://" not in lines[-1]:
                lines.append(server.stdout.readline())
                assert lines[-1], "".join(lines)
            address = next(word for word in lines[-1].split() if word.startswith("http://"))
            path = fetch(address.rstrip("/") + "/sparql", pages_of(tmp_path / "kg"))
        finally:
            server.terminate()
            server.communicate()
    again = read_graph([path]).splits
    assert counts(fetched(path)) == counts(store_of())
    assert len(again.train) == len(splits.train) and "New York" in list(again.vocabulary.entities)
