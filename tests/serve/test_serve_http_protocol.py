"""Connections are spread over workers; nobody waits for one that does not take its share."""

from __future__ import annotations

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
