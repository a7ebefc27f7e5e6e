"""The versions of a live graph that one process has met: the newest, and older ones while somebody looks at them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from biqe.graph.knowledge_graph import Graph, Splits
from biqe.serve.live.changes import Changes, Statement
from biqe.serve.live.overlay import patched
from biqe.serve.live.rdf import MovingStore
from biqe.serve.live.state import Moment, State, between, net


class History:
    """A base and what was changed since, in memory. Every method may be called from any thread."""

    def __init__(self, splits: Splits, known: str, literals: Iterable[Statement], version: int) -> None:
        self.known = known
        self._lock = threading.RLock()
        self._state = State(splits, known, literals, version)
        self._built = self._state.moment, splits[known]
        # A thread that asks the store holds its lock and may want ours; so nobody who has ours waits for the store's.
        self._store = MovingStore(self._newest)

    @property
    def moment(self) -> Moment:
        """The newest version."""
        return self._state.moment

    @property
    def splits(self) -> Splits:
        """The base."""
        return self._state.splits

    @property
    def state(self) -> State:
        """What the newest version holds; to be used by the one process that may change it."""
        return self._state

    def apply(self, changes: Changes) -> None:
        """Take in changes that are on disk."""
        with self._lock:
            moment = self._state.apply(changes)
        self._store.follow(moment)

    def rebase(self, splits: Splits) -> None:
        """Stand on a new base, which holds what the old one did with all changes since."""
        with self._lock:
            self.graph_at(self.moment)
            self._state.rebase(splits)

    def graph_at(self, moment: Moment) -> Graph:
        """The graph of a version, out of the nearest one at hand."""
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

    def query(self, moment: Moment, text: str, options: dict[str, Any]) -> Any:
        """What pyoxigraph finds in a version; see its ``Store.query``."""
        return self._store.ask(moment, text, options)

    def query_after(self, moment: Moment, steps: Sequence[Changes], text: str) -> list[Any]:
        """What pyoxigraph would find in the newest version, ``moment``, after further changes."""
        return self._store.ask_after(moment, self._state.effect(steps)[0], text)

    def _newest(self) -> tuple[Moment, Graph, tuple[Statement, ...]]:
        with self._lock:
            return self.moment, self.graph_at(self.moment), self._state.literals
