"""How long light requests wait while other clients attack the server, and how much memory it takes.

    python benchmarks/serve_attack.py                         # biqe serve atlas, 3 x 10 s for each attack
    python benchmarks/serve_attack.py --quick                 # 5 s each, once
    python benchmarks/serve_attack.py --spread                # each request of an attack from an address of its own
    python benchmarks/serve_attack.py --target runs/fb --workers 2

For each attack a server is started, with changes kept in a temporary folder. One client asks the example queries of
its graph, known and predicted in turns, and for completions; another inserts a triple at a time. Both pause for 20 ms
after each answer. The attackers have other addresses (127.0.1.1 and so on) and ask again as soon as they are answered.
A quiet time as long comes before each attack, so that whatever else the machine does counts for both.

    paths     40 connections, each a query over paths of any length between two unknowns
    joins     4 connections, each a cross join: two of the exact store, two of the JSON API
    insert    one INSERT whose WHERE part has no end
    upload    RDF/XML nested 200,000 deep, RDF/XML with entities in entities, and a gzip bomb
    all       all of these at once
    largest   an upload of as many new nodes as are allowed
    predict   40 connections, each a prediction of three unknowns

For each attack: light questions, their median, 99th percentile and worst time in milliseconds, errors, the percentile
of the quiet times before it, that of each kind of light request, and the largest sum of memory (PSS) of all processes
of the server. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from biqe.evaluate.machine import machine, write_result
from biqe.serve.live.upload import MAX_STATEMENTS
from serve_load import memory_mib

FORM = "application/x-www-form-urlencoded"
PATHS = "SELECT (COUNT(*) AS ?n) WHERE { ?a (<x:a>|!<x:a>)+ ?b . ?c (<x:a>|!<x:a>)+ ?d }"
JOIN = "SELECT ?a ?c ?e WHERE { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f } ORDER BY ?a ?c ?e"
INSERT = "INSERT { ?a <x:meets> ?d } WHERE { ?a (<x:a>|!<x:a>)+ ?b . ?c (<x:a>|!<x:a>)+ ?d }"
ATTACKS = ("paths", "joins", "insert", "upload", "all", "largest", "predict")
PAUSE = 0.02
"""Seconds between an answer and the next light request."""
HEAD = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="urn:x:">'


@dataclass
class Request:
    """One HTTP request."""

    path: str
    body: bytes = b""
    media_type: str = FORM

    @classmethod
    def form(cls, path: str, **fields: str) -> Request:
        return cls(path, "&".join(f"{name}={quote(value)}" for name, value in fields.items()).encode())

    def written(self) -> bytes:
        method = "POST" if self.body else "GET"
        return (
            f"{method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {self.media_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        ).encode() + self.body


@dataclass
class Times:
    """What came of the requests of one kind."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def __iadd__(self, other: Times) -> Times:
        self.seconds += other.seconds
        self.statuses += other.statuses
        return self

    def facts(self) -> dict[str, float]:
        every = np.array(self.seconds or [0.0]) * 1e3
        return {
            "requests": len(self.seconds),
            "p50_ms": round(float(np.percentile(every, 50)), 1),
            "p99_ms": round(float(np.percentile(every, 99)), 1),
            "worst_ms": round(float(every.max()), 1),
            "errors": sum(count for status, count in self.statuses.items() if status != 200),
        }


class Client:
    """One connection from an address of its own choice."""

    def __init__(self, port: int, address: str) -> None:
        self.port, self.address = port, address
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """Status and body; status 0 if the connection broke."""
        try:
            if self.streams is None:
                self.streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0))
            reader, writer = self.streams
            writer.write(request.written())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            body = await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
            if "connection: close" in head:
                self.close()
            return int(head.split(" ", 2)[1]), body
        except (OSError, EOFError, ValueError):
            self.close()
            return 0, b""

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def ask_lightly(
    port: int, address: str, requests: Iterator[tuple[str, Request]], times: dict[str, Times]
) -> None:
    """One light request after the other, until cancelled."""
    client = Client(port, address)
    try:
        for kind, request in requests:
            start = time.perf_counter()
            status, _ = await client.ask(request)
            times.setdefault(kind, Times()).seconds.append(time.perf_counter() - start)
            times[kind].statuses[status] += 1
            await asyncio.sleep(PAUSE)
    finally:
        client.close()


