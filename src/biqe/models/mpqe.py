"""MPQE: a relational graph convolution over the query graph, and a read-out of what its nodes have heard.

Daza and Cochez 2020. Constants start from their entity's embedding. In every step each node hears all of its
neighbours, along the edges and against them, by a matrix for each relation:

    z_v = W_0 h_v + b + sum over edges (u, r, v) of W_r h_u + sum over edges (v, r, w) of W_(inverse of r) h_w
    h_v = relu(z_v)                      before the next step; the read-out takes z of the last one

    sum      q = sum over all nodes of z_v
    target   q = z of the target itself, after as many steps as it is away from its furthest constant

    score(e) = q . e

As many steps are taken as the query is wide (its diameter): then everything has reached every node. ``sum`` gives one
embedding a query, so it predicts one target; ``target`` reads each target's own state and predicts any number of them.

The original starts a variable from a vector of its entity type. Here it starts from a vector of its own kind, target
or hidden, plus the mean of one learned vector for each relation that leads to it, or whose inverse does. Where every
relation leads to entities of one type, as in Bio and HPO, that says the type.

The original learns by a margin between a true entity and a sampled one (``loss="margin"``); here the default is
cross-entropy over all entities, which has the hard negatives of the original among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from biqe.errors import UnsupportedQuery
from biqe.links.softmax import soft_cross_entropy, with_all
from biqe.models._contract import Paper, QueryModel, Support, Targets, TargetTable, check_options, refuse_unknown
from biqe.models._draws import PooledDropout, draw_negatives, draw_positives, true_among
from biqe.models._plan import by_matrix
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet, members
from biqe.query.dag import analyse


@dataclass(frozen=True)
class Config:
    """What the network is; how it is trained belongs to training."""

    width: int = 128
    """Width of embeddings and of node states."""
    layers: int = 1
    """Sets of weights: step i uses set i, and further steps the last. One for all steps lets a model that has seen
    single triples alone read longer queries."""
    readout: str = "target"
    """What becomes the query's embedding: sum (of all nodes; one target), or target (its own state)."""
    dropout: float = 0.1
    """Share of node states dropped while training."""
    loss: str = "softmax"
    """softmax (cross-entropy over all entities) or margin (a true entity against sampled ones)."""
    margin: float = 1.0
    """How far the true entity must stand above a sampled one, under loss=margin."""
    negatives: int = 128
    """Entities sampled for each batch, under loss=margin."""
    filter_negatives: bool = False
    """Whether sampled entities that are true answers are left out."""
    inverses: bool = True
    """Whether edges may be walked against their direction, so that questions can be turned to start at anchors."""

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                **dict.fromkeys(("width", "layers", "negatives"), "at least 1"),
                "dropout": "in [0, 1)",
                "margin": "above 0",
                "readout": ("sum", "target"),
                "loss": ("softmax", "margin"),
            },
        )


PRESETS = {"mpqe-sum": {"readout": "sum"}}
"""The paper's variants by name; its MPQE-TM is the default."""


@dataclass(frozen=True)
class Messages:
    """M messages between the nodes of a batch: one along each edge, one against it."""

    sources: torch.Tensor
    """(M,) nodes that send."""
    destinations: torch.Tensor
    """(M,) nodes that receive."""
    relations: torch.Tensor
    """(M,) ids of 2R: against an edge of r goes the inverse of r."""

    @classmethod
    def both_ways(
        cls,
        subjects: NDArray[np.integer],
        relations: NDArray[np.integer],
        objects: NDArray[np.integer],
        relation_count: int,
    ) -> Messages:
        """Those of these edges."""
        inverses = (relations + relation_count) % (2 * relation_count)
        columns = (subjects, objects), (objects, subjects), (relations, inverses)
        return cls(*(torch.from_numpy(np.concatenate(column).astype(np.int64)) for column in columns))


def convolve(nodes: torch.Tensor, matrices: torch.Tensor, messages: Messages) -> torch.Tensor:
    """(N, D) for each of the (N, D) nodes the sum of its messages; ``matrices`` (2R, D, D) are those of the
    relations."""
    sent = by_matrix(nodes.index_select(0, messages.sources), messages.relations, matrices)  # (M, D)
    return torch.zeros_like(nodes).index_add(0, messages.destinations, sent.to(nodes.dtype))


@dataclass(frozen=True)
class Batch:
    """B queries as one graph of N nodes with V targets."""

    symbols: torch.Tensor
    """(N,) entity id; E where the node is a target, E + 1 where it is hidden."""
    owners: torch.Tensor
    """(N,) query of each node."""
    messages: Messages
    node_steps: torch.Tensor
    """(N,) steps after which the nodes of each query are read."""
    target_nodes: torch.Tensor
    """(V,)"""
    targets: Targets

    @property
    def queries(self) -> int:
        """B."""
        return int(self.owners[-1]) + 1 if len(self.owners) else 0


