"""A live graph in several processes: killed, writing together, following each other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from biqe.errors import RunFailed
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live import Changes, LiveConfig, LiveGraph, Statement, View

WRITER = Path(__file__).parent / "live_writer.py"
KILL_ROUNDS = int(os.environ.get("BIQE_KILL_ROUNDS", "6"))


def toy() -> Splits:
    return Splits(Vocabulary(["a", "b"], ["r", "s"]), as_triples([[0, 0, 1]]))


def writer(folder: Path, name: str, count: int = 100_000, compact_records: int = 1_000_000) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(folder), name, str(count), str(compact_records)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def holds(view: View, *names: str) -> bool:
    ids = [view.vocabulary.entities.find(names[0]), view.vocabulary.relations.find(names[1])]
    ids.append(view.vocabulary.entities.find(names[2]))
    return None not in ids and bool((view.graph.triples == ids).all(axis=1).any())


def check(view: View, name: str, acknowledged: int) -> int:
    """All acknowledged updates of a writer are there, each of them whole, and at most one more; how many there are."""
    done = 0
    while holds(view, f"{name}{done}", "r", "a"):
        done += 1
    assert done in (acknowledged, acknowledged + 1)
    for number in range(done):
        assert holds(view, f"{name}{number}", "s", "b") == (number == done - 1)
    return done


def acknowledged_by(process: subprocess.Popen[str], killed_after: int) -> int:
    """Updates that the process told of, when it is killed in the middle of the next ones."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(killed_after)]
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    whole = [line for line in lines if line.endswith("\n")]
    assert [int(line.split()[0]) for line in whole] == list(range(len(whole)))
    return len(whole)


@pytest.mark.parametrize("compact_records", [1_000_000, 3])
def test_acknowledged_updates_survive_kills(tmp_path, compact_records):
    folder = tmp_path / "live"
    LiveGraph(folder, toy()).close()
    random.seed(compact_records)
    for attempt in range(3):
        name = f"x{attempt}_"
        count = acknowledged_by(writer(folder, name, compact_records=compact_records), random.randrange(3, 25))
        live = LiveGraph(folder)
        check(live.snapshot(), name, count)
        for earlier in range(attempt):
            assert holds(live.snapshot(), f"x{earlier}_0", "r", "a")
        assert live.apply(Changes(inserted=(Statement(f"after{attempt}", "r", "a"),))).inserted == 1
        live.close()


@pytest.mark.timeout(300 + 30 * KILL_ROUNDS)
def test_writers_killed_at_any_moment_lose_nothing(tmp_path):
    """Three writers at a time, forked from an open graph, with new bases in between; BIQE_KILL_ROUNDS=100 is more."""
    rng = random.Random(3)
    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=40))
    acknowledged: set[str] = set()
    for number in range(KILL_ROUNDS):
        writers = []
        for name in "xyz":
            reading, writing = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    for count in range(1_000_000):
                        entity = f"{name}{number}_{count}"
                        live.apply(Changes(inserted=(Statement(entity, "r", "a"), Statement(entity, "s", "b"))))
                        os.write(writing, f"{entity}\n".encode())
                finally:
                    os._exit(1)
            os.close(writing)
            writers.append((pid, open(reading)))
        for _, told in writers:
            acknowledged.update(told.readline().strip() for _ in range(rng.randrange(1, 40)))
        for pid, told in writers:
            os.kill(pid, signal.SIGKILL)
            acknowledged.update(line.strip() for line in told if line.endswith("\n"))
            told.close()
            assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        view = live.snapshot()
        names = view.vocabulary.entities
        count = np.bincount(view.graph.triples[:, 0], minlength=len(names))
        assert all(count[names.find(name)] == 2 for name in acknowledged)
    found = LiveGraph(tmp_path / "live", read_only=True)
    assert found.version == live.version >= len(acknowledged)
    assert len(found.snapshot().graph.triples) == 1 + 2 * found.version, "each update is there completely or not at all"
    print(
        f"{KILL_ROUNDS:,} rounds, {3 * KILL_ROUNDS:,} kills, {len(acknowledged):,} acknowledged updates, 0 lost"
    )  # pytest -s shows it


