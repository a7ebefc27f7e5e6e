"""Products of a few rows with the table of all entities, in the order that the library multiplies fastest.

``rows @ table.T`` has one long line of results for each row. For a handful of rows the library then spends most of its
time on reading the table in an inconvenient order; ``table @ rows.T`` and a turn of the small result take a quarter to
three fifths of that for up to eight rows, and no less from some sixty on. For many rows it is the lines of the result
that matter: written so that each begins at the border of a cache line, they take four fifths of the time.
benchmarks/entity_products.py measures both.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from biqe.models._fused_loss import aligned

SMALL_TABLE = 1 << 19
"""Numbers of a table that stays in the processor's cache: there the plain product is as fast as any."""
FEW_ROWS, FEW_RESULTS = 64, 5_000_000
"""Up to so many rows and results the result is worth turning."""


def with_all(rows: torch.Tensor, table: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """(n, E) products of each row, (n, D), with every row of the table, (E, D), and its bias, (E,)."""
    n, entities = len(rows), len(table)
    wants_gradient = torch.is_grad_enabled() and any(
        part is not None and part.requires_grad for part in (rows, table, bias)
    )
    if wants_gradient or n == 0 or table.numel() < SMALL_TABLE:
        return F.linear(rows, table, bias)
    if n <= FEW_ROWS and n * entities <= max(FEW_RESULTS, entities):
        # One row alone would go another, slower way.
        found = (table @ (rows if n > 1 else rows.repeat(2, 1)).t())[:, :n].t()
    else:
        found = torch.mm(rows, table.t(), out=rows.new_empty(n, aligned(entities))[:, :entities])
    return found.contiguous() if bias is None else torch.add(found, bias, out=rows.new_empty(n, entities))
