"""Whole tuples of mined CQ DAGs, decoded in several ways by one model: HITS@k of all targets right at once.

    python benchmarks/joint_tuples.py --run runs/fb --set sets/fb15k237-cq               # all validation DAGs
    python benchmarks/joint_tuples.py --run runs/fb --set sets/fb15k237-cq --limit 150   # a sample
    python benchmarks/joint_tuples.py --run runs/fb --set sets/fb15k237-cq --targets 2   # of two targets only
    python benchmarks/joint_tuples.py --run runs/fb --some-missing 1000                  # DAGs known in part
    python benchmarks/joint_tuples.py ... --out joint-tuples-2.json  # the result as a file, too

rows are those that a user gets by the calibrated probabilities of links (predict/link_search.py); product multiplies
the targets' own distributions; beam fills one target after the other; links searches over the links
that a model has inside, and goes by its distributions as well; own is what the model's own ``tuples`` gives, where it
has that; cqd, with ``--cqd RUN``, are those of another model, by CQD's search, as published and (cqd, known) with links
that the training triples hold counted as true, as links does.
Tuples that are true in the complete graph are left out of all lists, except the gold one. Differences are to the way
that stands first, which is (cqd, known) where there is one, with the interval that 95 of 100 draws of queries fall
into.

Of a mined validation DAG the training triples hold not one link. With ``--some-missing`` DAGs are mined from train and
valid together, and asked where training lacks some of their links and not all. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.evaluate.machine import machine, write_result
from biqe.evaluate.metrics import METRICS
from biqe.evaluate.scoring import sample
from biqe.evaluate.tuples import TrueTuples, TupleReport, Way, evaluate_tuples, own_way
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.knowledge_base import open as open_knowledge_base
from biqe.mine import folder as set_folder
from biqe.mine.dataset import epoch_queries
from biqe.models import store
from biqe.models._contract import use_graph
from biqe.predict.config import Joint
from biqe.predict.joint import ways
from biqe.predict.link_search import search_rows
from biqe.predict.predictor import Predictor
from biqe.query.bound import BoundQuery, QuerySet

LISTED = 100
"""Rows that are listed, at least."""


def some_missing(splits: Splits, count: int, seed: int) -> QuerySet:
    """``count`` DAGs of train and valid, of whose links the training triples hold some and lack some."""
    vocabulary = splits.vocabulary
    found = epoch_queries(
        Graph(vocabulary, union(splits.train, splits.valid)), paths=0, dags=10 * count, seed=seed, epoch=0
    )
    owner = np.repeat(np.arange(len(found)), np.diff(found.edge_offsets))
    ends = found.gold[found.node_offsets[owner, None] + found.edges[:, [0, 2]]].astype(np.int64)  # (edges, 2)

    def keys(subject: NDArray[Any], relation: NDArray[Any], object_: NDArray[Any]) -> NDArray[np.int64]:
        return (subject.astype(np.int64) * len(vocabulary.relations) + relation) * len(vocabulary.entities) + object_

    held = np.isin(keys(ends[:, 0], found.edges[:, 1], ends[:, 1]), keys(*splits.train.T))
    holds = np.bincount(owner, weights=held, minlength=len(found))
    return found.take(np.flatnonzero((holds > 0) & (holds < np.diff(found.edge_offsets)))[:count])


def listed_way(predictor: Predictor, graph: Graph) -> Way:
    """Rows as a user gets them; true ones are taken out afterwards, so more are asked for."""

    def found(
        queries: Sequence[BoundQuery], excluded: Sequence[TrueTuples], count: int
    ) -> list[tuple[NDArray[np.int32], NDArray[np.float64]]]:
        kept = []
        for query, out in zip(queries, excluded, strict=True):
            rows = search_rows(predictor, graph, query, None, max(count, LISTED), Joint().width)
            wanted = np.flatnonzero(~out.holds(rows.entities))[:count]
            kept.append((rows.entities[wanted], np.log(np.maximum(rows.probabilities[wanted], 1e-30))))
        return kept

    return found


def show(report: TupleReport) -> None:
    """The ways as a table, then by number of targets."""
    print(f"{report.model}, {report.queries:,} queries, {report.count} tuples of each way")
    print(f"{'':12}" + "".join(f"{metric:>10}" for metric in METRICS) + f"{'listed':>10}{'seconds':>10}")
    for name, way in report.ways.items():
        figures = "".join(f"{way.metrics[metric]:10.4f}" for metric in METRICS)
        print(f"{name:12}{figures}{way.listed:10.3f}{way.seconds:10.1f}")
    first = next(iter(report.ways))
    for name, way in list(report.ways.items())[1:]:
        more = "  ".join(
            f"{metric} {d:+.4f} [{low:+.4f}, {high:+.4f}]" for metric, (d, low, high) in way.over_first.items()
        )
        print(f"{name} - {first}: {more}")
    for group, queries in report.queries_by_targets.items():
        line = "  ".join(f"{name} {way.by_targets[group]['mrr']:.4f}" for name, way in report.ways.items())
        print(f"MRR, {group}{' or more' if group == '5' else ''} targets ({queries:,} queries): {line}")


def main() -> None:
    """Read the options, decode, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="run folder, or model folder with --graph")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--set", type=Path, dest="query_set", help="mined set of the same graph")
    asked.add_argument(
        "--some-missing", type=int, metavar="COUNT", help="mine so many DAGs that training holds a part of"
    )
    parser.add_argument("--graph", type=Path, help="graph folder, where the run's own was moved")
    parser.add_argument("--split", default="valid", choices=("train", "valid"))
    parser.add_argument("--targets", type=int, help="queries with so many targets only; default: all")
    parser.add_argument("--limit", type=int, help="queries, sampled")
    parser.add_argument("--count", type=int, default=50, help="tuples of each way")
    parser.add_argument("--width", type=int, default=Joint().width, help="of the beam")
    parser.add_argument("--ways", default="product,beam,links", help="in this order; the first is the baseline")
    parser.add_argument("--cqd", type=Path, help="run or model folder of cqd on the same graph, to stand beside")
    parser.add_argument("--known", choices=("one", "off"), help="whether known links are sure for links; its own way")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, help="file for the result, such as joint-tuples.json")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    base = open_knowledge_base(arguments.run, graph=arguments.graph)
    if base.model_folder is None:
        sys.exit(f"{arguments.run} has no model")
    loaded = store.load(base.model_folder)
    if arguments.some_missing:
        queries = some_missing(base.splits, arguments.some_missing, arguments.seed)
    else:
        queries = set_folder.load(arguments.query_set, vocabulary=loaded.vocabulary)[arguments.split]
    if arguments.targets is not None:
        queries = queries.take(np.flatnonzero(np.diff(queries.target_offsets) == arguments.targets))
    if len(queries) == 0:
        sys.exit(f"there are no such queries with {arguments.targets or 'any'} targets")
    if arguments.limit:
        queries = sample(queries, arguments.limit, arguments.seed)
    if arguments.known:
        loaded = dataclasses.replace(loaded, model=loaded.model.solving(known=arguments.known))
    use_graph(loaded.model, base.splits["train"])
    joint = Joint(width=arguments.width)
    chosen = ways(Predictor(loaded.model), joint)
    if Predictor(loaded.model).links is not None:
        chosen["rows"] = listed_way(Predictor(loaded.model), base.splits["train"])
    compared = {name: chosen[name] for name in arguments.ways.split(",")}
    if arguments.cqd:
        other = open_knowledge_base(arguments.cqd, graph=arguments.graph).model_folder
        if other is None or (beside := store.load(other)).vocabulary.fingerprint != loaded.vocabulary.fingerprint:
            sys.exit(f"{arguments.cqd} is no model of the same graph")
        for name, known in (("cqd", "off"), ("cqd, known", "one")):
            model = beside.model.eval().solving(known=known)
            model.use_graph(base.splits["train"])
            compared[name] = own_way(model)
        compared = {"cqd, known": compared.pop("cqd, known"), **compared}
    report = evaluate_tuples(
        loaded.model,
        queries,
        base.splits["complete"],
        compared,
        count=arguments.count,
        seed=arguments.seed,
        progress=lambda done, total: print(f"{done:,} of {total:,}", file=sys.stderr),
    )
    show(report)
    settings = {
        "split": arguments.split,
        "targets": arguments.targets,
        "limit": arguments.limit,
        "width": arguments.width,
        "cqd": None if arguments.cqd is None else str(arguments.cqd),
        "seed": arguments.seed,
    }
    usual = Predictor(loaded.model).joint  # what a user gets
    shown = usual if usual in report.ways else list(report.ways)[-1]
    which = "any number of" if arguments.targets is None else arguments.targets
    result = {
        "name": f"whole rows of {which} targets, by {shown}",
        "metrics": dict(report.ways[shown].metrics),
        "benchmark": "joint_tuples",
        "run": str(arguments.run),
        "set": None if arguments.query_set is None else str(arguments.query_set),
        "some_missing": arguments.some_missing,
        "graph": base.splits.fingerprint,
        "model_config": dataclasses.asdict(loaded.model.config),
        **settings,
        **report.to_json(),
        "machine": machine(),
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
