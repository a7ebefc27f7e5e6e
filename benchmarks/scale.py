"""How import, mining, training and asking grow with the graph: time, memory, and the exponent between sizes.

    python benchmarks/scale.py                          # 10^4, 10^5 and 10^6 entities; an hour on a busy machine
    python benchmarks/scale.py --sizes 1000,10000       # smaller
    python benchmarks/scale.py --only train --folder scale

Graphs are generated: 10 triples an entity, subjects even, objects by a power law (the entity of rank r is drawn with a
weight of r^-0.8), 200 relations likewise. A seed gives the same file everywhere. Every stage runs in a process of its
own, so that its peak memory is its own:

    import     a TSV file into a graph folder, split and checksummed
    mine       as many paths and as many DAGs as a tenth of the entities
    exact      all answers of 2,000 of these DAGs; time is that of one
    epoch      what a training epoch is made of: triples, 5,000 paths, 5,000 DAGs, as tokens, in batches
    full       one training step (width 128, 6,000 tokens) with softmax over all entities
    sampled    the same with 8,192 of them, and updates of the rows that were touched
    keep       a checkpoint of the sampled run: weights, moments, average
    answer     one query of one link, from SPARQL text to the best 20 rows, warm

The exponent between two sizes is log(ratio) / log(ratio of entities): 1 is linear, 0 constant. Times are the least of
several repetitions, since other work on a machine only ever adds; ``--clock processor`` counts only time in which the
process had its cores, for machines that have other work to do. ``ratio`` is the time of a step with softmax over all
entities over that of a sampled one, at the largest size. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from biqe.evaluate.machine import machine, write_result

TRIPLES_AN_ENTITY, RELATIONS, CHUNK = 10, 200, 200_000
WIDTH, LAYERS, HEADS, FEED_FORWARD = 128, 4, 4, 512
NEGATIVES = 8192
STAGES = ("import", "mine", "train", "answer")
SHOWN = ("import", "mine", "exact", "epoch", "full", "sampled", "keep", "answer")


def generate(path: Path, entities: int, seed: int) -> None:
    """Write a TSV file of ``TRIPLES_AN_ENTITY`` triples an entity."""
    rng = np.random.default_rng(seed)

    def by_power_law(count: int) -> Callable[[int], np.ndarray]:
        up_to = np.cumsum(np.arange(1, count + 1) ** -0.8)
        names = rng.permutation(count)
        return lambda n: names[np.searchsorted(up_to, rng.random(n) * up_to[-1])]

    objects, relations = by_power_law(entities), by_power_law(RELATIONS)
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, entities * TRIPLES_AN_ENTITY, CHUNK):
            n = min(CHUNK, entities * TRIPLES_AN_ENTITY - start)
            subjects = (start + np.arange(n)) // TRIPLES_AN_ENTITY
            rows = zip(subjects.tolist(), relations(n).tolist(), objects(n).tolist(), strict=True)
            stream.writelines(f"e{s}\tr{r}\te{o}\n" for s, r, o in rows)


def now() -> float:
    """Seconds of the clock that was asked for."""
    if os.environ.get("SCALE_CLOCK") != "processor":
        return time.perf_counter()
    return max(time.thread_time(), time.process_time() / int(os.environ["OMP_NUM_THREADS"]))


def least(work: Callable[[], Any], seconds: float, repeats: int) -> float:
    """The shortest time of ``work``, of up to ``repeats`` and about ``seconds`` in all."""
    best, end = math.inf, now() + seconds
    for _ in range(repeats):
        start = now()
        work()
        best = min(best, now() - start)
        if now() > end:
            break
    return best


def stage_import(place: Path, entities: int) -> dict[str, Any]:
    """Import the generated file."""
    from biqe.graph.importer import import_files

    seconds = least(lambda: import_files([place / "graph.tsv"], place / "graph", force=True), 5.0, 3)
    return {"import": seconds}


def stage_mine(place: Path, entities: int) -> dict[str, Any]:
    """Mine, and find exact answers."""
    from biqe.exact.answers import answer_sets
    from biqe.graph import folder
    from biqe.mine.dataset import epoch_queries
    from biqe.query.bound import KINDS

    graph = folder.load(place / "graph")["train"]
    count = max(100, entities // 10)
    found = []

    def mine() -> None:
        graph.__dict__.pop("index", None)  # its making is part of mining a graph once
        found[:] = [epoch_queries(graph, paths=count, dags=count, seed=0, epoch=0, inverse_share=0.25)]

    seconds, peak = least(mine, 5.0, 3), peak_gib()
    queries = found[0]
    dags = np.flatnonzero(queries.kinds == KINDS.index("dag"))  # fewer than were wished for, where the graph is small
    some = queries.take(np.random.default_rng(0).permutation(dags)[:2000])
    answer_sets(graph, some.take(np.arange(10)), threads=1)  # compiles
    each = least(lambda: answer_sets(graph, some, threads=1), 5.0, 3) / len(some)
    return {"mine": seconds, "exact": each, "peak": {"mine": peak}}


def stage_train(place: Path, entities: int) -> dict[str, Any]:
    """One epoch's preparation, and steps of both kinds, by the functions that ``biqe train`` uses."""
    import torch

    from biqe.graph import folder
    from biqe.models._entity_loss import sample_entities
    from biqe.models.biqe import BiQE, Config
    from biqe.training import checkpoint
    from biqe.training.checkpoint import Place
    from biqe.training.config import TrainConfig
    from biqe.training.loop import take_step
    from biqe.training.memory import keep_freed_memory
    from biqe.training.optimizers import RunningAverage, optimizer_of
    from biqe.training.processes import Processes
    from biqe.training.stream import Stream

    keep_freed_memory()
    torch.manual_seed(0)
    splits = folder.load(place / "graph")
    graph = splits["train"]
    config = Config(width=WIDTH, layers=LAYERS, heads=HEADS, feed_forward=FEED_FORWARD)
    settings = TrainConfig(epochs=1, paths=5000, dags=5000, threads=torch.get_num_threads())
    times: dict[str, float] = {}
    model = BiQE(config, graph.entity_count, graph.relation_count).train()
    started = now()
    epoch = Stream(graph, model, settings).epoch(0)
    times["epoch"] = now() - started
    # Batches of the size that is most common, so that every size of graph takes the same steps.
    lengths = [int(epoch.encoded.sizes[rows[0]]) for rows in epoch.batches if len(rows) * 3 >= 1000]
    common = max(set(lengths), key=lengths.count)
    chosen = [rows for rows in epoch.batches if epoch.encoded.sizes[rows[0]] == common and len(rows) >= 1000][:12]
    batches = [epoch.encoded.batch(rows) for rows in chosen]
    del epoch
    peaks = {"epoch": peak_gib()}
    optimizer = average = None
    for kind in ("sampled", "full"):
        if kind == "sampled":
            sample_entities(model, graph, NEGATIVES)
        else:
            model = optimizer = average = step = None  # the first must be gone before the second is there
            model = BiQE(config, graph.entity_count, graph.relation_count).train()
        optimizer, average = optimizer_of(model, settings), RunningAverage(model)
        turn = iter(batches * 10)

        def step(process=Processes(model), optimizer=optimizer, average=average, turn=turn) -> None:  # noqa: B008
            take_step(process, next(turn), optimizer, average, settings, 1000, 0.5)

        step()
        few = kind == "full" and entities >= 300_000
        times[kind] = least(step, 20.0, 1 if few else 10)
        peaks[kind] = peak_gib()
        if kind == "sampled":
            where = place / "checkpoints"
            started = now()
            checkpoint.save(where, Place(step=1), model, average.tensors(), optimizer)
            times["keep"], peaks["keep"] = now() - started, peak_gib()
            for file in where.iterdir():
                file.unlink()
            from biqe.models import store

            store.save(model, place / "model", vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)
    return {**times, "peak": peaks}


