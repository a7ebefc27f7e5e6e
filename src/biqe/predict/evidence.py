"""What a row rests on: an entity for every variable of the query, and so for each pattern a link, stored or missing.

The targets of a row are given. The hidden variables get the entities that make the product of the link probabilities
largest, where a stored link counts 1: a max-product search over links. Patterns that share hidden variables stand or
fall together, so they are searched as one group; a pattern between two given entities is stored or missing.

One hidden variable after the other is filled:

1. The model's scores bound the product from above. Links into the variable are scored for all entities at once, by one
   question to the model for each subject and relation. Links that begin at the variable would need a question for each
   entity, so they count 1 in the bound.
2. The entities with the best bounds are compared by their real products.

Where several hidden variables hang together, the exact engine finds the assignments that keep most patterns stored,
and the search goes on from these; graphs of a few entities are searched whole. Without a model, as few links as
possible are missing, and a variable that no stored link reaches stays open.

Answering and explaining both search here, so that a row and its explanation name the same links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.exact.answers import tuples
from biqe.exact.max_consistent_patterns import max_consistent_patterns
from biqe.graph.index import objects, subjects
from biqe.graph.knowledge_graph import Graph
from biqe.predict import probability
from biqe.predict.predictor import LinkKey, Predictor, Triple
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge

SUBJECTS = 6
"""Entities of one hidden variable that the model is asked about one by one, as subjects of missing links. With a
constant's link and one target of the question that makes eight rows, which one product with the entity table takes."""
COMPARED = 8
"""Entities of one hidden variable that are compared by their real products, where this needs no further question."""
LIKELY = 64
"""Entities with the best bounds that are sorted."""
WORTHWHILE = math.log(10)
"""How much better the bound of an entity must be to ask about links from it that nothing stored speaks for: such links
are rarely more probable than a tenth."""
STATES = 8
"""Partial assignments that are kept after each hidden variable of a group."""
EXHAUSTIVE = 4096
"""Assignments of a group's hidden variables that are all tried, on graphs small enough."""
MATCHES = 4096
"""Stored matches that are looked through for assignments to start from."""
JUDGED = 100_000
"""The same where conditions on hidden variables may sort most of them out."""
AHEAD = 7
"""Links that the model is asked about before the rows are known; see SUBJECTS."""
SCORES_AT_ONCE = 16_000_000
"""Scores that are held at a time while rows are searched (64 MB)."""
UNKNOWN = math.log(0.5)
"""Log-probability of a missing link where there is no model: every one costs the same."""
IMPOSSIBLE = -1e3

Entities = NDArray[np.int32]
Masks = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that a hidden variable may be, by node; a node that is not there may be any."""


class IdLink(NamedTuple):
    """A pattern with its variables filled in, as a stored triple is written, in ids. A hidden variable that nothing
    fills is ``-1 - node``."""

    subject: int
    relation: int
    object: int

    @property
    def is_closed(self) -> bool:
        """Whether both ends are entities."""
        return self.subject >= 0 and self.object >= 0


@dataclass(frozen=True)
class Evidence:
    """An assignment of all variables of a query, and which of its patterns are stored under it."""

    nodes: tuple[int, ...] = ()
    """Entity of each node; ``-1 - node`` for a hidden variable that nothing fills."""
    links: tuple[IdLink, ...] = ()
    """One for each pattern of the query, in its order."""
    stored: tuple[bool, ...] = ()
    """For each pattern, whether the graph holds its link."""
    is_complete: bool = True
    """Whether no better assignment can have been overlooked."""

    @property
    def held(self) -> tuple[IdLink, ...]:
        """Links that the graph holds, each once."""
        return tuple(dict.fromkeys(link for link, held in zip(self.links, self.stored, strict=True) if held))

    @property
    def missing(self) -> tuple[IdLink, ...]:
        """Links that the graph does not hold, each once."""
        return tuple(dict.fromkeys(link for link, held in zip(self.links, self.stored, strict=True) if not held))


def forward(edge: Edge, relation_count: int) -> Edge:
    """The edge as a stored triple is written: never by an inverse relation."""
    subject, relation, object_ = edge
    return edge if relation < relation_count else (object_, relation - relation_count, subject)


def holds(graph: Graph, link: Triple) -> bool:
    """Whether the graph stores this triple."""
    stored = objects(graph.index, link[0], link[1])
    place = int(np.searchsorted(stored, link[2]))
    return place < len(stored) and int(stored[place]) == link[2]


@dataclass
class _State:
    """A partial assignment of a group's variables."""

    nodes: tuple[int, ...]
    bound: float = 0.0
    """No completion has a larger logarithm of the product."""


