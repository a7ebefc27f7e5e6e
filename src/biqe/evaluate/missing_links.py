"""How many links an answer needs that are not stored.

An answer rests on entities for the other variables of its query, with which every pattern holds in the complete graph.
Some of these links are stored, that is, known when the question is asked; the others are missing. Where there are
several such choices of entities, the one with the fewest missing links counts. An answer that needs 0 could be looked
up; with every further one it is harder to predict.

The fewest are found by passing costs along the patterns, from the constants to the target. That is exact where the
patterns between variables form no cycle, as in all benchmarks; for other queries nothing is counted (UNKNOWN).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import contains, union
from biqe.query.bound import AnswerSets, BoundQuery, QuerySet

UNKNOWN = -1
"""The number of an answer that does not follow from the complete graph, or whose query has a cycle."""
MANY = 3
"""Answers that need so many missing links or more are one group."""
_NEVER = 1000
"""The cost of what cannot be: more than any query has patterns."""

Costs = NDArray[np.int16]
"""(E,) missing links that are needed if a node stands for this entity."""


class MissingLinks:
    """Counts the missing links of answers: ``complete`` says what is true, ``known`` what is stored."""

    def __init__(self, known: Graph, complete: Graph) -> None:
        self.known = known
        self.complete = complete
        self._tables: dict[int, _Links] = {}

    @classmethod
    def of_split(cls, splits: Splits, split: str) -> MissingLinks:
        """For questions of a split: the splits before it are stored, and true is what is known with it."""
        train, seen = splits["train"], Graph(splits.vocabulary, union(splits.train, splits.valid))
        return {"train": cls(train, train), "valid": cls(train, seen)}.get(split, cls(seen, splits["complete"]))

    def of_targets(self, queries: QuerySet, targets: NDArray[np.integer]) -> NDArray[np.int64]:
        """(n,) numbers for the gold entities of these targets, counted as in ``queries.target_nodes``, ascending."""
        found = np.full(len(targets), UNKNOWN)
        nodes = queries.target_nodes[targets]
        rows = np.searchsorted(queries.node_offsets, nodes, side="right") - 1
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            row = int(rows[start])
            tree = self._tree(queries[row])
            for place in range(start, stop) if tree is not None else ():
                gold = int(queries.gold[nodes[place]])
                if gold >= 0 and tree is not None:
                    found[place] = tree.answers(int(nodes[place] - queries.node_offsets[row]))[gold]
        found[found >= _NEVER] = UNKNOWN
        return found

    def of_answers(self, questions: ShapedQueries, sets: AnswerSets) -> NDArray[np.int64]:
        """(n,) numbers for all members of ``sets``, which has one set a question."""
        found = np.full(len(sets.values), _NEVER)
        for row, question in enumerate(questions.owner.tolist()):
            query, own = questions.rows[row], slice(sets.offsets[question], sets.offsets[question + 1])
            tree = self._tree(query)
            if tree is not None:  # of the rows of a union, the one that needs least
                found[own] = np.minimum(found[own], tree.answers(query.targets[0])[sets.values[own]])
        found[found >= _NEVER] = UNKNOWN
        return found

    def _tree(self, query: BoundQuery) -> _Tree | None:
        if query.negated:  # no link of a negated part is needed
            edges = zip(query.edges, query.negated, strict=True)
            query = replace(query, edges=tuple(edge for edge, part in edges if part == 0), negated=())
        tree = _Tree(self, query)
        return None if tree.has_cycle else tree

    def links(self, direction: int) -> _Links:
        """The true links of a direction (a relation, or one walked backwards), by their heads."""
        if direction not in self._tables:
            relation, backwards = direction % self._relations, direction >= self._relations
            own = self._by_relation[self._starts[relation] : self._starts[relation + 1]]
            triples, missing = self.complete.triples[own], self._is_missing[own]
            heads, tails = (triples[:, 2], triples[:, 0]) if backwards else (triples[:, 0], triples[:, 2])
            self._tables[direction] = _Links(heads, tails, missing)
        return self._tables[direction]

    @property
    def _relations(self) -> int:
        return self.complete.relation_count

    def backwards(self, direction: int) -> int:
        """The same relation walked the other way."""
        return (direction + self._relations) % (2 * self._relations)

    @cached_property
    def _is_missing(self) -> NDArray[np.bool_]:
        return ~contains(self.known.triples, self.complete.triples)

    @cached_property
    def _by_relation(self) -> NDArray[np.int64]:
        return np.argsort(self.complete.triples[:, 1], kind="stable")

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.searchsorted(self.complete.triples[self._by_relation, 1], np.arange(self._relations + 1))


class _Links:
    """Links of one direction, sorted by head."""

    def __init__(self, heads: NDArray[np.int32], tails: NDArray[np.int32], missing: NDArray[np.bool_]) -> None:
        order = np.argsort(heads, kind="stable")
        self.tails, self.missing = tails[order], missing[order].astype(np.int16)
        self.heads, self.starts = np.unique(heads[order], return_index=True)

    def pass_on(self, costs: Costs) -> Costs:
        """(E,) least cost of each head: that of one of its tails, and 1 more where the link to it is missing."""
        found = np.full(len(costs), _NEVER, np.int16)
        if len(self.heads):
            found[self.heads] = np.minimum.reduceat(costs[self.tails] + self.missing, self.starts)
        return np.minimum(found, np.int16(_NEVER))


class _Tree:
    """One query, whose costs are passed along its patterns; each pattern and direction once."""

    def __init__(self, links: MissingLinks, query: BoundQuery) -> None:
        self._links, self._nodes = links, query.nodes
        self._edges: list[list[tuple[int, int, int]]] = [[] for _ in query.nodes]
        """For each node its patterns: number, direction as seen from it, other end."""
        for number, (subject, relation, object_) in enumerate(query.edges):
            self._edges[subject].append((number, relation, object_))
            self._edges[object_].append((number, links.backwards(relation), subject))
        self._passed: dict[tuple[int, int], Costs] = {}
        variables = [node for node, value in enumerate(query.nodes) if value < 0]
        between = [edge for edge in query.edges if query.nodes[edge[0]] < 0 and query.nodes[edge[2]] < 0]
        self._parts = _parts(variables, between)
        """Variables that patterns join to each other, without a constant between them."""
        self.has_cycle = len(between) != len(variables) - len(self._parts)
        self._given = [edge for edge in query.edges if query.nodes[edge[0]] >= 0 and query.nodes[edge[2]] >= 0]

    def answers(self, target: int) -> Costs:
        """Costs of the entities as answers at ``target``: what the rest of the query needs is part of them."""
        beside = sum(int(self.at(part[0]).min()) for part in self._parts if target not in part)
        for subject, relation, object_ in self._given:
            beside += int(self._links.links(relation).pass_on(self.at(object_))[self._nodes[subject]])
        return np.minimum(self.at(target) + np.int16(min(beside, _NEVER)), np.int16(_NEVER))

    def at(self, node: int, without: int = -1) -> Costs:
        """Costs of the entities at a node, by all its patterns but one."""
        value, entities = self._nodes[node], self._links.complete.entity_count
        if value >= 0:
            costs = np.full(entities, _NEVER, np.int16)
            costs[value] = 0
            return costs
        costs = np.zeros(entities, np.int16)
        for number, direction, other in self._edges[node]:
            if number != without:
                if (node, number) not in self._passed:
                    self._passed[node, number] = self._links.links(direction).pass_on(self.at(other, number))
                costs += self._passed[node, number]
        return np.minimum(costs, np.int16(_NEVER))


def _parts(variables: Sequence[int], between: Sequence[tuple[int, int, int]]) -> list[list[int]]:
    """Groups of variables that patterns join to each other."""
    part = {node: [node] for node in variables}
    for subject, _, object_ in between:
        if part[subject] is not part[object_]:
            part[subject] += part[object_]
            for node in part[object_]:
                part[node] = part[subject]
    return list({id(nodes): nodes for nodes in part.values()}.values())


def strata(numbers: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Groups of answers by number of missing links, as named in reports: ``0``, ``1``, ``2``, ``3+``."""
    for number in range(MANY + 1):
        members = numbers == number if number < MANY else numbers >= MANY
        if members.any():
            yield (str(number) if number < MANY else f"{MANY}+"), members