async def attack_with(port: int, address: str, request: Request, statuses: Counter[int]) -> None:
    """The same request again and again, until cancelled."""
    client = Client(port, address)
    try:
        while True:
            status, _ = await client.ask(request)
            statuses[status] += 1
            await asyncio.sleep(0.01)
    finally:
        client.close()


def attacks(queries: list[str]) -> dict[str, list[Request]]:
    """The requests of each attack that are sent at once."""
    entities = b"".join(b'<!ENTITY e%d "%s">' % (n, b"&e%d;" % (n - 1) * 10) for n in range(1, 12))
    api = {"query": JOIN.partition(" ORDER")[0], "mode": "known"}
    joins = [Request.form("/sparql", query=JOIN)] * 2
    joins += [Request("/api/ask", json.dumps(api).encode(), "application/json")] * 2
    uploads = [
        HEAD + b"<a><b>" * 100_000 + b"</b></a>" * 100_000 + b"</rdf:RDF>",
        b'<!DOCTYPE r [<!ENTITY e0 "xxxxxxxxxx">' + entities + b"]>" + HEAD + b"<a><b>&e11;</b></a></rdf:RDF>",
    ]
    bomb = gzip.compress(b"".join(b"a%d\tr\t%s\n" % (number, b"b" * 1000) for number in range(400_000)), 1)
    nodes = b"@prefix : <urn:x:> . " + b"[] :p :o . " * MAX_STATEMENTS
    found: dict[str, list[Request]] = {
        "paths": [Request.form("/sparql", query=PATHS)] * 40,
        "joins": joins,
        "insert": [Request.form("/update", update=INSERT)],
        "upload": [Request("/api/load", body, "application/rdf+xml") for body in uploads]
        + [Request("/api/load", bomb, "text/tab-separated-values")],
    }
    found["all"] = [request for each in found.values() for request in each]
    found["largest"] = [Request("/api/load", nodes, "text/turtle")]
    found["predict"] = [Request.form("/sparql", query=unknowns(queries[0]), mode="predicted", top="1000")] * 40
    return found


def unknowns(query: str) -> str:
    """A question of three unknowns, with the relation of the first pattern of an example."""
    relation = re.findall(r"[:\w<>/#.-]+", query.partition("{")[2])[1]
    return f"SELECT ?x ?y ?z WHERE {{ ?x {relation} ?y . ?z {relation} ?y }}"


def light_requests(queries: list[str]) -> Iterator[tuple[str, Request]]:
    """Known and predicted rows of the examples, and completions, in turns."""
    for query in itertools.cycle(queries):
        yield "known", Request.form("/sparql", query=query)
        yield "predicted", Request.form("/sparql", query=query, mode="predicted", top="10")
        yield "complete", Request("/api/complete?text=B&kind=entity")


def inserts() -> Iterator[tuple[str, Request]]:
    """Triples, one at a time."""
    for number in itertools.count():
        yield "insert", Request.form("/update", update=f"INSERT DATA {{ <x:s{number}> <x:p> <x:o> }}")


@dataclass
class Measured:
    """What came of one attack, or of the quiet times before it."""

    times: dict[str, Times] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    memory_mib: int = 0

    def facts(self) -> dict[str, Any]:
        questions = Times()
        for kind, each in self.times.items():
            if kind != "insert":
                questions += each
        return {
            **questions.facts(),
            "memory_mib": self.memory_mib,
            "attack_answers": {str(status): count for status, count in sorted(self.statuses.items())},
            "kinds": {kind: each.facts() for kind, each in sorted(self.times.items())},
        }


