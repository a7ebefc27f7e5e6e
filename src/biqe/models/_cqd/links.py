"""How true each link is, as a number in [0, 1], from the scores of a link predictor.

A predictor trained with one softmax over all entities says how likely a tail is *as the tail of this head and
relation*. Where a pair has fifty true tails each gets a fiftieth, and where it has none somebody still gets the
most. Truth values of different pairs must be compared when a query has several links, so the choice matters
(x is the score, p the softmax of x over all entities, n the number of tails that the graph knows, at least 1):

    softmax   p                    probabilities; links with many tails count little
    peak      p / max p            the best tail of every pair is true
    counted   n p / (1 + n p)      odds n p: even for a tail that has its fair share, whether of one or of fifty
    sigmoid   1 / (1 + exp(-x))    Arakelyan et al. 2021, equation 5
    minmax    (x - min) / (max - min)
    raw       log(1 + exp(x))      no truth value: near x where x > 0. The published beam search multiplies scores

For one link alone all of them rank alike; for intersections softmax and peak do too. Without a graph n is 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from biqe.graph.index import objects, subjects
from biqe.graph.knowledge_graph import Graph

KINDS = ("softmax", "peak", "counted", "sigmoid", "minmax", "raw")
SURE = 0.0
"""Logarithm of the truth of a link that the graph holds."""
FEW_PAIRS = 128
"""Pairs whose tails are looked up in the graph's own index; for more a table of all pairs is made."""


class Predictor(Protocol):
    """Where scores come from: ComplEx while it is trained, or its tables inside another model."""

    @property
    def entities(self) -> torch.Tensor:
        """(E, D)"""

    def scores(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) scores of every entity as the tail."""


class KnownLinks:
    """Tails of every head and relation of a graph, in both directions."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pairs as numbers, ascending; where the tails of each begin; and the tails. Made when many are asked about:
        a graph that changes is told anew each time."""
        graph = self._graph
        subject, relation, object_ = (graph.triples[:, column].astype(np.int64) for column in range(3))
        keys = np.concatenate(
            [relation * graph.entity_count + subject, (relation + graph.relation_count) * graph.entity_count + object_]
        )
        order = np.argsort(keys, kind="stable")
        tails = np.concatenate([object_, subject])[order]
        pairs, starts = np.unique(keys[order], return_index=True)
        return pairs, np.append(starts, len(order)), tails

    def _find(self, heads: torch.Tensor, relations: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) start of each pair's tails, and their number."""
        pairs, offsets, _ = self._sorted
        if len(pairs) == 0:
            nothing = np.zeros(len(heads), np.int64)
            return nothing, nothing
        wanted = relations.numpy() * self._graph.entity_count + heads.numpy()
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        found = pairs[at] == wanted
        return offsets[at], np.where(found, offsets[at + 1] - offsets[at], 0)

    def _are_many(self, heads: torch.Tensor) -> bool:
        """Whether the table of all pairs is worth making, or there already."""
        return len(heads) > FEW_PAIRS or "_sorted" in self.__dict__

    def _tails(self, heads: torch.Tensor, relations: torch.Tensor) -> list[NDArray[np.int32]]:
        """Known tails of each pair, of a few pairs."""
        index, forward = self._graph.index, self._graph.relation_count
        return [
            objects(index, head, relation) if relation < forward else subjects(index, relation - forward, head)
            for head, relation in zip(heads.tolist(), relations.tolist(), strict=True)
        ]

    def counts(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n,) number of known tails of each pair."""
        if self._are_many(heads):
            return torch.from_numpy(self._find(heads, relations)[1])
        return torch.tensor([len(tails) for tails in self._tails(heads, relations)])

    def mark(self, truth: torch.Tensor, heads: torch.Tensor, relations: torch.Tensor) -> None:
        """Write SURE into ``truth``, (n, E), wherever the graph holds the link."""
        if self._are_many(heads):
            starts, counts = self._find(heads, relations)
            first = np.cumsum(counts) - counts
            tails = self._sorted[2][np.repeat(starts - first, counts) + np.arange(int(counts.sum()))]
        else:
            each = self._tails(heads, relations)
            counts = np.array([len(some) for some in each], np.int64)
            tails = np.concatenate(each, dtype=np.int64) if each else np.zeros(0, np.int64)
        rows = np.repeat(np.arange(len(counts)), counts)
        truth.view(-1)[torch.from_numpy(rows * truth.shape[1] + tails)] = SURE


class Links:
    """Truth values of links, as natural logarithms."""

    def __init__(self, predictor: Predictor, kind: str, graph: KnownLinks | None, known_is_sure: bool) -> None:
        self._predictor = predictor
        self._kind = kind
        self._graph = graph
        self._known_is_sure = known_is_sure

    @property
    def entity_count(self) -> int:
        return len(self._predictor.entities)

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) how true the link from each head, (n,), along its relation, (n,), to every entity is."""
        scores = self._predictor.scores(heads, relations)
        counts = None
        if self._kind == "counted":
            counts = torch.ones(len(heads)) if self._graph is None else self._graph.counts(heads, relations)
        truth = truth_of(scores, self._kind, counts)
        if self._known_is_sure and self._graph is not None:
            self._graph.mark(truth, heads, relations)
        return truth


def truth_of(scores: torch.Tensor, kind: str, counts: torch.Tensor | None = None) -> torch.Tensor:
    """(n, E) logarithms of truth values, finite; ``scores`` may be overwritten. ``counts``, (n,), are the tails known
    of each row, for kind ``counted``."""
    if kind == "softmax":
        return torch.log_softmax(scores, 1)
    if kind == "peak":
        return scores.sub_(scores.amax(1, keepdim=True))
    if kind == "counted":
        shares = torch.log_softmax(scores, 1)
        if counts is not None:
            shares += counts.clamp_min(1).to(scores.dtype).log().unsqueeze(1)
        return F.logsigmoid(shares)
    if kind == "sigmoid":
        return F.logsigmoid(scores)
    tiny = torch.finfo(scores.dtype).tiny
    if kind == "minmax":
        low = scores.amin(1, keepdim=True)
        span = (scores.amax(1, keepdim=True) - low).clamp_min(tiny)
        return scores.sub_(low).div_(span).clamp_min_(tiny).log_()
    # Far below 0 softplus(x) is exp(x) and underflows, while its logarithm is x.
    return torch.where(scores < -15.0, scores, F.softplus(scores).clamp_min_(tiny).log_())
