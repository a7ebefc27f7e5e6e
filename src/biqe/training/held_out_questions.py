"""Questions about facts that a run holds out: what ways of answering are compared on.

A held-out fact, read from either end, becomes one link of a question; the other links are drawn from what is known of
the graph, held-out facts included. So a question misses one link, or more in the proportion in which facts are held
out. Questions whose answer the training graph already gives are left out.

    link           a -> ?
    path           a -> . -> ?        a -> . -> . -> ?
    intersection   a -> ? <- b        a -> ? <- b, c
    branches       a -> . -> ? <- b   a -> . <- b, . -> ?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union
from biqe.links.rules import Walks
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

Question = tuple[tuple[int, ...], tuple[tuple[int, int, int], ...], int]
"""Nodes, edges, and the entity at the target."""
TRIES = 4
"""Times as many questions are drawn as are wanted, since some are left out."""


def questions_by_shape(splits: Splits, count: int, seed: int) -> dict[str, QuerySet]:
    """At most ``count`` questions of each shape with one target, with their true answers in train and valid as the
    filter ``complete``. A shape of which the graph gives none is not there."""
    if len(splits.valid) == 0:
        return {}
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    drawn = _Drawn(seen, splits, np.random.default_rng([seed, 7]))
    found = {}
    for shape, draw in drawn.shapes().items():
        wanted = list(_some(draw, TRIES * count))
        if not wanted:
            continue
        queries = QuerySet.of([_query(question) for question in wanted])
        gold = queries.gold.copy()
        gold[queries.target_nodes] = [answer for _, _, answer in wanted]
        queries = replace(queries, gold=gold)
        given = answer_sets(splits["train"], queries)
        is_new = [answer not in given[row] for row, (_, _, answer) in enumerate(wanted)]
        queries = queries.take(np.flatnonzero(is_new)[:count])
        if len(queries):
            found[shape] = queries.with_filters(complete=answer_sets(seen, queries))
    return found


def _query(question: Question) -> BoundQuery:
    nodes, edges, _ = question
    return BoundQuery(nodes, edges, tuple(node for node, value in enumerate(nodes) if value == TARGET))


def _some(draw: Callable[[], Question | None], tries: int) -> Iterator[Question]:
    """Different questions of so many draws."""
    seen: set[Question] = set()
    for _ in range(tries):
        question = draw()
        if question is not None and question not in seen:
            seen.add(question)
            yield question


class _Drawn:
    """Draws questions, each around one held-out fact."""

    def __init__(self, seen: Graph, splits: Splits, rng: np.random.Generator) -> None:
        self._walks = Walks.of(seen)
        self._facts = splits.valid
        self._relations = len(splits.vocabulary.relations)
        self._rng = rng

    def shapes(self) -> dict[str, Callable[[], Question | None]]:
        """What draws a question of each shape; None where the graph leads no further."""
        return {
            "link": self._link,
            "path": self._path,
            "intersection": self._intersection,
            "branches": self._branches,
        }

    def _fact(self) -> tuple[int, int, int]:
        """A held-out fact, read from either end."""
        s, r, o = (int(x) for x in self._facts[self._rng.integers(len(self._facts))])
        return (s, r, o) if self._rng.random() < 0.5 else (o, r + self._relations, s)

    def _back(self, direction: int) -> int:
        return (direction + self._relations) % (2 * self._relations)

    def _step(self, entity: int, *but: tuple[int, int, int]) -> tuple[int, int] | None:
        """A link from ``entity``, other than the links ``but`` read from either end."""
        start, stop = self._walks.offsets[entity], self._walks.offsets[entity + 1]
        for place in self._rng.permutation(stop - start)[:8]:
            direction, tail = int(self._walks.directions[start + place]), int(self._walks.tails[start + place])
            if tail != entity and not {(entity, direction, tail), (tail, self._back(direction), entity)} & set(but):
                return direction, tail
        return None

    def _link(self) -> Question | None:
        head, direction, tail = self._fact()
        return (head, TARGET), ((0, direction, 1),), tail

    def _path(self) -> Question | None:
        """Two or three links; the held-out one stands anywhere."""
        links = [self._fact()]
        for _ in range(self._rng.integers(1, 3)):
            if self._rng.random() < 0.5:
                step = self._step(links[0][0], *links)
                if step is None:
                    return None
                links.insert(0, (step[1], self._back(step[0]), links[0][0]))
            else:
                step = self._step(links[-1][2], *links)
                if step is None:
                    return None
                links.append((links[-1][2], *step))
        nodes = (links[0][0], *[HIDDEN] * (len(links) - 1), TARGET)
        return nodes, tuple((at, link[1], at + 1) for at, link in enumerate(links)), links[-1][2]

    def _intersection(self) -> Question | None:
        """Two or three links that meet in the target."""
        links = [self._fact()]
        for _ in range(self._rng.integers(1, 3)):
            step = self._step(links[0][2], *links)
            if step is None:
                return None
            links.append((step[1], self._back(step[0]), links[0][2]))
        anchors = tuple(link[0] for link in links)
        return (*anchors, TARGET), tuple((at, link[1], len(links)) for at, link in enumerate(links)), links[0][2]

    def _branches(self) -> Question | None:
        """A path of two links and one link that meet in the target; or two links that meet, and one from there."""
        first = self._fact()
        second = self._step(first[2], first)
        if second is None:
            return None
        onward = (first[2], *second)
        if self._rng.random() < 0.5:
            beside = self._step(onward[2], first, onward)
            if beside is None:
                return None
            edges = ((0, first[1], 2), (2, onward[1], 3), (1, self._back(beside[0]), 3))
            return (first[0], beside[1], HIDDEN, TARGET), edges, onward[2]
        beside = self._step(first[2], first, onward)
        if beside is None:
            return None
        edges = ((0, first[1], 2), (1, self._back(beside[0]), 2), (2, onward[1], 3))
        return (first[0], beside[1], HIDDEN, TARGET), edges, onward[2]
