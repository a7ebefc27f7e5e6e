"""Random walks through a graph, and walks as path queries. DAGs are made of walks, too (intersect.py).

Paper: section "Datasets", first list. From every node, a depth is drawn uniformly from 2 to 5, then a random
edge is followed until that depth is reached. A walk that comes to an entity without a way on never reaches its
depth and is dropped. Where more walks are wanted than there are nodes, every node is tried again, in a new
order, round after round; the same walk is kept once. A path query gives the source of a walk and asks for "all
entities except the source entity".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.index import Index
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import KINDS, ROLES, TARGET, QuerySet

DEPTHS = (2, 5)
"""Shortest and longest walk of the paper, in edges."""

_ROUNDS = 200
"""Rounds over all starts after which a graph is taken to have no more walks to give."""
_BARREN_ROUNDS = 12
"""Rounds in a row without one new walk that end the search earlier."""
_ROUND = 1024
"""Walks of a later round, at least: where starts are few, each is tried several times."""
_NONE, _TAIL, _BRANCH = ROLES.index("none"), ROLES.index("tail"), ROLES.index("branch")


@dataclass(frozen=True)
class Walks:
    """Walks as rows. A walk of length L has L+1 entities and L relations; the rest of its row is -1."""

    entities: NDArray[np.int32]
    """(n, longest + 1)"""
    relations: NDArray[np.int32]
    """(n, longest); ids of 2R, where R..2R-1 are edges walked against their direction."""
    lengths: NDArray[np.int32]
    """(n,) edges of each walk."""
    both_ways: NDArray[np.bool_]
    """(n,) whether the walk was free to go against the direction of edges."""

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: NDArray[np.integer] | slice) -> Walks:
        """The walks ``rows``, in this order."""
        return Walks(self.entities[rows], self.relations[rows], self.lengths[rows], self.both_ways[rows])


def walks(
    graph: Graph,
    *,
    count: int,
    rng: np.random.Generator,
    depths: tuple[int, int] = DEPTHS,
    starts: NDArray[np.integer] | None = None,
    inverse_share: float = 0.0,
) -> Walks:
    """``count`` different random walks, or as many as the graph gives in a bounded number of rounds.

    ``starts`` are the entities to walk from; by default all that have a way out. A share ``inverse_share`` of
    the walks goes both ways: each step takes one of the edges out of and into the entity, all equally likely,
    but never straight back along the edge it came by.

    >>> from biqe.graph.knowledge_graph import Graph
    >>> from biqe.graph.triples import as_triples
    >>> from biqe.graph.vocabulary import Vocabulary
    >>> chain = Graph(Vocabulary("abc", "r"), as_triples([(0, 0, 1), (1, 0, 2)]))
    >>> walks(chain, count=10, rng=np.random.default_rng(0)).entities[:, :3].tolist()
    [[0, 1, 2]]
    """
    _check(graph, count, depths, starts, inverse_share)
    both = round(count * inverse_share)
    forward, seen = _walks(graph, count - both, rng, depths, starts, np.zeros(0, np.uint64), both_ways=False)
    if not both:
        return forward
    free, _ = _walks(graph, both, rng, depths, starts, seen, both_ways=True)
    together = _join([forward, free])
    return together.take(rng.permutation(len(together)))


def path_queries(walks: Walks) -> QuerySet:
    """One query a walk: nodes in the order of the walk, node 0 the source, the last one the tail.

    A path has no intersection, so the targets before the tail have role ``branch``.
    """
    column = np.arange(walks.entities.shape[1])
    lengths = walks.lengths[:, None]
    is_node = column <= lengths
    is_edge = column[:-1] < lengths
    gold = walks.entities[is_node]
    place = np.broadcast_to(column, is_node.shape)[is_node]
    last = np.repeat(walks.lengths, walks.lengths + 1)
    step = np.broadcast_to(column[:-1], is_edge.shape)[is_edge]
    return QuerySet(
        offsets(walks.lengths + 1),
        np.where(place == 0, gold, TARGET).astype(np.int32),
        gold,
        np.where(place == 0, _NONE, np.where(place == last, _TAIL, _BRANCH)).astype(np.int8),
        offsets(walks.lengths),
        np.stack([step, walks.relations[is_edge], step + 1], axis=1).astype(np.int32),
        np.full(len(walks), KINDS.index("path"), np.int8),
    )


def offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """(n+1,) where slices of these lengths begin and end."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


