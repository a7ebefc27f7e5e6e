"""The best joint assignments of all variables of a query.

A beam goes through the variables, each after those that lead to it. A state is an assignment of the variables so
far; its truth is the t-norm of the links so far. Every state is continued by every entity, and the ``width`` best
are kept, and beside them all whose links are certain. Two states that agree on all targets and on all variables that
still lead on can only be continued alike, so the better one is kept: hidden variables are maximised out as soon as
that is possible, and the entities that they had in the best assignment stay with the state.

A (V, E) table ``beside`` of logarithms, such as an encoder's, is added wherever a target is filled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.links.max_product import (
    CHUNK_BYTES,
    after_the_best,
    combine,
    constants,
    keep,
    link_table,
    most_certain,
    neutral,
    without_negated,
)
from biqe.links.structures import Batch, Group, Structure
from biqe.links.truth import CERTAIN, Links

NEGATED_WIDTH = 64
"""Entities that are kept of the variables of a negated part."""
SPARE = 4
"""Where some of the best states may prove to be equal, this many times the width are looked at."""


def _no_assignments() -> NDArray[np.int32]:
    return np.zeros((0, 0), np.int32)


@dataclass(frozen=True)
class Tuples:
    """Joint answers of one query: k rows over its targets, best first."""

    rows: NDArray[np.int32]
    """(k, targets) entities, in the order of the query's nodes."""
    scores: NDArray[np.float64]
    """(k,) natural logarithms, up to a constant of the query."""
    variables: tuple[int, ...] = ()
    """Nodes of the query that are variables, hidden ones included, ascending; empty where no assignments are known."""
    assignments: NDArray[np.int32] = field(default_factory=_no_assignments)
    """(k, variables) the witness of each row: entities of all variables in its best assignment."""


def beam_marginals(
    group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None = None
) -> torch.Tensor:
    """(b, targets, E) the truth of the best complete assignment found with an entity at a target. Entities that no
    state holds follow below, in the order of their truth when the target was filled. Exact where ``width`` exceeds the
    number of assignments of all variables but the last."""
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
    width_per_pair: int = 0,
    only_missing: bool = False,
) -> list[Tuples]:
    """The ``count`` best tuples of the targets of each query, all different, each with its best assignment, from a beam
    of ``width`` states, or of ``width_per_pair`` for each ordered pair of targets, where that is more.
    ``only_missing`` leaves out tuples with an assignment all of whose links are certain: the graph holds these."""
    queries = sum(len(group) for group in batch.groups)
    found = [Tuples(np.zeros((0, 0), np.int32), np.zeros(0))] * queries
    for group in batch.groups:
        order, targets = group.structure.order, len(group.structure.targets)
        kept = max(width, width_per_pair * targets * (targets - 1))
        variables = tuple(sorted(order))
        columns = [order.index(node) for node in variables]
        asked = [variables.index(target) for target in group.structure.targets]
        for part in group.chunks(_chunk_size(links, kept)):
            _, states, total, certain = _all_but_last(part, links, t_norm, kept, beside)
            wanted = max(kept, count)
            states, truth, where = _kept(
                part.structure, len(order) - 1, states, total, wanted, certain, most_certain(links)
            )
            if certain is not None:
                if only_missing:
                    truth = truth.masked_fill(certain.expand_as(total).flatten(1).gather(1, where), float("-inf"))
                truth, sorted_ = truth.sort(1, descending=True)
                states = _states(states, sorted_)
            every = states[:, :count].cpu().numpy()[:, :, columns].astype(np.int32)  # (b, k, variables)
            for query, rows, own in zip(part.queries.tolist(), every, truth[:, :count].cpu().numpy(), strict=True):
                real = np.isfinite(own)
                assigned = rows[real]
                found[query] = Tuples(assigned[:, asked], own[real].astype(np.float64), variables, assigned)
    return found


