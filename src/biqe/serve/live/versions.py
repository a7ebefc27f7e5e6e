"""The versions of a live graph that one process holds: the newest, and older ones while they are in use.

A pyoxigraph store is too large to be copied for every version. There is one, which is changed in place, under a lock,
and moved back to an older version for a reader that still uses it. A query sees the store as it was when the query
began, because the store keeps old rows for running queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.exact.store import ExactStore
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import difference
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live.changes import Changes, Statement
from biqe.serve.live.overlay import patched
from biqe.serve.live.state import Moment, State, between, net

if TYPE_CHECKING:
    import pyoxigraph

REMOVALS = 20_000
"""Removals after which the store is rebuilt: it keeps a trace of every removed row."""
Used = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Whether each entity, and each relation, is in a triple."""


class History:
    """A base and the changes since, in memory. Every method may be called from any thread."""

    def __init__(self, splits: Splits, known: str, literals: Iterable[Statement], version: int) -> None:
        self.known = known
        self._lock = threading.RLock()
        self.state = State(splits, known, literals, version)
        """What the newest version holds; only for the process that may change it."""
        self._built = self.state.moment, splits[known]
        # A thread that asks the store holds its lock and may need ours; so ours is never held while waiting for it.
        self.store = MovingStore(self._newest)

    @property
    def moment(self) -> Moment:
        """The newest version."""
        return self.state.moment

    def apply(self, changes: Changes) -> None:
        """Apply changes that are on disk."""
        with self._lock:
            moment = self.state.apply(changes)
        self.store.follow(moment)

    def rebase(self, splits: Splits) -> None:
        """Continue on a new base, which holds the old one with all changes since."""
        with self._lock:
            self.graph_at(self.moment)
            self.state.rebase(splits)

    def graph_at(self, moment: Moment) -> Graph:
        """The graph of a version, made from the last one that was built."""
        with self._lock:
            at, graph = self._built
            if at is moment:
                return graph
            older, newer = (at, moment) if at.version <= moment.version else (moment, at)
            inserted, deleted = net(between(older, newer))
            if at is newer:
                return patched(graph, moment.vocabulary, deleted, inserted)
            graph = patched(graph, moment.vocabulary, inserted, deleted)
            self._built = moment, graph
            return graph

    def _newest(self) -> tuple[Moment, Graph, tuple[Statement, ...]]:
        with self._lock:
            return self.moment, self.graph_at(self.moment), self.state.literals


class MovingStore:
    """One pyoxigraph store for all versions, built on first use."""

    def __init__(self, build: Callable[[], tuple[Moment, Graph, Iterable[Statement]]]) -> None:
        """``build`` returns the newest version, its triples and its literals."""
        self._build = build
        self._store: pyoxigraph.Store | None = None
        self._moment: Moment | None = None
        self._removals = 0
        self._lock = threading.RLock()

    def query(self, moment: Moment, text: str, options: dict[str, Any]) -> Any:
        """The result of a query in that version; see ``pyoxigraph.Store.query``."""
        with self._lock:
            return self._at(moment).query(text, **options)

    def query_after(self, moment: Moment, changes: Changes, text: str) -> list[Any]:
        """The result of a query after these changes of that version."""
        with self._lock:
            store = self._at(moment)
            try:
                self._change(store, changes.deleted, changes.inserted)
                found: Any = store.query(text)
                return list(found)
            finally:
                self._change(store, changes.inserted, changes.deleted)

    def follow(self, moment: Moment) -> None:
        """Move to a newer version, if there is a store and nobody uses it at the moment."""
        if self._store is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._at(moment)
        finally:
            self._lock.release()

    def _at(self, moment: Moment) -> pyoxigraph.Store:
        """The store, moved to that version."""
        if self._store is None or self._removals > REMOVALS:
            self._moment, graph, literals = self._build()
            self._store, self._removals = ExactStore(graph).store, 0
            self._change(self._store, (), literals)
        assert self._moment is not None
        if moment.version >= self._moment.version:
            steps = [(delta.changes.deleted, delta.changes.inserted) for delta in between(self._moment, moment)]
        else:
            steps = [(delta.changes.inserted, delta.changes.deleted) for delta in between(moment, self._moment)][::-1]
        for removed, added in steps:
            self._change(self._store, removed, added)
        self._moment = moment
        return self._store

    def _change(self, store: pyoxigraph.Store, removed: Iterable[Statement], added: Iterable[Statement]) -> None:
        for statement in removed:
            store.remove(statement.quad)
            self._removals += 1
        store.extend(statement.quad for statement in added)


class View:
    """One version of a live graph: its triples, its names, and SPARQL over it. Made by ``LiveGraph.snapshot``.

    It does not change. Entities and relations keep the ids of earlier versions; new ones get higher ids.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._moment = history.moment
        self._base = history.state.splits
        self.known = history.known
        """The splits that count as known: ``complete`` or ``train``."""

    def __repr__(self) -> str:
        return f"View(version {self.version:,}, {self.vocabulary})"

    @property
    def version(self) -> int:
        """Number of updates since the live graph was made."""
        return self._moment.version

    @property
    def vocabulary(self) -> Vocabulary:
        """Names, ids and labels."""
        return self._moment.vocabulary

    @property
    def literal_relations(self) -> frozenset[str]:
        """Relations that have literals as objects; only SPARQL sees those statements."""
        return self._moment.literal_relations

    @cached_property
    def graph(self) -> Graph:
        """The triples that count as known."""
        return self._history.graph_at(self._moment)

    @cached_property
    def used(self) -> Used:
        """Whether each entity and each relation is in a triple: names without triples keep their ids."""
        parts = [self.graph.triples]
        if self.known == "train":
            parts += [self._base.valid, self._base.test]  # held-out triples are there to be predicted
        sizes = (self.graph.entity_count, self.graph.relation_count)
        entities, relations = (np.zeros(size, np.bool_) for size in sizes)  # (E,), (R,)
        for triples in parts:
            entities[triples[:, 0]] = entities[triples[:, 2]] = relations[triples[:, 1]] = True
        return entities, relations

    @cached_property
    def splits(self) -> Splits:
        """The version as splits: new triples are in train. A held-out triple stays in its split until an update states
        or deletes it."""
        triples, base = self.graph.triples, self._base
        if self.known == "train":
            train, held_out = triples, [difference(part, triples) for part in (base.valid, base.test)]
        else:
            held_out = [difference(part, difference(part, triples)) for part in (base.valid, base.test)]
            train = triples
            for part in held_out:
                train = difference(train, part)
        splits = Splits(self.vocabulary, train, held_out[0], held_out[1])
        splits._graphs[self.known] = self.graph
        return splits

    @property
    def store(self) -> ViewStore:
        """All of SPARQL 1.1 over the known triples and the literals."""
        # Not kept: two objects that refer to each other stay until the garbage collector comes, and for ever if it was
        # told to leave them alone; a view keeps all changes after it.
        return ViewStore(self)

    def query(self, text: str, **options: Any) -> Any:
        """The result of a query of pyoxigraph in this version."""
        return self._history.store.query(self._moment, text, options)

    def ask_after(self, steps: Sequence[Changes], text: str) -> list[Any]:
        """The result of a query after these changes; for the newest version only."""
        return self._history.store.query_after(self._moment, self._history.state.effect(steps)[0], text)


class ViewStore(ExactStore):
    """The exact store at one version."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self._view.graph

    @property
    def store(self) -> Any:
        """What ``ExactStore.query`` calls ``query`` of."""
        return self._view