def random_edges(
    index: Index, entities: NDArray[np.integer], rng: np.random.Generator, *, relation_count: int, both_ways: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Relation and far end of one random edge of each entity; -1 and -1 where it has none."""
    out_degree = index.out_offsets[entities + 1] - index.out_offsets[entities]
    degree = out_degree
    if both_ways:
        degree = out_degree + index.in_offsets[entities + 1] - index.in_offsets[entities]
    pick = (rng.random(len(entities)) * degree).astype(np.int64)
    relations, ends = np.full(len(entities), -1, np.int32), np.full(len(entities), -1, np.int32)
    forward = np.flatnonzero(pick < out_degree)
    places = index.out_offsets[entities[forward]] + pick[forward]
    relations[forward], ends[forward] = index.out_relations[places], index.out_objects[places]
    if both_ways:
        backward = np.flatnonzero((pick >= out_degree) & (degree > 0))
        places = index.in_offsets[entities[backward]] + pick[backward] - out_degree[backward]
        relations[backward] = index.in_relations[places] + relation_count
        ends[backward] = index.in_subjects[places]
    return relations, ends


def _walks(
    graph: Graph,
    count: int,
    rng: np.random.Generator,
    depths: tuple[int, int],
    starts: NDArray[np.integer] | None,
    seen: Keys,
    *,
    both_ways: bool,
) -> tuple[Walks, Keys]:
    """``count`` walks that are not among ``seen``, and ``seen`` with them."""
    index = graph.index
    ways_on = np.diff(index.out_offsets) > 0
    if both_ways:
        ways_on |= np.diff(index.in_offsets) > 0
    starts = np.flatnonzero(ways_on) if starts is None else np.asarray(starts, np.int64)[ways_on[starts]]
    found: list[Walks] = []
    missing, rounds, barren = count, 0, 0
    while missing > 0 and len(starts) and rounds < _ROUNDS and barren < _BARREN_ROUNDS:
        order = rng.permutation(starts)
        if rounds and len(starts) < _ROUND:
            order = rng.permuted(np.tile(order, (_ROUND // len(starts), 1)), axis=1).ravel()
        gained = 0
        # A round is walked in pieces, so that a few walks from a huge graph do not visit all of it.
        size = 4 * missing + 256
        for piece in range(0, len(order), size):
            new = _one_each(graph, order[piece : piece + size], rng, depths, both_ways)
            keys = signatures(new.entities, new.relations)
            fresh, seen = unseen(keys, seen)
            fresh = fresh[:missing]
            found.append(new.take(fresh))
            gained += len(fresh)
            missing -= len(fresh)
            if missing == 0:
                break
        rounds += 1
        barren = 0 if gained else barren + 1
    return (_join(found) if found else _none(depths[1])), seen


def _one_each(
    graph: Graph, starts: NDArray[np.int64], rng: np.random.Generator, depths: tuple[int, int], both_ways: bool
) -> Walks:
    """One walk from each start, without those that did not reach their depth."""
    index, relation_count = graph.index, graph.relation_count
    lengths = rng.integers(depths[0], depths[1] + 1, len(starts), dtype=np.int32)
    entities = np.full((len(starts), depths[1] + 1), -1, np.int32)
    relations = np.full((len(starts), depths[1]), -1, np.int32)
    entities[:, 0] = starts
    alive = np.arange(len(starts))
    ended = []
    for step in range(depths[1]):
        here = entities[alive, step]
        relation, there = random_edges(index, here, rng, relation_count=relation_count, both_ways=both_ways)
        goes_on = there >= 0
        if both_ways and step:
            back = (there == entities[alive, step - 1]) & (
                np.abs(relation - relations[alive, step - 1]) == relation_count
            )
            goes_on &= ~back
        alive, relation, there = alive[goes_on], relation[goes_on], there[goes_on]
        relations[alive, step], entities[alive, step + 1] = relation, there
        arrived = lengths[alive] == step + 1
        ended.append(alive[arrived])
        alive = alive[~arrived]
    rows = np.sort(np.concatenate(ended))
    return Walks(entities[rows], relations[rows], lengths[rows], np.full(len(rows), both_ways))


def _join(parts: list[Walks]) -> Walks:
    return Walks(*(np.concatenate([getattr(part, name) for part in parts]) for name in Walks.__dataclass_fields__))


def _none(longest: int) -> Walks:
    return Walks(
        np.zeros((0, longest + 1), np.int32), np.zeros((0, longest), np.int32), np.zeros(0, np.int32), np.zeros(0, bool)
    )


def _check(
    graph: Graph, count: int, depths: tuple[int, int], starts: NDArray[np.integer] | None, inverse_share: float
) -> None:
    if count < 0:
        raise InvalidOption(f"count must be 0 or more. Got {count}")
    if len(depths) != 2 or not 1 <= depths[0] <= depths[1]:
        raise InvalidOption(f"depths must be two numbers, 1 <= shortest <= longest. Got {depths}")
    if not 0 <= inverse_share <= 1:
        raise InvalidOption(f"inverse_share must be between 0 and 1. Got {inverse_share}")
    if starts is not None and len(starts) and not 0 <= np.min(starts) <= np.max(starts) < graph.entity_count:
        raise InvalidOption(
            f"starts must be entity ids in [0, {graph.entity_count}). Got {np.min(starts)} to {np.max(starts)}"
        )


# Signatures: one 64-bit number a row, so that equal walks, branches and queries are found by sorting

# Two different rows get the same number once in about 2^64 pairs: for a million rows the chance that any two do is
# below one in ten million.


Keys = NDArray[np.uint64]

_START = np.uint64(0x243F6A8885A308D3)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def signatures(*columns: NDArray[np.integer]) -> Keys:
    """(n,) a number for each row of the (n,) or (n, k) arrays, taken side by side."""
    key = np.full(len(columns[0]), _START, np.uint64)
    for array in columns:
        for column in array.T if array.ndim == 2 else (array,):
            key = _mix((key ^ column.astype(np.uint64)) + _STEP)
    return key


def unseen(keys: Keys, seen: Keys) -> tuple[NDArray[np.int64], Keys]:
    """Rows of ``keys`` that are not in ``seen``, each value at its first row, in order; and ``seen`` with them.

    ``seen`` is sorted, and so is what comes back.
    """
    values, rows = np.unique(keys, return_index=True)
    if len(seen):
        places = np.minimum(np.searchsorted(seen, values), len(seen) - 1)
        new = seen[places] != values
        values, rows = values[new], rows[new]
    merged = np.concatenate([seen, values])
    merged.sort(kind="stable")
    return np.sort(rows), merged


def _mix(key: Keys) -> Keys:
    """A bijection of 64-bit numbers in which every bit of the input reaches every bit of the output."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
