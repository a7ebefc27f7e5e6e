"""Requests a second of a server with many clients, and how long they wait; beside the same server with batching off.

    python benchmarks/serve_load.py --run runs/fb                  # 60 s each, in turns; two workers
    python benchmarks/serve_load.py --run runs/fb --quick          # 10 s each
    python benchmarks/serve_load.py --run runs/fb --workers 1 --clients 64

Clients ask over loopback, each the next question as soon as it has its answer: 80 % predicted (POST /sparql,
mode=predicted, the 20 best rows), 20 % known (mode=known, from the exact store). A quarter each are 1p, 2p and 2i, a
fifth chains of two unknowns, a twentieth stars of three; no question comes twice. Two servers run, one that makes model
calls for many questions at once and one that makes them one question at a time; they are loaded in turns, so that
a busy machine slows both alike. A request is lost if it got no whole answer, an error if its status is not 200.

Memory is the proportional share (PSS) of all processes of a server, so pages that workers share count once. It is told
at the start, after a short warm-up, and after every turn of load, so that one can see where it stops growing. Processor
time is that of the server alone, its children that have ended included; the clients' own is told beside. ``ratio`` is
requests a second with batching over those without. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np

import biqe
from ask_latency import queries_of
from biqe.evaluate.machine import machine, write_result

PREDICTED = 0.8
"""Share of requests that ask for predictions."""
SHAPES = {"1p": 0.25, "2p": 0.25, "2i": 0.25, "chain of 2": 0.2, "star of 3": 0.05}
"""Share of each shape."""
TEXTS = 20_000
"""Questions that are made up; more than are asked."""
WARM = 10.0
"""Seconds of load before the clock runs."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """What came of the requests to one server."""

    name: str
    seconds: float = 0.0
    waits: dict[str, list[float]] = field(default_factory=lambda: {"predicted": [], "known": []})
    """Seconds of each request, by mode."""
    errors: int = 0
    lost: int = 0
    server_seconds: float = 0.0
    """Processor time of the server."""
    exact_seconds: float = 0.0
    """That of the exact store's processes in it."""
    client_seconds: float = 0.0
    memory: list[int] = field(default_factory=list)
    """MiB of the server, before and after each turn."""

    @property
    def count(self) -> int:
        return sum(map(len, self.waits.values()))

    def facts(self) -> dict[str, float]:
        """Figures of the whole run."""
        every = np.array([wait for waits in self.waits.values() for wait in waits]) * 1e3
        figures = {
            "requests": self.count,
            "requests_per_second": self.count / self.seconds,
            "p50_ms": np.percentile(every, 50),
            "p99_ms": np.percentile(every, 99),
            "worst_ms": every.max(),
            "errors": self.errors,
            "lost": self.lost,
            "server_cpu_ms": 1e3 * self.server_seconds / max(self.count, 1),
            "exact_store_cpu_ms": 1e3 * self.exact_seconds / max(self.count, 1),
            "client_cpu_ms": 1e3 * self.client_seconds / max(self.count, 1),
            "server_cores": self.server_seconds / self.seconds,
            "memory_start_mib": self.memory[0],
            "memory_middle_mib": self.memory[len(self.memory) // 2],
            "memory_end_mib": self.memory[-1],
        }
        for mode, waits in self.waits.items():
            figures[f"{mode}_p50_ms"] = np.percentile(waits, 50) * 1e3 if waits else 0.0
            figures[f"{mode}_p99_ms"] = np.percentile(waits, 99) * 1e3 if waits else 0.0
        return {name: round(float(value), 1) for name, value in figures.items()}


def family(pid: int) -> list[int]:
    """The process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [pid]
    while ahead:
        found.append(ahead.pop())
        ahead += children.get(found[-1], [])
    return found


def memory_mib(pid: int) -> int:
    """Proportional share of memory of a process and its children."""
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total >> 10


def processor_seconds(pid: int, kind: bytes = b"") -> float:
    """Processor time of a process and its children, those that have ended included; of those with ``kind`` in their
    command."""
    ticks = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            if kind not in Path(f"/proc/{member}/cmdline").read_bytes():
                continue
            ticks += sum(map(int, Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / TICKS


@contextlib.contextmanager
def server(arguments: argparse.Namespace, batching: bool) -> Iterator[tuple[int, int]]:
    """Process id and port of a running server."""
    command = [
        sys.executable,
        __file__,
        "--serve",
        "--run",
        str(arguments.run),
        "--workers",
        str(arguments.workers),
        "--threads",
        str(arguments.threads),
        *([] if batching else ["--no-batching"]),
    ]
    if arguments.graph:
        command += ["--graph", str(arguments.graph)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def serve(arguments: argparse.Namespace) -> None:
    """The server's side of ``server``."""
    from biqe.serve.config import EngineConfig, ServeConfig
    from biqe.serve.start import serve

    engine = EngineConfig(batching=not arguments.no_batching, threads=arguments.threads)
    config = ServeConfig(port=0, workers=arguments.workers, engine=engine)
    base = biqe.open(arguments.run, graph=arguments.graph)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  a line of log for each request
    serve(base, config, announce=lambda address, _: print(address.rpartition(":")[2], flush=True))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, mode: str) -> int:
    """Status of one request, its whole answer read. A client as small as can be: it shares the machine."""
    body = f"query={quote(text)}&mode={mode}"
    writer.write(
        f"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/sparql-results+json\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    answer = await reader.readexactly(length)
    status = int(head.split(" ", 2)[1])
    return status if status != 200 or answer.rstrip().endswith(b"}") else 0


async def client(port: int, texts: Iterator[str], seed: int, stops: float, load: Load) -> None:
    """Asks until the time is up."""
    rng = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < stops:
        mode = "predicted" if rng.random() < PREDICTED else "known"
        start = time.perf_counter()
        try:
            status = await asyncio.wait_for(ask(reader, writer, next(texts), mode), 60)
        except (OSError, EOFError, TimeoutError):
            load.lost += 1
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        load.waits[mode].append(time.perf_counter() - start)
        load.errors += status != 200
    writer.close()


async def press(port: int, pid: int, clients: int, texts: Iterator[str], seconds: float, seed: int, load: Load) -> None:
    """One turn of load."""
    start, before, own = time.perf_counter(), processor_seconds(pid), time.process_time()
    exact = processor_seconds(pid, b"exact_process")
    await asyncio.gather(
        *(client(port, texts, 1_000 * seed + number, start + seconds, load) for number in range(clients))
    )
    load.seconds += time.perf_counter() - start
    load.server_seconds += processor_seconds(pid) - before
    load.exact_seconds += processor_seconds(pid, b"exact_process") - exact
    load.client_seconds += time.process_time() - own


def main() -> None:
    """Read the options, start, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="run folder, or model folder with --graph")
    parser.add_argument("--graph", type=Path, help="graph folder; default: the run's")
    parser.add_argument("--workers", type=int, default=2, help="processes that answer")
    parser.add_argument("--threads", type=int, default=12, help="questions at a time in each")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load on each server")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="10 s each, in two turns")
    parser.add_argument("--out", type=Path, help="also write the result there, such as results/speed/serve_load.json")
    parser.add_argument("--only", choices=["batching", "single"], help="one of the two servers")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-batching", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments)
        return
    if arguments.quick:
        arguments.seconds, arguments.turns = 10.0, 2
    base = biqe.open(arguments.run, graph=arguments.graph)
    made = queries_of(base.graph, int(TEXTS * max(SHAPES.values())), seed=1)
    every = [text for shape, share in SHAPES.items() for text in made[shape][: int(TEXTS * share)]]
    random.Random(0).shuffle(every)
    loads = [Load(name) for name in ("batching", "single") if arguments.only in (None, name)]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(server(arguments, load.name == "batching")) for load in loads]
        texts = itertools.cycle(every)
        for pid, port in servers:  # so that nothing is loaded while the clock runs
            asyncio.run(press(port, pid, arguments.clients, texts, WARM, 99, Load("warm")))
        for load, (pid, _) in zip(loads, servers, strict=True):
            load.memory.append(memory_mib(pid))
        for turn in range(arguments.turns):
            for load, (pid, port) in zip(loads, servers, strict=True):
                seconds = arguments.seconds / arguments.turns
                asyncio.run(press(port, pid, arguments.clients, texts, seconds, turn, load))
                load.memory.append(memory_mib(pid))
    report(arguments, loads)


def report(arguments: argparse.Namespace, loads: Sequence[Load]) -> None:
    """Tables, and one JSON object."""
    about = machine()
    print(
        f"{arguments.clients} clients, {PREDICTED:.0%} with predictions; {arguments.workers} workers of "
        f"{arguments.threads} questions at a time, one torch thread each; {about['cores']} cores, "
        f"allocator {about['allocator']}, load average {os.getloadavg()[0]:.1f}\n"
    )
    facts = {load.name: load.facts() for load in loads}
    names = list(facts)
    print(f"{'':24}" + "".join(f"{name:>12}" for name in names))
    for figure in facts[names[0]]:
        print(f"{figure:24}" + "".join(f"{facts[name][figure]:12,.1f}" for name in names))
    for load in loads:
        print(f"MiB of {load.name}, at the start and after each turn: {' '.join(map(str, load.memory))}")
    result = {"benchmark": "serve_load", "clients": arguments.clients, "workers": arguments.workers, **facts}
    if len(names) == 2:
        rates = {name: facts[name]["requests_per_second"] for name in names}
        result["ratio"] = round(rates["batching"] / rates["single"], 3)
        result["ours"] = f"{rates['batching']:,.0f} requests/s, p99 {facts['batching']['p99_ms']:,.0f} ms"
        result["alternative"] = (
            f"{rates['single']:,.0f} requests/s, p99 {facts['single']['p99_ms']:,.0f} ms (batching off)"
        )
    result |= {"allocator": about["allocator"], "threads": 1, "machine": about}
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