class EncodedQueries:
    """A query set as graphs, cut into batches on demand."""

    def __init__(self, queries: QuerySet, entities: int, relations: int, pooled: bool) -> None:
        targets = np.diff(queries.target_offsets)
        if pooled and (targets != 1).any():
            raise UnsupportedQuery(
                "this read-out of mpqe gives one embedding a query, so exactly one target; got "
                f"{targets[targets != 1][0]}",
                hint="use readout='target'",
            )
        self.sizes = np.diff(queries.node_offsets) + np.diff(queries.edge_offsets)
        self._queries = queries
        self._relations = relations
        self._targets = TargetTable(queries)
        is_target = queries.nodes == TARGET
        self._symbols = np.where(is_target, entities, np.where(queries.nodes == HIDDEN, entities + 1, queries.nodes))
        owners = np.repeat(np.arange(len(queries)), np.diff(queries.node_offsets))
        self._steps = np.ones(len(queries.nodes), np.int64)
        if pooled:
            widest = np.ones(len(queries), np.int64)
            np.maximum.at(widest, owners, furthest(queries, np.arange(len(owners)), np.ones_like(is_target)))
            self._steps = widest[owners]
        else:
            is_anchor = queries.nodes >= 0
            without = np.bincount(owners[is_anchor], minlength=len(queries)) == 0
            away = furthest(queries, queries.target_nodes, is_anchor | without[owners])
            self._steps[queries.target_nodes] = np.maximum(away, 1)

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order, side by side in one graph."""
        rows = np.asarray(rows, np.int64)
        owners, places = members(self._queries.node_offsets, rows)
        counts = np.bincount(owners, minlength=len(rows))
        first = np.cumsum(counts) - counts
        edge_owners, edge_places = members(self._queries.edge_offsets, rows)
        edges = self._queries.edges[edge_places].astype(np.int64)
        shift = first[edge_owners]
        return Batch(
            torch.from_numpy(self._symbols[places].astype(np.int64)),
            torch.from_numpy(owners),
            Messages.both_ways(edges[:, 0] + shift, edges[:, 1], edges[:, 2] + shift, self._relations),
            torch.from_numpy(self._steps[places]),
            torch.from_numpy(np.flatnonzero(self._queries.nodes[places] == TARGET)),
            self._targets.batch(rows),
        )


def furthest(queries: QuerySet, sources: NDArray[np.int64], ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each of the nodes ``sources``, edges between it and the furthest of its query's ``ends``, directions
    aside. All searches go on at once, a step at a time. Queries in several parts are refused."""
    home = np.searchsorted(queries.node_offsets, sources, side="right") - 1
    # A search has a slot for every node of its query.
    owners, places = members(queries.node_offsets, home)
    counts = np.bincount(owners, minlength=len(sources))
    first = np.cumsum(counts) - counts
    edge_owners, edge_places = members(queries.edge_offsets, home)
    one, other = (first[edge_owners] + queries.edges[edge_places, column] for column in (0, 2))
    distances = np.full(len(owners), -1, np.int64)
    distances[first + sources - queries.node_offsets[home]] = 0
    for step in range(1, len(owners) + 1):
        seen = distances >= 0
        reached = np.concatenate([other[seen[one] & ~seen[other]], one[seen[other] & ~seen[one]]])
        if not len(reached):
            break
        distances[reached] = step
    if (distances < 0).any():
        raise UnsupportedQuery(
            "mpqe passes messages through one connected query, and one of these has separate parts",
            hint="ask supports() first",
        )
    away = np.zeros(len(sources), np.int64)
    np.maximum.at(away, owners, np.where(ends[places], distances, 0))
    return away


class Layer(nn.Module):
    """One set of weights: a matrix for each of the 2R relations, and one for the node itself."""

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        # Entities that a relation joins start out alike; from random matrices alone learning begins more slowly.
        noise = torch.randn(2 * relation_count, width, width) * (0.3 * width**-0.5)
        self.matrices = nn.Parameter(torch.eye(width) + noise)


