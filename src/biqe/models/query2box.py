"""Query2Box: a query is a box; its answers are the entities inside, or close to it.

Ren et al. 2020. A box p has a centre c and an offset o >= 0. A constant e is the box of its point alone, c = z_e and
o = 0. An edge with relation r moves the box of its source and widens it,

    c' = c + c_r,    o' = o + softplus(o_r)

and a node where the boxes p_1 ... p_k arrive, k > 1, takes an average of their centres, weighed dimension by
dimension, and shrinks the smallest offset,

    c = sum_i a_i * c_i,      a_i = exp(MLP(p_i)) / sum_j exp(MLP(p_j))
    o = min_i o_i * sigmoid(DeepSets(p_1, ..., p_k)),      DeepSets = MLP(mean_i MLP(p_i))

A node that one edge reaches takes the box that the edge brings. The distance to a point v counts what lies outside
the box in full and the way inside it with the small factor alpha,

    d(p, v) = |max(|v - c| - o, 0)|_1 + alpha |min(|v - c|, o)|_1

Loss, with negatives n_1 ... n_K that are no answers, drawn uniformly and shared by the batch:

    log_sigmoid   - log sigmoid(gamma - d(p, v)) - mean_k log sigmoid(d(p, n_k) - gamma)       the paper's
    softmax       d(p, v) + log(exp(-d(p, v)) + E/K sum_k exp(-d(p, n_k)))                     ours

The second estimates the cross-entropy over all E entities from the sample; its gradient goes to the negatives that
are close, not to all alike; it wants more negatives. Where all answers of a query are known, one of them is drawn each
time. Disjunctions are answered outside, as the best of their conjunctive parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from biqe.models._contract import Paper, QueryModel, Support, check_options, refuse_unknown
from biqe.models._draws import draw_negatives, draw_positives, true_among
from biqe.models._plan import EncodedPlans, PlanBatch, walk, walkable
from biqe.query.bound import BoundQuery, QuerySet

CHUNK_BYTES = 256 << 20
"""Size of one table of differences, (boxes, points, width), where there is no kernel that does without it."""
_NOTHING = -1e30
"""Logit of a negative that is left out; finite, so that a row in which all are left out has a gradient."""


@dataclass(frozen=True)
class Config:
    """What the boxes are, and what the model learns from."""

    width: int = 400
    """Dimensions of the boxes."""
    alpha: float = 0.02
    """How much the way inside a box counts, against that outside."""
    loss: str = "log_sigmoid"
    """log_sigmoid (as published) or softmax (over the sampled negatives)."""
    gamma: float = 24.0
    """Distance at which an entity is neither in nor out; also sets how far apart points start."""
    negatives: int = 128
    """Negatives a batch, shared by its queries."""
    filter_negatives: bool = True
    """Whether negatives that are answers are left out."""
    inverses: bool = True
    """Whether edges may be walked against their direction, so that questions can be turned to start at anchors."""

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("width", "negatives"), "at least 1")
        ranges = {"alpha": "in [0, 1]", "gamma": "above 0"}
        check_options(self, {**sizes, **ranges, "loss": ("softmax", "log_sigmoid")})


class BoxIntersection(nn.Module):
    """Boxes that meet: attention over their centres, and an offset below the smallest."""

    def __init__(self, width: int, spread: float) -> None:
        super().__init__()
        self.attend_in = nn.Linear(2 * width, width)
        self.attend_out = nn.Linear(width, width)
        self.shrink_in = nn.Linear(2 * width, width)
        self.shrink_inner = nn.Linear(width, width)
        self.shrink_out = nn.Linear(width, width)
        with torch.no_grad():
            for layer in (self.attend_in, self.shrink_in):
                # Boxes are small numbers, and the layers behind expect values around 1.
                layer.weight.normal_(0.0, 1.0 / (spread * math.sqrt(2 * width)))
                layer.bias.zero_()
            self.attend_out.weight.mul_(0.1)

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        n, k, width = boxes.shape[0], boxes.shape[1], boxes.shape[2] // 2
        flat = boxes.reshape(n * k, 2 * width)
        weights = self.attend_out(F.relu(self.attend_in(flat))).view(n, k, width).softmax(1)
        centre = (weights * boxes[..., :width]).sum(1)
        inner = self.shrink_inner(F.relu(self.shrink_in(flat))).view(n, k, width).mean(1)
        offset = boxes[..., width:].amin(1) * torch.sigmoid(self.shrink_out(F.relu(inner)))
        return torch.cat([centre, offset], 1)


class Query2Box(QueryModel):
    """Box embeddings of queries.

    **Use it when** queries have many answers: a box has room for them, a point has not.
    """

    name = "query2box"
    paper = Paper(
        "Ren, Hu, Leskovec", 2020, "Query2box: Reasoning over Knowledge Graphs in Vector Space Using Box Embeddings"
    )
    summary = "queries as boxes: edges move and widen them, conjunctions intersect them"
    tables = {"entities": "entities", "centres": "directions", "offsets": "directions"}
    uses_answers = True
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 2e-3,
        "batch_queries": 512,
        "batch_tokens": 4096,
        "label_smoothing": 0.0,
        "weight_decay": 0.0,
        "answers": "all",
    }

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        width = config.width
        spread = config.gamma / width
        self.entities = nn.Parameter(torch.empty(entity_count, width).uniform_(-spread, spread))
        self.centres = nn.Parameter(torch.empty(2 * relation_count, width).uniform_(-spread, spread))
        # softplus of these is about half the spread, with some variety.
        self.offsets = nn.Parameter(math.log(math.expm1(spread / 2)) + 0.5 * torch.randn(2 * relation_count, width))
        self.intersect = BoxIntersection(width, spread)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Acyclic, connected queries in which constants lead to every variable."""
        return walkable(query, self.name, inverses=self.config.inverses)

    def encode(self, queries: QuerySet) -> EncodedPlans:
        return EncodedPlans(queries, self.relation_count)

    def boxes(self, batch: PlanBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """(V, D) centres and (V, D) offsets of the targets' boxes."""
        return self._walk(batch, self.entities.index_select(0, batch.anchors))

    def _walk(self, batch: PlanBatch, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moves = torch.cat([self.centres, F.softplus(self.offsets)], 1)  # (2R, 2D)
        found = walk(
            batch,
            torch.cat([points, torch.zeros_like(points)], 1),
            lambda boxes, relations: boxes + moves.index_select(0, relations),
            self.intersect,
        )
        return found[:, : self.config.width], found[:, self.config.width :]

    def loss(self, batch: PlanBatch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """As the configuration says; label smoothing has no place in either loss."""
        config, targets = self.config, batch.targets
        positives = draw_positives(targets)  # (V,)
        refuse_unknown(positives >= 0, self.name, every=False)
        negatives = draw_negatives(config.negatives, self.entity_count, self.entities.device)  # (K,)
        # Read in one go: each reading costs a gradient of the size of the whole table.
        used = torch.cat([batch.anchors, positives.clamp_min(0), negatives])
        parts = torch.split(self.entities.index_select(0, used), [len(batch.anchors), len(positives), len(negatives)])
        centres, offsets = self._walk(batch, parts[0])
        good = _distances(centres, offsets, parts[1], config.alpha)  # (V,)
        bad = _to_all(centres, offsets, parts[2], config.alpha)  # (V, K)
        left_out = torch.zeros(bad.shape, dtype=torch.bool, device=bad.device)
        if config.filter_negatives:
            left_out = true_among(targets, negatives, self.entity_count)
        if config.loss == "softmax":
            logits = (math.log(self.entity_count / len(negatives)) - bad).masked_fill(left_out, _NOTHING)
            of_target = good + torch.logaddexp(-good, logits.logsumexp(1))
        else:
            apart = F.softplus(config.gamma - bad).masked_fill(left_out, 0.0)  # - log sigmoid(d - gamma)
            of_target = F.softplus(good - config.gamma) + apart.sum(1) / (~left_out).sum(1).clamp_min(1)
        known = positives >= 0
        return (of_target * known).sum() / known.sum().clamp_min(1)

    def scores(self, batch: PlanBatch) -> torch.Tensor:
        return torch.log_softmax(self.raw_scores(batch), 1)

    def raw_scores(self, batch: PlanBatch) -> torch.Tensor:
        """(V, E) distances, with a minus."""
        centres, offsets = self.boxes(batch)
        return -_to_all(centres, offsets, self.entities, self.config.alpha)


def _distances(centres: torch.Tensor, offsets: torch.Tensor, points: torch.Tensor, alpha: float) -> torch.Tensor:
    """Distances between boxes and points, (..., D) all of them, broadcast against each other."""
    delta = (points - centres).abs()
    return (delta - (1.0 - alpha) * torch.minimum(delta, offsets)).sum(-1)


def _to_all(centres: torch.Tensor, offsets: torch.Tensor, points: torch.Tensor, alpha: float) -> torch.Tensor:
    """(V, K) distances between each box and every point, (K, D)."""
    if points.device.type == "cpu":
        from biqe.models._box_kernels import box_distances

        return box_distances(centres, offsets, points, alpha)
    rows = max(1, CHUNK_BYTES // (4 * points.numel()))
    parts = zip(centres.split(rows), offsets.split(rows), strict=True)
    return torch.cat([_distances(c.unsqueeze(1), o.unsqueeze(1), points, alpha) for c, o in parts])


MODEL = Query2Box
