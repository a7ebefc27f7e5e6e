"""Sampled against full softmax: the accuracy that both reach in the same time on the same graph.

    python benchmarks/sampled_softmax.py --minutes 20                      # FB15k-237 from the data folder
    python benchmarks/sampled_softmax.py --graph kg/mine --negatives 2048 --minutes 5

Both train biqe of the same size from the same seed for the same processor minutes, one after the other, and are
validated on the same held-out queries, as ``biqe train`` does. FB15k-237 is small: nothing is gained by sampling there,
and the question is what is lost. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from biqe.benchmarks.public_graphs import public_graph
from biqe.benchmarks.storage import data_folder
from biqe.evaluate.machine import machine, write_result
from biqe.graph import folder
from biqe.training import session
from biqe.training.run import Run

VALIDATION_QUERIES = 2500
"""So many that chance moves the difference by less than what it is to show."""


class Shown:
    """Prints validations."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Nothing."""

    def validated(self, facts: dict[str, Any]) -> None:
        """One line."""
        print(
            f"{self._kind:>8}: {facts['seconds'] / 60:5.1f} min, step {facts['step']:,}, MRR {facts['mrr']:.4f}",
            flush=True,
        )


def main() -> None:
    """Train both, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="graph folder (default: FB15k-237 of the data folder)")
    parser.add_argument("--minutes", type=float, default=20.0, help="processor minutes of each (default: %(default)s)")
    parser.add_argument("--negatives", type=int, default=8192, help="entities drawn a step (default: %(default)s)")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, help="also write the result there, such as results/speed/sampled_softmax.json"
    )
    options = parser.parse_args()
    found = {}
    model = {"width": options.width, "layers": options.layers, "heads": 4, "feed_forward": 4 * options.width}
    with tempfile.TemporaryDirectory() as temporary:
        graph = options.graph
        if graph is None:
            graph = str(Path(temporary) / "graph")
            folder.save(public_graph("FB15k-237", data_folder()), graph)
        fingerprint = folder.load(graph).fingerprint
        for kind in ("full", "sampled"):
            config = session.settings(
                "biqe",
                minutes=options.minutes,
                clock="processor",
                softmax=kind,
                negatives=options.negatives,
                seed=options.seed,
                threads=options.threads,
                validations=4,
                validation_queries=VALIDATION_QUERIES,
            )
            out = Path(temporary) / kind
            result = session.start(graph, out, train_config=config, model_options=model, listener=Shown(kind))
            steps = [event for event in Run.open(out).trace() if event["event"] == "ended"][-1]["step"]
            found[kind] = {"mrr": round(result.place.best, 4), "steps": steps}
    gap = found["sampled"]["mrr"] - found["full"]["mrr"]
    print(f"sampled - full: {gap:+.4f} MRR")
    about = machine()
    result = {
        "benchmark": "sampled_softmax",
        "ratio": round(found["sampled"]["mrr"] / found["full"]["mrr"], 3),
        "ours": f"MRR {found['sampled']['mrr']:.3f} with {options.negatives:,} sampled",
        "alternative": f"MRR {found['full']['mrr']:.3f} (softmax over all), {options.minutes:g} minutes each",
        "gap": round(gap, 4),
        **found,
        "minutes": options.minutes,
        "negatives": options.negatives,
        "model": model,
        "seed": options.seed,
        "graph": {"name": options.graph or "FB15k-237", "fingerprint": fingerprint},
        "allocator": about["allocator"],
        "threads": options.threads,
        "machine": about,
    }
    write_result(result, options.out)


if __name__ == "__main__":
    main()
