"""One version of a live graph, which stays what it is while the graph goes on changing."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.exact.store import ExactStore
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import difference
from biqe.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from biqe.serve.live.changes import Changes
    from biqe.serve.live.history import History


class View:
    """A version of a live graph: its triples, its names, and all of SPARQL 1.1 over it. Made by ``LiveGraph.snapshot``.

    Ids of entities and relations are those of the base, and of every earlier version; new ones come behind.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._moment = history.moment
        self._base = history.splits
        self.known = history.known
        """The splits that count as known: ``complete`` or ``train``."""

    def __repr__(self) -> str:
        return f"View(version {self.version:,}, {self.vocabulary})"

    @property
    def version(self) -> int:
        """Number of updates since the live graph was made; it never falls."""
        return self._moment.version

    @property
    def vocabulary(self) -> Vocabulary:
        """Names, ids and labels."""
        return self._moment.vocabulary

    @property
    def literal_relations(self) -> frozenset[str]:
        """Relations that have a literal as object somewhere: only SPARQL sees those statements."""
        return self._moment.literal_relations

    @cached_property
    def graph(self) -> Graph:
        """The triples that count as known."""
        return self._history.graph_at(self._moment)

    @cached_property
    def used(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each entity and each relation is in a triple: names whose triples were all deleted keep their ids."""
        parts = [self.graph.triples]
        if self.known == "train":
            parts += [self._base.valid, self._base.test]  # what is held out is there to be predicted
        entities, relations = (
            np.zeros(size, np.bool_) for size in (self.graph.entity_count, self.graph.relation_count)
        )
        for triples in parts:
            entities[triples[:, 0]] = entities[triples[:, 2]] = relations[triples[:, 1]] = True
        return entities, relations

    @cached_property
    def splits(self) -> Splits:
        """The same as splits: what is new is in train. A triple that was held out of train to test predictions stays
        in its split, as long as nobody states it as a fact or deletes it."""
        triples, base = self.graph.triples, self._base
        if self.known == "train":
            held_out = [difference(part, triples) for part in (base.valid, base.test)]
            splits = Splits(self.vocabulary, triples, *held_out)
            splits._graphs["train"] = self.graph
            return splits
        held_out = [difference(part, difference(part, triples)) for part in (base.valid, base.test)]
        train = triples
        for part in held_out:
            train = difference(train, part)
        splits = Splits(self.vocabulary, train, *held_out)
        splits._graphs["complete"] = self.graph
        return splits

    @cached_property
    def store(self) -> ViewStore:
        """All of SPARQL 1.1 over the known triples and the literals."""
        return ViewStore(self)

    def ask_after(self, steps: Sequence[Changes], text: str) -> list[Any]:
        """What a query of the store would find if these changes were made."""
        return self._history.query_after(self._moment, steps, text)


class ViewStore(ExactStore):
    """The exact store at one version."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self._view.graph

    @cached_property
    def store(self) -> Any:
        """What ``ExactStore.query`` asks."""
        return _Pinned(self._view)


class _Pinned:
    def __init__(self, view: View) -> None:
        self._view = view

    def query(self, text: str, **options: Any) -> Any:
        view = self._view
        return view._history.query(view._moment, text, options)
