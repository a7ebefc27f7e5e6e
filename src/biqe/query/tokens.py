"""The tokens that a transformer reads: the paper's encoding.

Paper: section "The Bidirectional Query Encoder". Targets become [MASK], hidden variables are dropped, each path is
written tail first, and positions restart at 0 on every path. ``tokens`` encodes one query and is the reference;
``token_table`` encodes many at once, in the same order (a test compares them).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, TooManyPaths, UnsupportedQuery
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.query.dag import PATH_CAP, paths

MASK = 0
"""Token ids are one space, laid out for a tied embedding: [MASK], the entities, the relations, their inverses."""
FIRST_ENTITY = 1


def token_count(entities: int, relations: int) -> int:
    """Number of token ids: the mask, every entity, every relation and its inverse."""
    return FIRST_ENTITY + entities + 2 * relations


Kind = Literal["mask", "entity", "relation"]


@dataclass(frozen=True)
class Tokens:
    """Tokens of one query, path after path; all columns have one value a token."""

    kinds: tuple[Kind, ...]
    ids: tuple[int, ...]
    """Entity id, relation id (inverses from R on), or TARGET for a mask."""
    positions: tuple[int, ...]
    """Place on the path, counted in tokens from its end."""
    paths: tuple[int, ...]
    """Number of the path."""
    elements: tuple[int, ...]
    """What the token stands for: a node of the query, or number of nodes + edge. Shared by the tokens of a node
    or an edge that lies on several paths."""
    words: tuple[str, ...]
    """How to show the token."""

    def __len__(self) -> int:
        return len(self.kinds)

    def __str__(self) -> str:
        shown: dict[int, list[str]] = defaultdict(list)
        for word, position, path in zip(self.words, self.positions, self.paths, strict=True):
            shown[path].append(f"{word}@{position}")
        return " | ".join(" ".join(shown[path]) for path in sorted(shown))

    @property
    def twins(self) -> tuple[tuple[int, ...], ...]:
        """Groups of targets whose masks stand at the same positions.

        Under the paper's encoding such targets get identical outputs: mask and position are all that the model
        knows about a target. Targets are given as nodes.
        """
        places: dict[int, list[int]] = defaultdict(list)
        for kind, position, element in zip(self.kinds, self.positions, self.elements, strict=True):
            if kind == "mask":
                places[element].append(position)
        groups: dict[tuple[tuple[int, float], ...], list[int]] = defaultdict(list)
        for node, positions in sorted(places.items()):
            # Outputs of a target's masks are averaged, so shares count, not numbers.
            shares = tuple((place, positions.count(place) / len(positions)) for place in sorted(set(positions)))
            groups[shares].append(node)
        return tuple(tuple(nodes) for nodes in groups.values() if len(nodes) > 1)


def tokens(query: BoundQuery, *, vocabulary: Vocabulary | None = None, cap: int = PATH_CAP) -> Tokens:
    """Tokens of all root-to-leaf paths, in the order of ``paths``. Refuses what ``paths`` refuses.

    With a vocabulary, entities and relations are shown by name, else by id.

    >>> from biqe.graph.vocabulary import Vocabulary
    >>> from biqe.query.bind import bind
    >>> from biqe.query.sparql import parse
    >>> town = Vocabulary(["e"], ["r1", "r2", "r3"])
    >>> query = bind(parse("SELECT ?x ?y WHERE { :e :r1 ?h . ?h :r2 ?x . ?x :r3 ?y }"), town)
    >>> str(tokens(query, vocabulary=town))
    '[MASK y]@0 r3@1 [MASK x]@2 r2@3 r1@4 e@5'
    """
    rows: list[tuple[Kind, int, int, int, int, str]] = []
    for number, path in enumerate(paths(query, cap=cap)):
        position = 0
        for step in range(len(path.nodes) - 1, -1, -1):
            node = path.nodes[step]
            value = query.nodes[node]
            if value != HIDDEN:
                kind: Kind = "mask" if value == TARGET else "entity"
                rows.append((kind, value, position, number, node, _node_word(query, node, vocabulary)))
                position += 1
            if step > 0:
                edge = path.edges[step - 1]
                relation = query.edges[edge][1]
                element = len(query.nodes) + edge
                rows.append(("relation", relation, position, number, element, _relation_word(relation, vocabulary)))
                position += 1
    if not rows:  # hidden variables alone, without an edge
        return Tokens((), (), (), (), (), ())
    return Tokens(*zip(*rows, strict=True))  # type: ignore[arg-type]


def _node_word(query: BoundQuery, node: int, vocabulary: Vocabulary | None) -> str:
    value = query.nodes[node]
    if value == TARGET:
        return f"[MASK {query.names[node]}]" if query.names else f"[MASK {node}]"
    return f"e{value}" if vocabulary is None else vocabulary.entities[value]


def _relation_word(relation: int, vocabulary: Vocabulary | None) -> str:
    if vocabulary is None:
        return f"r{relation}"
    count = len(vocabulary.relations)
    return vocabulary.relations[relation % count] + ("⁻¹" if relation >= count else "")


@dataclass(frozen=True)
class TokenTable:
    """Tokens of Q queries in flat columns, T tokens in all."""

    offsets: NDArray[np.int64]
    """(Q+1,) slice of each query's tokens."""
    tokens: NDArray[np.int32]
    """(T,) MASK, FIRST_ENTITY + entity, or FIRST_ENTITY + E + relation."""
    positions: NDArray[np.int16]
    """(T,) distance from the path's end, counted in tokens; restarts at 0 on every path."""
    paths: NDArray[np.int16]
    """(T,) number of the path within its query."""
    elements: NDArray[np.int16]
    """(T,) node of the query, or number of nodes + edge: equal for two tokens that stand for the same thing."""
    targets: NDArray[np.int32]
    """(T,) for a mask, the number of its target within the query; -1 elsewhere."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q,) tokens of each query."""
        return np.diff(self.offsets)


