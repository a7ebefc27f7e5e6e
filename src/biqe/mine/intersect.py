"""Walks that meet become DAG queries: branches into one intersection, and a tail out of it.

Paper: section "Datasets", second list. Walks are intersected at intermediate entities, two or three at a time;
what comes after the intersection is cut off; one random edge out of the intersection becomes the tail query.

One *pass* deals all visits of an entity by different walks into sets of two or three, each visit into one set.
More passes deal them anew, until there are as many queries as wanted; the same query is kept once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.mine.statistics import branch_lengths, source_nodes
from biqe.mine.walks import Keys, Walks, offsets, random_edges, signatures, unseen
from biqe.query.bound import KINDS, ROLES, TARGET, QuerySet, concatenate

BRANCHES = 3
"""Most branches of a DAG."""
_NONE, _TAIL, _INTERSECTION, _BRANCH = (ROLES.index(role) for role in ("none", "tail", "intersection", "branch"))


@dataclass(frozen=True)
class _Visits:
    """Places where walks may be cut: walk ``walk`` is at ``entity`` after ``length`` edges."""

    entity: NDArray[np.int32]
    walk: NDArray[np.int64]
    length: NDArray[np.int32]
    pattern: Keys
    """Source and relations of the branch that ends here."""
    branch: Keys
    """The same with the entities on the way."""


def dag_queries(
    graph: Graph,
    walks: Walks,
    *,
    count: int,
    rng: np.random.Generator,
    three_share: float = 0.4,
    equal_branches: bool = False,
    at_ends: bool = False,
    passes: int = 30,
) -> QuerySet:
    """``count`` different DAG queries out of ``walks``, or as many as ``passes`` passes give.

    Nodes of a query: each branch's source and the entities on its way, branch after branch; the intersection;
    the tail. Every branch has its own source node, even where two start from the same entity.

    ``three_share`` of the sets take three walks, the others two. ``equal_branches`` keeps a branch that asks
    what another branch of the same query asks (same source, same relations), as the authors' release does;
    by default it is left out. ``at_ends`` lets walks meet at their last entity, too: the paper says
    "intermediate", so the default is no.

    Walks that went both ways are intersected among themselves, in the share that they have in ``walks``, and
    their tail edge goes either way.
    """
    if count < 0:
        raise InvalidOption(f"count must be 0 or more. Got {count}")
    if not 0 <= three_share <= 1:
        raise InvalidOption(f"three_share must be between 0 and 1. Got {three_share}")
    if passes < 1:
        raise InvalidOption(f"passes must be 1 or more. Got {passes}")
    both = round(count * float(walks.both_ways.mean())) if len(walks) else 0
    parts = []
    seen = np.zeros(0, np.uint64)
    for both_ways, wanted in ((False, count - both), (True, both)):
        if wanted or not both_ways:
            some = walks.take(np.flatnonzero(walks.both_ways == both_ways))
            visits = _visits(graph, some, both_ways, at_ends)
            part, seen = _mine(graph, some, visits, wanted, rng, three_share, equal_branches, both_ways, passes, seen)
            parts.append(part)
    if len(parts) == 1:
        return parts[0]
    together = concatenate(parts)
    return together.take(rng.permutation(len(together)))


def distinct_depths(dags: QuerySet) -> QuerySet:
    """The DAGs with at most one unknown a depth, as the paper requires: of two at one depth the later node is given.

    The paper defines depth as the distance from the sources, and gives as its reason that two unknowns of one depth
    would have the same position; but its positions count from the tail. So neither distance occurs twice here. Only
    unknowns on the branches can clash: the intersection lies deeper than all of them, and the tail deeper still.
    """
    sources, lengths = source_nodes(dags), branch_lengths(dags)
    longest = int(lengths.max(initial=1))
    owner = np.searchsorted(dags.node_offsets, sources, side="right") - 1
    branch = np.arange(len(sources)) - np.searchsorted(owner, owner)  # number of the branch within its query
    from_source, from_tail = np.zeros((2, len(dags), longest + 1), bool)  # distances at which something is asked for
    nodes, roles = dags.nodes.copy(), dags.roles.copy()
    for number in range(int(branch.max(initial=-1)) + 1):
        for depth in range(1, longest):
            rows = np.flatnonzero((branch == number) & (lengths > depth))
            query, distance, node = owner[rows], lengths[rows] - depth, sources[rows] + depth
            clash = from_source[query, depth] | from_tail[query, distance]
            nodes[node[clash]], roles[node[clash]] = dags.gold[node[clash]], _NONE
            from_source[query[~clash], depth] = from_tail[query[~clash], distance[~clash]] = True
    return replace(dags, nodes=nodes, roles=roles)


def _visits(graph: Graph, walks: Walks, both_ways: bool, at_ends: bool) -> _Visits:
    """Every intermediate entity of every walk that has an edge for the tail, at the walk's first visit."""
    index = graph.index
    has_tail = np.diff(index.out_offsets) > 0
    if both_ways:
        has_tail |= np.diff(index.in_offsets) > 0
    parts = []
    for length in range(1, walks.entities.shape[1]):
        entity = walks.entities[:, length]
        last = walks.lengths if at_ends else walks.lengths - 1
        keep = (length <= last) & has_tail[entity]
        for before in range(1, length):
            keep &= walks.entities[:, before] != entity
        rows = np.flatnonzero(keep)
        source, relations = walks.entities[rows, :1], walks.relations[rows, :length]
        parts.append(
            _Visits(
                entity[rows],
                rows,
                np.full(len(rows), length, np.int32),
                signatures(source, relations),
                signatures(source, relations, walks.entities[rows, 1:length]),
            )
        )
    return _Visits(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Visits.__dataclass_fields__))