def test_two_writers_killed_together_lose_nothing(tmp_path):
    folder = tmp_path / "live"
    LiveGraph(folder, toy()).close()
    processes = {name: writer(folder, name) for name in ("left", "right")}
    counts = {name: acknowledged_by(process, 8) for name, process in processes.items()}
    view = LiveGraph(folder).snapshot()
    assert view.version == sum(check(view, name, count) for name, count in counts.items())


def test_a_reader_follows_a_writer_in_another_process(tmp_path):
    folder = tmp_path / "live"
    reader = LiveGraph(folder, toy())
    first = reader.snapshot()
    process = writer(folder, "w", count=12, compact_records=5)
    assert process.stdout is not None
    for line in process.stdout:
        number, version = map(int, line.split())
        view = reader.snapshot()
        assert view.version >= version  # acknowledged: so this request, which comes later, sees it
        assert holds(view, f"w{number}", "r", "a")
    assert process.wait() == 0
    process.stdout.close()
    assert reader.snapshot().version == 12
    check(reader.snapshot(), "w", 12)
    assert first.version == 0 and len(first.graph.triples) == 1


def test_a_reader_that_missed_several_bases_begins_with_the_newest(tmp_path):
    reader = LiveGraph(tmp_path / "live", toy())
    reader.apply(Changes(inserted=(Statement("b", "r", "a"),)))
    kept = reader.snapshot()  # looked into only later
    live = LiveGraph(tmp_path / "live", config=LiveConfig(compact_records=2))
    for number in range(9):
        live.apply(Changes(inserted=(Statement(f"n{number}", "r", "a"),)))
    assert reader.snapshot().version == 10
    assert (reader.snapshot().graph.triples == live.snapshot().graph.triples).all()
    assert list(reader.snapshot().vocabulary.entities) == list(live.snapshot().vocabulary.entities)
    assert len(kept.graph.triples) == 2
    assert kept.store.query("ASK { <urn:biqe:name:b> <urn:biqe:name:r> <urn:biqe:name:a> }") is True
    assert kept.store.query("ASK { <urn:biqe:name:n1> ?p ?o }") is False


def test_threads_read_and_write_together(tmp_path):
    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=7))
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            version = 0
            while not stop.is_set():
                view = live.snapshot()
                assert view.version >= version
                version = view.version
                found = view.store.query("SELECT ?s WHERE { ?s <urn:biqe:name:r> <urn:biqe:name:a> }")
                # Each version has one more such triple than the one before, in the store and in the graph.
                assert len(found.rows) == version
                assert len(view.graph.triples) == version + 1
        except BaseException as error:
            failures.append(error)

    def write(name: str) -> None:
        try:
            for number in range(10):
                live.apply(Changes(inserted=(Statement(f"{name}{number}", "r", "a"),)))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not failures, failures
    assert live.version == 20


def test_a_writer_that_never_ends_is_told_of_and_readers_go_on(tmp_path):
    import fcntl

    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(lock_seconds=0.05))
    with (tmp_path / "live" / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunFailed, match="another process has been writing"):
            live.apply(Changes(inserted=(Statement("n", "r", "a"),)))
        assert live.snapshot().version == 0
        assert LiveGraph(tmp_path / "live").snapshot().version == 0
    assert live.apply(Changes(inserted=(Statement("n", "r", "a"),))).version == 1


def test_processes_that_start_together_make_one_live_graph(tmp_path):
    folder = tmp_path / "live"
    opened: list[LiveGraph] = []
    threads = [threading.Thread(target=lambda: opened.append(LiveGraph(folder, toy()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    opened[0].apply(Changes(inserted=(Statement("n", "r", "a"),)))
    assert all(live.version == 1 for live in opened)
    assert [entry.name for entry in tmp_path.iterdir()] == ["live"]
