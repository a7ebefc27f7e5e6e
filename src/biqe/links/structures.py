"""Queries grouped by structure, and the order in which the variables of each structure are solved.

The structure of a query says which nodes are constants, targets or hidden, and which nodes its edges join. Entity and
relation ids differ from query to query and stand in matrices, so that a thousand queries of one structure cost a few
tensor operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery, VocabularyMismatch
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet, members
from biqe.query.dag import analyse, flips

LEFT_OUT = -1
"""Structure number of queries that cannot be solved."""
SHAPES = ("link", "path", "intersection", "branches", "several unknowns")
"""What a question can look like to somebody who decides how it is solved; see ``Structure.shape``."""
ANCHOR = 0
"""Node value of every constant in a structure, where its id does not matter."""


@dataclass(frozen=True)
class Link:
    """An edge as it is walked: from a constant or an earlier variable to a variable."""

    edge: int
    """Column of its relation in ``Group.relations``."""
    start: int
    end: int


@dataclass(frozen=True)
class Negation:
    """A part of a query that must not hold, which has one variable with the rest in common."""

    structure: Structure
    """Of the part alone, whose target is that variable."""
    at: int
    """The node of that variable in the whole query."""
    nodes: tuple[int, ...]
    """Where the part's nodes stand in the whole query."""
    edges: tuple[int, ...]
    """Where its edges stand."""


