"""Messages along labelled edges, one matrix product for each label.

A relational graph convolution gives every edge (u, r, v) the message ``x_u W_r`` and adds up the messages that reach
a node. Gathering a matrix for every edge would cost (edges, D, D) numbers. Here the edges of a whole batch of query
graphs are sorted by relation, so that each relation that occurs owns one slice of the messages and multiplies it
once; the backward pass does the same with two products a relation. Relations that do not occur cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class RelationalEdges:
    """M messages of a batch, sorted by relation."""

    sources: torch.Tensor
    """(M,) nodes that send."""
    destinations: torch.Tensor
    """(M,) nodes that receive."""
    relations: torch.Tensor
    """(P,) relations that occur, ascending."""
    offsets: tuple[int, ...]
    """(P+1,) slice of the messages of each of them."""


def both_ways(
    subjects: NDArray[np.integer], relations: NDArray[np.integer], objects: NDArray[np.integer], relation_count: int
) -> RelationalEdges:
    """Messages along the edges and against them; against an edge of r they bear the label of r's inverse.

    Relation ids are of 2R: the inverse of r is r + R, and that of r + R is r.
    """
    inverses = (relations + relation_count) % (2 * relation_count)
    labels = np.concatenate([relations, inverses])
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return RelationalEdges(
        torch.from_numpy(np.concatenate([subjects, objects])[order].astype(np.int64)),
        torch.from_numpy(np.concatenate([objects, subjects])[order].astype(np.int64)),
        torch.from_numpy(ordered[starts].astype(np.int64)),
        (*starts.tolist(), len(order)),
    )


class _SegmentProduct(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        rows: torch.Tensor,  # (M, D)
        matrices: torch.Tensor,  # (P, D, D')
        offsets: tuple[int, ...],
    ) -> torch.Tensor:
        out = rows.new_empty(len(rows), matrices.shape[2])
        for part, matrix in zip(_slices(offsets), matrices.unbind(0), strict=True):
            torch.mm(rows[part], matrix, out=out[part])
        ctx.save_for_backward(rows, matrices)
        ctx.offsets = offsets
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        rows, matrices = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_rows, grad_matrices = torch.empty_like(rows), torch.empty_like(matrices)
        for number, part in enumerate(_slices(ctx.offsets)):
            torch.mm(grad_out[part], matrices[number].t(), out=grad_rows[part])
            torch.mm(rows[part].t(), grad_out[part], out=grad_matrices[number])
        return grad_rows, grad_matrices, None


def _slices(offsets: tuple[int, ...]) -> list[slice]:
    return [slice(start, stop) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]


def segment_product(rows: torch.Tensor, matrices: torch.Tensor, offsets: tuple[int, ...]) -> torch.Tensor:
    """(M, D') each slice of the (M, D) rows times its own matrix of (P, D, D'); slice p is offsets[p]:offsets[p+1]."""
    return _SegmentProduct.apply(rows, matrices, offsets)  # type: ignore[no-any-return]


def convolve(nodes: torch.Tensor, matrices: torch.Tensor, edges: RelationalEdges) -> torch.Tensor:
    """(N, D') for each of the (N, D) nodes the sum of its messages; ``matrices`` (P, D, D') are those of
    ``edges.relations``, in their order."""
    messages = segment_product(nodes.index_select(0, edges.sources), matrices, edges.offsets)  # (M, D')
    return messages.new_zeros(len(nodes), matrices.shape[2]).index_add(0, edges.destinations, messages)