def stage_answer(place: Path, entities: int) -> dict[str, Any]:
    """Ask for the objects of subjects and relations that the graph has."""
    import biqe
    from biqe.graph import folder

    base = biqe.open(place / "model", graph=place / "graph")
    splits = folder.load(place / "graph")
    picked = splits.train[np.random.default_rng(1).choice(len(splits.train), 12, replace=False)]
    names = splits.vocabulary
    texts = [f"SELECT ?x WHERE {{ <{names.entities[int(s)]}> <{names.relations[int(r)]}> ?x }}" for s, r, _ in picked]
    started = now()
    base.ask(texts[0], mode="predicted")
    first = now() - started
    turn = iter(texts[1:] * 5)
    return {"answer": least(lambda: base.ask(next(turn), mode="predicted"), 20.0, 40), "first_answer": first}


def peak_gib() -> float:
    """Largest resident size of this process so far."""
    from biqe.evaluate.machine import peak_resident_bytes

    return peak_resident_bytes() / 2**30


def run_stage(name: str, place: Path, entities: int) -> None:
    """What a process of its own does."""
    found = {"import": stage_import, "mine": stage_mine, "train": stage_train, "answer": stage_answer}[name](
        place, entities
    )
    peaks = found.pop("peak", {})
    print(json.dumps({"seconds": found, "peak_gib": {name: peak_gib(), **peaks}}))


