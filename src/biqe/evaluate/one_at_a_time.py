"""Predicting one target after the other, against predicting all of them in one shot.

Paper: section "Analysis" and the table "Predicting one entity at a time (and not jointly) hurts accuracy". The
targets of a query take turns, the one closest to the sources first: by depth, the longest way from a root, and by
node number where depths are equal (on a path there is one order; on a DAG this is one of several). At its turn a
target is ranked as usual, all later targets still being [MASK]; then the entity that the model puts first, right or
wrong, takes its place in the query, and the next target is asked for. A wrong early guess misleads the later ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.evaluate.loop import measure
from biqe.evaluate.protocol import Bootstrap, Figures, Summary
from biqe.evaluate.protocols import Cq, RankedTargets, average_targets
from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import (
    Progress,
    Skipped,
    at_rest,
    batch_size,
    batches,
    by_reason,
    check_shape,
    filters_of,
    nothing_ranked,
    supported,
)
from biqe.models._device import device_of, on_device
from biqe.query.bound import AnswerSets, QuerySet
from biqe.query.dag import analyse

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


@dataclass(frozen=True)
class OneAtATime:
    """The same targets of the same queries, predicted in two ways; averaged as in protocol ``cq``."""

    model: str
    filter_graph: str
    overall: Summary
    """Predicted one at a time; each target counts once."""
    joint: Summary
    """The same targets predicted in one shot."""
    by_position: dict[str, Summary]
    """One at a time, by position of the target."""
    by_turn: dict[str, Summary]
    """One at a time, by turn: ``1`` for the targets that were asked first."""
    joint_by_turn: dict[str, Summary]
    """The same targets in one shot. The first turn is the same both ways."""
    counts: dict[str, int]
    """``queries``, ``ranked_queries``, ``ranked_targets``."""
    skipped: tuple[Skipped, ...]
    """Queries that the model does not support, as a whole or with some of its targets filled in."""
    seconds: float
    queries_per_second: float
    """One at a time: queries, not turns."""

    @property
    def gap(self) -> dict[str, float]:
        """By metric, what is lost by predicting one at a time (ties realistic)."""
        one = self.overall.metrics["realistic"]
        return {metric: value - one[metric] for metric, value in self.joint.metrics["realistic"].items()}

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "one-at-a-time", **plain(self), "gap": self.gap}


def one_at_a_time(
    model: QueryModel,
    queries: QuerySet,
    *,
    filter_graph: str = "complete",
    batch_targets: int | None = None,
    bootstrap: int = 1000,
    progress: Progress | None = None,
) -> OneAtATime:
    """Both ways of predicting the targets of ``queries``, compared; filters and options as in ``evaluate``.

    Batched: turn i is asked for all queries that have more than i targets. ``progress`` counts queries times turns.
    """
    _, _, [measured] = measure(model, queries, [Cq(filter_graph)], batch_targets=batch_targets)
    joint = RankedTargets.join(measured)
    start = time.perf_counter()
    iterative, turn_of, refused = _in_turns(
        model, queries, filters_of(queries, filter_graph), batch_size(model, batch_targets), progress
    )
    seconds = time.perf_counter() - start
    numbers, ranks = iterative.targets, iterative.ranks
    owner = np.searchsorted(queries.target_offsets, numbers, side="right") - 1
    kept = np.flatnonzero(~np.isin(owner, np.array(list(refused), np.int64)))
    if len(kept) == 0:
        raise nothing_ranked(len(queries), by_reason(refused), "predicted one at a time")
    numbers, owner, turn_of, ranks = numbers[kept], owner[kept], turn_of[kept], ranks.take(kept)
    joint_ranks = joint.ranks.take(np.searchsorted(joint.targets, numbers))

    def figures(ranks: Ranks, members: NDArray[np.int64]) -> Figures:
        roles, kinds = queries.roles[queries.target_nodes[numbers[members]]], queries.kinds[owner[members]]
        return average_targets(ranks.take(members), owner[members], roles, kinds, Bootstrap(bootstrap))

    everything = np.arange(len(numbers))
    whole = figures(ranks, everything)
    turns = {str(turn + 1): np.flatnonzero(turn_of == turn) for turn in np.unique(turn_of).tolist()}
    return OneAtATime(
        model=model.name,
        filter_graph=filter_graph,
        overall=whole.overall,
        joint=figures(joint_ranks, everything).overall,
        by_position=whole.by_position,
        by_turn={turn: figures(ranks, members).overall for turn, members in turns.items()},
        joint_by_turn={turn: figures(joint_ranks, members).overall for turn, members in turns.items()},
        counts={"queries": len(queries), "ranked_queries": len(np.unique(owner)), "ranked_targets": len(numbers)},
        skipped=by_reason(refused),
        seconds=seconds,
        queries_per_second=len(np.unique(owner)) / seconds,
    )


def _in_turns(
    model: QueryModel, queries: QuerySet, filters: AnswerSets, size: int, progress: Progress | None
) -> tuple[RankedTargets, NDArray[np.int64], dict[int, str]]:
    """Ranks of the targets with a gold entity, the turn of each, and the queries that were refused on the way."""
    gold = queries.gold[queries.target_nodes]
    rows, refused = supported(model, queries, strict=False)
    turns, orders = _orders(queries, rows)
    nodes = queries.nodes.copy()
    total, done = int(np.diff(queries.target_offsets)[rows].sum()), 0

    ranked: list[RankedTargets] = []
    with at_rest(model):
        for turn in range(turns):
            rows = rows[[len(orders[row]) > turn for row in rows.tolist()]]
            if len(rows) == 0:
                break
            asked = replace(queries, nodes=nodes, filters={}).take(rows)
            able, newly_refused = supported(model, asked, strict=False)
            refused |= {
                int(rows[place]): f"after {turn} of its targets was filled in: {reason}"
                for place, reason in newly_refused.items()
            }
            rows, asked = rows[able], asked.take(able)
            if len(rows) == 0:
                break
            encoded = model.encode(asked)
            left = np.diff(asked.target_offsets)  # targets not yet filled in
            for part in batches(np.asarray(encoded.sizes), left, size):
                scores = model.scores(on_device(encoded.batch(part), device_of(model)))
                check_shape(model, scores, int(left[part].sum()))
                numbers = np.array([orders[row][turn] for row in rows[part].tolist()])  # in the set's target order
                places = np.cumsum(left[part]) - left[part] + _places(nodes, queries, rows[part], numbers)
                own = scores[torch.from_numpy(places).to(scores.device)].cpu()  # (queries, E)
                known = np.flatnonzero(gold[numbers] >= 0)
                targets = numbers[known]
                ranks = rank_targets(own[torch.from_numpy(known)], gold[targets], filters.take(targets))
                ranked.append(RankedTargets(targets, ranks))
                # Later batches of this turn hold other queries, so their nodes may be filled in already now.
                nodes[queries.target_nodes[numbers]] = own.argmax(1).numpy().astype(nodes.dtype)
                done += len(part)
                if progress is not None:
                    progress(done, total)

    found = RankedTargets.join(ranked)
    its_turn = {number: turn for order in orders.values() for turn, number in enumerate(order)}
    return found, np.array([its_turn[number] for number in found.targets.tolist()], np.int64), refused


def _orders(queries: QuerySet, rows: NDArray[np.int64]) -> tuple[int, dict[int, list[int]]]:
    """The largest number of turns, and the targets of each query, as numbers in the set, closest to a source first."""
    first = queries.target_offsets
    orders: dict[int, list[int]] = {}
    for row in rows.tolist():
        query = queries[row]
        depths = analyse(query).depths
        # A cyclic query has no depths; then the order of nodes is taken.
        closest = sorted(
            range(len(query.targets)), key=lambda place: (depths[query.targets[place]] if depths else 0, place)
        )
        orders[row] = [int(first[row]) + place for place in closest]
    return max(map(len, orders.values()), default=0), orders


def _places(
    nodes: NDArray[np.int32], queries: QuerySet, rows: NDArray[np.int64], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the target stands among those of its query that are not yet filled in."""
    first = queries.target_offsets[rows]
    targets = queries.target_nodes
    return np.array(
        [
            np.count_nonzero(nodes[targets[start:number]] < 0)
            for start, number in zip(first.tolist(), numbers.tolist(), strict=True)
        ],
        np.int64,
    )
