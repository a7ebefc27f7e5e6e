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
Tuples that are true in the complete graph are left out of all lists, except the gold one. Differences are to the
first way, or to --baseline such as 'cqd, known', with the interval that 95 of 100 draws of queries fall into.

A mined query has one gold tuple, what its miner walked over. Its rank is one more than the number of wrong tuples
before it; tuples that are true in the complete graph, known or not, do not count, ties count half, and a gold tuple
that is not listed has no rank: it adds 0 to every metric.

Of a mined validation DAG the training triples hold not one link. With ``--some-missing`` DAGs are mined from train and
valid together, and asked where training lacks some of their links and not all. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.evaluate.machine import machine, write_result
from biqe.evaluate.metrics import METRICS, contributions, drawn_sums, means, percentile_ends
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import Progress, Skipped, at_rest, by_reason, nothing_ranked, sample, supported
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.knowledge_base import open as open_knowledge_base
from biqe.mine import folder as set_folder
from biqe.mine.dataset import epoch_queries
from biqe.models import store
from biqe.models._contract import FindsTuples, QueryModel, use_graph
from biqe.predict.config import JOINT, Joint
from biqe.predict.joint import decode
from biqe.predict.link_search import search_rows
from biqe.predict.predictor import Predictor
from biqe.query.bound import TARGET, BoundQuery, QuerySet

LISTED = 100
"""Rows that are listed, at least."""
Tuples = NDArray[np.int32]
BLOCK = 64
"""Queries that are decoded at a time."""
OWN_COUNT = 1000
"""Least number of tuples asked of a model that ranks tuples by itself: true ones are removed from them afterwards."""


class TrueTuples:
    """The tuples that answer one query in a graph; one of them, ``excepted``, can be declared not to."""

    def __init__(self, graph: Graph, query: BoundQuery, excepted: Sequence[int] | None = None) -> None:
        self._graph = graph
        self._query = query
        self._excepted = None if excepted is None else np.array(excepted, np.int32)

    def holds(self, rows: Tuples) -> NDArray[np.bool_]:
        """(n,) whether each of (n, targets) tuples answers the query: whether some entities for the hidden variables
        make all patterns true. False for the excepted one."""
        if len(rows) == 0:
            return np.zeros(0, bool)
        different, place = np.unique(rows[:, 1:], axis=0, return_inverse=True)
        filled = np.concatenate([np.full((len(different), 1), -1, np.int32), different], axis=1)
        true = self._completing(filled, 0)
        held = [bool(np.isin(row[0], true[at])) for row, at in zip(rows, place.reshape(-1).tolist(), strict=True)]
        return np.array(held, bool) & ~self._is_excepted(rows)

    def completing(self, filled: Tuples, column: int) -> list[NDArray[np.int32]]:
        """For each row, the sorted values of ``column`` that make it a true tuple, the other columns being as given."""
        found = self._completing(filled, column)
        if self._excepted is not None:
            others = np.arange(filled.shape[1]) != column
            for place in np.flatnonzero((filled[:, others] == self._excepted[others]).all(axis=1)).tolist():
                found[place] = found[place][found[place] != self._excepted[column]]
        return found

    def _completing(self, filled: Tuples, column: int) -> list[NDArray[np.int32]]:
        nodes = np.tile(np.array(self._query.nodes, np.int32), (len(filled), 1))
        nodes[:, list(self._query.targets)] = filled
        asked = self._query.targets[column]
        nodes[:, asked] = TARGET
        queries = [replace(self._query, nodes=tuple(row), targets=(asked,)) for row in nodes.tolist()]
        if not queries:
            return []
        sets = answer_sets(self._graph, QuerySet.of(queries), threads=1)
        return [sets[row] for row in range(len(queries))]

    def _is_excepted(self, rows: Tuples) -> NDArray[np.bool_]:
        if self._excepted is None:
            return np.zeros(len(rows), bool)
        return (rows == self._excepted).all(axis=1)


