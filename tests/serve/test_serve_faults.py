"""A real server under everything that goes wrong: kills, a full disk, garbage, clients that leave, and requests made up
at random. It stays up, and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

pytestmark = pytest.mark.slow

PREDICTED = "SELECT ?r ?c WHERE { ?r :flows_through :Germany . ?c :located_on ?r }"
EVERYTHING = "CONSTRUCT { ?a ?p ?b } WHERE { ?a ?p ?b }"


class Server:
    """``biqe serve`` with changes kept in a folder."""

    def __init__(self, folder, *options, target="atlas", file_bytes=None):
        def limit():
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        self.process = subprocess.Popen(
            [sys.executable, "-m", "biqe", "serve", target, "--port", "0", "--live", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=limit,
        )
        self.port = None
        for line in self.process.stdout:
            if found := re.search(r"http://127.0.0.1:(\d+)/sparql", line):
                self.port = int(found[1])
                break
        assert self.port is not None, "the server did not start"
        until(lambda: self.status("GET", "/ready") == 200)

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self, *arguments):
        try:
            return self.ask(*arguments)[0]
        except OSError:
            return 0

    def query(self, text, **parameters):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", "/sparql", urlencode({"query": text, **parameters}), form)

    def holds(self, pattern):
        status, body = self.query(f"ASK {{ {pattern} }}")
        assert status == 200, body
        return json.loads(body)["boolean"]

    def insert(self, statements):
        """Status of an update."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", "/update", urlencode({"update": f"INSERT DATA {{ {statements} }}"}), form)[0]

    @property
    def workers(self):
        """Process ids of those who answer: children of the supervisor that are not the exact store's service."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in found if b"exact_process" not in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.stdout.close()

    def kill(self):
        """The supervisor and all workers at once, as when the machine fails."""
        pids = [*self.workers, self.process.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def until(condition, seconds=120):
    stops = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < stops, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("faults") / "live", "--workers", "2", "--seconds", "20")
    yield running
    assert running.process.poll() is None, "the supervisor lived to the end"
    assert running.stop() == 0


def is_well(server):
    """Every worker answers exact and predicted questions."""
    return server.query("ASK { ?a ?b ?c }")[0] == 200 and server.query(PREDICTED, mode="both", top=3)[0] == 200


GARBAGE = [
    b"\x00" * 100,
    b"\xff\xfe\xfd" * 500,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # as TLS begins
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /sparql?query=%ZZ%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"a" * 200_000,
    b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
    b"G" * 300_000,
    b"\r\n" * 10_000,
]


def test_garbage_is_answered_or_hung_up_on(server):
    rng = random.Random(0)
    for garbage in [*GARBAGE, *(rng.randbytes(rng.randrange(1, 3_000)) for _ in range(60))]:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while piece := connection.recv(65_536):
                    answer += piece
                assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505")), (garbage[:60], answer[:200])
                assert b"Traceback" not in answer
    assert is_well(server)


def test_clients_that_leave_in_the_middle_of_an_answer(server):
    workers = server.workers
    for number in range(24):
        body = urlencode({"query": PREDICTED if number % 2 else EVERYTHING, "mode": "both" if number % 2 else "known"})
        head = (
            "POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall((head + body).encode())
            if number % 4 == 0:
                connection.recv(100)  # a little of the answer, and then gone
            # A reset rather than a polite end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    # A half-sent request, left open while others are answered.
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nquery=")
        assert is_well(server)
    assert server.workers == workers, "no worker was lost over it"


WORDS = (
    "SELECT ASK CONSTRUCT DESCRIBE WHERE { } ( ) . ; , * ?x ?y ?r :Rhine :Germany :located_on :near :flows_through "
    "FILTER UNION OPTIONAL SERVICE <urn:biqe:predict> BIND VALUES LIMIT 5 OFFSET -1 ORDER BY DESC DISTINCT COUNT AS "
    "PREFIX a: <http://a/> BASE <> 'text' \"text\"@en 1.5e400 true != = < > && || ! + / ^ | [] _:b # GRAPH FROM LOAD "
    "INSERT DELETE DATA \\u0000 \x00 \x7f é 漢 \U0001f600 <script> %00 '' "
    "" + '""" """'
).split(" ")
PATHS = [
    "/sparql",
    "/update",
    "/api/ask",
    "/api/explain",
    "/api/parse",
    "/api/complete",
    "/api/graph",
    "/api/models",
    "/",
    "/metrics",
    "/health",
    "/ready",
    "/api/openapi.json",
    "/../etc/passwd",
    "/assets/../../x",
    "/%2e%2e/%00",
    "/sparql/",
    "//",
    "/favicon.ico",
    "/api/load",
]
TYPES = [
    "application/x-www-form-urlencoded",
    "application/sparql-query",
    "application/sparql-update",
    "application/json",
    "text/turtle",
    "multipart/form-data; boundary=x",
    "nonsense",
    "",
]


def any_text(rng):
    if rng.random() < 0.3:
        return rng.choice([PREDICTED, EVERYTHING, "ASK { ?a ?b ?c }", "SELECT ?c WHERE { ?c :located_on :Rhine }"])
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 14)))


def any_value(rng):
    return rng.choice(["both", "known", "predicted", "-1", "0", "5", "1e99", "nan", "", "auto", "x" * 50, None, [], {}])


def any_request(rng):
    """A request as bytes; half of them nearly right."""
    path, body = rng.choice(PATHS if rng.random() < 0.3 else PATHS[:5]), b""
    method = "POST" if rng.random() < 0.7 else rng.choice(["GET", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "BREW"])
    text = any_text(rng)
    fields = {name: str(any_value(rng)) for name in ("mode", "top", "extra", "model", "format") if rng.random() < 0.15}
    if rng.random() < 0.5:
        path += "?" + urlencode({"query": text, **fields}) if rng.random() < 0.7 else "?" + quote(text, safe="%&=")
    headers = {"Host": "127.0.0.1", "Connection": "close"}
    if method == "POST":
        kind = rng.choice(TYPES)
        if kind == "application/json":
            made = {
                "query": text,
                **{k: any_value(rng) for k in ("mode", "top", "limit", "row", "x") if rng.random() < 0.3},
            }
            body = json.dumps(made).encode() if rng.random() < 0.9 else rng.choice([b"[{}]", b"{", b"null", b"\xff"])
        elif kind.endswith("urlencoded"):
            body = urlencode({rng.choice(["query", "query", "update", "q"]): text, **fields}).encode()
        else:
            body = text.encode()
        if rng.random() < 0.05:
            body = rng.randbytes(rng.randrange(200))
        headers |= {"Content-Type": kind, "Content-Length": str(len(body))}
    if rng.random() < 0.2:
        headers[rng.choice(["Accept", "X-Biqe-Mode", "Authorization", "Range", "Expect", "X-Request-Id"])] = (
            any_text(rng).encode().decode("latin-1").translate(dict.fromkeys(map(ord, "\r\n\0\x7f"), " "))
        )
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    safe = quote(path, safe="/?&=%+:.*~")
    return f"{method} {safe} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def test_requests_made_up_at_random(server):
    count = int(os.environ.get("BIQE_FUZZ_REQUESTS", "3000"))
    workers = server.workers
    seen: dict[int, int] = {}
    wrong = []

    def send(seed):
        rng = random.Random(seed)
        for _ in range(count // 8):
            request = any_request(rng)
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                    connection.sendall(request)
                    answer = b""
                    while piece := connection.recv(65_536):
                        answer += piece
            except ConnectionError:
                continue  # it hung up while we were still talking
            status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
            seen[status] = seen.get(status, 0) + 1
            if status in (0, 500) or b"Traceback" in answer:
                wrong.append((request[:400], answer[:400]))

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert seen.get(200, 0) > count // 50 and seen.get(400, 0) > count // 10, "it did not all end at the door"
    assert is_well(server)
    assert server.workers == workers, "no worker was lost over it"


def test_nothing_acknowledged_is_lost_when_workers_are_killed(server):
    stop = threading.Event()
    acknowledged: list[str] = []

    def write(writer):
        number = 0
        while not stop.is_set():
            statement = f":made_{writer}_{number} :near :Bonn"
            with contextlib.suppress(OSError, http.client.HTTPException):
                if server.insert(statement) == 200:
                    acknowledged.append(statement)
            number += 1

    def read():
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.query(PREDICTED, mode="both", top=3)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        before = len(acknowledged)
        until(lambda: len(acknowledged) > before + 5)  # noqa: B023
        os.kill(random.choice(server.workers), signal.SIGKILL)
        until(lambda: len(server.workers) == 2)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(acknowledged) > 20
    missing = [statement for statement in acknowledged if not server.holds(statement)]
    assert not missing
    assert is_well(server)


def test_nothing_acknowledged_is_lost_when_everything_is_killed(tmp_path, odd_kb):
    folder = tmp_path / "live"
    acknowledged: list[str] = []
    for turn in range(2):
        server = Server(folder, target=odd_kb.name)
        for statement in acknowledged:
            assert server.holds(statement)
        stop = threading.Event()

        def write(server=server, stop=stop, turn=turn):
            number = 0
            while not stop.is_set():
                statement = f":turn_{turn}_{number} :near :Bonn"
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if server.insert(statement) == 200:
                        acknowledged.append(statement)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        before = len(acknowledged)
        until(lambda: len(acknowledged) > before + 10)  # noqa: B023
        server.kill()
        stop.set()
        writer.join()
    server = Server(folder, target=odd_kb.name)
    assert all(map(server.holds, acknowledged))
    assert server.stop() == 0


def test_a_full_disk_stops_writes_and_nothing_else(tmp_path, odd_kb):
    # No file may grow beyond this size, which is how a full disk looks to who writes.
    server = Server(tmp_path / "live", target=odd_kb.name, file_bytes=3 << 20)
    acknowledged, refused = [], []
    while len(refused) < 3:
        number = len(acknowledged) + len(refused)
        padding = " . ".join(f":{'x' * 4_000}_{number}_{n} :near :Bonn" for n in range(100))
        statement = f":before_{number} :near :Bonn"
        (acknowledged if server.insert(f"{statement} . {padding}") == 200 else refused).append(statement)
    assert acknowledged and refused, "some of it fitted and some did not"
    assert server.query(EVERYTHING)[0] == 200
    assert all(map(server.holds, acknowledged))
    assert not any(map(server.holds, refused))
    assert server.stop() == 0
    again = Server(tmp_path / "live", target=odd_kb.name)
    assert all(map(again.holds, acknowledged))
    assert again.insert(":after :near :Bonn") == 200 and again.holds(":after :near :Bonn")
    assert again.stop() == 0
