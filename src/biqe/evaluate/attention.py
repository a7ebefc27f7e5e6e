"""Where masks look: how much attention they pay to elements that no path through them passes.

Paper: section "Analysis" puts it at 30.4 percent on average. Models that pass messages along the edges of a query
cannot use such elements at all.

What counts as outside of a mask is written in ``outside.py``: every element of the query but the mask's own node, its
ancestors and its descendants.

The share of a mask is the attention on its outside tokens, the attention of each head summing to 1 over all tokens of
the query. It is averaged over heads, over layers and over all masks, each with the same weight; a target on three
paths has three masks. Nothing is outside of a tail or of an intersection behind which only the tail lies, so their
masks bring the mean down; ``outside_where_any`` leaves out masks that have nothing outside. ``uniform`` is the
share that a model would have that looks at all tokens alike: attention beyond chance is what exceeds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import EmptyResult
from biqe.evaluate.attention_picture import draw
from biqe.evaluate.outside import outside_of_masks, token_columns
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import Progress, Skipped, at_rest, batches, by_reason, supported
from biqe.models._contract import trace
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

__all__ = ["AttentionShares", "attention_shares", "draw"]

BATCH_QUERIES = 64
"""Queries traced in one go: attention of all layers and heads is held for them."""


@dataclass(frozen=True)
class AttentionShares:
    """Attention of masks on elements that are neither their ancestors nor their descendants, from 0 to 1."""

    model: str
    outside: float
    """Over all masks: the figure to compare with the paper's .304."""
    outside_where_any: float
    """Over masks that have something outside; 0 where none has."""
    uniform: float
    """What equal attention to all tokens would give, over all masks."""
    uniform_where_any: float
    by_layer: tuple[float, ...]
    by_head: tuple[tuple[float, ...], ...]
    """By layer, then by head."""
    by_position: dict[str, float]
    """By position of the mask's node: tail, intersection, branch."""
    masks: int
    masks_with_outside: int
    masks_by_position: dict[str, int]
    queries: int
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "attention", **plain(self), "published": 0.304}


def attention_shares(
    model: QueryModel, queries: QuerySet, *, strict: bool = False, progress: Progress | None = None
) -> AttentionShares:
    """How much attention the masks of ``queries`` pay outside of their ancestors and descendants.

    Needs a model that can show its attention over tokens (``HasAttention``); others refuse. Queries that the model
    does not support are counted.
    """
    rows, refused = supported(model, queries, strict)
    if len(rows) == 0:
        reasons = "; ".join(f"{part.queries:,} queries: {part.reason}" for part in by_reason(refused))
        raise EmptyResult(f"none of {len(queries):,} queries can be traced. {reasons}".rstrip(" ."))
    asked = queries.take(rows)
    shares: list[NDArray[np.float64]] = []  # (masks, layers, heads) of each batch
    uniform: list[NDArray[np.float64]] = []
    roles: list[str] = []
    done = 0
    with at_rest(model):
        encoded = model.encode(asked)
        for part in batches(np.asarray(encoded.sizes), np.ones(len(asked), np.int64), BATCH_QUERIES):
            traced = trace(model, encoded.batch(part))
            for place, row in enumerate(part.tolist()):
                query = asked[row]
                columns = token_columns(traced, place)
                outside, mask_roles = outside_of_masks(query, columns)  # (masks, tokens)
                if len(outside) == 0:
                    continue
                masks = torch.from_numpy(np.flatnonzero(columns["targets"] >= 0))
                looked = torch.stack([layer[place] for layer in traced.attention])  # (layers, H, T, T)
                looked = looked[:, :, masks, : outside.shape[1]]  # padding left out
                found = torch.einsum("lhmt,mt->mlh", looked.double(), torch.from_numpy(outside).double())
                shares.append(found.numpy())
                uniform.append(outside.mean(axis=1))
                roles += mask_roles
            done += len(part)
            if progress is not None:
                progress(done, len(rows))
    if not shares:
        raise EmptyResult(f"none of {len(rows):,} queries has a mask")
    share, even = np.concatenate(shares), np.concatenate(uniform)
    of_mask, some = share.mean(axis=(1, 2)), even > 0
    positions = {role: np.array(roles) == role for role in dict.fromkeys(roles)}
    return AttentionShares(
        model=model.name,
        outside=float(of_mask.mean()),
        outside_where_any=float(of_mask[some].mean()) if some.any() else 0.0,
        uniform=float(even.mean()),
        uniform_where_any=float(even[some].mean()) if some.any() else 0.0,
        by_layer=tuple(share.mean(axis=(0, 2)).tolist()),
        by_head=tuple(tuple(heads) for heads in share.mean(axis=0).tolist()),
        by_position={role: float(of_mask[members].mean()) for role, members in positions.items()},
        masks=len(of_mask),
        masks_with_outside=int(some.sum()),
        masks_by_position={role: int(members.sum()) for role, members in positions.items()},
        queries=len(rows),
        skipped=by_reason(refused),
    )
