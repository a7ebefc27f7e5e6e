"""The links that a graph holds, in both directions: how many tails a head and relation have, and which."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph

FEW_PAIRS = 128
"""Up to this many pairs, tails are looked up in the graph's own index; for more, a table of all pairs is made."""


class StoredLinks:
    """Tails of every pair of head and relation of ``graph``. Relation r + R is r walked from tail to head."""

    def __init__(self, graph: Graph, few_pairs: int = FEW_PAIRS) -> None:
        self._graph = graph
        self._few_pairs = few_pairs

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pairs as numbers, ascending; where the tails of each begin; and the tails. Made only when many pairs are
        asked for: a live graph is replaced so often that it would not pay."""
        graph = self._graph
        subject, relation, object_ = (graph.triples[:, column].astype(np.int64) for column in range(3))
        keys = np.concatenate(
            [relation * graph.entity_count + subject, (relation + graph.relation_count) * graph.entity_count + object_]
        )
        order = np.argsort(keys, kind="stable")
        tails = np.concatenate([object_, subject])[order]
        pairs, starts = np.unique(keys[order], return_index=True)
        return pairs, np.append(starts, len(order)), tails

    def tails(self, heads: torch.Tensor, relations: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) number of stored tails of each pair, and the tails, one pair after the other."""
        if len(heads) <= self._few_pairs and "_sorted" not in self.__dict__:
            graph, forward = self._graph, self._graph.relation_count
            each = [
                graph.objects(head, relation) if relation < forward else graph.subjects(relation - forward, head)
                for head, relation in zip(heads.tolist(), relations.tolist(), strict=True)
            ]
            counts = np.array([len(some) for some in each], np.int64)
            return counts, np.concatenate(each, dtype=np.int64) if each else np.zeros(0, np.int64)
        starts, counts = self._find(heads, relations)
        first = np.cumsum(counts) - counts
        return counts, self._sorted[2][np.repeat(starts - first, counts) + np.arange(int(counts.sum()))]

    def counts(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n,) number of stored tails of each pair."""
        if len(heads) <= self._few_pairs and "_sorted" not in self.__dict__:
            return torch.from_numpy(self.tails(heads, relations)[0]).to(heads.device)
        return torch.from_numpy(self._find(heads, relations)[1]).to(heads.device)

    def _find(self, heads: torch.Tensor, relations: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) start of each pair's tails in the table of all pairs, and their number."""
        pairs, offsets, _ = self._sorted
        if len(pairs) == 0:
            nothing = np.zeros(len(heads), np.int64)
            return nothing, nothing
        wanted = relations.cpu().numpy() * self._graph.entity_count + heads.cpu().numpy()
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        found = pairs[at] == wanted
        return offsets[at], np.where(found, offsets[at + 1] - offsets[at], 0)

    def mark(self, values: torch.Tensor, heads: torch.Tensor, relations: torch.Tensor, value: float) -> None:
        """Write ``value`` into ``values``, (n, E), wherever the graph holds the link."""
        counts, tails = self.tails(heads, relations)
        rows = np.repeat(np.arange(len(counts)), counts)
        values.view(-1)[torch.from_numpy(rows * values.shape[1] + tails).to(values.device)] = value
