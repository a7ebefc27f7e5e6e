"""Scores of all entities at once, and the cross-entropy over them, at the speed that the processor allows.

``with_all`` multiplies rows with the table of entities. ``rows @ table.T`` has one long line of results for each row.
For a handful of rows the library then spends most of its time reading the table in an inconvenient order; ``table @
rows.T`` and a transposition of the small result take a quarter to three fifths of that for up to eight rows, and no
less from some sixty on. For many rows the result is written to lines that begin at the border of a cache line, which
takes four fifths of the time. benchmarks/entity_products.py measures both.

``soft_cross_entropy`` projects and computes the loss in one pass. The plain way makes a (V, E) matrix of logits, keeps
it for the backward pass and makes a second one of gradients. Here a chunk of rows is projected, turned into
probabilities, and used at once for both gradients; the same buffers serve every chunk of every step. Label smoothing
costs nothing, since its gradient has a closed form: it moves every hidden row by the mean entity and every entity by
the mean hidden row.

In training, products with a large table are computed in bfloat16 on processors that multiply it faster than single
precision (``bfloat16_products``); the softmax, its sum and the gradients that are added up stay in single precision.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

SMALL_TABLE = 1 << 19
"""Numbers of a table that stays in the processor's cache: there the plain product is as fast as any."""
FEW_ROWS, FEW_RESULTS = 64, 5_000_000
"""Up to this many rows and results, the transposed product is faster."""
CHUNK_BYTES = 24 << 20
"""Size of one buffer of logits. Larger ones give longer products; above 32 MiB memory is mapped anew each time."""
FEWEST_ROWS = 128
"""Rows of a chunk where there are too many entities for that: each chunk reads the whole table three times, so with
few rows at a time the processor would wait for memory."""
MOST_BYTES = 256 << 20
"""Size that a buffer never exceeds, unless one row does."""

_local = threading.local()
_buffers: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] = {}


