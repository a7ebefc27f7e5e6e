"""Queries as batches of tokens, padded only where lengths differ; and the embeddings of those tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from biqe.links.structures import Targets, TargetTable
from biqe.query.bound import QuerySet
from biqe.query.tokens import FIRST_ENTITY, MASK, TokenTable, token_table


@dataclass(frozen=True)
class Batch:
    """B queries, padded to T tokens; n masks that stand for V targets."""

    tokens: torch.Tensor
    """(B, T) token ids; MASK where padded."""
    positions: torch.Tensor
    """(B, T)"""
    relative: torch.Tensor | None
    """(B, T, T) how token i stands to token j, as a bucket; None under the paper's positions."""
    padding: torch.Tensor | None
    """(B, T) true where there is no token; None where every query has T tokens."""
    masks: torch.Tensor
    """(n,) places of the masks in the flattened (B * T) tokens."""
    mask_targets: torch.Tensor
    """(n,) the target that each mask stands for."""
    mask_counts: torch.Tensor
    """(V,) masks of each target."""
    targets: Targets
    """What the masks stand for."""
    table: TokenTable
    """Tokens of all queries that the batch was cut from."""
    rows: NDArray[np.integer]
    """(B,) the queries, as rows of ``table``."""

    def mean_over_masks(self, at_masks: torch.Tensor) -> torch.Tensor:
        """(n, F) -> (V, F) means over the masks of each target."""
        total = at_masks.new_zeros(len(self.mask_counts), at_masks.shape[1])
        return total.index_add(0, self.mask_targets, at_masks) / self.mask_counts.unsqueeze(1)


class EncodedQueries:
    """A query set as tokens, cut into batches on demand. ``relative_reach`` is the largest distance that the buckets
    of ``Batch.relative`` tell apart; None for the paper's positions."""

    def __init__(self, queries: QuerySet, entities: int, relative_reach: int | None) -> None:
        self.table = token_table(queries, entities)
        self.sizes = self.table.lengths
        self._relative_reach = relative_reach
        self._targets = TargetTable(queries)

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order, padded to the longest of them."""
        table = self.table
        rows = np.asarray(rows, np.int64)
        lengths = self.sizes[rows]
        longest = int(lengths.max(initial=1))
        column = np.arange(longest)
        real = column < lengths[:, None]  # (B, T)
        where = np.where(real, table.offsets[rows][:, None] + column, 0)
        tokens = np.where(real, table.tokens[where], MASK)
        positions = np.where(real, table.positions[where], 0)
        targets = np.where(real, table.targets[where], -1)

        first, total = self._targets.first(rows)
        masks = np.flatnonzero(targets.ravel() >= 0)
        mask_targets = (targets + first[:, None]).ravel()[masks]
        relative = None
        if self._relative_reach is not None:
            paths, elements = table.paths[where], table.elements[where]
            relative = torch.from_numpy(_relative(paths, positions, elements, self._relative_reach))
        return Batch(
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(positions.astype(np.int64)),
            relative,
            None if real.all() else torch.from_numpy(~real),
            torch.from_numpy(masks),
            torch.from_numpy(mask_targets.astype(np.int64)),
            torch.from_numpy(np.bincount(mask_targets, minlength=total)),
            self._targets.batch(rows),
            table,
            rows,
        )


def _relative(
    paths: NDArray[np.integer], positions: NDArray[np.integer], elements: NDArray[np.integer], reach: int
) -> NDArray[np.int64]:
    """(B, T, T) bucket of token j as token i sees it; see ``relative_buckets``."""
    distance = np.clip(positions[:, None, :].astype(np.int64) - positions[:, :, None], -reach, reach) + reach
    same_path = paths[:, None, :] == paths[:, :, None]
    same_element = elements[:, None, :] == elements[:, :, None]
    other = np.where(same_element, 2 * (2 * reach + 1), 2 * reach + 1 + distance)
    return np.where(same_path, distance, other)


def relative_buckets(reach: int) -> int:
    """Number of ways in which one token can stand to another: signed distance on one path, signed difference
    between two paths, and the same node or edge seen on two paths."""
    return 2 * (2 * reach + 1) + 1


@dataclass(frozen=True)
class Places:
    """Where N tokens stand in a (B, T) table. The padding can be left out of N: only attention needs it."""

    shape: tuple[int, int]
    masks: torch.Tensor
    """(n,) places of the masks in the table."""
    real: torch.Tensor | None = None
    """(N,) place of each token in the table; None where N is B * T."""

    @classmethod
    def of(cls, batch: Batch, packed: bool) -> Places:
        """With or without the padding."""
        B, T = batch.tokens.shape
        padding = batch.padding if packed else None
        return cls((B, T), batch.masks, None if padding is None else torch.nonzero(~padding.view(-1)).view(-1))

    @cached_property
    def mask_rows(self) -> torch.Tensor:
        """(n,) the masks among the N tokens."""
        return self.masks if self.real is None else torch.searchsorted(self.real, self.masks)

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, F) -> (B * T, F), with zeros in the padding."""
        if self.real is None:
            return rows
        B, T = self.shape
        return rows.new_zeros(B * T, rows.shape[1]).index_copy_(0, self.real, rows)

    def gather(self, table: torch.Tensor) -> torch.Tensor:
        """(B * T, F) -> (N, F)"""
        return table if self.real is None else table.index_select(0, self.real)


def embed(tokens: torch.Tensor, entities: nn.Embedding, others: nn.Embedding) -> torch.Tensor:
    """(n, D) embeddings of (n,) token ids. Entities have a table of their own, (E, D), so that it can be split over
    ranks and updated row by row; ``others``, (1 + 2R, D), are [MASK], then the relations and their inverses."""
    last = FIRST_ENTITY + entities.num_embeddings
    is_entity = (tokens >= FIRST_ENTITY) & (tokens < last)
    places = is_entity.nonzero().squeeze(1)
    # Entities' places are looked up as [MASK] first, and then overwritten: their gradient there is 0.
    rest = torch.where(tokens < FIRST_ENTITY, tokens, tokens - entities.num_embeddings).masked_fill_(is_entity, 0)
    return F.embedding(rest, others.weight).index_copy(0, places, entities(tokens[places] - FIRST_ENTITY))
