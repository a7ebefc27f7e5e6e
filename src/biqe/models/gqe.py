"""GQE: a query is a point, computed from its constants by one operator for edges and one for conjunctions.

Hamilton et al. 2018. A constant e has the state z_e. An edge with relation r projects the state q of its source,

    transe     P(q, r) = q + r
    distmult   P(q, r) = q * r             element by element
    bilinear   P(q, r) = M_r q

and a node where the edges of q_1 ... q_k arrive, k > 1, intersects them,

    deepset    I(q_1, ..., q_k) = W mean_i relu(B q_i + b)
    mean       I(q_1, ..., q_k) = (q_1 + ... + q_k) / k

A node that one edge reaches takes what the edge brings. B has twice as many rows as the states have dimensions and
starts near (1, -1), W near (1, -1) transposed: training begins with the mean of the states. The loss decides how an
entity v fits the state q of a target,

    log_sigmoid   s(q, v) = gamma - |q - z_v|_1    - log sigmoid(s(q, v)) - mean_k log sigmoid(-s(q, n_k))
    margin        s(q, v) = cos(q, z_v)            mean_k max(0, margin - s(q, v) + s(q, n_k))
    softmax       s(q, v) = t cos(q, z_v)          - log softmax of s over all entities; t is learned

with sampled negatives n_k that are no answers. The first is how Ren et al. 2020 trained GQE for the figures that the
paper compares with, and the default; the second is Hamilton's; the third is ours.

Cosines do not feel how long a state is, so nothing would teach an intersection the length that a later q + r needs,
where training has no intersection with an edge behind it (Query2Box's ip): intersections grow while every figure of the
trained shapes stays, and the edge behind them moves less and less. So under cosines an intersection is given the mean
length of the states that it takes in.

Named settings (``PRESETS``), as the paper's tables call them: ``gqe``; ``gqe-double``, of twice the width;
``gqe-mp``, with mean pooling for the intersection. All of them answer any acyclic query with any number of targets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from biqe.links.softmax import soft_cross_entropy
from biqe.models._contract import Paper, QueryModel, Support, check_options, refuse_unknown
from biqe.models._draws import PooledDropout, draw_negatives, draw_positives, true_among
from biqe.models._plan import EncodedPlans, PlanBatch, by_matrix, walk, walkable
from biqe.query.bound import BoundQuery, QuerySet

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "gqe": {},
    "gqe-double": {"width": 800},
    "gqe-mp": {"width": 256, "intersection": "mean", "loss": "softmax", "filter_negatives": False, "dropout": 0.1},
}
"""Options of the configurations that tables give a name of their own."""


@dataclass(frozen=True)
class Config:
    """What the operators are, and what the model learns from."""

    width: int = 400
    """Width of states and embeddings."""
    projection: str = "transe"
    """How an edge moves a state: transe (adds), distmult (multiplies) or bilinear (a matrix a relation)."""
    intersection: str = "deepset"
    """How states meet: deepset (feed-forward set operator) or mean (mean pooling)."""
    loss: str = "log_sigmoid"
    """log_sigmoid (L1 distances), margin (cosines), both over sampled negatives, or softmax (cosines, all entities)."""
    negatives: int = 128
    """Negatives a batch, shared by its queries; softmax takes all entities instead."""
    filter_negatives: bool = True
    """Whether sampled negatives that are answers are left out; each epoch then attaches all answers."""
    margin: float = 1.0
    """Of the margin loss: how far answers should stand above negatives."""
    gamma: float = 24.0
    """Of log_sigmoid: the distance at which an entity is neither in nor out; also how far apart points start."""
    dropout: float = 0.0
    """Share of the values of constants and of target states dropped while training."""
    inverses: bool = True
    """Whether edges may be walked against their direction, so that questions can be turned to start at anchors."""

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "projection": ("transe", "distmult", "bilinear"),
                "intersection": ("deepset", "mean"),
                "loss": ("log_sigmoid", "margin", "softmax"),
                **dict.fromkeys(("width", "negatives"), "at least 1"),
                **dict.fromkeys(("margin", "gamma"), "above 0"),
                "dropout": "in [0, 1)",
            },
        )


class SetOperator(nn.Module):
    """The feed-forward intersection of the original."""

    def __init__(self, width: int) -> None:
        super().__init__()
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
        """(n, k, D) to (n, D)"""
        return self.after(F.relu(self.before(states)).mean(1))


class GQE(QueryModel):
    """Graph query embedding.

    **Use it when** a simple, fast point of comparison is wanted: one state a node, linear in the edges.
    """

    name = "gqe"
    paper = Paper("Hamilton, Bajaj, Zitnik, Jurafsky, Leskovec", 2018, "Embedding Logical Queries on Knowledge Graphs")
    summary = "queries as points: an operator for edges, another for conjunctions (GQE, GQE-Double, GQE-MP)"
    tables = {"entities": "entities", "relations": "directions"}
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
        width, self.by_distance = config.width, config.loss == "log_sigmoid"
        # Distances are compared with gamma, so that points start at a mean distance of about that.
        spread = config.gamma / width if self.by_distance else 0.1
        self.entities = nn.Parameter(torch.randn(entity_count, width) * spread)
        if config.projection == "bilinear":
            noise = torch.randn(2 * relation_count, width, width) * (0.3 / math.sqrt(width))
            self.relations = nn.Parameter(torch.eye(width) + noise)
        elif config.projection == "distmult":
            self.relations = nn.Parameter(1.0 + 0.3 * torch.randn(2 * relation_count, width))
        else:
            self.relations = nn.Parameter(torch.randn(2 * relation_count, width) * spread)
        if config.intersection == "deepset":
            self.set_operator = SetOperator(width)
        if not self.by_distance:
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
            return by_matrix(states, relations, self.relations)
        moved = self.relations.index_select(0, relations)
        return states + moved if self.config.projection == "transe" else states * moved

    def intersect(self, states: torch.Tensor) -> torch.Tensor:
        """(n, k, D) to (n, D)"""
        met = self.set_operator(states) if self.config.intersection == "deepset" else states.mean(1)
        if self.by_distance:
            return met
        return F.normalize(met, dim=1) * states.norm(dim=2).mean(1, keepdim=True)

    def loss(self, batch: PlanBatch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """As the configuration says; label smoothing is for softmax alone."""
        states, targets = self.states(batch), batch.targets
        if self.config.loss == "softmax":
            known, offsets, answers = targets.with_answers(self.name)
            rows = self.log_scale.exp() * F.normalize(states[known], dim=1)
            return soft_cross_entropy(rows, F.normalize(self.entities, dim=1), None, offsets, answers, label_smoothing)

        positives = draw_positives(targets)  # (V,)
        refuse_unknown(positives >= 0, self.name, every=False)
        negatives = draw_negatives(self.config.negatives, self.entity_count, states.device)  # (K,)
        answers = self.entities.index_select(0, positives.clamp_min(0))  # (V, D)
        good = self._fit(states.unsqueeze(1), answers.unsqueeze(1)).squeeze(2)  # (V, 1)
        bad = self._fit(states, self.entities.index_select(0, negatives))  # (V, K)
        if self.config.loss == "margin":
            each = F.relu(self.config.margin - good + bad)
        else:
            each = F.softplus(bad) + F.softplus(-good)
        kept = (positives >= 0).unsqueeze(1).expand_as(each)
        if self.config.filter_negatives:
            kept = kept & ~true_among(targets, negatives, self.entity_count)
        # A mean over the negatives of each target, then over the targets.
        of_target = (each * kept).sum(1) / kept.sum(1).clamp_min(1)
        return of_target.sum() / kept.any(1).sum().clamp_min(1)

    def scores(self, batch: PlanBatch) -> torch.Tensor:
        return torch.log_softmax(self.raw_scores(batch), 1)

    def raw_scores(self, batch: PlanBatch) -> torch.Tensor:
        """(V, E) what the configuration compares by: cosines, or gamma less the distance."""
        return self._fit(self.states(batch), self.entities)

    def _fit(self, states: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """(..., V, K) how well each of K points, (..., K, D), fits each of V states, (..., V, D)."""
        if self.by_distance:
            return self.config.gamma - torch.cdist(states, points, p=1.0)
        return self.log_scale.exp() * F.normalize(states, dim=-1) @ F.normalize(points, dim=-1).transpose(-1, -2)


MODEL = GQE