@dataclass
class _Task:
    """One group of patterns under the entities of a row."""

    edges: tuple[Edge, ...]
    states: list[_State]
    overlooked: float = -math.inf
    """The largest bound of anything that was left out."""
    best: tuple[int, ...] = ()
    is_complete: bool = True
    missing: dict[tuple[int, ...], list[IdLink]] = field(default_factory=dict)
    """Missing links of each complete assignment."""

    @cached_property
    def hidden(self) -> list[int]:
        """Hidden variables of the group."""
        nodes = self.states[0].nodes
        return list(dict.fromkeys(node for edge in self.edges for node in (edge[0], edge[2]) if nodes[node] < 0))


class EvidenceSearch:
    """Evidence for the rows of one query on one graph."""

    def __init__(self, graph: Graph, query: BoundQuery, allowed: Masks | None = None) -> None:
        self.graph = graph
        self.query = query
        self.allowed = allowed or {}
        self._edges = tuple(forward(edge, graph.relation_count) for edge in query.edges)
        self._groups = _groups(query.nodes, self._edges)
        self._near: dict[tuple[int, int, int], Entities] = {}
        self._held: dict[Triple, bool] = {}
        self._matched: dict[object, tuple[Entities, bool]] = {}
        self._done: dict[tuple[int, bool, tuple[int, ...]], _Task] = {}

    def find(
        self, rows: Iterable[Sequence[int]], predictor: Predictor | None = None
    ) -> tuple[list[Evidence], dict[IdLink, float]]:
        """The best evidence of each row, which has an entity for each target in SELECT order; and how probable the
        missing links are, as far as the model can say."""
        links = _Links(predictor, self.graph)
        every: list[list[int]] = []
        tasks: list[list[_Task]] = []
        new: list[_Task] = []
        for row in rows:
            nodes = [-1 - node if value == HIDDEN else value for node, value in enumerate(self.query.nodes)]
            for node, entity in zip(self.query.targets, row, strict=True):
                nodes[node] = int(entity)
            every.append(nodes)
            tasks.append([])
            for number, edges in enumerate(self._groups):
                key = number, predictor is not None, tuple(nodes[n] for edge in edges for n in (edge[0], edge[2]))
                if key not in self._done:
                    self._done[key] = _Task(edges, [_State(tuple(nodes))])
                    new.append(self._done[key])
                tasks[-1].append(self._done[key])
        if new:
            # What has to be asked about whatever the search finds goes in its first call.
            closed = [key for nodes in every for key in self._keys(self._edges, nodes)]
            step = max(1, SCORES_AT_ONCE // self.graph.entity_count)
            for first in range(0, len(new), step):
                self._solve(new[first : first + step], links, closed if len(new) <= step else [])
        found = []
        for nodes, own in zip(every, tasks, strict=True):
            for task in own:
                for node in task.hidden:
                    nodes[node] = max(task.best[node], -1 - node)  # what was skipped is open
            filled = tuple(self.fill(edge, nodes) for edge in self._edges)
            stored = tuple(map(self.holds, filled))
            found.append(Evidence(tuple(nodes), filled, stored, all(task.is_complete for task in own)))
        missing = (link for evidence in found for link in evidence.missing if link.is_closed)
        return found, links.probabilities(missing)

    def fill(self, edge: Edge, nodes: Sequence[int]) -> IdLink:
        """The link that the nodes of an edge make."""
        return IdLink(nodes[edge[0]], edge[1], nodes[edge[2]])

    def holds(self, link: Triple) -> bool:
        """Whether the graph stores this link, which has two entities as its ends."""
        if link not in self._held:
            self._held[link] = link[0] >= 0 <= link[2] and holds(self.graph, link)
        return self._held[link]

    def _solve(self, tasks: list[_Task], links: _Links, ahead: list[LinkKey]) -> None:
        """Find the best assignment of each task; links in ``ahead`` are asked about as well."""
        first = (key for task in tasks for key in self._keys(task.edges, task.states[0].nodes))
        likely = (key for task in tasks if links.predictor is not None for key in self._keys_behind(task))
        links.ask([*ahead, *first, *likely])
        for task in tasks:
            self._start(task, links)
        while waiting := [task for task in tasks if any(self._expandable(task, state.nodes) for state in task.states)]:
            links.ask(key for task in waiting for state in task.states for key in self._keys(task.edges, state.nodes))
            for task in waiting:
                self._expand(task, links)
        for task in tasks:
            for state in task.states:
                filled = (self.fill(edge, state.nodes) for edge in task.edges)
                task.missing[state.nodes] = [link for link in filled if not self.holds(link)]
        compared = (task for task in tasks if len(task.missing) > 1 or task.overlooked > -math.inf)
        chances = links.probabilities(
            link for task in compared for found in task.missing.values() for link in found if link.is_closed
        )

        def weight(missing: list[IdLink]) -> float:
            return probability.of_facts(chances.get(link, 0.0 if links.predictor else 0.5) for link in missing)

        for task in tasks:
            # Of equal products the one with more stored links, then the first that was found.
            task.best = max(task.missing, key=lambda nodes: (weight(task.missing[nodes]), -len(task.missing[nodes])))
            best = weight(task.missing[task.best])
            task.is_complete = task.overlooked == -math.inf or best >= math.exp(task.overlooked) * (1 - 1e-6)

    def _keys(self, edges: Sequence[Edge], nodes: Sequence[int]) -> Iterator[LinkKey]:
        """Subjects and relations of links that begin at an entity and are not known to be stored."""
        for edge in edges:
            link = self.fill(edge, nodes)
            if link.subject >= 0 and not self.holds(link):
                yield link.subject, link.relation

    def _keys_behind(self, task: _Task) -> Iterator[LinkKey]:
        """Subjects and relations of missing links that begin at a hidden variable, where stored links lead to it."""
        nodes = task.states[0].nodes
        for node in task.hidden if len(task.hidden) == 1 else ():
            about = list(self._about(task, node, nodes))
            into = [self._neighbours(edge, node, nodes) for edge in about if edge[0] != node]
            begin = [edge for edge in about if edge[0] == node]
            if into and begin:
                for entity in _common(into)[:SUBJECTS].tolist():
                    yield from self._keys(begin, (*nodes[:node], entity, *nodes[node + 1 :]))

    # One hidden variable

    def _expandable(self, task: _Task, nodes: Sequence[int]) -> list[int]:
        """Hidden variables that are still to be filled."""
        return [node for node in task.hidden if nodes[node] == -1 - node]

    def _skipped(self, node: int) -> int:
        """Value of a variable that stays open because nothing speaks for any entity."""
        return -1 - node - len(self.query.nodes)

    def _expand(self, task: _Task, links: _Links) -> None:
        """Fill one more variable in each state of a task."""
        done: list[_State] = []
        found: dict[tuple[int, ...], _State] = {}
        for state in task.states:
            left = self._expandable(task, state.nodes)
            if not left:
                done.append(state)
                continue
            # The variable that most entities speak about goes first.
            node = max(left, key=lambda node: (len(list(self._about(task, node, state.nodes))), -node))
            candidates, overlooked = self._candidates(task, node, state, links, is_last=len(left) == 1)
            task.overlooked = max(task.overlooked, overlooked)
            for entity, bound in candidates:
                nodes = (*state.nodes[:node], entity, *state.nodes[node + 1 :])
                found.setdefault(nodes, _State(nodes, bound))
        ordered = sorted(found.values(), key=lambda state: -state.bound)
        most = EXHAUSTIVE if self._is_small(task) else STATES
        if len(ordered) > most:
            task.overlooked = max(task.overlooked, ordered[most].bound)
        task.states = [*done, *ordered[:most]]

    def _is_small(self, task: _Task) -> bool:
        """Whether all assignments of the group can be tried."""
        count = self.graph.entity_count
        return count <= COMPARED and count ** len(task.hidden) <= EXHAUSTIVE

    def _about(self, task: _Task, node: int, nodes: Sequence[int]) -> Iterator[Edge]:
        """Patterns between this open variable and entities, or itself."""
        for edge in task.edges:
            if node in (edge[0], edge[2]) and all(end == node or nodes[end] >= 0 for end in (edge[0], edge[2])):
                yield edge

    def _candidates(
        self, task: _Task, node: int, state: _State, links: _Links, *, is_last: bool
    ) -> tuple[list[tuple[int, float]], float]:
        """Entities to compare for a variable, each with the bound of the assignment; and the largest bound of those
        that are left out."""
        about = list(self._about(task, node, state.nodes))
        into = [edge for edge in about if edge[0] != node]
        stored = [self._neighbours(edge, node, state.nodes) for edge in about]
        mask = self.allowed.get(node)
        count = self.graph.entity_count
        if links.predictor is None:
            return self._by_stored(about, stored, node, state, mask)
        bounds = self._bounds(into, node, state.nodes, mask, links)
        begin = [near for edge, near in zip(about, stored, strict=True) if edge[0] == node]
        # Calibration may change the order of products of several links, but not that of single ones.
        is_exact = is_last and (len(into) < 2 or links.predictor.calibration is None)
        settled = _common(begin) if begin else None
        if settled is not None and mask is not None:
            settled = settled[mask[settled]]
        best = None if bounds is None else _best_of(bounds, settled)
        is_best = best is not None and bounds is not None and bounds[best] == bounds.max() > -np.inf
        if is_exact and is_best:
            # All links that begin here are stored, and no entity has a better bound: most rows end here.
            assert best is not None and bounds is not None
            return [(best, state.bound + float(bounds[best]))], -np.inf
        pool = np.unique(np.concatenate([*stored, np.zeros(0, np.int32)]))
        pool = pool if mask is None else pool[mask[pool]]
        likely = np.zeros(0, np.int64) if bounds is None else links.likely(bounds)
        pool = np.unique(np.concatenate([pool, likely[:COMPARED]]))
        if len(pool) == 0:
            proposed = self._proposed(about, node, state.nodes, mask, links).tolist() or [self._skipped(node)]
            return [(entity, state.bound) for entity in proposed], state.bound
        own_bounds = np.zeros(len(pool)) if bounds is None else bounds[pool]
        held = np.zeros(len(pool))
        for near in begin:
            held += _inside(pool, near)
        order = np.lexsort((pool, -held, -own_bounds))
        is_sure = held[order] == len(begin)
        sure, unsure = order[is_sure], order[~is_sure]
        # With one variable left, the product of a sure entity is its bound: what has no better bound cannot win.
        least = own_bounds[sure[0]] if len(sure) and is_last else -np.inf
        unsure = unsure[own_bounds[unsure] > least]
        asked = unsure
        if count > COMPARED:
            speaks = np.logical_or.reduce([_inside(pool[unsure], near) for near in stored])
            reached = 0.0 if speaks.any() and len(sure) == 0 else least
            asked = unsure[(own_bounds[unsure] > reached + WORTHWHILE) | speaks][:SUBJECTS]
        compared = 1 if is_exact else COMPARED
        chosen = np.concatenate([sure[:compared], asked])
        is_left = np.ones(len(pool), bool)
        is_left[chosen] = False
        others = own_bounds[[*sure[compared:], *unsure[is_left[unsure]]]]
        if bounds is None:
            others = np.append(others, 0.0) if len(pool) < (count if mask is None else mask.sum()) else others
        else:
            outside = likely[~_inside(likely, pool)]
            if len(outside) or len(likely) == LIKELY:
                others = np.append(others, bounds[outside[0] if len(outside) else likely[-1]])
        overlooked = float(others.max(initial=-np.inf))
        pairs = zip(pool[chosen].tolist(), (state.bound + own_bounds[chosen]).tolist(), strict=True)
        return list(pairs), -np.inf if overlooked <= least else state.bound + overlooked

    def _bounds(
        self,
        into: list[Edge],
        node: int,
        nodes: Sequence[int],
        mask: NDArray[np.bool_] | None,
        links: _Links,
    ) -> NDArray[np.float32] | None:
        """(E,) sums of the log-probabilities of the links into a variable, 0 for stored ones, -inf for entities that
        are not allowed. None where no link leads into it, unless all entities are few."""
        count = self.graph.entity_count
        if not into and count > COMPARED:
            return None
        key = (node, *((nodes[edge[0]], edge[1]) for edge in into))
        if key not in links.bounds:
            bounds = np.zeros(count, np.float32)
            for edge in into:
                scores = links.scores.get((nodes[edge[0]], edge[1]))
                own = np.full(count, IMPOSSIBLE, np.float32) if scores is None else np.minimum(scores, 0.0)
                own[self._neighbours(edge, node, nodes)] = 0.0
                bounds += own
            if mask is not None:
                bounds[~mask] = -np.inf
            links.bounds[key] = bounds
        return links.bounds[key]

    def _by_stored(
        self,
        about: list[Edge],
        stored: list[Entities],
        node: int,
        state: _State,
        mask: NDArray[np.bool_] | None,
    ) -> tuple[list[tuple[int, float]], float]:
        """Without a model: entities by the number of their stored links; none where there are no stored links."""
        pool, counts = np.unique(np.concatenate([*stored, np.zeros(0, np.int32)]), return_counts=True)
        if mask is not None:
            passed = mask[pool]
            pool, counts = pool[passed], counts[passed]
        if len(pool) == 0:
            return [(self._skipped(node), state.bound + UNKNOWN * len(about))], -np.inf
        order = np.argsort(-counts, kind="stable")[:COMPARED]
        missing = len(about) - counts[order]
        return list(zip(pool[order].tolist(), (state.bound + UNKNOWN * missing).tolist(), strict=True)), -np.inf

    def _neighbours(self, edge: Edge, node: int, nodes: Sequence[int]) -> Entities:
        """Entities that make an edge a stored link in the place of ``node``, sorted."""
        subject, relation, object_ = edge
        key = (
            (-1, relation, -1)
            if subject == object_
            else (-1, relation, nodes[object_])
            if subject == node
            else (nodes[subject], relation, -1)
        )
        found = self._near.get(key)
        if found is None:
            index = self.graph.index
            if subject == object_:
                loops = self.graph.triples[self.graph.triples[:, 0] == self.graph.triples[:, 2]]
                found = np.unique(loops[loops[:, 1] == relation, 0])
            elif subject == node:
                found = subjects(index, relation, nodes[object_])
            else:
                found = objects(index, nodes[subject], relation)
            self._near[key] = found
        return found

    def _proposed(
        self, about: list[Edge], node: int, nodes: Sequence[int], mask: NDArray[np.bool_] | None, links: _Links
    ) -> NDArray[np.integer]:
        """Entities that the model finds likely as subjects of missing links; none where it cannot say."""
        ends = [edge for edge in about if edge[0] != edge[2]]
        if not ends or links.predictor is None:
            return np.zeros(0, np.int64)
        query = BoundQuery(
            (TARGET, *(nodes[edge[2]] for edge in ends)),
            tuple((0, edge[1], place) for place, edge in enumerate(ends, 1)),
            (0,),
        )
        scores = links.targets(query)
        if scores is None:
            return np.zeros(0, np.int64)
        places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
        return places[np.argsort(-scores[places], kind="stable")[:COMPARED]]

    # Several hidden variables

    def _start(self, task: _Task, links: _Links) -> None:
        """Assignments to start from: those that keep as many patterns stored as possible; nothing where none is."""
        (state,) = task.states
        if len(task.hidden) < 2 or (self._is_small(task) and links.predictor is not None):
            return
        subsets, are_all = max_consistent_patterns(task.edges, lambda edges: self._has_match(state.nodes, edges))
        if links.predictor is not None or not are_all:
            task.overlooked = 0.0  # assignments that keep fewer patterns stored are not searched
        seeds = [seed for held in subsets if held for seed in self._seeds(task, state.nodes, held, links)]
        task.states = seeds or [state]

    def _seeds(self, task: _Task, nodes: tuple[int, ...], held: tuple[Edge, ...], links: _Links) -> Iterator[_State]:
        """Assignments under which the graph stores the patterns ``held``, those with the most probable others first."""
        inside = list(dict.fromkeys(n for edge in held for n in (edge[0], edge[2]) if nodes[n] < 0))
        missing = [edge for edge in task.edges if edge not in held]
        shared = [node for node in inside if any(node in (edge[0], edge[2]) for edge in missing)]
        matches, is_complete = self._matches(nodes, held, shared or inside[:1], MATCHES if shared else 1)
        columns = shared or inside[:1]
        bounds = np.zeros(len(matches))
        for edge in missing:
            scores = links.scores.get((nodes[edge[0]], edge[1]))
            if scores is not None and edge[2] in shared:
                ends = matches[:, shared.index(edge[2])]
                stored = np.isin(ends, self._neighbours(edge, edge[2], nodes))
                bounds += np.where(stored, 0.0, scores[ends])
        order = np.argsort(-bounds, kind="stable")
        chosen = order[: COMPARED if shared else 1]
        if shared and (len(order) > len(chosen) or not is_complete):
            task.overlooked = max(task.overlooked, 0.0 if not is_complete else float(bounds[order[len(chosen)]]))
        for place in chosen.tolist():
            filled = list(nodes)
            for node, entity in zip(columns, matches[place].tolist(), strict=True):
                filled[node] = entity
            others = [node for node in inside if filled[node] < 0]
            if others:
                rest, _ = self._matches(filled, held, others, 1)
                for node, entity in zip(others, rest[0].tolist(), strict=True):
                    filled[node] = entity
            yield _State(tuple(filled), float(bounds[place]))

    def _has_match(self, nodes: Sequence[int], edges: tuple[Edge, ...]) -> bool:
        hidden = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2]) if nodes[node] < 0))
        if not hidden:
            return all(self.holds(self.fill(edge, nodes)) for edge in edges)
        return len(self._matches(nodes, edges, hidden, 1)[0]) > 0

    def _matches(
        self, nodes: Sequence[int], edges: tuple[Edge, ...], columns: Sequence[int], count: int
    ) -> tuple[Entities, bool]:
        """(n, columns) distinct entities of these variables for which the graph stores all ``edges``, sorted: at least
        ``count`` of them if there are so many, and whether these are all."""
        used = dict.fromkeys(node for edge in edges for node in (edge[0], edge[2]))
        key = edges, tuple(columns), count, tuple(nodes[node] for node in used)
        if key not in self._matched:
            self._matched[key] = self._joined(nodes, edges, columns, count)
        return self._matched[key]

    def _joined(
        self, nodes: Sequence[int], edges: tuple[Edge, ...], columns: Sequence[int], count: int
    ) -> tuple[Entities, bool]:
        closed = [edge for edge in edges if nodes[edge[0]] >= 0 and nodes[edge[2]] >= 0]
        if not all(self.holds(self.fill(edge, nodes)) for edge in closed):
            return np.zeros((0, len(columns)), np.int32), True
        edges = tuple(edge for edge in edges if edge not in closed)
        used = list(dict.fromkeys(node for edge in edges for node in (edge[0], edge[2])))
        conditions = [node for node in used if nodes[node] < 0 and node in self.allowed]
        listed = [*columns, *(node for node in conditions if node not in columns)]
        number = {node: place for place, node in enumerate(used)}
        query = BoundQuery(
            tuple(nodes[node] if nodes[node] >= 0 else TARGET if node in listed else HIDDEN for node in used),
            tuple((number[subject], relation, number[object_]) for subject, relation, object_ in edges),
            tuple(number[node] for node in listed),
        )
        most = JUDGED if conditions else count
        rows = tuples(self.graph, query, limit=most + 1)
        is_complete = len(rows) <= most
        for node in conditions:
            rows = rows[self.allowed[node][rows[:, listed.index(node)]]]
        rows = rows[:most, : len(columns)]
        return (np.unique(rows, axis=0) if len(listed) > len(columns) else rows), is_complete

    # Before the rows are known

    @cached_property
    def links_ahead(self) -> list[LinkKey]:
        """Subjects and relations of links that rows of this query will be compared by, whatever the rows are: those of
        constants, and of the first entities that stored links give a hidden variable."""
        nodes = [-1 - node if value < 0 else value for node, value in enumerate(self.query.nodes)]
        found: list[LinkKey] = []
        alone = [(edge,) for edge in self._edges if not any(edge in edges for edges in self._groups)]
        for edges in [*self._groups, *alone]:
            hidden = {n for edge in edges for n in (edge[0], edge[2]) if self.query.nodes[n] == HIDDEN}
            from_constants = [edge for edge in edges if nodes[edge[0]] >= 0 or nodes[edge[2]] >= 0]
            fillings = [nodes]
            if len(hidden) == 1 and from_constants:
                (node,) = hidden
                common = _common([self._neighbours(edge, node, nodes) for edge in from_constants])
                fillings += [[*nodes[:node], entity, *nodes[node + 1 :]] for entity in common[:SUBJECTS].tolist()]
            for filled in fillings:
                links = (self.fill(edge, filled) for edge in edges)
                found += [(link.subject, link.relation) for link in links if link.subject >= 0 and not link.is_closed]
        return list(dict.fromkeys(found))[:AHEAD]