def _mine(
    graph: Graph,
    walks: Walks,
    visits: _Visits,
    count: int,
    rng: np.random.Generator,
    three_share: float,
    equal_branches: bool,
    both_ways: bool,
    passes: int,
    seen: Keys,
) -> tuple[QuerySet, Keys]:
    """Queries that are not among ``seen``, and ``seen`` with them."""
    parts: list[QuerySet] = []
    missing = count
    for _ in range(passes):
        sets = _deal(visits, rng, three_share)
        if not equal_branches:
            sets = _without_equal(visits, sets)
        sets = rng.permutation(sets[sets[:, 1] >= 0])
        meeting = visits.entity[sets[:, 0]]
        relation, tail = random_edges(
            graph.index, meeting, rng, relation_count=graph.relation_count, both_ways=both_ways
        )
        if both_ways:
            keep = ~_turns_back(graph, walks, visits, sets, relation, tail)
            sets, meeting, relation, tail = sets[keep], meeting[keep], relation[keep], tail[keep]
        branches = np.where(sets >= 0, visits.branch[sets], np.uint64(0))
        branches.sort(axis=1)  # the order of branches does not make another query
        fresh, seen = unseen(signatures(branches, meeting, relation, tail), seen)
        fresh = fresh[:missing]
        missing -= len(fresh)
        parts.append(_queries(walks, visits, sets[fresh], meeting[fresh], relation[fresh], tail[fresh]))
        if missing == 0:
            break
    return concatenate(parts), seen


def _deal(visits: _Visits, rng: np.random.Generator, three_share: float) -> NDArray[np.int64]:
    """(n, 3) visits of one entity in random sets of two or three, each visit in at most one; -1 for no third."""
    order = rng.permutation(len(visits.entity))
    order = order[np.argsort(visits.entity[order], kind="stable")]
    _, begin, visitors = np.unique(visits.entity[order], return_index=True, return_counts=True)
    # Sets of two would need half as many sizes as visits, so every entity draws that many and uses what it needs.
    drawn = (visitors + 1) // 2
    owner = np.repeat(np.arange(len(begin)), drawn)
    size = np.where(rng.random(len(owner)) < three_share, BRANCHES, 2)
    running = np.cumsum(size) - size
    first = running - running[np.cumsum(drawn) - drawn][owner]
    left = visitors[owner] - first
    place = (begin[owner] + first)[:, None] + np.arange(BRANCHES)
    inside = np.arange(BRANCHES) < np.minimum(size, left)[:, None]
    sets = np.where(inside, order[np.where(inside, place, 0)], -1)
    return sets[left >= 2]