def measured(name: str, place: Path, entities: int, threads: int, clock: str) -> dict[str, Any]:
    """One stage in a fresh process."""
    command = [sys.executable, __file__, "--stage", name, str(place), str(entities)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "SCALE_CLOCK": clock}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{name} at {entities:,} entities failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def exponent(before: float | None, after: float | None, ratio: float) -> str:
    """Growth exponent as text; a dash where one of the two was not measured."""
    if not before or not after:
        return "-"
    return f"{math.log(after / before) / math.log(ratio):+.2f}"


def main() -> None:
    """Generate, measure every stage at every size, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of entities (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=STAGES, help="these stages alone; they need those before")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="processor threads (default: %(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the generated graphs (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where graphs and models are kept (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="also write the result there")
    parser.add_argument("--stage", nargs=3, metavar=("NAME", "PLACE", "ENTITIES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage[0], Path(options.stage[1]), int(options.stage[2]))
        return
    sizes = [int(size) for size in options.sizes.split(",")]
    seconds: dict[int, dict[str, float]] = {}
    peaks: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for size in sizes:
            place = (options.folder or Path(temporary)) / str(size)
            place.mkdir(parents=True, exist_ok=True)
            if not (place / "graph.tsv").exists():
                generate(place / "graph.tsv", size, options.seed)
            seconds[size], peaks[size] = {}, {}
            for stage in options.only or STAGES:
                found = measured(stage, place, size, options.threads, options.clock)
                seconds[size] |= found["seconds"]
                peaks[size] |= found["peak_gib"]
                print(f"{size:,}: {stage}", {k: round(v, 4) for k, v in found["seconds"].items()}, file=sys.stderr)
    print_table(sizes, seconds, peaks)
    result: dict[str, Any] = {
        "benchmark": "scale",
        "seconds": {str(size): {k: round(v, 7) for k, v in seconds[size].items()} for size in sizes},
        "peak_gib": {str(size): {k: round(v, 3) for k, v in peaks[size].items()} for size in sizes},
        "threads": options.threads,
        "clock": options.clock,
        "load_average": round(os.getloadavg()[0], 1),
        "allocator": machine()["allocator"],
        "machine": machine(),
    }
    last = seconds[sizes[-1]]
    if "full" in last and "sampled" in last:
        result["ratio"] = round(last["full"] / last["sampled"], 2)
        result["ours"] = f"{last['sampled']:.2f} s a step at {sizes[-1]:,} entities, 8,192 sampled"
        result["alternative"] = f"{last['full']:.2f} s (softmax over all)"
    write_result(result, options.out)


def shown(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return "-"
    scale, unit = (1, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "us")
    return f"{value * scale:,.1f} {unit}"


def print_table(sizes: list[int], seconds: dict[int, dict[str, float]], peaks: dict[int, dict[str, float]]) -> None:
    """A line a stage: time and peak memory at every size, and the exponents of time between them."""
    head = [f"{'stage':<8}", *(f"{size:>12,}" for size in sizes), "   exponents", "   peak GiB"]
    print("".join(head))
    for stage in SHOWN:
        if not any(stage in seconds[size] for size in sizes):
            continue
        line = [f"{stage:<8}"]
        for size in sizes:
            line.append(f"{shown(seconds[size].get(stage)):>12}")
        pairs = zip(sizes, sizes[1:], strict=False)
        line.append("   " + " ".join(exponent(seconds[a].get(stage), seconds[b].get(stage), b / a) for a, b in pairs))
        line.append("   " + " ".join(f"{peaks[size][stage]:.2f}" if stage in peaks[size] else "-" for size in sizes))
        print("".join(line))


if __name__ == "__main__":
    main()