class MPQE(QueryModel):
    """Message passing over the query graph.

    **Use it when** queries have shapes that no other model reads, cycles included.
    """

    name = "mpqe"
    paper = Paper("Daza, Cochez", 2020, "Message Passing Query Embedding")
    summary = "a relational graph network passes messages through the query graph and reads an embedding out of it"
    uses_answers = layers_in_bfloat16 = True
    train_defaults = {"learning_rate": 5e-3}
    tables = {"embed_entities": "entities", "embed_ends": "directions", "layers.*.matrices": "directions"}

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.embed_entities = nn.Parameter(torch.empty(entity_count, config.width))
        self.embed_variables = nn.Parameter(torch.empty(2, config.width))
        self.embed_ends = nn.Parameter(torch.empty(2 * relation_count, config.width))
        for table in (self.embed_entities, self.embed_variables, self.embed_ends):
            nn.init.normal_(table, std=config.width**-0.5)
        self.layers = nn.ModuleList(Layer(config.width, relation_count) for _ in range(config.layers))
        self.dropout = PooledDropout(config.dropout)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Connected queries with at least one edge, cyclic ones among them; one target unless targets are read."""
        if not query.edges:
            return Support(
                False, "mpqe passes messages along edges, and this query has none", "ask for a pattern with a relation"
            )
        if not analyse(query).is_connected:
            return Support(
                False,
                "mpqe passes messages through one connected query, and this one has separate parts",
                "ask the parts one at a time",
            )
        if self.config.readout != "target" and len(query.targets) != 1:
            return Support(
                False,
                f"mpqe with readout={self.config.readout!r} makes one embedding of the whole query, so it predicts "
                f"one target, not {len(query.targets)}",
                "ask for one of them, or use a model trained with readout='target'",
            )
        return Support(True)

    def encode(self, queries: QuerySet) -> EncodedQueries:
        pooled = self.config.readout != "target"
        return EncodedQueries(queries, self.entity_count, self.relation_count, pooled)

    def start(self, batch: Batch) -> torch.Tensor:
        """(N, D) what the nodes begin with."""
        own = torch.cat([self.embed_entities, self.embed_variables]).index_select(0, batch.symbols)
        to, relations = batch.messages.destinations, batch.messages.relations
        ends = torch.zeros_like(own).index_add(0, to, self.embed_ends.index_select(0, relations))
        counts = torch.bincount(to, minlength=len(own)).clamp_min(1).unsqueeze(1)
        return torch.where((batch.symbols >= self.entity_count).unsqueeze(1), own + ends / counts, own)

    def states(self, batch: Batch) -> torch.Tensor:
        """(N, D) what every node has heard after the steps of its query; with readout=target, only at targets."""
        h = self.dropout(self.start(batch))  # (N, D)
        layers = cast(list[Layer], list(self.layers))
        after: list[torch.Tensor] = []
        for step in range(int(batch.node_steps.max()) if len(h) else 0):
            layer = layers[min(step, len(layers) - 1)]
            z = layer.own(h) + convolve(h, layer.matrices, batch.messages)
            after.append(z)
            h = self.dropout(F.relu(z))
        read = after[0] if after else h
        for step, z in enumerate(after[1:], start=2):
            read = torch.where((batch.node_steps >= step).unsqueeze(1), z, read)
        return read

    def hidden(self, batch: Batch) -> torch.Tensor:
        """(V, D) the embedding that is compared with the entities, for each target."""
        states = self.states(batch)
        if self.config.readout == "target":
            return states.index_select(0, batch.target_nodes)
        return states.new_zeros(batch.queries, states.shape[1]).index_add(0, batch.owners, states)

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Cross-entropy over all entities, with an equal share for each answer where all are known; or the margin
        loss, which has no use for label smoothing."""
        hidden, targets = self.hidden(batch), batch.targets
        if self.config.loss == "margin":
            return self._margin_loss(hidden, targets)
        offsets, answers = targets.known_answers(self.name)
        refuse_unknown(offsets.diff() > 0, self.name)
        return soft_cross_entropy(hidden, self.embed_entities, None, offsets, answers, label_smoothing)

    def _margin_loss(self, hidden: torch.Tensor, targets: Targets) -> torch.Tensor:
        positives = draw_positives(targets)  # (V,)
        refuse_unknown(positives >= 0, self.name)
        negatives = draw_negatives(self.config.negatives, self.entity_count, hidden.device)  # (n,)
        entities = self.embed_entities
        good = (hidden * entities.index_select(0, positives)).sum(1, keepdim=True)  # (V, 1)
        short = F.relu(self.config.margin - good + hidden @ entities.index_select(0, negatives).t())  # (V, n)
        if not self.config.filter_negatives:
            return short.mean()
        kept = ~true_among(targets, negatives, self.entity_count)
        return (short * kept).sum() / kept.sum().clamp_min(1)

    def scores(self, batch: Batch) -> torch.Tensor:
        return torch.log_softmax(self.raw_scores(batch), 1)

    def raw_scores(self, batch: Batch) -> torch.Tensor:
        """(V, E) inner products."""
        return with_all(self.hidden(batch), self.embed_entities)


MODEL = MPQE