Way = Callable[[Sequence[BoundQuery], Sequence[TrueTuples], int], list[tuple[Tuples, NDArray[np.float64]]]]
"""A way of decoding: from queries, the tuples to leave out of each, and the number wanted, to tuples and scores of each
query, best first."""


@dataclass(frozen=True)
class WayFigures:
    """How one way of decoding did."""

    metrics: Mapping[str, float]
    """Metrics of the rank of the whole tuple, by name."""
    listed: float
    """Share of the queries whose gold tuple was listed at all."""
    by_targets: Mapping[str, Mapping[str, float]]
    """Metrics by number of targets; ``5`` stands for five and more."""
    over_first: Mapping[str, tuple[float, float, float]]
    """By metric: how much more than the first way, and the ends of the interval of that difference (95 of 100 draws of
    queries)."""
    seconds: float


@dataclass(frozen=True)
class TupleReport:
    """The same queries decoded in several ways."""

    model: str
    ways: Mapping[str, WayFigures]
    queries: int
    """Ranked."""
    queries_by_targets: Mapping[str, int]
    count: int
    """Tuples that were asked of each way."""
    skipped: tuple[Skipped, ...]
    machine: Mapping[str, Any]
    ranks: Mapping[str, NDArray[np.float64]]
    """(queries,) by way; infinite where the gold tuple was not listed. Not part of the JSON."""

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "tuples", **plain(replace(self, ranks={}))}


def tuple_rank(rows: Tuples, scores: NDArray[np.float64], gold: Sequence[int], ignored: NDArray[np.bool_]) -> float:
    """Rank of ``gold`` among the rows that are not ignored, ties counting half; infinite where it is not there.

    >>> rows = np.array([[1, 2], [1, 3], [4, 2], [5, 5]], np.int32)
    >>> tuple_rank(rows, np.array([4.0, 3.0, 3.0, 1.0]), (4, 2), np.array([True, False, False, False]))
    1.5
    """
    place = np.flatnonzero((rows == np.array(gold)).all(axis=1))
    if len(place) == 0:
        return float("inf")
    counted = ~ignored
    counted[place] = False
    own = scores[place[0]]
    return float(1 + (scores[counted] > own).sum() + 0.5 * (scores[counted] == own).sum())


def evaluate_tuples(
    model: QueryModel,
    queries: QuerySet,
    complete: Graph,
    ways: Mapping[str, Way],
    *,
    count: int = 50,
    draws: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> TupleReport:
    """Ranks of the gold tuples of ``queries`` with two targets or more, by each of ``ways``; differences are against
    the first of them. A model that ranks tuples by itself is added as ``own``, unless ``links``, which asks it, is one
    of the ways.

    ``complete`` says which tuples are true. Queries that the model does not support, or without a gold tuple or with
    one target only, are counted and left out.
    """
    if count < 1:
        raise InvalidOption(f"the number of tuples must be at least 1. Got {count}")
    rows, refused = supported(model, queries, True)
    asked, golds = [], []
    for row in rows.tolist():
        gold = queries.gold[queries.node_offsets[row] : queries.node_offsets[row + 1]]
        query = queries[row]
        if len(query.targets) < 2:
            refused[row] = "one target only"
        elif (gold[list(query.targets)] < 0).any():
            refused[row] = "no gold tuple"
        else:
            asked.append(query)
            golds.append(gold[list(query.targets)].tolist())
    skipped = by_reason(refused)
    if not asked:
        raise nothing_ranked(len(queries), skipped)
    excluded = [TrueTuples(complete, query, gold) for query, gold in zip(asked, golds, strict=True)]
    every = dict(ways)
    with at_rest(model):
        if "links" not in every and isinstance(model, FindsTuples):
            if model.tuples(QuerySet.of(asked[:1]), 1) is not None:
                every["own"] = own_way(model)
        total, done = len(every) * len(asked), 0
        ranks: dict[str, NDArray[np.float64]] = {}
        seconds = dict.fromkeys(every, 0.0)
        for name, way in every.items():
            ranks[name] = np.full(len(asked), np.inf)
            for first in range(0, len(asked), BLOCK):
                block = slice(first, first + BLOCK)
                start = time.perf_counter()
                found = way(asked[block], excluded[block], count)
                seconds[name] += time.perf_counter() - start
                for place, (tuples, scores) in enumerate(found, first):
                    ignored = excluded[place].holds(tuples)
                    ranks[name][place] = tuple_rank(tuples, scores, golds[place], ignored)
                done += len(found)
                if progress is not None:
                    progress(done, total)
    sizes = np.array([len(query.targets) for query in asked])
    groups = {str(size): np.minimum(sizes, 5) == size for size in range(2, 6) if (np.minimum(sizes, 5) == size).any()}
    base = contributions(next(iter(ranks.values())))
    return TupleReport(
        model=model.name,
        ways={name: _figures(ranks[name], base, groups, seconds[name], draws, seed) for name in every},
        queries=len(asked),
        queries_by_targets={name: int(members.sum()) for name, members in groups.items()},
        count=count,
        skipped=skipped,
        machine=machine(),
        ranks=ranks,
    )


def _figures(
    ranks: NDArray[np.float64],
    first: NDArray[np.float64],
    groups: Mapping[str, NDArray[np.bool_]],
    seconds: float,
    draws: int,
    seed: int,
) -> WayFigures:
    """Figures of one way; ``first`` holds the (queries, metrics) contributions of the first way."""
    more = contributions(ranks) - first
    difference = more.mean(axis=0)
    # The same draws of queries for every way: what is hard for one is mostly hard for the other.
    drawn = drawn_sums(more, draws=draws, rng=np.random.default_rng(seed)) / len(more)
    ends = percentile_ends(drawn, difference, 0.95)
    return WayFigures(
        means(ranks),
        float(np.isfinite(ranks).mean()),
        {name: means(ranks[members]) for name, members in groups.items()},
        {metric: (float(difference[at]), float(ends[at, 0]), float(ends[at, 1])) for at, metric in enumerate(METRICS)},
        seconds,
    )


def own_way(model: FindsTuples) -> Way:
    """The tuples of a model that ranks them by itself; true ones are taken out afterwards, so many are asked for."""

    def found(
        queries: Sequence[BoundQuery], excluded: Sequence[TrueTuples], count: int
    ) -> list[tuple[Tuples, NDArray[np.float64]]]:
        ranked = model.tuples(QuerySet.of(queries), max(count, OWN_COUNT))
        assert ranked is not None
        kept = []
        for tuples, out in zip(ranked, excluded, strict=True):
            wanted = np.flatnonzero(~out.holds(tuples.rows))[:count]
            kept.append((tuples.rows[wanted], tuples.scores[wanted]))
        return kept

    return found


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


def decoded_way(predictor: Predictor, joint: Joint) -> Way:
    """Rows as ``predict.joint.decode`` finds them."""

    def found(
        queries: Sequence[BoundQuery], excluded: Sequence[TrueTuples], count: int
    ) -> list[tuple[Tuples, NDArray[np.float64]]]:
        kept = []
        for query, out in zip(queries, excluded, strict=True):
            prepared = predictor.prepare(query)
            marginals = predictor.log_probabilities([prepared])
            rows = decode(predictor, query, prepared, marginals, out, count=count, joint=joint)
            kept.append((rows.entities, rows.scores))
        return kept

    return found


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
    parser.add_argument("--baseline", help="the way that the others are compared with")
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
    chosen = {name: decoded_way(Predictor(loaded.model), Joint(name, arguments.width)) for name in JOINT}
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
    if arguments.baseline is not None:
        if arguments.baseline not in compared:
            sys.exit(f"--baseline must be one of {', '.join(compared)}")
        compared = {arguments.baseline: compared.pop(arguments.baseline), **compared}
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
