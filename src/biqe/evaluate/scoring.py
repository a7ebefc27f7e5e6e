"""From queries to scores, as every evaluation needs them: samples, what a model supports, batches, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult, InvalidOption, RunFailed, TooManyPaths, VocabularyMismatch
from biqe.models._contract import raw_scores
from biqe.models._device import device_of, on_device
from biqe.query.bound import AnswerSets, QuerySet, members

if TYPE_CHECKING:
    from biqe.models._contract import Encoded, QueryModel

FILTER_GRAPHS = ("complete", "split", "reach", "seen")
"""Whose true values are left out: docs/concepts/protocols.md. ``seen`` is train and valid, as while a run is
validated."""
SCORE_BYTES = 32 << 20
"""Scores held at once, where the caller does not say how many targets to score in one go."""
MOST_BATCH_TARGETS = 1024
_EXAMPLES = 5

Progress = Callable[[int, int], None]
"""Called after each batch with the number of queries done and their total."""
Queries = TypeVar("Queries", bound=QuerySet | ShapedQueries | TupleQuestions)


@dataclass(frozen=True)
class Skipped:
    """Queries that were not ranked, for one reason."""

    reason: str
    queries: int
    examples: tuple[int, ...]
    """Numbers of the first few, from 0."""


def by_reason(refused: dict[int, str]) -> tuple[Skipped, ...]:
    """Refused queries, grouped by reason, in the order of their numbers."""
    grouped: dict[str, list[int]] = {}
    for number, reason in sorted(refused.items()):
        grouped.setdefault(reason, []).append(number)
    return tuple(Skipped(reason, len(found), tuple(found[:_EXAMPLES])) for reason, found in grouped.items())


def nothing_ranked(queries: int, skipped: tuple[Skipped, ...], verb: str = "ranked") -> EmptyResult:
    """The error to raise where all queries were skipped."""
    reasons = "; ".join(f"{part.queries:,} queries: {part.reason}" for part in skipped)
    return EmptyResult(f"none of {queries:,} queries could be {verb}. {reasons}".rstrip(" ."))


# Which queries


def sample(queries: Queries, limit: int, seed: int = 0) -> Queries:
    """At most ``limit`` questions of each shape, or queries of each kind, or questions of each file, without
    replacement, in their old order."""
    if isinstance(queries, ShapedQueries):
        groups = queries.shape
    else:
        groups = queries.set_of if isinstance(queries, TupleQuestions) else queries.kinds
    return queries.take(sample_groups(groups, limit, seed))  # type: ignore[return-value]


def sample_groups(groups: NDArray[np.integer], limit: int, seed: int = 0) -> NDArray[np.int64]:
    """Places of at most ``limit`` members of each group, ascending.

    >>> sample_groups(np.array([0, 0, 0, 1]), 2).tolist()
    [0, 2, 3]
    """
    if limit < 1:
        raise InvalidOption(f"the limit of a sample must be at least 1. Got {limit}")
    rng = np.random.default_rng(seed)
    chosen = [np.zeros(0, np.int64)]
    for group in np.unique(groups).tolist():
        chosen.append(rng.permutation(np.flatnonzero(groups == group))[:limit])
    return np.sort(np.concatenate(chosen))


def supported(model: QueryModel, queries: QuerySet, strict: bool) -> tuple[NDArray[np.int64], dict[int, str]]:
    """Numbers of the queries to rank, and the reason of each that the model refuses.

    A model is asked once for each structure: which nodes are constants, targets or hidden, and how edges, forward
    or inverse, join them. Which entities and relations they are does not change what it can read.
    """
    answered: dict[tuple[bytes, bytes, bytes], str | None] = {}
    rows: list[int] = []
    refused: dict[int, str] = {}
    kinds = np.minimum(queries.nodes, 0)
    edges = queries.edges.copy()
    edges[:, 1] = edges[:, 1] >= model.relation_count
    for row in range(len(queries)):
        nodes = slice(queries.node_offsets[row], queries.node_offsets[row + 1])
        own = slice(queries.edge_offsets[row], queries.edge_offsets[row + 1])
        negated = b"" if queries.negated is None else queries.negated[own].tobytes()
        key = (kinds[nodes].tobytes(), edges[own].tobytes(), negated)
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
    if query.negated and not getattr(model, "solves_negation", False):
        return f"{model.name} has no negation"
    try:
        support = model.supports(query, strict=strict)
    except TooManyPaths as error:
        return error.message
    return None if support.yes else support.reason


def supported_questions(
    model: QueryModel, shaped: ShapedQueries, refused: dict[int, str], strict: bool
) -> tuple[NDArray[np.int64], tuple[Skipped, ...]]:
    """Questions all of whose rows the model supports and that are not ``refused`` already; the others by reason."""
    _check_rows(shaped)
    _, refused_rows = supported(model, shaped.rows, strict)
    refused = dict(refused)
    for row, reason in refused_rows.items():
        refused.setdefault(int(shaped.owner[row]), reason)
    for question in np.setdiff1d(np.arange(len(shaped)), shaped.owner).tolist():
        refused.setdefault(question, "no row to ask")
    asked = np.setdiff1d(np.arange(len(shaped)), np.array(list(refused), np.int64))
    return asked, by_reason(refused)


def _check_rows(shaped: ShapedQueries) -> None:
    targets = np.diff(shaped.rows.target_offsets)
    if (targets > 1).any():
        row = int(np.argmax(targets > 1))
        raise InvalidOption(
            f"a row of a question has exactly one target; row {row:,} has {targets[row]}",
            hint="queries with several targets are evaluated with protocol cq",
        )
    owner = shaped.owner
    if len(owner) and ((np.diff(owner) < 0).any() or owner[0] < 0 or owner[-1] >= len(shaped)):
        raise InvalidOption(
            f"owners of rows must rise within [0, {len(shaped):,}): the rows of a question stand together. "
            f"Got {owner.min()} to {owner.max()}"
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
    """VocabularyMismatch where ids are beyond the model's: the queries belong to another graph."""
    for what, values in ids.items():
        if len(values) and values.max() >= model.entity_count:
            raise VocabularyMismatch(
                f"the model knows {model.entity_count:,} entities, but the queries hold {what.replace('_', ' ')} "
                f"{values.max():,}; they were made from different graphs"
            )