class _Links:
    """What a model says about links; nothing where there is no model, or where it cannot read single links."""

    def __init__(self, predictor: Predictor | None, graph: Graph) -> None:
        self.predictor = None if predictor is None else predictor.for_question(shared=True)
        self.graph = graph
        self.scores: dict[LinkKey, NDArray[np.float32]] = {}
        """(E,) log-probabilities of the objects of links; of those that were asked for last."""
        self.bounds: dict[object, NDArray[np.float32]] = {}
        """Sums of scores by variable and by the links into it; of those that were asked for last."""
        self._likely: dict[int, NDArray[np.int64]] = {}
        self._said: dict[IdLink, float] = {}
        self._targets: dict[BoundQuery, NDArray[np.float32] | None] = {}

    def ask(self, keys: Iterable[LinkKey]) -> None:
        """Learn the scores of the objects of these subjects and relations; others are forgotten."""
        wanted = list(dict.fromkeys(keys))
        kept = {key: self.scores[key] for key in wanted if key in self.scores}
        new = [key for key in wanted if key not in kept]
        self.scores, self.bounds, self._likely = kept, {}, {}
        if self.predictor is not None and new:
            self._try(lambda predictor: self.scores.update(predictor.link_scores(new)))

    def probabilities(self, links: Iterable[IdLink]) -> dict[IdLink, float]:
        """How probable these links are, those left out about which the model cannot say anything."""
        wanted = list(dict.fromkeys(links))
        new = [link for link in wanted if link not in self._said]
        if self.predictor is not None and new:
            self._try(
                lambda predictor: self._said.update(
                    zip(new, predictor.link_probabilities(new, self.graph), strict=True)
                )
            )
        return {link: self._said[link] for link in wanted if link in self._said}

    def targets(self, query: BoundQuery) -> NDArray[np.float32] | None:
        """(E,) log-probabilities of the one target of a query; None where the model cannot read it."""
        if query not in self._targets:
            self._targets[query] = None
            if self.predictor is not None and self.predictor.reads(query):
                self._targets[query] = self.predictor.log_probabilities([self.predictor.prepare(query)])[0]
        return self._targets[query]

    def likely(self, bounds: NDArray[np.float32]) -> NDArray[np.int64]:
        """Entities with the largest of these bounds, best first."""
        if id(bounds) not in self._likely:
            places = np.argpartition(-bounds, LIKELY)[:LIKELY] if len(bounds) > LIKELY else np.arange(len(bounds))
            places = places[np.argsort(-bounds[places], kind="stable")]
            self._likely[id(bounds)] = places[bounds[places] > -np.inf]
        return self._likely[id(bounds)]

    def _try(self, ask: Callable[[Predictor], None]) -> None:
        assert self.predictor is not None
        try:
            ask(self.predictor)
        except UnsupportedQuery:
            self.predictor = None


