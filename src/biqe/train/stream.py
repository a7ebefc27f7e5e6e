"""What a model learns from: mixed epochs of triples, paths and DAGs, cut into batches by token budget.

Paper, section "Datasets": the tail of every triple, and every entity but the source of paths and DAGs, are
predicted. An epoch is a pure function of the seed and its number, so a run that is resumed sees what it would
have seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import EmptyResult
from biqe.graph.knowledge_graph import Graph
from biqe.mine.online import epoch_queries
from biqe.models._contract import Encoded, QueryModel
from biqe.query.bound import HIDDEN, TARGET
from biqe.query.queryset import KINDS, ROLES, QuerySet, concatenate
from biqe.train.config import TrainConfig


@dataclass(frozen=True)
class Epoch:
    """One pass: the queries in the model's form, and which of them make each batch."""

    encoded: Encoded
    batches: list[NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.batches)

    def from_batch(self, first: int) -> Iterator[tuple[int, Any]]:
        """Number of queries and batch, starting at batch number ``first``."""
        return ((len(rows), self.encoded.batch(rows)) for rows in self.batches[first:])


class Stream:
    """Epochs of training queries over one graph."""

    def __init__(self, graph: Graph, model: QueryModel, config: TrainConfig, fixed: QuerySet | None = None) -> None:
        if len(graph.triples) == 0:
            raise EmptyResult("the training split has no triples", hint="import the graph again, or split it anew")
        self._graph = graph
        self._model = model
        self._config = config
        self._fixed = fixed
        self._inverse_share = config.inverse_share if getattr(model.config, "inverses", False) else 0.0

    def epoch(self, number: int) -> Epoch:
        """Epoch ``number``, the same each time it is asked for."""
        config = self._config
        rng = np.random.default_rng([config.seed, number, 1])
        parts = [triple_queries(self._graph, rng, self._inverse_share)]
        mined = self._mined(number)
        if mined is not None and len(mined):
            parts.append(vary_targets(mined, rng, config.hide_share, config.reveal_share))
        encoded = self._model.encode(concatenate(parts))
        return Epoch(encoded, cut_batches(encoded.sizes, config.batch_tokens, config.batch_queries, rng))

    def _mined(self, number: int) -> QuerySet | None:
        config = self._config
        if not config.online:
            return self._fixed
        if config.paths + config.dags == 0:
            return None
        return epoch_queries(
            self._graph,
            paths=config.paths,
            dags=config.dags,
            seed=config.seed,
            epoch=number,
            inverse_share=self._inverse_share,
        )


def triple_queries(graph: Graph, rng: np.random.Generator, inverse_share: float = 0.0) -> QuerySet:
    """Every triple as a query for its tail; a share of them turned round, as a query for its head."""
    triples = graph.triples
    count = len(triples)
    source, relation, tail = triples[:, 0].copy(), triples[:, 1].copy(), triples[:, 2].copy()
    turned = np.flatnonzero(rng.random(count) < inverse_share)
    source[turned], tail[turned] = triples[turned, 2], triples[turned, 0]
    relation[turned] += graph.relation_count
    nodes = np.full((count, 2), TARGET, np.int32)
    nodes[:, 0] = source
    edges = np.zeros((count, 3), np.int32)
    edges[:, 1], edges[:, 2] = relation, 1
    return QuerySet(
        np.arange(0, 2 * count + 1, 2),
        nodes.ravel(),
        np.stack([source, tail], 1).ravel(),
        np.tile(np.array([ROLES.index("none"), ROLES.index("tail")], np.int8), count),
        np.arange(count + 1),
        edges,
        np.full(count, KINDS.index("triple"), np.int8),
    )


def vary_targets(queries: QuerySet, rng: np.random.Generator, hide_share: float, reveal_share: float) -> QuerySet:
    """The queries with some of their targets hidden, in a share of them, and some revealed, in another share.

    A query changed so loses each of its targets with probability one half, but always keeps one.
    """
    if hide_share == 0.0 and reveal_share == 0.0:
        return queries
    count = len(queries)
    lengths = np.diff(queries.node_offsets)
    owner = np.repeat(np.arange(count), lengths)
    is_target = queries.nodes == TARGET
    # The target with the largest draw of its query is the one that stays.
    draw = np.where(is_target, rng.random(len(owner)), -1.0)
    largest = np.maximum.reduceat(draw, queries.node_offsets[:-1]) if len(draw) else draw
    lost = is_target & (draw < largest[owner]) & (rng.random(len(owner)) < 0.5)
    fate = rng.random(count)
    hide = lost & (fate < hide_share)[owner]
    reveal = lost & ((fate >= hide_share) & (fate < hide_share + reveal_share))[owner]
    nodes = np.where(hide, HIDDEN, np.where(reveal, queries.gold, queries.nodes)).astype(np.int32)
    return replace(queries, nodes=nodes, filters={})


def cut_batches(
    sizes: NDArray[np.integer], tokens: int, queries: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Rows of each batch: all of one size, so that nothing is padded, within the budget, in random order."""
    shuffled = rng.permutation(len(sizes))
    order = shuffled[np.argsort(sizes[shuffled], kind="stable")]
    ordered = sizes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    batches = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        step = max(1, min(queries, tokens // max(1, int(ordered[start]))))
        batches += [order[at : min(at + step, stop)] for at in range(start, stop, step)]
    return [batches[i] for i in rng.permutation(len(batches))]