# Their scores


@contextmanager
def at_rest(model: QueryModel) -> Iterator[None]:
    """The model in evaluation mode and without gradients; afterwards its mode is restored."""
    training = model.training
    model.eval()
    try:
        # no_grad and not inference_mode: buffers that a model keeps must stay usable in training.
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def score_batches(
    model: QueryModel,
    queries: QuerySet | ShapedQueries,
    asked: NDArray[np.int64],
    *,
    batch_targets: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.floating]]]:
    """Scores of the queries ``asked``, batch by batch: numbers and an (n, E) array with one row for each.

    The numbers are those of targets in a QuerySet, and those of questions in ShapedQueries. A question is a
    disjunction of conjunctive rows (a single row for all shapes but unions), and its score of an entity is the largest
    that any of its rows gives: an entity answers a disjunction if it answers one of its parts. Query2Box calls this
    the disjunctive normal form and takes the smallest distance. Rows of a union are compared by raw scores: a row with
    many answers spreads its probability over them, and would lose to a row with few by log-probabilities.

    The model must be in evaluation mode. ``batch_targets`` is the number of targets scored in one go.
    """
    size, device = batch_size(model, batch_targets), device_of(model)
    part = queries.take(asked)
    if len(part) == 0:
        return
    rows, owner = (part.rows, part.owner) if isinstance(part, ShapedQueries) else (part, np.arange(len(part)))
    encoded = model.encode(replace(rows, filters={}))  # a model never sees the answers
    sizes = np.asarray(encoded.sizes)
    first = np.searchsorted(owner, np.arange(len(part) + 1))  # (Q+1,) slice of each question's rows
    is_union = np.diff(first) > 1
    targets = np.diff(rows.target_offsets)
    # Queries whose rows are equally large side by side: the largest row of each, then its smallest. Unions apart.
    largest, smallest = np.maximum.reduceat(sizes, first[:-1]), np.minimum.reduceat(sizes, first[:-1])
    _, kinds = np.unique(np.stack([largest, smallest, is_union], 1), axis=0, return_inverse=True)
    done = 0
    for chosen in batches(kinds.ravel(), np.add.reduceat(targets, first[:-1]), size):
        owner_of, chosen_rows = members(first, chosen)
        if is_union[chosen[0]]:
            scores = as_array(_union_scores(model, encoded, sizes, chosen_rows))
            scores = np.maximum.reduceat(scores, np.searchsorted(owner_of, np.arange(len(chosen))), axis=0)
        else:
            tensor = model.scores(on_device(encoded.batch(chosen_rows), device))
            check_shape(model, tensor, int(targets[chosen_rows].sum()))
            scores = as_array(tensor)
        numbers = asked[chosen]
        yield numbers if isinstance(queries, ShapedQueries) else members(queries.target_offsets, numbers)[1], scores
        done += len(chosen)
        if progress is not None:
            progress(done, len(part))


def _union_scores(
    model: QueryModel, encoded: Encoded, sizes: NDArray[np.integer], rows: NDArray[np.int64]
) -> torch.Tensor:
    """(rows, E) raw scores of rows with one target each, a batch for each size among the rows."""
    scores = torch.empty(len(rows), model.entity_count)
    for size in np.unique(sizes[rows]):
        places = np.flatnonzero(sizes[rows] == size)
        found = raw_scores(model, on_device(encoded.batch(rows[places]), device_of(model)))
        check_shape(model, found, len(places))
        scores[torch.from_numpy(places)] = found.to(scores)
    return scores


def batch_size(model: QueryModel, batch_targets: int | None) -> int:
    """Targets to score in one go: as asked, or as many as fit in SCORE_BYTES."""
    if batch_targets is None:
        return min(MOST_BATCH_TARGETS, max(1, SCORE_BYTES // (4 * model.entity_count)))
    if batch_targets < 1:
        raise InvalidOption(f"batch_targets must be at least 1. Got {batch_targets}")
    return batch_targets


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