async def measure(
    into: Measured, port: int, pid: int, queries: list[str], requests: list[Request], options: Any
) -> None:
    """One round of one attack."""
    light = [
        asyncio.create_task(ask_lightly(port, "127.0.0.2", light_requests(queries), into.times)),
        asyncio.create_task(ask_lightly(port, "127.0.0.3", inserts(), into.times)),
    ]
    attackers = [
        asyncio.create_task(attack_with(port, f"127.0.1.{number + 1 if options.spread else 1}", request, into.statuses))
        for number, request in enumerate(requests)
    ]
    stops = time.perf_counter() + options.seconds
    while time.perf_counter() < stops:
        into.memory_mib = max(into.memory_mib, await asyncio.to_thread(memory_mib, pid))
        await asyncio.sleep(0.25)
    for task in (*light, *attackers):
        task.cancel()
    await asyncio.gather(*light, *attackers, return_exceptions=True)


@contextlib.contextmanager
def server(options: Any) -> Iterator[tuple[int, int]]:
    """Process id and port of a running server."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+") as log:
        command = [sys.executable, "-m", "biqe", "serve", options.target, "--port", "0", "--live", f"{folder}/live"]
        process = subprocess.Popen(
            [*command, "--workers", str(options.workers)], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            port = next((int(found[1]) for line in lines if (found := re.search(r":(\d+)/sparql", line))), None)
            if port is None:
                raise SystemExit(f"the server did not start: {Path(log.name).read_text()[-1000:]}")
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


async def settled(port: int) -> list[str]:
    """Wait until the server is ready and has noticed that the attackers left; returns its example queries."""
    client = Client(port, "127.0.0.4")
    try:
        await asyncio.sleep(2.0)
        while (await client.ask(Request("/ready")))[0] != 200:
            await asyncio.sleep(0.25)
        _, body = await client.ask(Request("/api/graph"))
        return [example["query"] for example in json.loads(body)["examples"]]
    finally:
        client.close()


async def run(options: Any) -> dict[str, Any]:
    """All attacks, in rounds, each on a server of its own: an upload leaves a larger graph behind."""
    found: dict[str, tuple[Measured, Measured]] = {}
    for _ in range(options.rounds):
        for name in options.only or ATTACKS:
            with server(options) as (pid, port):
                queries = await settled(port)
                for into, sent in zip(
                    found.setdefault(name, (Measured(), Measured())), ([], attacks(queries)[name]), strict=True
                ):
                    await measure(into, port, pid, queries, sent, options)
                    await settled(port)
    print(
        f"{'attack':9}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'worst ms':>10}{'errors':>8}{'quiet p99':>11}{'MiB':>7}"
    )
    facts = {}
    for name, (quiet, attacked) in found.items():
        now = facts[name] = attacked.facts() | {"quiet_p99_ms": quiet.facts()["p99_ms"]}
        print(
            f"{name:9}{now['requests']:9}{now['p50_ms']:9.1f}{now['p99_ms']:9.1f}{now['worst_ms']:10.1f}"
            f"{now['errors']:8}{now['quiet_p99_ms']:11.1f}{now['memory_mib']:7}   p99 of "
            + ", ".join(f"{kind} {each['p99_ms']:,.0f}" for kind, each in now["kinds"].items())
        )
    return facts


def main() -> None:
    """Read the options, start, attack, print."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends as well
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="atlas", help="what is served: atlas, or a run folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, help="some of the attacks")
    parser.add_argument("--spread", action="store_true", help="an address of its own for each request of an attack")
    parser.add_argument("--quick", action="store_true", help="5 s of each attack, once")
    parser.add_argument("--out", type=Path, help="also write the result there, such as results/serve/serve_attack.json")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 5.0, 1
    before = os.getloadavg()[0]
    found = asyncio.run(run(options))
    result: dict[str, Any] = {"benchmark": "serve_attack", "target": options.target, "workers": options.workers}
    result |= {"spread": options.spread, "seconds": options.seconds, "rounds": options.rounds}
    result |= {"load_average_before": round(before, 1), "load_average_after": round(os.getloadavg()[0], 1)}
    result |= {
        f"{name}_ms": {attack: facts[name + "_ms"] for attack, facts in found.items()} for name in ("p99", "quiet_p99")
    }
    result |= {"attacks": found}
    result |= {"machine": machine()}
    write_result(result, options.out)


if __name__ == "__main__":
    main()