def _chunk_size(links: Links, width: int) -> int:
    return max(1, CHUNK_BYTES // (4 * links.entity_count * min(width + most_certain(links), links.entity_count)))


def _all_but_last(
    group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None
) -> tuple[dict[int, torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(b, E) truths of the entities of each variable when it is filled; the states of all variables but the last;
    (b, s, E) the truth of every state continued by every entity; and (b, s or 1, E) whether all links of it are
    certain, None where no links are."""
    order, device = group.structure.order, group.entities.device
    states = torch.zeros(len(group), 1, 0, dtype=torch.int64, device=device)
    truth = torch.full((len(group), 1), neutral(t_norm), device=device)
    held = torch.ones(len(group), 1, dtype=torch.bool, device=device)  # whether all links of a state are certain
    first: dict[int, torch.Tensor] = {}
    for place, node in enumerate(order):
        linked = _continued(group, node, states, links, t_norm)
        total = combine(t_norm, linked, truth.unsqueeze(2))
        if beside is not None and node in group.structure.targets:
            total = combine(t_norm, total, beside[group.rows[:, group.structure.targets.index(node)]].unsqueeze(1))
        first[node] = total.amax(1)
        certain = held.unsqueeze(2) & (linked == CERTAIN) if links.certain else None  # (b, s, E)
        if place + 1 < len(order):
            states, truth, where = _kept(group.structure, place, states, total, width, certain, most_certain(links))
            if certain is not None:
                held = certain.expand_as(total).flatten(1).gather(1, where) & truth.isfinite()
    return first, states, total, certain


def _marginals(group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None) -> torch.Tensor:
    order = group.structure.order
    first, states, total, _ = _all_but_last(group, links, t_norm, width, beside)
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
    where only constants lead there."""
    structure = group.structure
    total = constants(group, node, links, t_norm)
    total = without_negated(group, node, links, t_norm, NEGATED_WIDTH, total).unsqueeze(1)  # (b, 1, E)
    for parent in structure.parents(node):
        held = states[:, :, structure.order.index(parent)]
        total = combine(t_norm, _links_of(group, parent, node, held, links, t_norm), total)
    return total


def _links_of(group: Group, start: int, end: int, held: torch.Tensor, links: Links, t_norm: str) -> torch.Tensor:
    """(b, s, E) links from the entities ``held``, (b, s). Many states of one query may hold the same entity, whose
    links are then computed once."""
    if len(held) > 1:
        return link_table(group, start, end, held, links, t_norm)
    different, which = held[0].unique(return_inverse=True)
    return link_table(group, start, end, different.unsqueeze(0), links, t_norm)[:, which]


def _kept(
    structure: Structure,
    place: int,
    states: torch.Tensor,
    total: torch.Tensor,
    width: int,
    certain: torch.Tensor | None = None,
    most: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The continued states that are kept, (b, k, variables), their truth, (b, k), and where in (s, E) they stand,
    (b, k): all that are ``certain``, (b, s, E), up to ``most``, and the ``width`` best of the others."""
    matters = _matters(structure, place)
    may_repeat = len(matters) <= place
    if certain is not None:
        certain = certain.expand_as(total).flatten(1)
    truth, where = keep(total.flatten(1), SPARE * width if may_repeat else width, certain, most)
    if certain is not None:  # best first, so that of equal states the better one comes first
        truth, order = truth.sort(1, descending=True)
        where = where.gather(1, order)
    before = where.div(total.shape[2], rounding_mode="floor")
    states = torch.cat([_states(states, before), (where % total.shape[2]).unsqueeze(2)], 2)
    if may_repeat:
        truth = truth.masked_fill(_repeated(states[:, :, matters]), float("-inf"))
        truth, kept = keep(truth, width, None if certain is None else certain.gather(1, where), most)
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
    for number, rows in enumerate(columns.cpu().numpy()):
        repeated[number, np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated.to(columns.device)
