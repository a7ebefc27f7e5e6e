"""Ranks of whole tuples: all targets of a query right at once, the ways of decoding side by side.

A mined query has one gold tuple, what its miner walked over. A way of decoding lists tuples, best first. The rank of
the gold tuple is one more than the number of wrong tuples before it; tuples that are true in the complete graph, known
or not, do not count, ties count half, and a gold tuple that is not listed has no rank: it adds 0 to every metric.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.evaluate.machine import machine
from biqe.evaluate.metrics import METRICS, contributions, drawn_sums, means, percentile_ends
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import Progress, Skipped, at_rest, by_reason, nothing_ranked, supported
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import FindsTuples
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

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


def one_target(queries: QuerySet, rng: np.random.Generator) -> QuerySet:
    """The queries with one of their targets, drawn at random, and the others hidden; golds stay."""
    nodes = queries.nodes.copy()
    for row in range(len(queries)):
        own = nodes[queries.node_offsets[row] : queries.node_offsets[row + 1]]
        targets = np.flatnonzero(own == TARGET)
        if len(targets):
            own[np.delete(targets, rng.integers(len(targets)))] = HIDDEN
    return replace(queries, nodes=nodes, filters={})


def one_link(queries: QuerySet, rng: np.random.Generator) -> QuerySet:
    """For each query, one of its patterns by itself: subject and relation as the miner saw them, the object asked for.

    Patterns without gold entities are not drawn; a query without any other gives none.
    """
    links, golds = [], []
    for row in range(len(queries)):
        gold = queries.gold[queries.node_offsets[row] : queries.node_offsets[row + 1]]
        edges = queries.edges[queries.edge_offsets[row] : queries.edge_offsets[row + 1]]
        edges = edges[(gold[edges[:, 0]] >= 0) & (gold[edges[:, 2]] >= 0)]
        if len(edges):
            subject, relation, object_ = edges[rng.integers(len(edges))].tolist()
            links.append(BoundQuery((int(gold[subject]), TARGET), ((0, relation, 1),), (1,)))
            golds += [int(gold[subject]), int(gold[object_])]
    return replace(QuerySet.of(links), gold=np.array(golds, np.int32))