def token_table(queries: QuerySet, entities: int) -> TokenTable:
    """Tokens of every query. Cyclic queries and those over PATH_CAP paths are refused, by number."""
    lengths = np.zeros(len(queries), np.int64)
    parts: list[tuple[NDArray[np.int64], _Layout, NDArray[np.int32]]] = []
    bad: dict[int, BiqeError] = {}
    for rows, nodes, edges in _by_size(queries):
        # (g, n + m) token of each element of each query
        tokens_ = np.concatenate(
            [np.where(nodes >= 0, nodes + FIRST_ENTITY, MASK), edges[:, :, 1] + (FIRST_ENTITY + entities)], axis=1
        )
        for shape, places in _by_shape(nodes, edges).items():
            try:
                layout = _layout(shape, nodes.shape[1])
            except (UnsupportedQuery, TooManyPaths) as error:
                bad[int(rows[places[0]])] = error
                continue
            lengths[rows[places]] = len(layout.elements)
            parts.append((rows[places], layout, tokens_[np.array(places)[:, None], layout.elements]))
    if bad:
        row = min(bad)
        raise _refusal(bad[row], "this query" if len(queries) == 1 else f"query {row:,}")
    offsets = np.zeros(len(queries) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    kinds = (np.int32, np.int16, np.int16, np.int16, np.int32)
    columns = [np.empty(offsets[-1], kind) for kind in kinds]
    for rows, layout, own in parts:
        at = offsets[rows, None] + np.arange(len(layout.elements))  # (g, tokens of a query)
        for column, values in zip(columns, (own, *layout), strict=True):
            column[at] = values
    return TokenTable(offsets, *columns)


def _by_size(queries: QuerySet) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]]:
    """Queries with equal numbers of nodes and edges: their (g,) rows, (g, n) nodes and (g, m, 3) edges."""
    node_counts, edge_counts = np.diff(queries.node_offsets), np.diff(queries.edge_offsets)
    sizes = node_counts << 32 | edge_counts
    for size in set(sizes.tolist()):
        rows = np.flatnonzero(sizes == size)
        nodes = queries.nodes[queries.node_offsets[rows, None] + np.arange(size >> 32)]
        yield rows, nodes, queries.edges[queries.edge_offsets[rows, None] + np.arange(size & 0xFFFFFFFF)]


def _by_shape(nodes: NDArray[np.int32], edges: NDArray[np.int32]) -> dict[bytes, list[int]]:
    """Places of the queries that differ in nothing but entities and relations, by what they have in common.

    A shape is int16: TARGET, HIDDEN or 0 for each node, then subject and object node of each edge.
    """
    ends = edges[:, :, ::2].reshape(len(edges), -1)  # (g, 2 m)
    data = np.concatenate([np.minimum(nodes, 0), ends], axis=1).astype(np.int16).tobytes()
    width = len(data) // len(nodes)
    found: dict[bytes, list[int]] = {}
    for place in range(len(nodes)):
        found.setdefault(data[place * width : (place + 1) * width], []).append(place)
    return found


class _Layout(NamedTuple):
    """The columns of a table that depend on no entity and on no relation, each (tokens of a query,)."""

    positions: NDArray[np.int64]
    paths: NDArray[np.int64]
    elements: NDArray[np.int64]
    targets: NDArray[np.int64]


@lru_cache(maxsize=1024)
def _layout(shape: bytes, node_count: int) -> _Layout:
    """The layout of a shape that ``_by_shape`` found; UnsupportedQuery or TooManyPaths where it has none."""
    values = np.frombuffer(shape, np.int16).tolist()
    nodes, ends = tuple(values[:node_count]), values[node_count:]
    targets = tuple(node for node, value in enumerate(nodes) if value == TARGET)
    edges = tuple((subject, 0, object_) for subject, object_ in zip(ends[::2], ends[1::2], strict=True))
    found = tokens(BoundQuery(nodes, edges, targets))
    number = {node: place for place, node in enumerate(targets)}
    numbers = [number.get(element, -1) for element in found.elements]
    return _Layout(*(np.array(column, np.int64) for column in (found.positions, found.paths, found.elements, numbers)))


def _refusal(error: BiqeError, which: str) -> BiqeError:
    if isinstance(error, TooManyPaths):
        return TooManyPaths(
            f"{which} has more than {PATH_CAP} root-to-leaf paths",
            hint="ask for fewer branches at once; the number of paths is exponential in the worst case",
        )
    return UnsupportedQuery(
        f"{which} has a cycle; only acyclic queries have root-to-leaf paths",
        hint="remove one pattern of the cycle, or ask in known mode",
    )
