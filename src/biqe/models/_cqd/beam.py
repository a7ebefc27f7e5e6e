"""Joint assignments of all variables of a query, the best of them first.

A beam goes through the variables, each after those that lead to it. A state is an assignment of the variables so
far; its truth is the t-norm of the links so far. Every state is continued by every entity, and the ``width`` best
are kept. Two states that agree on all targets and on all variables that still lead on can only be continued alike,
so the better one is kept: hidden variables are maximised out as soon as that is possible.

What else is known of the targets may go ``beside`` the links: a (V, E) table of logarithms that are added wherever a
target is filled.
"""

from __future__ import annotations

import numpy as np
import torch

from biqe.models._contract import Tuples
from biqe.models._cqd.links import SURE, Links
from biqe.models._cqd.max_product import CHUNK_BYTES, after_the_best, best, combine, constants, link_table, nothing_said
from biqe.models._cqd.structures import Batch, Group, Structure

SPARE = 4
"""So many times the width are looked at where some of them may prove to be equal."""


def beam_marginals(
    group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None = None
) -> torch.Tensor:
    """(b, targets, E) the truth of the best complete assignment found with an entity at a target. Entities that no
    state holds follow below, in the order in which they were seen when the target was filled. Exact where ``width``
    exceeds the number of assignments of all variables but the last."""
    parts = group.chunks(_chunk_size(links, width))
    return torch.cat([_marginals(part, links, t_norm, width, beside) for part in parts])


def joint_tuples(
    batch: Batch,
    links: Links,
    t_norm: str,
    width: int,
    count: int,
    beside: torch.Tensor | None = None,
    *,
    width_a_pair: int = 0,
    leave_out_held: bool = False,
) -> list[Tuples]:
    """The ``count`` best tuples of the targets of each query, all different, from a beam of ``width`` states; and of
    ``width_a_pair`` for each ordered pair of targets, where that is more. ``leave_out_held``: without
    assignments all of whose links are sure."""
    queries = sum(len(group) for group in batch.groups)
    found = [Tuples(np.zeros((0, 0), np.int32), np.zeros(0))] * queries
    for group in batch.groups:
        order, targets = group.structure.order, len(group.structure.targets)
        kept = max(width, width_a_pair * targets * (targets - 1))
        columns = [order.index(target) for target in group.structure.targets]
        for part in group.chunks(_chunk_size(links, kept)):
            *_, states, total = _all_but_last(part, links, t_norm, kept, beside, leave_out_held)
            states, truth, _ = _kept(part.structure, len(order) - 1, states, total, max(kept, count))
            states, truth = states[:, :count], truth[:, :count]
            for query, rows, own in zip(
                part.queries.tolist(), states[:, :, columns].numpy(), truth.numpy(), strict=True
            ):
                real = np.isfinite(own)
                found[query] = Tuples(rows[real].astype(np.int32), own[real].astype(np.float64))
    return found


def _chunk_size(links: Links, width: int) -> int:
    return max(1, CHUNK_BYTES // (4 * links.entity_count * min(width, links.entity_count)))


def _all_but_last(
    group: Group,
    links: Links,
    t_norm: str,
    width: int,
    beside: torch.Tensor | None = None,
    leave_out_held: bool = False,
) -> tuple[dict[int, torch.Tensor], torch.Tensor, torch.Tensor]:
    """What each variable may be when it is filled, (b, E); the states of all variables but the last; and the truth of
    every state continued by every entity, (b, s, E), that of assignments of sure links perhaps left out."""
    order = group.structure.order
    states = torch.zeros(len(group), 1, 0, dtype=torch.int64)
    truth = torch.full((len(group), 1), nothing_said(t_norm))
    held = torch.ones(len(group), 1, dtype=torch.bool)  # whether all links of a state are sure
    first: dict[int, torch.Tensor] = {}
    for place, node in enumerate(order):
        linked = _continued(group, node, states, links, t_norm)
        total = combine(t_norm, linked, truth.unsqueeze(2))
        if beside is not None and node in group.structure.targets:
            total = combine(t_norm, total, beside[group.rows[:, group.structure.targets.index(node)]].unsqueeze(1))
        first[node] = total.amax(1)
        if place + 1 < len(order):
            states, truth, where = _kept(group.structure, place, states, total, width)
            if leave_out_held:
                before = where.div(total.shape[2], rounding_mode="floor")
                held = held.gather(1, before) & (linked.expand_as(total).flatten(1).gather(1, where) == SURE)
        elif leave_out_held:
            total = total.masked_fill(held.unsqueeze(2) & (linked == SURE), float("-inf"))
    return first, states, total


def _marginals(group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None) -> torch.Tensor:
    order = group.structure.order
    first, states, total = _all_but_last(group, links, t_norm, width, beside)
    completed = total.amax(2)  # (b, s) the truth of each state with the best last entity
    marginals = [
        first[target]
        if target == order[-1]
        else after_the_best(first[target], states[:, :, order.index(target)], completed)
        for target in group.structure.targets
    ]
    return torch.stack(marginals, 1)


def _continued(group: Group, node: int, states: torch.Tensor, links: Links, t_norm: str) -> torch.Tensor:
    """(b, s, E) truth of the links that join every state, (b, s, variables), to every entity at ``node``; (b, 1, E)
    where none leads there from a variable."""
    structure = group.structure
    total = constants(group, node, links, t_norm).unsqueeze(1)  # (b, 1, E)
    for parent in structure.parents(node):
        held = states[:, :, structure.order.index(parent)]
        total = combine(t_norm, _links_of(group, parent, node, held, links, t_norm), total)
    return total


def _links_of(group: Group, start: int, end: int, held: torch.Tensor, links: Links, t_norm: str) -> torch.Tensor:
    """(b, s, E) links from the entities ``held``, (b, s). Many states of a query may hold the same one, which is looked
    at once."""
    if len(held) > 1:
        return link_table(group, start, end, held, links, t_norm)
    different, which = held[0].unique(return_inverse=True)
    return link_table(group, start, end, different.unsqueeze(0), links, t_norm)[:, which]


def _kept(
    structure: Structure, place: int, states: torch.Tensor, total: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The best continued states, (b, k, variables), their truth, (b, k), and where in (s, E) they stand, (b, k)."""
    matters = _matters(structure, place)
    may_repeat = len(matters) <= place
    truth, where = best(total.flatten(1), SPARE * width if may_repeat else width)
    before = where.div(total.shape[2], rounding_mode="floor")
    states = torch.cat([_states(states, before), (where % total.shape[2]).unsqueeze(2)], 2)
    if may_repeat:
        truth = truth.masked_fill(_repeated(states[:, :, matters]), float("-inf"))
        truth, kept = truth.topk(min(width, truth.shape[1]), 1)
        states, where = _states(states, kept), where.gather(1, kept)
    return states, truth, where


def _states(states: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """(b, k, variables) the states ``rows``, (b, k)."""
    return states.gather(1, rows.unsqueeze(2).expand(-1, -1, states.shape[2]))


def _matters(structure: Structure, place: int) -> list[int]:
    """Places of the variables so far that are targets or lead on to variables still to come."""
    to_come = set(structure.order[place + 1 :])
    return [
        number
        for number, node in enumerate(structure.order[: place + 1])
        if node in structure.targets or to_come & set(structure.children(node))
    ]


def _repeated(columns: torch.Tensor) -> torch.Tensor:
    """(b, s) whether an earlier state has the same entities in all columns of (b, s, c)."""
    repeated = torch.ones(columns.shape[:2], dtype=torch.bool)
    for number, rows in enumerate(columns.numpy()):
        repeated[number, np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated
