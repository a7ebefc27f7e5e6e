"""What a training step costs while threads that wait for each other sleep, against threads that spin.

Torch's threads meet after every operation. By default, one that is there first spins, which wastes nothing while the
machine has no other work, and takes processor time from the one it waits for while it has. ``biqe`` asks them to sleep
(OMP_WAIT_POLICY=PASSIVE) unless the environment says otherwise. Here the same steps run both ways in turns, alone and
beside other work: one process for each core that counts and nothing else.

    python benchmarks/waiting_threads.py [--quick] [--model gqe] [--out results/speed/waiting_threads.json]

``ratio`` is the processor time of a step with spinning threads over that with sleeping ones, beside other work. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ENTITIES, RELATIONS, QUERIES = 14_541, 237, 512
POLICIES = {"sleeping": "PASSIVE", "spinning": ""}
"""What the threads do, and the setting that makes them."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gqe")
    parser.add_argument("--steps", type=int, default=10, help="in each turn")
    parser.add_argument("--turns", type=int, default=3, help="of each way, alone and beside other work")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="two steps, one turn")
    parser.add_argument("--out", type=Path, help="also write the result there")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.steps, options.turns = 2, 1
    if options.inside:
        print(json.dumps(steps(options)))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    for beside in ("alone", "beside"):
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in POLICIES}
        with others(0 if beside == "alone" else os.cpu_count() or 1):
            for _ in range(options.turns):
                for name, policy in POLICIES.items():
                    turns[name].append(once(options, policy))
        found[beside] = {
            name: {
                "wall_ms": round(statistics.median(wall for wall, _ in each), 1),
                "processor_ms": round(statistics.median(own for _, own in each), 1),
            }
            for name, each in turns.items()
        }
    report(options, found)


def once(options: argparse.Namespace, policy: str) -> tuple[float, float]:
    """Milliseconds of a step by the clock and by the processor, in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--inside",
        "--model",
        options.model,
        "--steps",
        str(options.steps),
        "--threads",
        str(options.threads),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy:
        environment["OMP_WAIT_POLICY"] = policy
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    wall, own = json.loads(ran.stdout)
    return wall, own


@contextlib.contextmanager
def others(count: int) -> Iterator[None]:
    """So many processes that do nothing but count."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def steps(options: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds of a step by the clock and by the processor."""
    import numpy as np
    import torch

    from biqe.models import _catalogue
    from biqe.query.bound import TARGET, BoundQuery, QuerySet
    from biqe.training.config import TrainConfig
    from biqe.training.memory import keep_freed_memory
    from biqe.training.optimizers import optimizer_of

    torch.set_num_threads(options.threads)
    keep_freed_memory()
    model = _catalogue.build(options.model, {}, ENTITIES, RELATIONS)
    optimizer = optimizer_of(model, TrainConfig(epochs=1, **model.train_defaults))
    rng = np.random.default_rng(0)
    ends, relations = rng.integers(ENTITIES, size=(QUERIES, 3)), rng.integers(2 * RELATIONS, size=(QUERIES, 2))
    queries = QuerySet.of(
        [
            BoundQuery((int(a), int(b), TARGET), ((0, int(r), 2), (1, int(s), 2)), (2,))
            for (a, b, _), (r, s) in zip(ends, relations, strict=True)
        ]
    )
    gold = queries.gold.copy()
    gold[queries.target_nodes] = ends[:, 2]
    batch = model.encode(replace(queries, gold=gold)).batch(np.arange(QUERIES))

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model.loss(batch).backward()
        optimizer.step()

    step()
    wall, own = time.perf_counter(), time.process_time()
    for _ in range(options.steps):
        step()
    scale = 1e3 / options.steps
    return (time.perf_counter() - wall) * scale, (time.process_time() - own) * scale


def report(options: argparse.Namespace, found: dict[str, dict[str, dict[str, float]]]) -> None:
    """A table, and one JSON object."""
    from biqe.evaluate.machine import machine, write_result

    about = machine()
    print(
        f"one step of {options.model}, {QUERIES} queries, {options.threads} threads, allocator {about['allocator']}\n"
    )
    print(f"{'':24}{'clock, ms':>12}{'processor, ms':>16}")
    for beside, ways in found.items():
        for name, figures in ways.items():
            print(f"{name + ', ' + beside:24}{figures['wall_ms']:12,.0f}{figures['processor_ms']:16,.0f}")
    ours, other = (found["beside"][name]["processor_ms"] for name in POLICIES)
    result = {
        "benchmark": "waiting_threads",
        "model": options.model,
        **found,
        "ratio": round(other / ours, 2),
        "ours": f"{ours:,.0f} ms of processor time a step beside other work, threads that sleep",
        "alternative": f"{other:,.0f} ms, threads that spin",
        "allocator": about["allocator"],
        "threads": options.threads,
        "machine": about,
    }
    write_result(result, options.out)


if __name__ == "__main__":
    main()
