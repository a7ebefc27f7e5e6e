"""Truth values of links: how true each link is, as a number in [0, 1], given as its natural logarithm.

``Links`` is the interface that the search works on. ``ScoredLinks`` implements it with the scores of a link predictor.
A predictor trained with one softmax over all entities says how likely a tail is *as the tail of this head and
relation*: where a pair has fifty true tails each gets a fiftieth, and where it has none some entity still gets the
most. A query with several links compares truth values of different pairs, so the choice of the rule matters (x is the
score, p the softmax of x over all entities, n the number of stored tails, at least 1):

    softmax   p                    probabilities; links with many tails count little
    peak      p / max p            the best tail of every pair is true
    counted   n p / (1 + n p)      odds n p: even for a tail that has its fair share, whether of one or of fifty
    sigmoid   1 / (1 + exp(-x))    Arakelyan et al. 2021, equation 5
    minmax    (x - min) / (max - min)
    raw       log(1 + exp(x))      no truth value: near x where x > 0. The published beam search multiplies scores

For one link alone all of them rank alike; for intersections softmax and peak do too. Without a graph n is 1.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F

from biqe.links.complex import ComplEx
from biqe.links.stored import StoredLinks

RULES = ("softmax", "peak", "counted", "sigmoid", "minmax", "raw")
CERTAIN = 0.0
"""Logarithm of the truth of a link that is certain."""


class Links(Protocol):
    """Truth values of the links between all entities."""

    @property
    def entity_count(self) -> int:
        """E."""

    @property
    def certain(self) -> bool:
        """Whether links that the graph holds have truth 1 (``CERTAIN``)."""

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) log-truths of the links from each head, (n,), along its relation, (n,), to every entity."""


class ScoredLinks:
    """Truth values from the scores of a link predictor, by one of RULES. With ``certain``, links that are stored are
    true whatever the predictor says."""

    def __init__(self, predictor: ComplEx, rule: str, stored: StoredLinks | None, *, certain: bool) -> None:
        self._predictor = predictor
        self._rule = rule
        self._stored = stored
        self.certain = certain and stored is not None
        self.entity_count = len(predictor.entities)

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) log-truths."""
        scores = self._predictor.scores(heads, relations)
        counts = None
        if self._rule == "counted" and self._stored is not None:
            counts = self._stored.counts(heads, relations)
        truth = truth_of(scores, self._rule, counts)
        if self.certain and self._stored is not None:
            self._stored.mark(truth, heads, relations, CERTAIN)
        return truth


def truth_of(scores: torch.Tensor, rule: str, counts: torch.Tensor | None = None) -> torch.Tensor:
    """(n, E) finite log-truths of (n, E) ``scores``, which may be overwritten. ``counts``, (n,), are the stored tails
    of each row, for the rule ``counted``."""
    if rule == "softmax":
        return torch.log_softmax(scores, 1)
    if rule == "peak":
        return scores.sub_(scores.amax(1, keepdim=True))
    if rule == "counted":
        shares = torch.log_softmax(scores, 1)
        if counts is not None:
            shares += counts.clamp_min(1).to(scores.dtype).log().unsqueeze(1)
        return F.logsigmoid(shares)
    if rule == "sigmoid":
        return F.logsigmoid(scores)
    tiny = torch.finfo(scores.dtype).tiny
    if rule == "minmax":
        low = scores.amin(1, keepdim=True)
        span = (scores.amax(1, keepdim=True) - low).clamp_min(tiny)
        return scores.sub_(low).div_(span).clamp_min_(tiny).log_()
    # Far below 0 softplus(x) is exp(x) and underflows, while its logarithm is x.
    return torch.where(scores < -15.0, scores, F.softplus(scores).clamp_min_(tiny).log_())
