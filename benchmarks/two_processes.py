"""What it costs to train on two processes: one process with two threads against two with one, on the same two cores.

    python benchmarks/two_processes.py [--quick] [--graph FOLDER] [--rounds N]

Four ways take turns, some steps each, so that a busy machine slows all alike:

    one         one process, two threads, whole batches
    two         two ranks of one thread (data parallel), half a batch each
    two_split   likewise, with the entities' embeddings and the softmax split over the ranks
    two_apart   likewise, as two strangers: no gradient is exchanged, so their models drift apart

``ratio`` is queries a second of two over one. The share of time in communication is what a step of ``two`` takes longer
than one of ``two_apart``, waiting for the slower rank included. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from biqe.evaluate.machine import allocator, write_result
from biqe.graph.knowledge_graph import Graph
from biqe.models._split_entities import split
from biqe.models.biqe import BiQE, Config
from biqe.training.clock import Clock
from biqe.training.config import TrainConfig
from biqe.training.loop import take_step
from biqe.training.memory import keep_freed_memory
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.processes import Processes, SeveralProcesses
from biqe.training.ranks import ALONE, Ranks, joined
from biqe.training.stream import Stream
from train_throughput import load_graph

TOGETHER = ("two", "two_split", "two_apart")
POLL_SECONDS = 0.01


def main() -> None:
    """Measure and print; or, started by torchrun, be one of the two ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="graph folder; FB15k-237 of BIQE_DATA, or a generated graph, where left out")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each way takes")
    parser.add_argument("--steps", type=int, default=8, help="steps of a turn")
    parser.add_argument("--quick", action="store_true", help="a small model, one round of three steps")
    parser.add_argument(
        "--out", type=Path, help="also write the result there, such as results/speed/two_processes.json"
    )
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 3
    torch.set_flush_denormal(True)
    keep_freed_memory()
    name, graph = load_graph(options.graph, options.quick)
    if options.rank_of:
        be_a_rank(Path(options.rank_of), graph, options)
    else:
        measure(name, graph, options)


def measure(name: str, graph: Graph, options: argparse.Namespace) -> None:
    """Take turns with two ranks that wait for their turn, and print."""
    torch.set_num_threads(2)
    one = Way(graph, options, ALONE)
    rates: dict[str, list[float]] = {way: [] for way in ("one", *TOGETHER)}
    with tempfile.TemporaryDirectory() as folder:
        words = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", "2", __file__, *sys.argv[1:]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen([*words, "--rank-of", folder], env=environment) as ranks:
            for turn in range(options.rounds + 1):  # the first is to warm up
                found = {"one": one.rate(), **asked(Path(folder), turn, ranks)}
                for way, rate in found.items() if turn else ():
                    rates[way].append(rate)
            (Path(folder) / "end").touch()
            ranks.wait(timeout=60)
    median = {way: statistics.median(found) for way, found in rates.items()}
    share = max(0.0, 1.0 - median["two"] / median["two_apart"])
    weights = sum(weight.numel() for weight in one.model.parameters())
    for way, rate in median.items():
        print(f"{way:10} {rate:9,.0f} queries/s")
    print(f"two against one: {median['two'] / median['one']:.2f}x; {share:.0%} of a step of two is communication")
    result = {
        "benchmark": "two_processes",
        "ratio": round(median["two"] / median["one"], 3),
        "ours": f"{median['two']:,.0f} queries/s (two processes of one thread)",
        "alternative": f"{median['one']:,.0f} queries/s (one process of two threads)",
        "queries_per_second": {way: round(rate, 1) for way, rate in median.items()},
        "split_ratio": round(median["two_split"] / median["one"], 3),
        "communication_share": round(share, 3),
        "gradient_mib_a_step": round(4 * weights / 2**20, 1),
        "rounds": {way: [round(rate, 1) for rate in found] for way, found in rates.items()},
        "graph": name,
        "model": {"width": one.model.config.width, "layers": one.model.config.layers},
        "allocator": allocator(),
        "threads": 2,
        "load_average": os.getloadavg()[0],
    }
    write_result(result, options.out)


def asked(folder: Path, turn: int, ranks: subprocess.Popen[Any]) -> dict[str, float]:
    """The rates of the two ranks, which take one turn of each way."""
    (folder / f"go-{turn}").touch()
    answer = folder / f"done-{turn}.json"
    while not answer.exists():
        if ranks.poll() is not None:
            raise SystemExit("the two ranks ended early; their message is above")
        time.sleep(POLL_SECONDS)
    return json.loads(answer.read_text())


def be_a_rank(folder: Path, graph: Graph, options: argparse.Namespace) -> None:
    """Take turns when told to, with the other rank."""
    torch.set_num_threads(1)
    with joined(600.0) as ranks:
        ways = {way: Way(graph, options, ranks, way) for way in TOGETHER}
        turn = 0
        while ranks.from_first(lambda turn=turn: told(folder, turn)):
            found = {}
            for name, way in ways.items():
                ranks.gather_numbers([0.0])  # begin together
                found[name] = sum(row[0] for row in ranks.gather_numbers([way.rate()]))
            if ranks.first:
                partial = folder / "partial"
                partial.write_text(json.dumps(found))
                partial.rename(folder / f"done-{turn}.json")
            turn += 1


def told(folder: Path, turn: int) -> bool:
    """Wait until it is this turn, or the end; whether it goes on."""
    while not (folder / f"go-{turn}").exists():
        if (folder / "end").exists():
            return False
        time.sleep(POLL_SECONDS)
    return True


class Way:
    """A model that is trained in one of the ways; ``rate`` takes some steps."""

    def __init__(self, graph: Graph, options: argparse.Namespace, ranks: Ranks, way: str = "one") -> None:
        torch.manual_seed(0)
        size = dict(width=64, layers=2, heads=4, feed_forward=256) if options.quick else {}
        self.model = BiQE(Config(**size), graph.entity_count, graph.relation_count)
        self._settings = TrainConfig(epochs=1, paths=10_000, dags=10_000, threads=1)
        self._encoded, self._batches = Stream(graph, self.model, self._settings, ranks=ranks).own_batches(0)
        self._steps, self._next = options.steps, 0
        table = split(self.model, ranks.rank, ranks.world) if way == "two_split" else None
        together = way in ("two", "two_split")
        self._processes = SeveralProcesses(self.model, ranks, table) if together else Processes(self.model)
        self._clock = Clock(self._settings)
        self._optimizer, self._average = optimizer_of(self.model, self._settings), RunningAverage(self.model)
        self.model.train()

    def rate(self) -> float:
        """Queries a second of this process over some steps, encoding included."""
        queries, start = 0, time.perf_counter()
        for _ in range(self._steps):
            rows = self._batches[self._next % len(self._batches)]
            batch, step = self._encoded.batch(rows), 1000 + self._next
            self._processes.before_step(batch, len(rows), self._clock)
            take_step(self._processes, batch, self._optimizer, self._average, self._settings, step, 0.5)
            self._next += 1
            queries += len(rows)
        return queries / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