def aligned(columns: int) -> int:
    """Columns of a buffer whose rows all begin at the border of a cache line. A product that is written to other rows
    takes half as long again (benchmarks/entity_products.py)."""
    return -(-columns // 16) * 16


def with_all(rows: torch.Tensor, table: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """(n, E) products of each row, (n, D), with every row of the table, (E, D), plus its bias, (E,)."""
    n, entities = len(rows), len(table)
    wants_gradient = torch.is_grad_enabled() and any(
        part is not None and part.requires_grad for part in (rows, table, bias)
    )
    if wants_gradient or n == 0 or table.numel() < SMALL_TABLE or rows.device.type != "cpu":
        return F.linear(rows, table, bias)
    if n <= FEW_ROWS and n * entities <= max(FEW_RESULTS, entities):
        # The library multiplies a single row by another, slower routine.
        found = (table @ (rows if n > 1 else rows.repeat(2, 1)).t())[:, :n].t()
    else:
        found = torch.mm(rows, table.t(), out=rows.new_empty(n, aligned(entities))[:, :entities])
    return found.contiguous() if bias is None else torch.add(found, bias, out=rows.new_empty(n, entities))


def scratch(slot: int, rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """(rows, columns) of a buffer that is made once and used again. Each ``slot`` has one buffer for the type and
    device of ``like``; its rows are as far apart as ``aligned`` says."""
    key, width = (slot, like.dtype, like.device), aligned(columns)
    buffer = _buffers.get(key)
    if buffer is None or buffer.numel() < rows * width:
        buffer = _buffers[key] = like.new_empty(rows * width)
    return buffer[: rows * width].view(rows, width)[:, :columns]


def single_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Where nothing is computed in half precision, whatever is around: a sum over all entities needs the digits."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


@cache
def processor_multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16, which take a third of the time."""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Within it, losses over large tables of entities multiply in bfloat16 where the processor is faster so."""
    before = getattr(_local, "wanted", False)
    _local.wanted = processor_multiplies_bfloat16()
    try:
        yield
    finally:
        _local.wanted = before


class _Products:
    """The three products of a loss with a table of entities, in single precision or in bfloat16."""

    def __init__(self, hidden: torch.Tensor, table: torch.Tensor, counted: torch.Tensor) -> None:
        """``hidden`` (V, D) is what the table (E, D) is compared with, and ``counted`` the same by what rows count."""
        self.is_half = getattr(_local, "wanted", False) and table.numel() >= SMALL_TABLE and table.device.type == "cpu"
        self._table = table.bfloat16() if self.is_half else table
        self._hidden = hidden.bfloat16() if self.is_half else hidden
        self._counted = self._hidden if counted is hidden else counted.to(self._table.dtype)

    def logits(self, part: slice, bias: torch.Tensor | None, out: torch.Tensor) -> None:
        """Write (n, E) logits of the rows ``part`` to ``out``."""
        h, found = self._hidden[part], out
        if self.is_half:
            found = torch.mm(h, self._table.t(), out=scratch(2, out.shape[0], out.shape[1], h))
            out.copy_(found) if bias is None else torch.add(found, bias, out=out)
        elif bias is None:
            torch.mm(h, self._table.t(), out=out)
        else:
            torch.addmm(bias, h, self._table.t(), out=out)

    def gradients(self, part: slice, p: torch.Tensor, of_hidden: torch.Tensor, of_table: torch.Tensor) -> None:
        """What the gradient ``p`` (n, E) of logits means for hidden rows, and for the table, to which it is added; the
        first part finds nothing there yet."""
        is_first = part.start == 0
        if not self.is_half:
            torch.mm(p, self._table, out=of_hidden)
            of_table.addmm_(p.t(), self._counted[part], beta=0 if is_first else 1)
            return
        p = scratch(2, p.shape[0], p.shape[1], self._table).copy_(p)
        of_hidden.copy_(p @ self._table)
        found = p.t() @ self._counted[part]
        of_table.copy_(found) if is_first else of_table.add_(found)


def rows_at_once(count: int, row_bytes: int) -> int:
    """Rows of a chunk, of ``count`` in all, where each has ``row_bytes`` of logits."""
    return max(1, min(count, max(CHUNK_BYTES // row_bytes, min(FEWEST_ROWS, MOST_BYTES // row_bytes))))


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,  # (V, D)
        weight: torch.Tensor,  # (E, D)
        bias: torch.Tensor | None,  # (E,)
        offsets: torch.Tensor,  # (V+1,)
        answers: torch.Tensor,  # true entities of each row, one row after the other
        smoothing: float,
        weights: torch.Tensor | None,  # (V,)
    ) -> torch.Tensor:
        count, entities = len(hidden), len(weight)
        counts = hidden.new_ones(count) if weights is None else weights  # what each row counts
        rows, width = rows_at_once(count, entities * hidden.element_size()), aligned(entities)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.empty_like(weight) if count else torch.zeros_like(weight)  # the first chunk fills it
        grad_bias = None if bias is None else torch.zeros_like(bias)
        log_sum = hidden.new_empty(count)
        answer_logit = hidden.new_zeros(())
        lengths = offsets[1:] - offsets[:-1]
        share = (1.0 - smoothing) / lengths.clamp_min(1).to(hidden.dtype)
        shares = share.repeat_interleave(lengths)  # what the loss gives each true entity
        counted_shares = shares if weights is None else (share * weights).repeat_interleave(lengths)
        places = torch.arange(count, device=hidden.device).remainder_(rows).mul_(width)
        places = places.repeat_interleave(lengths).add_(answers)
        borders = offsets[torch.arange(0, count + rows, rows, device=hidden.device).clamp_max_(count)].tolist()
        products = _Products(hidden, weight, hidden if weights is None else hidden * weights.unsqueeze(1))
        for chunk, start in enumerate(range(0, count, rows)):
            part = slice(start, min(start + rows, count))
            buffer = scratch(0, part.stop - start, width, hidden)
            buffer[:, entities:] = float("-inf")
            products.logits(part, bias, buffer[:, :entities])
            true = slice(borders[chunk], borders[chunk + 1])
            answer_logit += buffer.view(-1)[places[true]] @ counted_shares[true]
            probabilities = torch.softmax(buffer, 1, out=scratch(1, len(buffer), width, hidden))
            # The largest logit has probability 1 / sum(exp(logit - top)), which never underflows.
            log_sum[part] = buffer.amax(1) - probabilities.amax(1).log_()
            probabilities.view(-1).index_add_(0, places[true], shares[true], alpha=-1)
            p = probabilities[:, :entities]
            products.gradients(part, p, grad_hidden[part], grad_weight)
            if grad_bias is not None:
                grad_bias.addmv_(p.t(), counts[part])
        total = counts.sum()
        loss = (log_sum @ counts - answer_logit) / total
        if smoothing:
            mean_hidden, mean_weight = (counts @ hidden) / total, weight.mean(0)
            loss = loss - smoothing * (mean_hidden @ mean_weight)
            grad_hidden.sub_(mean_weight, alpha=smoothing)
            grad_weight.sub_(mean_hidden * total, alpha=smoothing / entities)
            if bias is not None and grad_bias is not None:
                loss = loss - smoothing * bias.mean()
                grad_bias.sub_(total * (smoothing / entities))
        if weights is not None:
            grad_hidden.mul_(weights.unsqueeze(1))
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.total = total
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        scale = grad_output / ctx.total
        gradients = (None if gradient is None else gradient.mul_(scale) for gradient in ctx.saved_tensors)
        return (*gradients, None, None, None, None)


def soft_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    offsets: torch.Tensor,
    answers: torch.Tensor,
    smoothing: float = 0.0,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean cross-entropy of the logits ``hidden @ weight.T + bias``, with label smoothing. Row v has the true entities
    ``answers[offsets[v]:offsets[v + 1]]``, all different, each with an equal share.

    A row without any is only pushed towards what the smoothing spreads. ``weights`` (V,) say how much each row counts
    in the mean, without a gradient; by default all count alike. Equal to ``torch.nn.functional.cross_entropy`` with
    these shares, in value and gradients. The gradients are computed in the forward pass and handed out once: a second
    backward over one forward is not supported.
    """
    with single_precision(hidden.device):
        return _SoftCrossEntropy.apply(hidden.to(weight.dtype), weight, bias, offsets, answers, smoothing, weights)  # type: ignore[no-any-return]


def repeat_rows(offsets: torch.Tensor, answers: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and entities of the slices ``rows``, in this order; a slice may be taken more than once."""
    lengths = (offsets[1:] - offsets[:-1])[rows]
    taken = offsets.new_zeros(len(rows) + 1)
    torch.cumsum(lengths, 0, out=taken[1:])
    within = torch.arange(int(taken[-1]), device=taken.device) - taken[:-1].repeat_interleave(lengths)
    return taken, answers[offsets[rows].repeat_interleave(lengths) + within]
