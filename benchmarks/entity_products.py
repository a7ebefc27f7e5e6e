"""Products of a few rows with the table of all entities: in our order, beside the plain one; and the loss over them.

    python benchmarks/entity_products.py                       # 14,541 entities, as FB15k-237 has
    python benchmarks/entity_products.py --entities 300000 --width 128

``with_all`` (models/_entity_products.py) is what asks and searches use; the plain way is ``rows @ table.T``, written as
torch.nn.functional.linear. Both take turns, row count by row count. Below that, the products of one chunk of the loss
(links/softmax.py): written to rows that begin at cache lines, beside rows that stand one right after the other.
Times are medians. ``ratio`` is the plain way's time over ours, at 8 rows. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import linear

from biqe.evaluate.machine import allocator, machine, write_result
from biqe.links.softmax import aligned, with_all

ROWS = (1, 2, 4, 8, 16, 64, 256)
CHUNK = 288


def in_turns(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each way, median; the ways take turns."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats + 3):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if number >= 3:  # warm
                spent[name].append(1e3 * (time.perf_counter() - start))
    return {name: round(statistics.median(times), 3) for name, times in spent.items()}


@torch.inference_mode()
def main() -> None:
    """Read the options, multiply, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=14_541)
    parser.add_argument("--width", type=int, default=400, help="of the table: 400 is the link predictor's, 256 biqe's")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, help="file for the result, such as results/speed/entity_products.json")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    entities = arguments.entities
    table = torch.randn(entities, arguments.width)
    found = {}
    print(f"{'rows':>6}{'plain ms':>12}{'ours ms':>12}{'ratio':>8}")
    for count in ROWS:
        rows = torch.randn(count, arguments.width)
        times = in_turns(
            {"plain": lambda rows=rows: linear(rows, table), "ours": lambda rows=rows: with_all(rows, table)},
            arguments.repeats,
        )
        found[count] = times | {"ratio": round(times["plain"] / times["ours"], 2)}
        print(f"{count:6}{times['plain']:12.2f}{times['ours']:12.2f}{found[count]['ratio']:8.2f}")
    rows = torch.randn(CHUNK, arguments.width)
    dense, apart = torch.empty(CHUNK, entities), torch.empty(CHUNK, aligned(entities))[:, :entities]
    chunk = in_turns(
        {"plain": lambda: torch.mm(rows, table.t(), out=dense), "ours": lambda: torch.mm(rows, table.t(), out=apart)},
        arguments.repeats,
    )
    print(
        f"a chunk of the loss, {CHUNK} rows: {chunk['plain']:.1f} ms one after the other, {chunk['ours']:.1f} aligned"
    )
    result = {
        "benchmark": "entity_products",
        "ratio": found[8]["ratio"],
        "ours": f"{found[8]['ours']:.2f} ms for 8 rows with {entities:,} entities, width {arguments.width}",
        "alternative": f"{found[8]['plain']:.2f} ms (torch.nn.functional.linear)",
        "rows": found,
        "chunk": chunk | {"rows": CHUNK, "ratio": round(chunk["plain"] / chunk["ours"], 2)},
        "allocator": allocator(),
        "threads": torch.get_num_threads(),
        "machine": machine(),
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
