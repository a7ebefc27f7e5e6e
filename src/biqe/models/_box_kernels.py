"""L1 distances between boxes and points, without the (boxes, points, width) block that tensor operations make.

    delta = |p - c|,   d = sum over dimensions of max(delta - o, 0) + a min(delta, o)

for a box with centre c and offset o, and a point p: what lies outside the box counts in full, the way inside it
with the factor a. Boxes are dealt to as many threads as torch uses. Points are visited in tiles that stay in the
cache, four at a time, so that a dimension of the box is loaded once for four points.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.exact.plan import compiled

TILE_BYTES = 128 << 10
"""Points visited before the next box is taken; they should stay in a core's own cache."""

_kernel: Any = compiled(nogil=True, fastmath=True, error_model="numpy")


@_kernel
def _distances(centres, offsets, points, inside, tile, first, last, out):  # type: ignore[no-untyped-def]
    """Rows first..last of ``out`` (V, K)."""
    count, width = points.shape
    saved = centres.dtype.type(1) - inside
    for start in range(0, count, tile):
        stop = min(start + tile, count)
        for i in range(first, last):
            c, o = centres[i], offsets[i]
            k = start
            while k + 4 <= stop:
                p0, p1, p2, p3 = points[k], points[k + 1], points[k + 2], points[k + 3]
                s0 = s1 = s2 = s3 = centres.dtype.type(0)
                for d in range(width):
                    t0, t1, t2, t3 = abs(p0[d] - c[d]), abs(p1[d] - c[d]), abs(p2[d] - c[d]), abs(p3[d] - c[d])
                    s0 += t0 - saved * min(t0, o[d])
                    s1 += t1 - saved * min(t1, o[d])
                    s2 += t2 - saved * min(t2, o[d])
                    s3 += t3 - saved * min(t3, o[d])
                out[i, k], out[i, k + 1], out[i, k + 2], out[i, k + 3] = s0, s1, s2, s3
                k += 4
            while k < stop:
                p0 = points[k]
                s0 = centres.dtype.type(0)
                for d in range(width):
                    t0 = abs(p0[d] - c[d])
                    s0 += t0 - saved * min(t0, o[d])
                out[i, k] = s0
                k += 1


@_kernel
def _gradients(  # type: ignore[no-untyped-def]
    centres, offsets, points, inside, tile, first, last, grad, grad_centres, grad_offsets, grad_points
):
    """Adds what rows first..last of ``grad`` (V, K) mean for boxes and points."""
    count, width = points.shape
    zero, one = centres.dtype.type(0), centres.dtype.type(1)
    saved = one - inside
    for start in range(0, count, tile):
        stop = min(start + tile, count)
        for i in range(first, last):
            c, o = centres[i], offsets[i]
            grad_c, grad_o = grad_centres[i], grad_offsets[i]
            for k in range(start, stop):
                g = grad[i, k]
                if g == zero:
                    continue
                p, grad_p = points[k], grad_points[k]
                for d in range(width):
                    delta = p[d] - c[d]
                    far = abs(delta) > o[d]
                    pull = g if far else g * inside
                    pull = pull if delta > zero else (-pull if delta < zero else zero)
                    grad_p[d] += pull
                    grad_c[d] -= pull
                    grad_o[d] -= g * saved if far else zero


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="boxes")


def _deal(rows: int, work: Callable[[int, int, int], None]) -> None:
    """``work(part, first, last)`` for equal parts of the rows, one a thread.

    The calling thread takes a part, too: a run that counts its processor time takes that of the thread that steps.
    """
    parts = _parts(rows)
    bounds = np.linspace(0, rows, parts + 1).astype(np.int64).tolist()
    others = [_pool(parts).submit(work, part, bounds[part], bounds[part + 1]) for part in range(1, parts)]
    work(0, 0, bounds[1])
    for part in others:
        part.result()


def _parts(rows: int) -> int:
    return max(1, min(torch.get_num_threads(), rows))


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()


class _BoxDistances(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, centres: torch.Tensor, offsets: torch.Tensor, points: torch.Tensor, inside: float
    ) -> torch.Tensor:
        out = centres.new_empty(len(centres), len(points))
        arrays, written = [_array(tensor) for tensor in (centres, offsets, points)], out.numpy()
        share, tile = _constants(arrays[2], inside)
        _deal(len(centres), lambda _, first, last: _distances(*arrays, share, tile, first, last, written))
        ctx.save_for_backward(centres, offsets, points)
        ctx.inside = inside
        return out

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        centres, offsets, points = ctx.saved_tensors
        arrays, grad = [_array(tensor) for tensor in (centres, offsets, points)], _array(grad_output)
        share, tile = _constants(arrays[2], ctx.inside)
        grad_centres, grad_offsets = torch.zeros_like(centres), torch.zeros_like(offsets)
        # Threads share the points, so each adds up its own; the sum is taken in a fixed order.
        grad_points = points.new_zeros(_parts(len(centres)), *points.shape)
        into = [tensor.numpy() for tensor in (grad_centres, grad_offsets, grad_points)]

        def work(part: int, first: int, last: int) -> None:
            _gradients(*arrays, share, tile, first, last, grad, into[0], into[1], into[2][part])

        _deal(len(centres), work)
        return grad_centres, grad_offsets, grad_points.sum(0), None


def _constants(points: NDArray[Any], inside: float) -> tuple[Any, int]:
    """The inside factor in the arrays' own type, so that nothing is computed in a wider one; points a tile."""
    return points.dtype.type(inside), max(4, TILE_BYTES // max(1, points.itemsize * points.shape[1]) // 4 * 4)


def box_distances(centres: torch.Tensor, offsets: torch.Tensor, points: torch.Tensor, inside: float) -> torch.Tensor:
    """(V, K) distances between boxes (V, D), (V, D) and points (K, D), with gradients for all three."""
    return _BoxDistances.apply(centres, offsets, points, inside)  # type: ignore[no-any-return]
