"""What every evaluation does with a model: ask what it supports, cut batches, take its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption, RunFailed, TooManyPaths, VocabularyMismatch
from biqe.query.queryset import AnswerSets, QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

FILTER_GRAPHS = ("complete", "split", "reach")
SCORE_BYTES = 32 << 20
"""Scores held at once, where the caller does not say how many targets to score in one go."""
MOST_BATCH_TARGETS = 1024
_EXAMPLES = 5

Progress = Callable[[int, int], None]
"""Called after each batch with the number of queries done and their total."""


@dataclass(frozen=True)
class Skipped:
    """Queries that were not ranked, for one reason."""

    reason: str
    queries: int
    examples: tuple[int, ...]
    """Numbers of the first few, from 0."""

    @classmethod
    def by_reason(cls, refused: dict[str, list[int]]) -> tuple[Skipped, ...]:
        """One for each reason, from the numbers of the queries refused for it."""
        return tuple(cls(reason, len(found), tuple(found[:_EXAMPLES])) for reason, found in refused.items())


@contextmanager
def at_rest(model: QueryModel) -> Iterator[None]:
    """The model in evaluation mode and without gradients; its mode is given back in the end."""
    training = model.training
    model.eval()
    try:
        # no_grad and not inference_mode: buffers that a model keeps must stay usable in training.
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def batch_size(model: QueryModel, batch_targets: int | None) -> int:
    """Targets to score in one go: as asked, or as many as fit in SCORE_BYTES."""
    if batch_targets is None:
        return min(MOST_BATCH_TARGETS, max(1, SCORE_BYTES // (4 * model.entity_count)))
    if batch_targets < 1:
        raise InvalidOption(f"batch_targets must be at least 1. Got {batch_targets}")
    return batch_targets


def supported(model: QueryModel, queries: QuerySet, strict: bool) -> tuple[NDArray[np.int64], dict[int, str]]:
    """Numbers of the queries to rank, and the reason of each that the model refuses.

    A model is asked once for each structure: which nodes are constants, targets or hidden, and how edges, forward
    or inverse, join them. Which entities and relations they are does not change what it can read.
    """
    answered: dict[tuple[bytes, bytes], str | None] = {}
    rows: list[int] = []
    refused: dict[int, str] = {}
    kinds = np.minimum(queries.nodes, 0)
    edges = queries.edges.copy()
    edges[:, 1] = edges[:, 1] >= model.relation_count
    for row in range(len(queries)):
        nodes = slice(queries.node_offsets[row], queries.node_offsets[row + 1])
        key = (kinds[nodes].tobytes(), edges[queries.edge_offsets[row] : queries.edge_offsets[row + 1]].tobytes())
        if key not in answered:
            answered[key] = _refusal(model, queries, row, strict)
        reason = answered[key]
        if reason is None:
            rows.append(row)
        else:
            refused[row] = reason
    return np.array(rows, np.int64), refused


def _refusal(model: QueryModel, queries: QuerySet, row: int, strict: bool) -> str | None:
    query = queries[row]
    if not query.targets:
        return "no target to rank"
    try:
        support = model.supports(query, strict=strict)
    except TooManyPaths as error:
        return error.message
    return None if support.yes else support.reason


def by_reason(refused: dict[int, str]) -> tuple[Skipped, ...]:
    """Refused queries, gathered by reason in order of first appearance."""
    gathered: dict[str, list[int]] = {}
    for row, reason in refused.items():
        gathered.setdefault(reason, []).append(row)
    return Skipped.by_reason(gathered)


def batches(
    sizes: NDArray[np.integer], targets: NDArray[np.integer], batch_targets: int
) -> Iterator[NDArray[np.int64]]:
    """Queries of one size together, so that nothing is padded; at most ``batch_targets`` targets, or one query."""
    order = np.lexsort((targets, sizes))
    start, held = 0, 0
    for stop, (size, count) in enumerate(zip(sizes[order].tolist(), targets[order].tolist(), strict=True)):
        if stop > start and (held + count > batch_targets or size != sizes[order[start]]):
            yield order[start:stop]
            start, held = stop, 0
        held += count
    if len(order) > start:
        yield order[start:]


def check_shape(model: QueryModel, scores: torch.Tensor, targets: int) -> None:
    """RunFailed unless a model gave a row for each target and a column for each entity."""
    if tuple(scores.shape) != (targets, model.entity_count):
        raise RunFailed(
            f"model {model.name!r} gave scores of shape {tuple(scores.shape)}; its batch has {targets} targets and it "
            f"knows {model.entity_count:,} entities"
        )


def as_array(scores: torch.Tensor) -> NDArray[np.floating]:
    """Scores as numpy holds them: float32 or float64."""
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()  # numpy knows no bfloat16
    return scores.detach().cpu().numpy()


def check_numbers(scores: NDArray[np.floating], first: int = 0) -> None:
    """InvalidOption if a score is NaN: it compares as neither larger nor smaller, so it would count as a win."""
    if np.isnan(scores.max(axis=1, initial=-np.inf)).any():  # the maximum of a row with a NaN is NaN
        row = first + int(np.isnan(scores).any(axis=1).argmax())
        raise InvalidOption(
            f"scores of target {row:,} hold NaN; every score must be a number",
            hint="a model that gives NaN has usually diverged in training; lower its learning rate",
        )


def filters_of(queries: QuerySet, filter_graph: str) -> AnswerSets:
    """The true values of each target in the graph of that name; InvalidOption where the set does not hold them."""
    if filter_graph not in FILTER_GRAPHS:
        raise InvalidOption(f"filter_graph must be one of {', '.join(FILTER_GRAPHS)}. Got {filter_graph!r}")
    if filter_graph not in queries.filters:
        held = ", ".join(sorted(queries.filters)) or "none at all"
        raise InvalidOption(
            f"the query set holds no filters from the {filter_graph!r} graph; it holds {held}",
            hint="choose filters that it holds, or compute them: exact.answer_sets(graph, queries)",
        )
    return queries.filters[filter_graph]


def check_ids(model: QueryModel, **ids: NDArray[np.integer]) -> None:
    """Ids beyond the model's would be ranked wrongly or not at all: the queries belong to another graph."""
    for what, values in ids.items():
        if len(values) and values.max() >= model.entity_count:
            raise VocabularyMismatch(
                f"the model knows {model.entity_count:,} entities, but the queries hold {what.replace('_', ' ')} "
                f"{values.max():,}; they were made from different graphs"
            )
