"""Statements as RDF terms, and one pyoxigraph store that is moved from version to version.

A store is too large to be copied for every version. It is changed in place, under a lock, and may be moved back to an
older version for a reader that still looks at one. A query sees the store as it was when the query began: the store
keeps old versions of its rows for queries under way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from biqe.errors import InvalidOption
from biqe.exact.store import iri_of, name_of, node_of
from biqe.graph.knowledge_graph import Graph
from biqe.serve.live.changes import Changes, Statement, Text
from biqe.serve.live.state import Moment, between

if TYPE_CHECKING:
    import pyoxigraph

REMOVALS = 20_000
"""After so many removals the store is built anew: it keeps a trace of every row that went."""
_STRING = "http://www.w3.org/2001/XMLSchema#string"


def quad_of(statement: Statement) -> pyoxigraph.Quad:
    """The statement as the store holds it."""
    from pyoxigraph import Quad

    object_ = statement.object
    return Quad(
        node_of(statement.subject),
        iri_of(statement.relation),
        literal_of(object_) if isinstance(object_, Text) else node_of(object_),
    )


def literal_of(text: Text) -> pyoxigraph.Literal:
    """The literal of a text."""
    from pyoxigraph import Literal, NamedNode

    if text.language is not None:
        return Literal(text.value, language=text.language)
    return Literal(text.value) if text.datatype is None else Literal(text.value, datatype=NamedNode(text.datatype))


def check_literals(statements: Iterable[Statement]) -> None:
    """InvalidOption for a literal that RDF does not have: a language or a datatype that is none."""
    for statement in statements:
        if isinstance(statement.object, Text):
            try:
                literal_of(statement.object)
            except ValueError as error:
                raise InvalidOption(f"{statement.object.value[:60]!r} is no literal: {error}") from error


def text_of(literal: pyoxigraph.Literal) -> Text:
    """The text of a literal; ``literal_of`` leads back."""
    if literal.language is not None:
        return Text(literal.value, None, literal.language)
    datatype = literal.datatype.value
    return Text(literal.value, None if datatype == _STRING else datatype)


def name_of_node(node: Any) -> str:
    """The graph's name of an IRI or blank node."""
    from pyoxigraph import BlankNode

    return f"_:{node.value}" if isinstance(node, BlankNode) else name_of(node.value)


Build = Callable[[], tuple[Moment, Graph, Iterable[Statement]]]
"""Gives the newest version: its triples and its literals."""


class MovingStore:
    """One store for all versions of a live graph, built when it is first asked."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._store: pyoxigraph.Store | None = None
        self._moment: Moment | None = None
        self._removals = 0
        self._lock = threading.RLock()

    def ask(self, moment: Moment, text: str, options: dict[str, Any]) -> Any:
        """What the store finds in that version."""
        with self._lock:
            store = self._at(moment)
            return store.query(text, **options)

    def ask_after(self, moment: Moment, changes: Changes, text: str) -> list[Any]:
        """What the store would find after these changes of that version."""
        with self._lock:
            store = self._at(moment)
            try:
                self._change(store, changes.deleted, changes.inserted)
                found: Any = store.query(text)
                return list(found)
            finally:
                self._change(store, changes.inserted, changes.deleted)

    def follow(self, moment: Moment) -> None:
        """Move to a newer version, if there is a store, and nobody uses it just now."""
        if self._store is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._at(moment)
        finally:
            self._lock.release()

    def _at(self, moment: Moment) -> pyoxigraph.Store:
        from biqe.exact.store import ExactStore

        if self._store is None or self._removals > REMOVALS:
            self._moment, graph, literals = self._build()
            self._store, self._removals = ExactStore(graph).store, 0
            self._change(self._store, (), literals)
        assert self._moment is not None
        if moment.version >= self._moment.version:
            steps = [(delta.changes.deleted, delta.changes.inserted) for delta in between(self._moment, moment)]
        else:
            steps = [(delta.changes.inserted, delta.changes.deleted) for delta in between(moment, self._moment)][::-1]
        for gone, come in steps:
            self._change(self._store, gone, come)
        self._moment = moment
        return self._store

    def _change(self, store: pyoxigraph.Store, gone: Iterable[Statement], come: Iterable[Statement]) -> None:
        for statement in gone:
            store.remove(quad_of(statement))
            self._removals += 1
        store.extend(quad_of(statement) for statement in come)
