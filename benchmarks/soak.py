"""A server under mixed load for ten minutes, with processes killed at random; then every acknowledged update is there.

    python benchmarks/soak.py                      # ten minutes, two workers, a kill every five seconds
    python benchmarks/soak.py --minutes 60 --run runs/mine
    python benchmarks/soak.py --quick              # one minute

Clients ask known and predicted questions, insert and delete triples, upload files and send malformed requests over
loopback. Every few seconds a worker, the service of exact queries or one of its children is killed with SIGKILL, and at
times the whole server, which is then started again on the same folder. The live graph writes a new base every
``--compact`` updates, and a back-up is made every minute.

In the end every acknowledged triple must be there, and every acknowledged deletion; no process and no temporary folder
may be left, and memory must be flat: the median PSS of the last third of the time, beside that of the second third
(``memory_growth``). Exit code 1 if anything is lost or left. The last line is one JSON object with the counts.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from biqe.evaluate.machine import machine, write_result
from biqe.serve.live import LiveGraph
from biqe.serve.live.copying import copy

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
KNOWN = "SELECT ?c WHERE { ?c :located_on :Rhine } LIMIT 5"
PREDICTED = "SELECT ?c WHERE { ?c :located_on :Rhine }"
SERVE = """
import sys
from biqe.cli import main
from biqe.serve.live import live_graph
live_graph.LiveConfig.__init__.__defaults__ = (int(sys.argv[1]), *live_graph.LiveConfig.__init__.__defaults__[1:])
sys.exit(main(sys.argv[2:]))
"""
"""``biqe serve`` with a new base after fewer updates than usual."""


class Server:
    """``biqe serve`` on a folder, started again whenever it was killed."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.starts = 0
        self.port = 0
        self.is_up = False
        self.process: subprocess.Popen[str] | None = None
        self.seen: set[int] = set()
        """Ids of all processes that ever belonged to it."""

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-c", SERVE, str(self.options.compact), "serve", self.options.run]
        command += ["--port", str(self.port), "--live", str(self.folder), "--workers", str(self.options.workers)]
        until = time.monotonic() + 120
        while True:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if found := re.search(r"http://127.0.0.1:(\d+)/sparql", line):
                    self.port = int(found[1])
                    self.starts += 1
                    self.is_up = True
                    return
            self.process.wait()
            if time.monotonic() > until:
                raise SystemExit("the server does not start again")
            time.sleep(0.2)  # a killed one still holds the port

    def processes(self) -> list[int]:
        """The server's process and all below it."""
        assert self.process is not None
        found = [self.process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                found += [int(child) for child in children]
        self.seen.update(found)
        return found

    def memory(self) -> int:
        """Proportional share of memory of all processes, in bytes."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(re.search(r"^Pss: +(\d+)", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]
        return total

    def left(self) -> list[str]:
        """Command lines of its processes that still run; one that has ended, and that nobody has asked for its exit
        code, does not."""
        found = []
        for pid in self.seen:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "biqe" in words:  # and not another process that got the same id; one that has ended has no words
                    found.append(words[-200:])
        return found

    def stop(self) -> int:
        """Stop it as an operator does."""
        assert self.process is not None and self.process.stdout is not None
        self.processes()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


class Soak:
    """The clients, what they were told, and what was counted."""

    def __init__(self, options: argparse.Namespace, server: Server) -> None:
        self.options, self.server = options, server
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.there: set[str] = set()
        """Names whose triple was acknowledged as inserted."""
        self.gone: set[str] = set()
        """Names whose triple was acknowledged as deleted."""
        self.unsure: set[str] = set()
        """Names whose last update was sent and not acknowledged: it may have been made."""
        self.waits: list[float] = []

    def send(self, kind: str, path: str, body: bytes | str, headers: dict[str, str]) -> int:
        """Status of a request; 0 if there was no answer."""
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=40)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
        except (OSError, http.client.HTTPException):
            status = 0
        finally:
            connection.close()
        with self.lock:
            self.counts[f"{kind} {'answered' if 200 <= status < 300 else 'failed' if status else 'broken off'}"] += 1
            if status == 500:
                self.counts["faults"] += 1
            if kind == "known" and status == 200:
                self.waits.append(time.monotonic() - start)
        if status == 0:
            time.sleep(0.1)
        return status

    def ask(self, number: int) -> None:
        """Known and predicted questions, and garbage."""
        rng = random.Random(number)
        while not self.stop.is_set():
            draw = rng.random()
            if draw < 0.1:
                self.send("garbage", rng.choice(["/sparql", "/update", "/api/ask"]), rng.randbytes(200), FORM)
            else:
                kind, text = ("known", KNOWN) if draw < 0.7 else ("predicted", PREDICTED)
                self.send(kind, "/sparql", urlencode({"query": text, "mode": kind, "top": 3}), FORM)

    def write(self, number: int) -> None:
        """Updates and uploads of names that only this client uses."""
        rng = random.Random(1000 + number)
        made: list[str] = []
        count = 0
        while not self.stop.is_set():
            draw = rng.random()
            if draw < 0.3 and made:
                names = [made.pop(rng.randrange(len(made)))]
                update = f"DELETE DATA {{ :{names[0]} :located_on :Rhine }}"
                status, target = self.send("delete", "/update", urlencode({"update": update}), FORM), self.gone
            elif draw < 0.4:
                names = [f"soak{number}_{count + more}" for more in range(20)]
                data = "".join(f"{name}\tlocated_on\tRhine\n" for name in names)
                headers = {"Content-Type": "text/tab-separated-values"}
                status, target = self.send("upload", "/api/load", data, headers), self.there
            else:
                names = [f"soak{number}_{count}"]
                update = f"INSERT DATA {{ :{names[0]} :located_on :Rhine }}"
                status, target = self.send("insert", "/update", urlencode({"update": update}), FORM), self.there
            count += len(names) if target is self.there else 0
            with self.lock:
                for name in names:
                    self.there.discard(name)
                    (target if 200 <= status < 300 else self.unsure).add(name)
            if target is self.there and 200 <= status < 300:
                made += names

    def kill(self) -> None:
        """SIGKILL for a random process, and at times for all of them."""
        rng = random.Random(7)
        while not self.stop.wait(self.options.every):
            processes = self.server.processes()
            if rng.random() < 0.15:
                for pid in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert self.server.process is not None and self.server.process.stdout is not None
                self.server.process.wait()
                self.server.process.stdout.close()
                self.counts["kills of the whole server"] += 1
                self.server.is_up = False
                self.server.start()
            elif len(processes) > 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(processes[1:]), signal.SIGKILL)
                    self.counts["kills of one process"] += 1

    def check(self, folder: Path) -> tuple[int, int]:
        """Acknowledged updates that the live graph in a folder does not show: insertions, deletions."""
        with contextlib.closing(LiveGraph(folder, read_only=True)) as live:
            view = live.snapshot()
            names, relation = view.vocabulary.entities, view.vocabulary.relations.find("located_on")
            rhine = names.find("Rhine")
            rows = view.graph.triples
            heads = set(rows[(rows[:, 1] == relation) & (rows[:, 2] == rhine), 0].tolist())
            lost = sum(names.find(name) not in heads for name in self.there)
            back = sum(names.find(name) in heads for name in self.gone)
            self.counts["updates in the graph"] = view.version
        return lost, back


def main() -> int:
    """Run the soak and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="atlas", help="what is served; it must have :located_on and :Rhine")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--askers", type=int, default=4)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between kills")
    parser.add_argument("--compact", type=int, default=200, help="updates between new bases")
    parser.add_argument("--quick", action="store_true", help="one minute")
    parser.add_argument("--out", type=Path, help="also write the JSON object here")
    options = parser.parse_args()
    seconds = 60.0 if options.quick else 60.0 * options.minutes
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    # Temporary folders of its own, so that nobody else's are counted.
    (place / "temporary").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "temporary")
    os.environ["OMP_NUM_THREADS"] = "1"
    server = Server(options, place / "live")
    memory: list[tuple[float, int]] = []
    failures: list[str] = []
    try:
        server.start()
        soak = Soak(options, server)
        threads = [threading.Thread(target=soak.ask, args=(number,)) for number in range(options.askers)]
        threads += [threading.Thread(target=soak.write, args=(number,)) for number in range(options.writers)]
        killer = threading.Thread(target=soak.kill)
        for thread in (*threads, killer):
            thread.start()
        start = backed_up = time.monotonic()
        while (now := time.monotonic() - start) < seconds:
            time.sleep(1)
            if server.is_up:
                memory.append((now, server.memory()))
            if time.monotonic() - backed_up > min(60.0, seconds / 3):
                backed_up = time.monotonic()
                copy(place / "live", place / "backup", force=True)
                soak.counts["back-ups"] += 1
            print(f"\r{now:6.0f} s, {sum(soak.counts.values()):,} requests", end="", file=sys.stderr)
        soak.stop.set()
        for thread in (killer, *threads):
            thread.join()
        code = server.stop()
        if code:
            failures.append(f"the server ended with {code}")
        until = time.monotonic() + 10
        while (left := server.left()) and time.monotonic() < until:
            time.sleep(0.2)
        lost, back = soak.check(place / "live")
        copy(place / "live", place / "restored")
        if soak.check(place / "restored") != (lost, back):
            failures.append("a restored copy differs")
        medians = [
            statistics.median([size for at, size in memory if low <= at / seconds < high] or [0])
            for low, high in ((1 / 3, 2 / 3), (2 / 3, 1.1))
        ]
        found: dict[str, Any] = {
            "benchmark": "soak",
            "seconds": round(seconds),
            **{name.replace(" ", "_").replace("-", "_"): count for name, count in sorted(soak.counts.items())},
            "acknowledged_inserts_there": len(soak.there),
            "acknowledged_deletes": len(soak.gone),
            "lost_inserts": lost,
            "lost_deletes": back,
            "starts": server.starts,
            "known_p50_ms": round(1000 * statistics.median(soak.waits or [0]), 1),
            "memory_middle_mb": round(medians[0] / 1e6),
            "memory_end_mb": round(medians[1] / 1e6),
            "memory_tenths_mb": [
                round(
                    statistics.median([size for at, size in memory if tenth <= 10 * at / seconds < tenth + 1] or [0])
                    / 1e6
                )
                for tenth in range(10)
            ],
            "memory_growth": round(medians[1] / max(medians[0], 1), 3),
            "processes_left": left,
            "folders_left": sorted(path.name for path in (place / "temporary").iterdir()),
            "bases": sorted(path.name for path in (place / "live").glob("0*")),
            "machine": machine(),
        }
        print(file=sys.stderr)
        for name in ("lost_inserts", "lost_deletes", "processes_left", "folders_left", "faults"):
            if found.get(name):
                failures.append(f"{name}: {found[name]}")
        for failure in failures:
            print(f"not as it should be: {failure}", file=sys.stderr)
        write_result(found, options.out)
        return 1 if failures else 0
    finally:
        if server.process is not None and server.process.poll() is None:
            server.process.kill()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
