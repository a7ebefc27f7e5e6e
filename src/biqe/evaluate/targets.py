"""Ranks of every target of a query set: the work of protocol ``cq``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.scoring import (
    Progress,
    Skipped,
    at_rest,
    batch_size,
    batches,
    by_reason,
    check_ids,
    check_shape,
    filters_of,
    supported,
)
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


@dataclass(frozen=True)
class RankedTargets:
    """Ranks of the targets that could be ranked, in the order of the query set."""

    ranks: Ranks
    targets: NDArray[np.int64]
    """Number of each in the query set's target order."""
    queries: NDArray[np.int64]
    """Number of each one's query."""
    skipped: tuple[Skipped, ...]
    targets_without_gold: int


def rank_queries(
    model: QueryModel,
    queries: QuerySet,
    *,
    filter_graph: str = "complete",
    strict: bool = False,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> RankedTargets:
    """Ranks of all targets of ``queries`` that have a gold entity and whose query the model supports."""
    options: dict[str, Any] = {"strict": strict, "batch_targets": batch_targets, "progress": progress}
    return rank_under(model, queries, [filter_graph], **options)[filter_graph]


def rank_under(
    model: QueryModel,
    queries: QuerySet,
    filter_graphs: Sequence[str],
    *,
    strict: bool = False,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> dict[str, RankedTargets]:
    """The same under several filters, by name; the model is asked once for all of them."""
    filters = {name: filters_of(queries, name) for name in filter_graphs}
    size = batch_size(model, batch_targets)
    gold = queries.gold[queries.target_nodes]
    check_ids(model, entity=queries.nodes, gold_entity=gold)
    for sets in filters.values():
        check_ids(model, filter_value=sets.values)

    rows, refused = supported(model, queries, strict)
    skipped = by_reason(refused)
    if len(rows) == 0:
        return dict.fromkeys(filters, RankedTargets(Ranks.join([]), rows, rows, skipped, 0))
    asked = replace(queries, filters={}).take(rows)  # a model never sees the filters
    first_target = queries.target_offsets
    ranks: dict[str, list[Ranks]] = {name: [] for name in filters}
    targets = []
    done = 0
    with at_rest(model):
        encoded = model.encode(asked)
        for part in batches(np.asarray(encoded.sizes), np.diff(asked.target_offsets), size):
            scores = model.scores(encoded.batch(part))
            numbers = np.concatenate([np.arange(first_target[row], first_target[row + 1]) for row in rows[part]])
            check_shape(model, scores, len(numbers))
            known = gold[numbers] >= 0
            numbers = numbers[known]
            if not known.all():
                scores = scores[torch.as_tensor(known, device=scores.device)]
            for name, sets in filters.items():
                ranks[name].append(rank_targets(scores, gold[numbers], sets.take(numbers)))
            targets.append(numbers)
            done += len(part)
            if progress is not None:
                progress(done, len(rows))

    numbers = np.concatenate([np.zeros(0, np.int64), *targets])
    order = np.argsort(numbers)
    owner = np.searchsorted(first_target, numbers[order], side="right") - 1
    without_gold = int(np.diff(asked.target_offsets).sum()) - len(numbers)
    return {
        name: RankedTargets(Ranks.join(parts).take(order), numbers[order], owner, skipped, without_gold)
        for name, parts in ranks.items()
    }