def _best_of(bounds: NDArray[np.float32], among: Entities | None) -> int | None:
    """The entity with the largest bound, of all or of some; None of none."""
    if among is None:
        return int(bounds.argmax())
    return int(among[bounds[among].argmax()]) if len(among) else None


def _inside(values: NDArray[np.integer], among: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which of the values are among others, which are sorted; for few values faster than numpy's own."""
    if len(among) == 0:
        return np.zeros(len(values), bool)
    return among[np.minimum(np.searchsorted(among, values), len(among) - 1)] == values


def _common(sets: Sequence[Entities]) -> Entities:
    """Values of all sets, each of which is sorted and has no value twice."""
    first, *others = sorted(sets, key=len)
    for other in others:
        first = first[_inside(first, other)]
    return first


def _groups(nodes: Sequence[int], edges: Sequence[Edge]) -> list[tuple[Edge, ...]]:
    """Patterns with hidden variables, those that share some together; in the order of the query."""
    groups: list[tuple[set[int], list[Edge]]] = []
    for edge in dict.fromkeys(edges):
        hidden = {node for node in (edge[0], edge[2]) if nodes[node] == HIDDEN}
        if not hidden:
            continue
        members = [edge]
        for group in [group for group in groups if not group[0].isdisjoint(hidden)]:
            groups.remove(group)
            hidden, members = hidden | group[0], group[1] + members
        groups.append((hidden, members))
    order = list(dict.fromkeys(edges))
    return sorted((tuple(sorted(own, key=order.index)) for _, own in groups), key=lambda own: order.index(own[0]))
