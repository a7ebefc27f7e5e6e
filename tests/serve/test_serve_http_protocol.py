"""Connections are shared among workers; what is refused before there is a request."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest

from biqe.serve import http_protocol
from biqe.serve.http_protocol import AWAY, Connections, FairSocket
from biqe.serve.workers import listen


@pytest.fixture
def listening():
    with listen("127.0.0.1", 0) as found:
        found.setblocking(False)
        yield found


def accept(fair: FairSocket, seconds: float = 5.0) -> socket.socket:
    """What a loop that is woken again and again gets."""
    stops = time.monotonic() + seconds
    while time.monotonic() < stops:
        try:
            return fair.accept()[0]
        except BlockingIOError:
            time.sleep(0.0005)
    raise AssertionError("no connection was taken")


def test_connections_that_come_at_once_are_shared_evenly(listening):
    shared = Connections(3)
    for worker in range(3):
        shared[worker] = 0
    taken: list[list[socket.socket]] = [[], [], []]
    stop = threading.Event()

    def work(worker: int) -> None:
        with FairSocket(listening, shared, worker) as fair:
            while not stop.is_set():
                try:
                    taken[worker].append(fair.accept()[0])
                except BlockingIOError:
                    time.sleep(0.001 * worker)  # some are slower to wake up than others

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    clients = [socket.create_connection(listening.getsockname()) for _ in range(30)]
    stops = time.monotonic() + 20
    while sum(map(len, taken)) < 30 and time.monotonic() < stops:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(map(len, taken)) == 30
    assert min(map(len, taken)) >= 8
    assert [shared[worker] for worker in range(3)] == list(map(len, taken))
    for each in [*clients, *(one for some in taken for one in some)]:
        each.close()


def test_a_worker_that_hangs_holds_nobody_up(listening):
    shared = Connections(2)
    shared[0], shared[1] = 3, 0
    with FairSocket(listening, shared, 0) as fair:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(20)]
        accept(fair).close()  # the other one has had its time
        for _ in clients[1:]:
            fair.accept()[0].close()  # and is not waited for again
        assert shared[0] == 23
        for client in clients:
            client.close()


def test_a_worker_with_fewer_takes_it_at_once(listening):
    shared = Connections(2)
    shared[0], shared[1] = 0, 5
    with FairSocket(listening, shared, 0) as fair, socket.create_connection(listening.getsockname()):
        fair.accept()[0].close()
    with FairSocket(listening, shared, 1) as other, pytest.raises(BlockingIOError):
        other.accept()


def test_workers_that_take_none_do_not_count(listening):
    shared = Connections(3)
    assert [shared[worker] for worker in range(3)] == [AWAY] * 3
    shared[1] = 7
    assert not shared.is_ahead(1)
    with FairSocket(listening, shared, 1) as fair, socket.create_connection(listening.getsockname()):
        fair.accept()[0].close()
    assert shared[1] == 8


def test_what_others_took_long_ago_is_forgotten(listening, monkeypatch):
    monkeypatch.setattr(http_protocol, "ALONE", 0.05)
    shared = Connections(2)
    shared[0], shared[1] = 9, 0
    with FairSocket(listening, shared, 0) as fair:
        for _ in range(http_protocol.LOOKS - 1):
            with pytest.raises(BlockingIOError):
                fair.accept()
        time.sleep(0.1)
        with socket.create_connection(listening.getsockname()), pytest.raises(BlockingIOError):
            fair.accept()


def test_headers_that_trickle_in_are_not_waited_for(odd, monkeypatch):
    monkeypatch.setattr("biqe.serve.http_protocol.HEAD_SECONDS", 0.3)
    place = (odd.base_url.host, odd.base_url.port)
    with socket.create_connection(place, timeout=20) as silent:
        assert silent.recv(1_000) == b"", "who says nothing is told nothing"
    with socket.create_connection(place, timeout=20) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A")
        head, _, body = _all_of(slow).partition(b"\r\n\r\n")
        assert head.split()[1] == b"408" and json.loads(body)["error"]["type"] == "RequestRefused"
    with socket.create_connection(place, timeout=20) as second:
        second.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert second.recv(10_000).split()[1] == b"200"
        second.sendall(b"GET /hea")
        assert _all_of(second).split()[1] == b"408", "the next headers have no more time"
    with socket.create_connection(place, timeout=20) as in_time:
        for piece in (b"GET /health HTTP/1.1\r\n", b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n"):
            in_time.sendall(piece)
            time.sleep(0.05)
        assert _all_of(in_time).split()[1] == b"200"


def _all_of(connection):
    answer = b""
    while piece := connection.recv(10_000):
        answer += piece
    return answer


def test_one_address_has_so_many_connections_and_no_more(odd, monkeypatch):
    from biqe.serve.http_protocol import HttpProtocol

    place = (odd.base_url.host, odd.base_url.port)
    monkeypatch.setattr("biqe.serve.http_protocol.CONNECTIONS", HttpProtocol.of_address["127.0.0.1"] + 2)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(place, timeout=20)) for _ in range(2)]
        for connection in held:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(10_000).split()[1] == b"200"
        with socket.create_connection(place, timeout=20) as refused:
            head = _all_of(refused).partition(b"\r\n\r\n")[0].lower()
            assert head.split()[1] == b"503" and b"retry-after: 5" in head
    stops = time.monotonic() + 20
    while HttpProtocol.of_address["127.0.0.1"] > 1 and time.monotonic() < stops:
        time.sleep(0.01)
    with socket.create_connection(place, timeout=20) as welcome:
        welcome.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert _all_of(welcome).split()[1] == b"200"


def test_headers_that_never_end_are_431_and_no_http_is_400(odd, exchange):
    long = exchange(odd, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n")
    head, _, body = long.partition(b"\r\n\r\n")
    assert head.split()[1] == b"431" and b"application/json" in head
    assert "longer" in json.loads(body)["error"]["message"]
    assert exchange(odd, b"nonsense\r\n\r\n").split()[1] == b"400"
    assert odd.get("/health").status_code == 200


def test_headers_beyond_all_bounds_close_the_connection(odd):
    with socket.create_connection((odd.base_url.host, odd.base_url.port), timeout=20) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        try:
            for number in range(200_000):
                raw.sendall(b"X-%d: y\r\n" % number)
        except OSError:
            pass
        answer = b""
        try:
            answer = raw.recv(200)
        except OSError:
            pass
    assert answer == b"" or answer.split()[1] in (b"400", b"431")
    assert odd.get("/health").status_code == 200