@dataclass(frozen=True)
class Structure:
    """How queries of one structure are solved."""

    targets: tuple[int, ...]
    """Nodes that are asked for, ascending."""
    order: tuple[int, ...]
    """Nodes that are variables, each after those that lead to it."""
    turned: tuple[bool, ...]
    """For each edge, whether it is walked against its direction."""
    links: tuple[Link, ...]
    """Edges that end in a variable. An edge between two constants constrains no variable and is left out."""
    negations: tuple[Negation, ...] = ()
    """Parts that must not hold; their edges are not among ``links``."""

    def from_constants(self, node: int) -> list[Link]:
        """Links from constants to a variable."""
        return [link for link in self.links if link.end == node and link.start not in self.order]

    def between(self, start: int, end: int) -> list[Link]:
        """Links from one variable to another."""
        return [link for link in self.links if (link.start, link.end) == (start, end)]

    def parents(self, node: int) -> list[int]:
        """Variables that lead to a variable, in their order."""
        return [start for start in self.order if self.between(start, node)]

    def children(self, node: int) -> list[int]:
        """Variables that a variable leads to, in their order."""
        return [end for end in self.order if self.between(node, end)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Variables that are joined, each pair once."""
        return [(start, end) for end in self.order for start in self.parents(end)]

    @property
    def is_forest(self) -> bool:
        """Whether the variables form no ring. A ring that passes through a constant is no ring of variables."""
        part = {node: node for node in self.order}
        for start, end in self.pairs:
            if part[start] == part[end]:
                return False
            old = part[end]
            part = {node: part[start] if number == old else number for node, number in part.items()}
        return True

    @property
    def shape(self) -> str:
        """One of SHAPES: more than one target; one link; a way without forks; links from constants that meet in the
        target; or ways that meet, at least one of which leads over a hidden variable."""
        if len(self.targets) > 1:
            return "several unknowns"
        if len(self.links) == 1:
            return "link"
        ends = [link.end for link in self.links]
        if len(set(ends)) == len(ends):
            return "path"
        return "intersection" if len(self.order) == 1 else "branches"

    @property
    def is_single_link(self) -> bool:
        """One constant, one link, one target: what a link predictor learns from."""
        return len(self.links) == len(self.turned) == 1 and self.order == self.targets


@dataclass(frozen=True)
class Group:
    """b queries of one structure."""

    structure: Structure
    entities: torch.Tensor
    """(b, nodes) ids of the constants; what stands at variables means nothing."""
    relations: torch.Tensor
    """(b, edges) relations as they are walked."""
    rows: torch.Tensor
    """(b, targets) the batch's number of each target."""
    queries: NDArray[np.int64]
    """(b,) the batch's number of each query."""
    from_constants: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """(b, E) log-truths by edge, of links that start at constants, where they were looked up before."""

    def __len__(self) -> int:
        return len(self.entities)

    def chunks(self, size: int) -> Iterator[Group]:
        """The same queries, at most ``size`` at a time."""
        for start in range(0, len(self), max(1, size)):
            part = slice(start, start + max(1, size))
            known = {edge: truth[part] for edge, truth in self.from_constants.items()}
            yield Group(
                self.structure, self.entities[part], self.relations[part], self.rows[part], self.queries[part], known
            )

    def negated(self, negation: Negation) -> Group:
        """The queries of one of the structure's negated parts."""
        nodes, edges = list(negation.nodes), list(negation.edges)
        rows = torch.arange(len(self)).unsqueeze(1)
        return Group(negation.structure, self.entities[:, nodes], self.relations[:, edges], rows, self.queries)


@dataclass(frozen=True)
class Batch:
    """Queries in any order and of any structures, grouped by structure."""

    groups: tuple[Group, ...]
    targets: Targets


def support(query: BoundQuery, name: str) -> Support:
    """Whether a query can be solved variable by variable, from its constants outwards."""
    if query.negated:
        return _supports_negation(query, name)
    if not query.targets:
        return Support(False, f"{name} ranks entities for targets, and this query asks for none", "select a variable")
    if not query.anchors:
        return Support(False, f"{name} starts at constants, and this query has none", "name at least one entity")
    if any(subject == object_ for subject, _, object_ in query.edges):
        return Support(
            False,
            f"{name} follows links between two nodes, and a pattern here joins one to itself",
            "drop that pattern, or ask in known mode",
        )
    if not analyse(query).is_connected:
        return Support(
            False, f"{name} solves one connected query, and this one has separate parts", "ask the parts one at a time"
        )
    return Support(True)


def _supports_negation(query: BoundQuery, name: str) -> Support:
    positive, parts = split_negations(query)
    if any(len(shared) != 1 for _, shared in parts):
        return Support(
            False,
            f"{name} judges a negated part by one variable that it shares with the rest",
            "say in it what is asked of one variable alone",
        )
    found = [support(piece.query, name) for piece in (positive, *(piece for piece, _ in parts))]
    return next((each for each in found if not each), Support(True))


@dataclass(frozen=True)
class Piece:
    """Some edges of a query as a query of their own."""

    query: BoundQuery
    nodes: tuple[int, ...]
    """Where its nodes stand in the whole query."""
    edges: tuple[int, ...]
    """Where its edges stand."""


def split_negations(query: BoundQuery) -> tuple[Piece, list[tuple[Piece, tuple[int, ...]]]]:
    """What is asked for, and each negated part with the variables that it shares with the rest, by node of the whole
    query; these are its targets."""
    own = [edge for edge, part in enumerate(query.negated) if part == 0]
    outside = {node for edge in own for node in (query.edges[edge][0], query.edges[edge][2])} | set(query.targets)
    parts = []
    for number in sorted(set(query.negated) - {0}):
        edges = [edge for edge, part in enumerate(query.negated) if part == number]
        inside = {node for edge in edges for node in (query.edges[edge][0], query.edges[edge][2])}
        shared = tuple(sorted(node for node in inside & outside if query.nodes[node] < 0))
        parts.append((_piece(query, edges, shared), shared))
    return _piece(query, own, query.targets), parts


def _piece(query: BoundQuery, edges: list[int], targets: tuple[int, ...]) -> Piece:
    inside = {node for edge in edges for node in (query.edges[edge][0], query.edges[edge][2])} | set(targets)
    nodes = tuple(sorted(inside))
    number = {node: place for place, node in enumerate(nodes)}
    piece = BoundQuery(
        tuple(v if v >= 0 else TARGET if n in targets else HIDDEN for n in nodes for v in [query.nodes[n]]),
        tuple((number[s], r, number[o]) for s, r, o in (query.edges[edge] for edge in edges)),
        tuple(number[target] for target in targets),
        tuple(query.names[node] for node in nodes) if query.names else (),
    )
    return Piece(piece, nodes, tuple(edges))


@lru_cache(1024)
def _structure(kinds: tuple[int, ...], ends: tuple[tuple[int, int], ...], negated: tuple[int, ...] = ()) -> Structure:
    """How queries with these nodes and edges, which are supported, are solved. Edges are turned to lead away from the
    constants, so that no directed cycle is left."""
    if negated:
        return _with_negations(kinds, ends, negated)
    query = _example(kinds, ends)
    turned = flips(query)
    walked = [(o, s) if turn else (s, o) for (s, o), turn in zip(ends, turned, strict=True)]
    dag = analyse(_example(kinds, tuple(walked)))
    is_variable = [value < 0 for value in kinds]
    return Structure(
        targets=query.targets,
        order=tuple(node for node in dag.order if is_variable[node]),
        turned=turned,
        links=tuple(Link(edge, s, o) for edge, (s, o) in enumerate(walked) if is_variable[o]),
    )


def _with_negations(kinds: tuple[int, ...], ends: tuple[tuple[int, int], ...], negated: tuple[int, ...]) -> Structure:
    positive, parts = split_negations(replace(_example(kinds, ends), negated=negated))

    def alone(piece: Piece) -> Structure:
        return _structure(piece.query.nodes, tuple((s, o) for s, _, o in piece.query.edges))

    asked, turned = alone(positive), [False] * len(ends)
    negations = tuple(Negation(alone(piece), shared[0], piece.nodes, piece.edges) for piece, shared in parts)
    for structure, edges in [(asked, positive.edges), *((each.structure, each.edges) for each in negations)]:
        for place, edge in enumerate(edges):
            turned[edge] = structure.turned[place]
    nodes = positive.nodes
    return Structure(
        tuple(nodes[target] for target in asked.targets),
        tuple(nodes[node] for node in asked.order),
        tuple(turned),
        tuple(Link(positive.edges[link.edge], nodes[link.start], nodes[link.end]) for link in asked.links),
        negations,
    )


def _example(kinds: tuple[int, ...], ends: tuple[tuple[int, int], ...]) -> BoundQuery:
    """A query with these nodes and edges."""
    targets = tuple(node for node, value in enumerate(kinds) if value == TARGET)
    return BoundQuery(kinds, tuple((s, 0, o) for s, o in ends), targets)


class StructuredQueries:
    """A query set sorted by structure, cut into batches on demand."""

    def __init__(
        self, queries: QuerySet, entity_count: int, relation_count: int, name: str, *, leave_out: bool = False
    ) -> None:
        """``leave_out``: queries that cannot be solved are in no group of a batch, instead of being refused."""
        _check_ids(queries, entity_count, relation_count)
        self.sizes = np.diff(queries.edge_offsets)
        self._targets = TargetTable(queries)
        self._code = np.full(len(queries), LEFT_OUT)
        self._row = np.zeros(len(queries), np.int64)
        self._structures: list[Structure] = []
        self._tables: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        nodes = np.diff(queries.node_offsets)
        for node_count, edge_count in np.unique(np.stack([nodes, self.sizes], 1), axis=0).tolist():
            alike = np.flatnonzero((nodes == node_count) & (self.sizes == edge_count))
            values = queries.nodes[queries.node_offsets[alike][:, None] + np.arange(node_count)]
            edges = queries.edges[queries.edge_offsets[alike][:, None] + np.arange(edge_count)]  # (n, edges, 3)
            columns = [np.where(values >= 0, ANCHOR, values), edges[:, :, 0], edges[:, :, 2]]
            if queries.negated is not None:
                columns.append(queries.negated[queries.edge_offsets[alike][:, None] + np.arange(edge_count)])
            shape = np.concatenate(columns, axis=1)
            if (shape == shape[:1]).all():  # an epoch of triples need not be sorted
                different, number = shape[:1], np.zeros(len(shape), np.int64)
            else:
                different, number = np.unique(shape, axis=0, return_inverse=True)
            for code, example in enumerate(different.tolist()):
                kinds, rest = tuple(example[:node_count]), example[node_count:]
                joined = tuple(zip(rest[:edge_count], rest[edge_count : 2 * edge_count], strict=True))
                negated = tuple(rest[2 * edge_count :]) if any(rest[2 * edge_count :]) else ()
                supported = support(replace(_example(kinds, joined), negated=negated), name)
                if not supported and leave_out:
                    continue
                if not supported:
                    raise UnsupportedQuery(supported.reason, hint=supported.hint)
                structure = _structure(kinds, joined, negated)
                members = np.flatnonzero(number.ravel() == code)
                relations = edges[members, :, 1].astype(np.int64)
                turned = np.array(structure.turned, bool)
                relations[:, turned] = (relations[:, turned] + relation_count) % (2 * relation_count)
                self._code[alike[members]] = len(self._structures)
                self._row[alike[members]] = np.arange(len(members))
                self._structures.append(structure)
                self._tables.append((np.maximum(values[members], 0).astype(np.int64), relations))

    def shapes(self) -> list[str | None]:
        """The shape of each query; None for what cannot be solved."""
        return [None if code == LEFT_OUT else self._structures[code].shape for code in self._code.tolist()]

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order."""
        rows = np.asarray(rows, np.int64)
        first, _ = self._targets.first(rows)
        groups = []
        for code in sorted(set(self._code[rows].tolist()) - {LEFT_OUT}):
            here = np.flatnonzero(self._code[rows] == code)
            structure, (entities, relations) = self._structures[code], self._tables[code]
            taken = self._row[rows[here]]
            numbers = first[here][:, None] + np.arange(len(structure.targets))
            groups.append(
                Group(
                    structure,
                    torch.from_numpy(entities[taken]),
                    torch.from_numpy(relations[taken]),
                    torch.from_numpy(numbers),
                    here,
                )
            )
        return Batch(tuple(groups), self._targets.batch(rows))


def _check_ids(queries: QuerySet, entity_count: int, relation_count: int) -> None:
    for what, ids, count in (
        ("entity", queries.nodes, entity_count),
        ("relation", queries.edges[:, 1], 2 * relation_count),
    ):
        if len(ids) and not HIDDEN <= ids.min() <= ids.max() < count:
            raise VocabularyMismatch(
                f"the queries hold {what} ids from {ids.min():,} to {ids.max():,}; the model knows 0 to {count - 1:,}"
            )


# Targets of a batch of queries, and whether a query can be answered: what every model needs first


TRAINING = "train"
"""Name of the filters (``QuerySet.filters``) that hold all answers in the training graph."""


@dataclass(frozen=True)
class Support:
    """Whether a model can answer a query, and if not, why not and what to do instead."""

    yes: bool
    reason: str = ""
    hint: str | None = None

    def __bool__(self) -> bool:
        return self.yes


@dataclass(frozen=True)
class Targets:
    """What is to be predicted in a batch: V targets, in the order of its queries and their nodes."""

    gold: torch.Tensor
    """(V,) one true entity of each; -1 where none is known."""
    offsets: torch.Tensor | None
    """(V+1,) slices of ``answers``; None where only the gold entities are known."""
    answers: torch.Tensor | None
    """All entities that answer each target in the training graph, sorted within its slice."""

    def known_answers(self, model: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Offsets and entities of all answers, or of the gold entities alone; refused where a gold entity is missing.
        ``model`` is the name that the refusal gives."""
        if self.offsets is not None and self.answers is not None:
            return self.offsets, self.answers
        refuse_unknown(self.gold >= 0, model)
        return torch.arange(len(self.gold) + 1, device=self.gold.device), self.gold

    def with_answers(self, model: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(v,) the targets with a known answer, and offsets and entities of their answers; refused where there is no
        such target."""
        if self.offsets is None or self.answers is None:
            known = torch.nonzero(self.gold >= 0).squeeze(1)
            refuse_unknown(self.gold >= 0, model, every=False)
            return known, torch.arange(len(known) + 1, device=known.device), self.gold[known]
        has_answers = self.offsets.diff() > 0
        refuse_unknown(has_answers, model, every=False)
        known = torch.nonzero(has_answers).squeeze(1)
        return known, torch.cat([self.offsets[:1], self.offsets[known + 1]]), self.answers


class TargetTable:
    """Targets of a query set, cut into batches as its queries are. Every model's ``Encoded`` can use one."""

    def __init__(self, queries: QuerySet) -> None:
        self.offsets = queries.target_offsets
        """(Q+1,) slice of each query's targets."""
        self._gold = queries.gold[queries.target_nodes]
        self._answers = queries.filters.get(TRAINING)

    def batch(self, rows: NDArray[np.integer]) -> Targets:
        """Targets of the queries ``rows``, in this order."""
        rows = np.asarray(rows, np.int64)
        _, numbers = members(self.offsets, rows)
        gold = torch.from_numpy(self._gold[numbers].astype(np.int64))
        if self._answers is None:
            return Targets(gold, None, None)
        taken = self._answers.take(numbers)
        return Targets(gold, torch.from_numpy(taken.offsets), torch.from_numpy(taken.values.astype(np.int64)))

    def first(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], int]:
        """(B,) the number in the batch of each query's first target, and the number of all targets of the batch."""
        counts = self.offsets[rows + 1] - self.offsets[rows]
        return np.cumsum(counts) - counts, int(counts.sum())


def refuse_unknown(known: torch.Tensor, model: str, *, every: bool = True) -> None:
    """Refuse a batch that ``model`` cannot learn from. (V,) ``known`` says which targets have a known true entity:
    all of them must, or, without ``every``, at least one of them."""
    if known.all() or (not every and known.any()):  # an empty batch is let through
        return
    raise UnsupportedQuery(
        f"{model} learns from targets with a true entity, and {int((~known).sum()):,} of the {len(known):,} targets of "
        "this batch have none (gold is -1)",
        hint=f"give them gold entities, or attach all answers as the filters {TRAINING!r}",
    )
