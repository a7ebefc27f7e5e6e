"""Connections are spread over workers; nobody waits for one that does not take its share."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from biqe.serve import connections
from biqe.serve.connections import Connections, FairSocket
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


def test_a_worker_that_hangs_holds_nobody_up(listening, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 0.05)
    shared = Connections(2)
    with FairSocket(listening, shared, 0) as fair:
        for count in range(1, 4):
            with socket.create_connection(listening.getsockname()):
                accept(fair).close()
            assert shared[0] == count  # the other one has none, and takes none


def test_a_worker_with_fewer_takes_it_at_once(listening):
    shared = Connections(2)
    shared[1] = 5
    with FairSocket(listening, shared, 0) as fair, socket.create_connection(listening.getsockname()):
        start = time.monotonic()
        fair.accept()[0].close()
        assert time.monotonic() - start < connections.PATIENCE
    with FairSocket(listening, shared, 1) as other, pytest.raises(BlockingIOError):
        other.accept()
