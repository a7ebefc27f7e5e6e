"""Worker processes: one socket, restarts, a graceful end, and memory that is shared. Real processes, real kills."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from biqe.errors import InvalidOption, RunFailed
from biqe.serve.workers import Supervisor, listen

APP = """
    import asyncio, json, os, sys, time
    from biqe.serve.http_protocol import Connections
    from biqe.serve.workers import Supervisor, listen, serve_socket

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        path = scope["path"]
        if path.startswith("/wait/"):
            await asyncio.sleep(float(path.removeprefix("/wait/")))
        if path == "/die":
            os.kill(os.getpid(), 9)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})

    def tell(event, **facts):
        # In one piece: several processes write to one pipe.
        os.write(1, (json.dumps({"event": event, **facts}) + "\\n").encode())
"""


def script(main):
    return textwrap.dedent(APP) + textwrap.dedent(main)


@contextlib.contextmanager
def program(main, *arguments):
    """A running program; its lines of output are events."""
    process = subprocess.Popen(
        [sys.executable, "-c", script(main), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.events = []

    def read():
        for line in process.stdout:
            process.events.append(json.loads(line))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pid in pids_of(process):  # a worker that outlived it, which is a failure, would keep the pipe open for ever
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reader.join()
        process.stdout.close()
        process.stderr.close()


def until(condition, seconds=60):
    stops = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < stops, "it did not happen"
        time.sleep(0.01)
    return found


SERVER = """
    socket = listen("127.0.0.1", 0)
    tell("listening", port=socket.getsockname()[1])
    connections = Connections(int(sys.argv[1]))
    work = lambda number: serve_socket(app, socket, connections=connections, worker=number)
    Supervisor(work, count=int(sys.argv[1]), stop_seconds=20, tell=tell).run()
    tell("over")
