"""What an approximate index over entities finds and costs, beside the exact road through the whole table in blocks.

    python benchmarks/entity_index.py --run runs/fb --set sets/fb15k237-cq
    python benchmarks/entity_index.py --run runs/fb --set sets/fb15k237-cq --queries 100

The index is tuned on one half of the targets of validation queries and tested on the other half, for several recalls of
the best 20 entities. Times are of one target when all of a half are searched at once, the least of five
turns that both roads take one after the other. ``ratio`` is the exact road's time over the index's at a recall of 0.95.
Needs the extra ``ann`` and a model without a link predictor inside. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import torch

from biqe import models
from biqe.evaluate.machine import machine, write_result
from biqe.mine import folder
from biqe.models._entity_index import best_entities

RECALLS = (0.8, 0.9, 0.95, 0.99)
COUNT, TURNS = 20, 5


def least(ways: list[Callable[[], object]]) -> list[float]:
    """Seconds of each way, the least of several turns."""
    found = [float("inf")] * len(ways)
    for _ in range(TURNS):
        for number, way in enumerate(ways):
            start = time.perf_counter()
            way()
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def main() -> None:
    """Read the options, tune, test, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="run or model folder")
    parser.add_argument("--set", dest="query_set", type=Path, required=True, help="mined set of the same graph")
    parser.add_argument("--queries", type=int, default=300, help="validation queries, sampled (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="processor threads (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the result there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    faiss.omp_set_num_threads(arguments.threads)
    model = models.load(arguments.run).model.eval()
    queries = folder.load(arguments.query_set).queries["valid"]
    chosen = np.random.default_rng(arguments.seed).permutation(len(queries))[: arguments.queries]
    with torch.inference_mode():
        hidden = model.at_targets(model.encoder(queries.take(np.sort(chosen))))
    order = torch.from_numpy(np.random.default_rng(arguments.seed).permutation(len(hidden)))
    tuned_on, tested_on = hidden[order[::2]].clone(), hidden[order[1::2]].clone()
    index = models.entity_index(model, seed=arguments.seed)
    rows = []
    print(f"{len(hidden):,} targets, {model.entity_count:,} entities in {index.lists} lists, best {COUNT}\n")
    print(f"{'recall':>8}{'found':>8}{'lists':>8}{'index':>12}{'exact':>12}")
    for recall in RECALLS:
        index.tune(tuned_on, count=COUNT, recall=recall)
        own, exact = least(
            [
                lambda: index.search(tested_on, COUNT),
                lambda: best_entities(tested_on, model.entity_weight, model.entity_bias, COUNT),
            ]
        )
        row = {
            "recall": recall,
            "found": round(index.recall(tested_on, COUNT), 3),
            "lists": index.probes,
            "index_us": round(1e6 * own / len(tested_on), 1),
            "exact_us": round(1e6 * exact / len(tested_on), 1),
        }
        rows.append(row)
        print(f"{recall:8.2f}{row['found']:8.3f}{row['lists']:8}{row['index_us']:9.1f} us{row['exact_us']:9.1f} us")
    chief = rows[RECALLS.index(0.95)]
    result = {
        "benchmark": "entity_index",
        "run": arguments.run.name,
        "targets": len(hidden),
        "entities": model.entity_count,
        "lists": index.lists,
        "count": COUNT,
        "rows": rows,
        "ratio": round(chief["exact_us"] / chief["index_us"], 2),
        "ours": f"{chief['index_us']:.0f} us a target, {chief['found']:.3f} of the best found",
        "alternative": f"{chief['exact_us']:.0f} us (exact, by blocks)",
        "allocator": machine()["allocator"],
        "threads": arguments.threads,
        "machine": machine(),
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
