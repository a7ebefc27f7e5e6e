"""GQE: a query is a point, computed from its constants by one operator for edges and one for conjunctions.

Hamilton et al. 2018. A constant e has the state z_e. An edge with relation r projects the state q of its source,

    transe     P(q, r) = q + r
    distmult   P(q, r) = q * r             element by element
    bilinear   P(q, r) = M_r q

and a node where the edges of q_1 ... q_k arrive, k > 1, intersects them,

    deepset    I(q_1, ..., q_k) = W pool_i relu(B q_i + b)      pool: element-wise min or mean
    mean       I(q_1, ..., q_k) = (q_1 + ... + q_k) / k

A node that one edge reaches takes what the edge brings. B has twice as many rows as the states have dimensions and
starts near (1, -1), W near (1, -1) transposed: training begins with the mean of the states, or, under ``min``, with
what all of them agree on. Entities are ranked by their score at the target's state q,

    dot        s(q, v) = q . z_v + b_v
    cosine     s(q, v) = t cos(q, z_v)             t is learned
    distance   s(q, v) = gamma - |q - z_v|_1

and the model learns from one of

    softmax       - mean over the answers v of log p(v), p = softmax of s over all entities
    margin        mean_k max(0, margin - s(q, v) + s(q, n_k))            the original's, n_k sampled
    log_sigmoid   - log sigmoid(s(q, v)) - mean_k log sigmoid(-s(q, n_k))      as Query2Box trains it

``score="auto"`` takes the cosine under softmax, whatever the projection: with bare inner products a mean of k states
has smaller scores than each of them. Under the other losses it takes the distance for
transe, and otherwise the cosine (margin, as the original does) or the inner product (log_sigmoid).

Named settings (``PRESETS``), as the paper's tables call them: ``gqe``; ``gqe-double``, of twice the width;
``gqe-mp``, with mean pooling for the intersection. All of them answer any acyclic query with any number of targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from biqe.errors import InvalidOption
from biqe.links.softmax import soft_cross_entropy
from biqe.models._contract import Paper, QueryModel, Support, check_options, refuse_unknown
from biqe.models._draws import PooledDropout, draw_negatives, draw_positives, true_among
from biqe.models._plan import EncodedPlans, PlanBatch, walk, walkable
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "gqe": {"width": 256, "intersection": "deepset"},
    "gqe-double": {"width": 512, "intersection": "deepset"},
    "gqe-mp": {"width": 256, "intersection": "mean"},
}
"""Options of the configurations that tables give a name of their own."""


@dataclass(frozen=True)
class Config:
    """What the operators are, and what the model learns from."""

    width: int = 256
    """Width of states and embeddings."""
    projection: str = "transe"
    """How an edge moves a state: transe (adds), distmult (multiplies) or bilinear (a matrix a relation)."""
    intersection: str = "deepset"
    """How states meet: deepset (feed-forward set operator) or mean (mean pooling)."""
    pool: str = "mean"
    """What the set operator takes over its inputs, element by element: min or mean."""
    score: str = "auto"
    """How an entity fits a state: dot, cosine, distance, or auto (what suits projection and loss)."""
    loss: str = "softmax"
    """softmax (over all entities), margin or log_sigmoid (both over sampled negatives)."""
    negatives: int = 512
    """Negatives a batch, shared by its queries; softmax takes all entities instead."""
    filter_negatives: bool = False
    """Whether negatives that are answers are left out. As published, they were not."""
    margin: float = 1.0
    """Of the margin loss: how far answers should stand above negatives."""
    gamma: float = 24.0
    """Under the distance score: the distance at which an entity is neither in nor out."""
    dropout: float = 0.1
    """Share of the values of constants and of target states dropped while training."""
    inverses: bool = True
    """Whether edges may be walked against their direction, so that questions can be turned to start at anchors."""

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "projection": ("transe", "distmult", "bilinear"),
                "intersection": ("deepset", "mean"),
                "pool": ("min", "mean"),
                "score": ("auto", "dot", "cosine", "distance"),
                "loss": ("softmax", "margin", "log_sigmoid"),
                **dict.fromkeys(("width", "negatives"), "at least 1"),
                **dict.fromkeys(("margin", "gamma"), "above 0"),
                "dropout": "in [0, 1)",
            },
        )
        if self.loss == "softmax" and self.score == "distance":
            raise InvalidOption(
                "loss 'softmax' of gqe needs score dot or cosine. Got 'distance'",
                hint="use loss log_sigmoid with distances, or score auto",
            )

    @property
    def scoring(self) -> str:
        """The score, with ``auto`` resolved."""
        if self.score != "auto":
            return self.score
        if self.loss == "softmax":
            return "cosine"
        if self.projection == "transe":
            return "distance"
        return "cosine" if self.loss == "margin" else "dot"


class SetOperator(nn.Module):
    """The feed-forward intersection of the original."""

    def __init__(self, width: int, pool: str) -> None:
        super().__init__()
        self.pool = pool
        self.before = nn.Linear(width, 2 * width)
        self.after = nn.Linear(2 * width, width, bias=False)
        one = torch.eye(width)
        noise = 0.1 / math.sqrt(width)
        with torch.no_grad():
            # relu(q) - relu(-q) = q: the states pass through until training finds better.
            self.before.weight.copy_(torch.cat([one, -one])).add_(torch.randn(2 * width, width), alpha=noise)
            self.before.bias.zero_()
            self.after.weight.copy_(torch.cat([one, -one], 1)).add_(torch.randn(width, 2 * width), alpha=noise)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        n, k, width = states.shape
        inner = F.relu(self.before(states.reshape(n * k, width))).view(n, k, -1)
        return self.after(inner.amin(1) if self.pool == "min" else inner.mean(1))


class GQE(QueryModel):
    """Graph query embedding.

    **Use it when** a simple, fast point of comparison is wanted: one state a node, linear in the edges.
    """

    name = "gqe"
    paper = Paper("Hamilton, Bajaj, Zitnik, Jurafsky, Leskovec", 2018, "Embedding Logical Queries on Knowledge Graphs")
    summary = "queries as points: an operator for edges, another for conjunctions (GQE, GQE-Double, GQE-MP)"
    tables = {"entities": "entities", "relations": "directions", "entity_bias": "entities"}
    uses_answers = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 3e-3,
        "batch_queries": 512,
        "batch_tokens": 4096,
        "label_smoothing": 0.1,
        "weight_decay": 0.01,
        "answers": "all",
    }

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        width, scoring = config.width, config.scoring
        # Distances are compared with gamma, so that points start at a mean distance of about that.
        spread = config.gamma / width if scoring == "distance" else 0.1
        self.entities = nn.Parameter(torch.randn(entity_count, width) * spread)
        if config.projection == "bilinear":
            self.relations = nn.Parameter(
                torch.eye(width) + torch.randn(2 * relation_count, width, width) * (0.3 / math.sqrt(width))
            )
        elif config.projection == "distmult":
            self.relations = nn.Parameter(1.0 + 0.3 * torch.randn(2 * relation_count, width))
        else:
            self.relations = nn.Parameter(torch.randn(2 * relation_count, width) * spread)
        self.intersect: Callable[[torch.Tensor], torch.Tensor] = (
            SetOperator(width, config.pool) if config.intersection == "deepset" else _mean
        )
        if scoring == "dot":
            self.entity_bias = nn.Parameter(torch.zeros(entity_count))
        if scoring == "cosine":
            self.log_scale = nn.Parameter(torch.tensor(math.log(1.0 if config.loss == "margin" else 20.0)))
            # The original's margin is one of bare cosines.
            self.log_scale.requires_grad_(config.loss != "margin")
        self.dropout = PooledDropout(config.dropout)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Acyclic, connected queries in which constants lead to every variable."""
        return walkable(query, self.name, inverses=self.config.inverses)

    def encode(self, queries: QuerySet) -> EncodedPlans:
        return EncodedPlans(queries, self.relation_count)

    def states(self, batch: PlanBatch) -> torch.Tensor:
        """(V, D) the points of the targets."""
        anchors = self.dropout(self.entities.index_select(0, batch.anchors))
        return self.dropout(walk(batch, anchors, self._project, self.intersect))

    def _project(self, states: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        if self.config.projection == "bilinear":
            return _by_matrix(states, relations, self.relations)
        moved = self.relations.index_select(0, relations)
        return states + moved if self.config.projection == "transe" else states * moved

    def loss(self, batch: PlanBatch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """As the configuration says; label smoothing is for softmax alone."""
        states, targets = self.states(batch), batch.targets
        if self.config.loss == "softmax":
            hidden, weight, bias = self._inner(states)
            known, offsets, answers = targets.with_answers(self.name)
            return soft_cross_entropy(hidden[known], weight, bias, offsets, answers, label_smoothing)

        positives = draw_positives(targets)  # (V, 1)
        refuse_unknown(positives[:, 0] >= 0, self.name, every=False)
        negatives = draw_negatives(self.config.negatives, self.entity_count)  # (K,)
        good, bad = self._pairs(states, positives.clamp_min(0)), self._against(states, negatives)
        if self.config.loss == "margin":
            each = F.relu(self.config.margin - good + bad)  # (V, K)
        else:
            each = F.softplus(bad) + F.softplus(-good)
        kept = (positives >= 0).expand_as(each)
        if self.config.filter_negatives:
            kept = kept & ~true_among(targets, negatives, self.entity_count)
        # A mean over the negatives of each target, then over the targets.
        of_target = (each * kept).sum(1) / kept.sum(1).clamp_min(1)
        return of_target.sum() / kept.any(1).sum().clamp_min(1)

    def scores(self, batch: PlanBatch) -> torch.Tensor:
        return torch.log_softmax(self.raw_scores(batch), 1)

    def raw_scores(self, batch: PlanBatch) -> torch.Tensor:
        """(V, E) what the configuration compares by: inner products, cosines, or distances with a minus."""
        return self._against(self.states(batch), None)

    def _inner(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The score over all entities as an inner product: (V, D), (E, D), (E,)."""
        if self.config.scoring == "dot":
            return states, self.entities, self.entity_bias
        return self.log_scale.exp() * F.normalize(states, dim=1), F.normalize(self.entities, dim=1), None

    def _against(self, states: torch.Tensor, entities: torch.Tensor | None) -> torch.Tensor:
        """(V, K) scores of these entities, or of all."""
        points = self.entities if entities is None else self.entities.index_select(0, entities)
        if self.config.scoring == "dot":
            return F.linear(states, points, self.entity_bias if entities is None else self.entity_bias[entities])
        if self.config.scoring == "cosine":
            return self.log_scale.exp() * F.normalize(states, dim=1) @ F.normalize(points, dim=1).t()
        from biqe.models._box_kernels import box_distances

        return self.config.gamma - box_distances(states, torch.zeros_like(states), points, 1.0)

    def _pairs(self, states: torch.Tensor, entities: torch.Tensor) -> torch.Tensor:
        """(V, 1) scores of one entity a state, (V, 1)."""
        points = self.entities.index_select(0, entities.squeeze(1))
        if self.config.scoring == "dot":
            return (states * points).sum(1, keepdim=True) + self.entity_bias[entities]
        if self.config.scoring == "cosine":
            return self.log_scale.exp() * F.cosine_similarity(states, points, 1).unsqueeze(1)
        return self.config.gamma - (states - points).abs().sum(1, keepdim=True)


def _mean(states: torch.Tensor) -> torch.Tensor:
    """(n, k, D) to (n, D)"""
    return states.mean(1)


def _by_matrix(states: torch.Tensor, relations: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """(m, D) each state times the matrix of its relation: one product a relation, over its states together."""
    order = torch.argsort(relations, stable=True)
    used, counts = torch.unique_consecutive(relations[order], return_counts=True)
    # Unbound at once, so that the backward pass stacks one gradient instead of filling a whole one a relation.
    apart = matrices.unbind(0)
    parts = torch.split(states.index_select(0, order), counts.tolist())
    moved = [part @ apart[relation].t() for part, relation in zip(parts, used.tolist(), strict=True)]
    return torch.cat(moved).index_select(0, torch.argsort(order))


MODEL = GQE