"""


def port_of(process):
    return until(lambda: next((event["port"] for event in process.events if event["event"] == "listening"), None))


def pids_of(process):
    started = [event["process"] for event in process.events if event["event"] == "worker started"]
    ended = [event["process"] for event in process.events if event["event"] == "worker ended"]
    return [pid for pid in started if pid not in ended]


def get(port, path="/", timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return int(connection.getresponse().read())
    finally:
        connection.close()


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_all_workers_answer_on_one_port():
    with program(SERVER, "2") as process:
        port = port_of(process)
        until(lambda: len(pids_of(process)) == 2)
        seen = set()
        stops = time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < stops:
            # Held for a moment, so that the other worker is free to take the next.
            threads = [threading.Thread(target=lambda: seen.add(get(port, "/wait/0.05"))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert seen == set(pids_of(process))


def test_a_killed_worker_is_replaced_and_the_port_answers_all_the_time():
    with program(SERVER, "2") as process:
        port = port_of(process)
        until(lambda: len(pids_of(process)) == 2)
        first = pids_of(process)
        get(port)
        os.kill(first[0], signal.SIGKILL)
        for _ in range(20):
            assert get(port) != first[0], "new connections go to whoever is there"
        until(lambda: len(pids_of(process)) == 2 and first[0] not in pids_of(process))
        assert {"event": "worker ended", "worker": 0, "process": first[0], "code": -9} in process.events
        # The new one answers, too.
        until(lambda: get(port, "/wait/0.01") not in first)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_requests_finish_and_ends_everything(number):
    # Whoever runs the tests may have been told to outlive his terminal, and hands that on.
    main = "    import signal\n    signal.signal(signal.SIGHUP, signal.SIG_DFL)\n" + SERVER
    with program(main, "2") as process:
        port = port_of(process)
        get(port)
        workers = pids_of(process)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(get(port, "/wait/0.6"))) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        if number == signal.SIGHUP:  # a terminal tells all
            for worker in workers:
                os.kill(worker, number)
        process.send_signal(number)
        for thread in threads:
            thread.join()
        assert process.wait(30) == 0
        assert len(answers) == 6 and set(answers) <= set(workers)
        assert process.events[-1] == {"event": "over"}
        assert not any(map(is_there, workers))
        with pytest.raises(ConnectionRefusedError):
            get(port)


def test_a_server_that_is_to_outlive_its_terminal_does():
    main = "    import signal\n    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does\n" + SERVER
    with program(main, "1") as process:
        port = port_of(process)
        worker = get(port)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert get(port) == worker and process.poll() is None


def test_workers_end_with_their_supervisor_however_it_ends():
    with program(SERVER, "2") as process:
        port = port_of(process)
        get(port)
        workers = pids_of(process)
        process.kill()
        until(lambda: not any(map(is_there, workers)))


def test_a_worker_that_does_not_stop_is_killed():
    stubborn = """
        import signal

        def work(number):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tell("working")
            while True:
                time.sleep(1)

        Supervisor(work, stop_seconds=0.3, tell=tell).run()
        tell("over")
    """
    with program(stubborn) as process:
        until(lambda: {"event": "working"} in process.events)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert [event["event"] for event in process.events][-2:] == ["worker killed", "over"]


def test_workers_that_end_at_once_are_not_started_for_ever():
    hopeless = """
        from biqe.errors import RunFailed

        def work(number):
            raise ValueError("this worker cannot start")

        try:
            Supervisor(work, tell=tell).run()
        except RunFailed as error:
            tell("failed", message=error.message)
    """
    with program(hopeless) as process:
        assert process.wait(60) == 0
        assert "this worker cannot start" in process.stderr.read()
        assert [event["event"] for event in process.events].count("worker started") == 5
        assert process.events[-1]["event"] == "failed"


def test_a_worker_that_is_stuck_makes_room_for_another():
    stuck = """
        lost = []
        socket = listen("127.0.0.1", 0)
        tell("listening", port=socket.getsockname()[1])
        Supervisor(
            lambda number: serve_socket(app, socket, is_stuck=lambda: time.monotonic() - started > 1), tell=tell
        ).run()
    """
    with program(stuck.replace("lost = []", "started = time.monotonic()")) as process:
        get(port_of(process))
        until(lambda: any(event["event"] == "worker ended" and event["code"] == 0 for event in process.events))


def test_a_worker_to_which_a_signal_was_lost_before_it_served_stops_all_the_same():
    """Python ignores what a handler raises inside a callback, such as those of imports."""
    losing = """
        import signal
        socket = listen("127.0.0.1", 0)

        def work(number):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(9)
            except SystemExit:
                tell("lost")
            serve_socket(app, socket)
            tell("ended")

        Supervisor(work, tell=tell).run()
    """
    with program(losing) as process:
        until(lambda: {"event": "ended"} in process.events, seconds=30)
        assert {"event": "lost"} in process.events


def test_a_worker_that_is_not_told_of_the_end_of_its_supervisor_sees_it():
    deaf = SERVER.replace(
        "work = lambda number:",
        """PR_SET_PDEATHSIG = 1
    import ctypes
    work = lambda number: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0) or""",
    )
    with program(deaf, "2") as process:
        get(port_of(process))
        workers = pids_of(process)
        process.kill()
        until(lambda: not any(map(is_there, workers)), seconds=30)


def test_what_is_loaded_before_the_fork_is_there_once(tmp_path):
    # Weights that are mapped and an array that is not; three workers that read all of both.
    shared = """
        import ctypes, numpy, torch
        from pathlib import Path
        from safetensors.torch import save_file
        from biqe.models.store import read_tensors

        # The kernel may gather pages of one process into a huge one, which is a copy of its own, whenever it has time.
        PR_SET_THP_DISABLE = 41
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
        torch.set_num_threads(1)
        path = Path(sys.argv[1]) / "weights.safetensors"
        save_file({"w": torch.ones(20_000_000)}, path)
        mapped = read_tensors(path)["w"]
        loaded = numpy.ones(10_000_000)

        def work(number):
            total = float(mapped.sum()) + loaded.sum()
            resident = own = 0
            for line in open("/proc/self/smaps"):
                name, *rest = line.split()
                if not name.endswith(":"):
                    # A page of a file that is not on disk yet counts as dirty, and as private while nobody else has
                    # read it: of the weights only what was copied to be written is the worker's own.
                    copied = "Anonymous:" if rest[-1].endswith("weights.safetensors") else "Private_Dirty:"
                resident += int(rest[0]) if name == "Rss:" else 0
                own += int(rest[0]) if name == copied else 0
            tell("read", total=total, resident=resident, own=own)
            while True:
                time.sleep(1)

        Supervisor(work, count=3, tell=tell).run()
    """
    with program(shared, str(tmp_path)) as process:
        until(lambda: sum(event["event"] == "read" for event in process.events) == 3)
        for event in process.events:
            if event["event"] == "read":
                assert event["total"] == 30_000_000
                assert event["resident"] > 150_000, "it has read 160 MB"
                assert event["own"] < 30_000, "and next to nothing of them is its own"


def test_weights_are_mapped_and_stay_what_they_are_on_disk(tmp_path):
    import torch

    from biqe.graph.vocabulary import Vocabulary
    from biqe.models import store
    from biqe.models.gqe import GQE, Config

    vocabulary = Vocabulary([f"e{n}" for n in range(500)], ["r"])
    saved = GQE(Config(), 500, 1)
    store.save(saved, tmp_path / "model", vocabulary=vocabulary, graph_fingerprint="none")
    path = tmp_path / "model" / "weights.safetensors"
    before = path.read_bytes()
    model = store.load(tmp_path / "model").model
    assert str(path) in Path("/proc/self/maps").read_text()
    for (name, weight), kept in zip(model.named_parameters(), saved.parameters(), strict=True):
        assert torch.equal(weight, kept), name
        weight.data += 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_accepted_connections_send_small_pieces_at_once(host):
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"this machine has no address {host}")

    async def accepted():
        found = asyncio.Queue()

        def connected(reader, writer):
            found.put_nowait(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen(host, 0)
        async with await asyncio.start_server(connected, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            sends_at_once = await found.get()
            writer.close()
        return sends_at_once

    # Else the end of an answer waits for the client to acknowledge its beginning.
    assert asyncio.run(accepted())


def test_free_memory_goes_back_to_the_system():
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GAPS)], capture_output=True, text=True, check=True, timeout=120
    )
    filled, after = map(int, found.stdout.split())
    assert after < filled / 2


GAPS = """
    import ctypes
    from pathlib import Path
    from biqe.serve.workers import give_back

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    start = resident()
    pieces = [(library.malloc(100_000), library.malloc(100)) for _ in range(1_000)]
    for large, _ in pieces:
        ctypes.memset(large, 1, 100_000)
    for large, _ in pieces:
        library.free(large)
    filled = resident() - start
    give_back()
    print(filled, resident() - start)
"""


def test_a_worker_is_tidy_now_and_then():
    often = "    import biqe.serve.workers\n    biqe.serve.workers.TIDY = 2\n"
    server = SERVER.replace("worker=number)", "worker=number, tidy=lambda: tell('tidy'))")
    with program(often + server, "1") as process:
        until(lambda: sum(event["event"] == "tidy" for event in process.events) > 1)


def test_a_port_that_is_taken_is_said_to_be():
    with listen("127.0.0.1", 0) as socket, pytest.raises(RunFailed, match="cannot listen"):
        listen("127.0.0.1", socket.getsockname()[1])


def test_an_address_of_another_machine_is_not_blamed_on_the_port():
    for host in ("192.0.2.1", "no.such.name.invalid"):
        with pytest.raises(RunFailed) as refused:
            listen(host, 0)
        assert "--host" in refused.value.hint and "--port" not in refused.value.hint


def test_there_is_at_least_one_worker():
    with pytest.raises(InvalidOption, match="workers"):
        Supervisor(lambda number: None, count=0)
