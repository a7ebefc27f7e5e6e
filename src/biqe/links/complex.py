"""ComplEx: a link predictor with one complex vector for each entity and relation.

Trouillon et al. 2016, trained as Lacroix et al. 2018 do (every relation has a reciprocal one, all entities compete
in one softmax, nuclear 3-norm), with the relation prediction of Chen et al. 2021:

    score(h, r, t) = Re(sum_k h_k r_k conj(t_k))                    k = 1 .. rank, no bias
    loss           = -log p(t | h, r)                               softmax of the scores over all entities
                     + relation_weight * -log p(r | h, t)           softmax over the R relations of the graph
                     + n3 * sum_k |h_k|^3 + |r_k|^3 + |t_k|^3

Where ``negatives`` are given, the softmax of a step is not over all entities but over the tails of the step and so many
others, drawn anew, which stand for all others: the sum that it divides by is estimated without bias.

Heads are tails of the reciprocal relation r + R, so one softmax serves both directions. A complex vector is
stored as D = 2 * rank real numbers, real parts first: then the scores of one head and relation with all entities
are one vector of D numbers times the table of entities.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from biqe.links.softmax import soft_cross_entropy, with_all


def product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(..., D) complex product of each pair of numbers."""
    a, b = first.chunk(2, -1)
    c, d = second.chunk(2, -1)
    return torch.cat([a * c - b * d, a * d + b * c], -1)


def conjugate_product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(..., D) complex product of the conjugate of ``first`` with ``second``."""
    a, b = first.chunk(2, -1)
    c, d = second.chunk(2, -1)
    return torch.cat([a * c + b * d, a * d - b * c], -1)


def cubes(factors: torch.Tensor) -> torch.Tensor:
    """(...) sum over k of the cubed absolute value of each complex number: the nuclear 3-norm's share of a row."""
    real, imaginary = factors.chunk(2, -1)
    # sqrt has no derivative at 0, where training starts near; the power 3/2 has one, and it is 0.
    return (real.square() + imaginary.square()).pow(1.5).sum(-1)


class ComplEx(nn.Module):
    """Scores of links between entities. Relation ids run to 2R; r + R is r walked the other way.

    The same class is trained by itself (models/cqd.py) and kept, frozen, inside another model (models/hybrid.py).
    """

    def __init__(self, rank: int, entity_count: int, relation_count: int, spread: float = 1e-3) -> None:
        super().__init__()
        self.rank = rank
        self.relation_count = relation_count
        self.negatives = 0
        """Entities that are drawn for each step of training to stand for all that are no tails of it; 0 compares with
        all. The gradient of the entities is sparse then."""
        self.entities = nn.Parameter(torch.empty(entity_count, 2 * rank))  # (E, D)
        self.relations = nn.Parameter(torch.empty(2 * relation_count, 2 * rank))  # (2R, D)
        for table in (self.entities, self.relations):
            nn.init.normal_(table, std=spread)

    def queries(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, D) vectors whose dot product with an entity's vector is the score of it as the tail."""
        return product(self.entities[heads], self.relations[relations])

    def score(self, heads: torch.Tensor, relations: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
        """(n,) scores of single links."""
        return (self.queries(heads, relations) * self.entities[tails]).sum(-1)

    def scores(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) scores of every entity as the tail."""
        return with_all(self.queries(heads, relations), self.entities)

    def relation_scores(self, head: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        """(n, R) scores of every relation of the graph between vectors ``head`` and ``tail``, (n, D) both."""
        return conjugate_product(head, tail) @ self.relations[: self.relation_count].t()

    def loss(
        self,
        heads: torch.Tensor,  # (n,)
        relations: torch.Tensor,  # (n,)
        offsets: torch.Tensor,  # (n+1,)
        tails: torch.Tensor,  # (m,)
        *,
        n3: float = 0.0,
        relation_weight: float = 0.0,
        smoothing: float = 0.0,
    ) -> torch.Tensor:
        """Mean loss of m links: question i, a head and a relation, has the tails ``tails[offsets[i]:offsets[i + 1]]``.

        Loss and gradient are those of the m links taken one by one; links of one question share the softmax over all
        entities, which is the costly part.
        """
        counts = offsets[1:] - offsets[:-1]
        question = torch.repeat_interleave(torch.arange(len(heads), device=heads.device), counts)  # (m,)
        relation = self.relations.index_select(0, relations)  # (n, D)
        weights = counts.to(relation.dtype)
        table: torch.Tensor = self.entities
        bias, places = None, tails
        if 0 < self.negatives < len(self.entities):
            compared, stands_for, places = drawn_beside(tails, self.negatives, len(self.entities))
            bias = stands_for.to(relation.dtype)
            rows = F.embedding(torch.cat([heads, compared]), self.entities, sparse=True)
            head, table = rows.split([len(heads), len(compared)])
            tail = table.index_select(0, places)
        else:
            # One gather for both ends: each gather has a gradient of the size of the whole table.
            head, tail = self.entities.index_select(0, torch.cat([heads, tails])).split([len(heads), len(tails)])
        loss = soft_cross_entropy(product(head, relation), table, bias, offsets, places, smoothing, weights)
        if relation_weight:
            # A link of a reciprocal relation is the graph's own link seen from its tail.
            turned = (relations >= self.relation_count)[question].unsqueeze(1)
            near = head[question]
            start, end = torch.where(turned, tail, near), torch.where(turned, near, tail)
            guessed = self.relation_scores(start, end)
            loss = loss + relation_weight * F.cross_entropy(guessed, relations[question] % self.relation_count)
        if n3:
            loss = loss + n3 * ((cubes(head) + cubes(relation)) @ weights + cubes(tail).sum()) / len(tails)
        return loss


def drawn_beside(
    tails: torch.Tensor, negatives: int, entity_count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Entities that a step compares with: its ``tails``, and about ``negatives`` of all others (K,); logarithms of how
    many entities each stands for (K,); and the places of the tails among them (m,)."""
    own, places = tails.unique(return_inverse=True)
    others = torch.randint(entity_count, (negatives,), device=tails.device).unique()
    others = others[torch.isin(others, own, assume_unique=True, invert=True)]
    stands_for = torch.ones(len(own) + len(others), device=tails.device)
    stands_for[len(own) :] = (entity_count - len(own)) / max(1, len(others))
    return torch.cat([own, others]), stands_for.log_(), places


def principal(table: torch.Tensor, width: int, scale: float) -> torch.Tensor:
    """(n, width) the table in its first ``width`` principal directions, with standard deviation ``scale``. Where it has
    fewer directions, the remaining columns are noise."""
    centred = table - table.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    kept = centred @ directions[:width].t()
    kept = kept * (scale / kept.std().clamp_min(1e-12))
    if kept.shape[1] < width:
        kept = torch.cat([kept, scale * torch.randn(len(kept), width - kept.shape[1], device=kept.device)], 1)
    return kept