def _without_equal(visits: _Visits, sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sets without visits whose branch asks the same as an earlier one of the set; gaps moved to the end."""
    sets = sets.copy()
    pattern = visits.pattern[sets]
    second = (sets[:, 1] >= 0) & (pattern[:, 1] == pattern[:, 0])
    third = (sets[:, 2] >= 0) & ((pattern[:, 2] == pattern[:, 0]) | (pattern[:, 2] == pattern[:, 1]))
    sets[third, 2] = -1
    sets[second, 1] = sets[second, 2]
    sets[second, 2] = -1
    return sets


def _turns_back(
    graph: Graph,
    walks: Walks,
    visits: _Visits,
    sets: NDArray[np.int64],
    relation: NDArray[np.int32],
    tail: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Whether the tail edge is the last edge of a branch, walked back."""
    walk, length = visits.walk[sets], visits.length[sets]
    same_end = walks.entities[walk, length - 1] == tail[:, None]
    opposite = np.abs(walks.relations[walk, length - 1] - relation[:, None]) == graph.relation_count
    return ((sets >= 0) & same_end & opposite).any(axis=1)


def _queries(
    walks: Walks,
    visits: _Visits,
    sets: NDArray[np.int64],
    meeting: NDArray[np.int32],
    relation: NDArray[np.int32],
    tail: NDArray[np.int32],
) -> QuerySet:
    """The columns of the queries, by way of one wide table: a row a query, ``longest`` places a branch."""
    queries, longest = len(sets), walks.relations.shape[1]
    places = BRANCHES * longest
    length = np.where(sets >= 0, visits.length[sets], 0)  # (Q, 3)
    walk = visits.walk[sets]
    in_branch = np.arange(longest) < length[:, :, None]  # (Q, 3, longest): places before the intersection

    gold = np.concatenate(
        [walks.entities[walk, :longest].reshape(queries, places), meeting[:, None], tail[:, None]], axis=1
    )
    is_node = np.concatenate([in_branch.reshape(queries, places), np.ones((queries, 2), bool)], axis=1)
    role = np.full((BRANCHES, longest), _BRANCH, np.int8)
    role[:, 0] = _NONE  # sources are given
    role_row = np.concatenate([role.ravel(), np.array([_INTERSECTION, _TAIL], np.int8)])
    roles = np.broadcast_to(role_row, is_node.shape)

    number = np.cumsum(is_node, axis=1) - 1  # the node's number within its query
    centre = number[:, -2]
    own = number[:, :-2].reshape(queries, BRANCHES, longest)
    ends = np.arange(longest) == length[:, :, None] - 1
    follows = np.where(ends, centre[:, None, None], own + 1)
    branch_edges = np.stack([own, walks.relations[walk], follows], axis=3).reshape(queries, places, 3)
    tail_edge = np.stack([centre, relation, number[:, -1]], axis=1)[:, None]
    edges = np.concatenate([branch_edges, tail_edge], axis=1)
    is_edge = np.concatenate([in_branch.reshape(queries, places), np.ones((queries, 1), bool)], axis=1)

    gold_column, roles_column = gold[is_node], roles[is_node]
    return QuerySet(
        offsets(is_node.sum(axis=1)),
        np.where(roles_column == _NONE, gold_column, TARGET).astype(np.int32),
        gold_column.astype(np.int32),
        roles_column,
        offsets(is_edge.sum(axis=1)),
        edges[is_edge].astype(np.int32),
        np.full(queries, KINDS.index("dag"), np.int8),
    )
