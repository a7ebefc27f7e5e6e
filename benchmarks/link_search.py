"""What a search over links adds to an encoder, and what it costs: MRR and time of mined DAGs by weight and by beam.

    python benchmarks/link_search.py --run runs/fb --set sets/cq                         # 1,000 validation DAGs
    python benchmarks/link_search.py --run runs/fb --set sets/cq --limit 200 --weights 0,0.5 --beams 8

The run is one whose model has a link predictor inside (``biqe train --minutes 60``). Each weight of the links
(``search``) is tried with each number of entities that the search keeps of a variable (``search_beam``); weight 0 is
the encoder alone, weight 1 the links alone, which is CQD's search. Nothing is written into the model. ``ratio`` is the
encoder's time over that of the default beam at the first weight above 0. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from biqe.evaluate import Cq, evaluate_together
from biqe.evaluate.machine import allocator, machine, write_result
from biqe.evaluate.scoring import sample
from biqe.knowledge_base import open as open_knowledge_base
from biqe.mine import folder as set_folder
from biqe.models import store
from biqe.models.hybrid import Config, Hybrid

FILTERS = ("complete", "split")


def main() -> None:
    """Read the options, rank, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="run folder, or model folder with --graph")
    parser.add_argument("--set", type=Path, required=True, dest="query_set", help="mined set of the same graph")
    parser.add_argument("--graph", type=Path, help="graph folder, where the run's own was moved")
    parser.add_argument("--weights", default="0,0.5,0.6,0.7,1", help="of the links, from 0 to 1")
    parser.add_argument("--beams", default="4,8,16,64", help="entities kept of each variable")
    parser.add_argument("--limit", type=int, default=1000, help="queries, sampled")
    parser.add_argument("--out", type=Path, help="file for the result, such as results/speed/link_search.json")
    arguments = parser.parse_args()
    base = open_knowledge_base(arguments.run, graph=arguments.graph)
    if base.model_folder is None:
        sys.exit(f"{arguments.run} has no model")
    loaded = store.load(base.model_folder)
    if not isinstance(loaded.model, Hybrid):
        sys.exit(f"the model of {arguments.run} is no hybrid, and has no links to search")
    queries = sample(set_folder.load(arguments.query_set, vocabulary=loaded.vocabulary)["valid"], arguments.limit)
    model = loaded.model.eval()
    model.use_graph(base.splits["train"])
    rows = []
    print(f"{'links':>6}{'kept':>6}" + "".join(f"{name:>10}" for name in FILTERS) + f"{'ms a query':>12}")
    for weight in map(float, arguments.weights.split(",")):
        for beam in map(int, arguments.beams.split(",")) if weight else (Config.search_beam,):
            start = time.perf_counter()
            solved = model.solving(search=weight, search_beam=beam)
            reports = evaluate_together(solved, queries, [Cq(name) for name in FILTERS], bootstrap=1)
            spent = 1e3 * (time.perf_counter() - start) / len(queries)
            mrr = {report.filter_graph: report.value("mrr") for report in reports}
            rows.append({"search": weight, "search_beam": beam if weight else None, "mrr": mrr, "ms": round(spent, 2)})
            print(
                f"{weight:6g}{beam if weight else '-':>6}"
                + "".join(f"{mrr[name]:10.4f}" for name in FILTERS)
                + f"{spent:12.1f}",
                flush=True,
            )
    alone = next((row["ms"] for row in rows if row["search"] == 0), None)
    usual = next((row["ms"] for row in rows if row["search_beam"] == Config.search_beam), None)
    result = {
        "benchmark": "link_search",
        "ratio": round(alone / usual, 3) if alone and usual else 0.0,
        "ours": f"{usual or 0:.1f} ms a DAG, in batches, with a search that keeps {Config.search_beam} entities",
        "alternative": f"{alone or 0:.1f} ms by the encoder alone",
        "run": str(arguments.run),
        "queries": len(queries),
        "graph": base.splits.fingerprint,
        "rows": rows,
        "allocator": allocator(),
        "threads": torch.get_num_threads(),
        "machine": machine(),
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
