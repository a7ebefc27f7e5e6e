"""The newest version of a live graph in one process, and the way from older versions to it.

``State`` knows the statements of the newest version and the ids of their names. Every change makes a new ``Moment``,
which refers to the next one only: a reader that keeps a moment keeps the changes after it, and moments that nobody
keeps are freed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from biqe.errors import UnreadableFile
from biqe.graph.collect import LABEL, LabelBook
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import Triples, as_triples
from biqe.graph.vocabulary import ChangedLabels, GrownNames, Names, Vocabulary
from biqe.serve.live.changes import Changes, Statement, Text
from biqe.serve.live.overlay import Triple, holds

MOST_IDS = 100_000
"""Names whose ids are remembered."""


@dataclass(frozen=True)
class Delta:
    """The difference between one version and the next."""

    changes: Changes
    inserted: Triples
    deleted: Triples


@dataclass
class Moment:
    """One version of the graph."""

    version: int
    vocabulary: Vocabulary
    literal_relations: frozenset[str]
    """Relations that have literals as objects."""
    delta: Delta | None = None
    """The difference to the next moment; None for the newest."""
    next: Moment | None = field(default=None, repr=False)


def between(older: Moment, newer: Moment) -> Iterator[Delta]:
    """The changes from one moment to a later one, in order."""
    while older is not newer:
        assert older.delta is not None and older.next is not None
        yield older.delta
        older = older.next


def net(deltas: Iterable[Delta]) -> tuple[Triples, Triples]:
    """Triples that several changes together insert, and those that they delete."""
    found = list(deltas)
    if len(found) == 1:
        return found[0].inserted, found[0].deleted
    balance: Counter[Triple] = Counter()
    for delta in found:
        balance.update(map(tuple, delta.inserted.tolist()))
        balance.subtract(map(tuple, delta.deleted.tolist()))
    return tuple(as_triples([row for row, count in balance.items() if count == sign]) for sign in (1, -1))  # type: ignore[return-value]


class State:
    """The statements of the newest version."""

    def __init__(self, splits: Splits, known: str, literals: Iterable[Statement], version: int) -> None:
        self.known = known
        self._texts: dict[Statement, None] = {}
        self._literal_relations: Counter[str] = Counter()
        self._labels: dict[str, dict[Text, None]] = {}
        self._own_labels: dict[int, str] = {}
        self.rebase(splits)
        for statement in literals:
            self._add_text(statement)
        self._own_labels = {
            entity: label
            for name in self._labels
            if (entity := self.entity(name)) is not None and (label := self._best_label(name)) is not None
        }
        self.moment = Moment(version, self._vocabulary(), frozenset(self._literal_relations))

    def rebase(self, splits: Splits) -> None:
        """Continue on a new base, which holds the old one with all changes since."""
        self.splits = splits
        self._base = splits[self.known].triples
        self._entities: dict[str, int] = {}
        self._relations: dict[str, int] = {}
        self._added: set[Triple] = set()
        self._removed: set[Triple] = set()
        self._names = splits.vocabulary.entities, splits.vocabulary.relations
        self._ids = _Ids(splits.vocabulary.entities), _Ids(splits.vocabulary.relations)

    @property
    def literals(self) -> tuple[Statement, ...]:
        """Statements with a literal as object, oldest first."""
        return tuple(self._texts)

    @property
    def base_vocabulary(self) -> Vocabulary:
        """All names with the labels of the base: the vocabulary of the next base, which keeps literals apart."""
        own = self.splits.vocabulary
        return Vocabulary(*self._names, own.labels, own.descriptions, own.aliases)

    def entity(self, name: str) -> int | None:
        """Id of an entity; None if there is none of this name."""
        found = self._entities.get(name)
        return self._ids[0].find(name) if found is None else found

    def relation(self, name: str) -> int | None:
        """Id of a relation; None if there is none of this name."""
        found = self._relations.get(name)
        return self._ids[1].find(name) if found is None else found

    def holds(self, statement: Statement) -> bool:
        """Whether the graph has this statement."""
        if isinstance(statement.object, Text):
            return statement in self._texts
        subject, relation = self.entity(statement.subject), self.relation(statement.relation)
        object_ = self.entity(statement.object)
        if subject is None or relation is None or object_ is None:
            return False
        triple = subject, relation, object_
        return triple in self._added or (triple not in self._removed and holds(self._base, triple))

    def effect(self, steps: Iterable[Changes]) -> tuple[Changes, int]:
        """The net effect of several steps on this version, and the number of their statements without effect."""
        wanted: dict[Statement, bool] = {}
        for step in steps:
            wanted.update(dict.fromkeys(step.deleted, False))
            wanted.update(dict.fromkeys(step.inserted, True))
        real = {statement: is_in for statement, is_in in wanted.items() if self.holds(statement) != is_in}
        changes = Changes(
            tuple(statement for statement, is_in in real.items() if not is_in),
            tuple(statement for statement, is_in in real.items() if is_in),
        )
        return changes, len(wanted) - len(real)

    def apply(self, changes: Changes) -> Moment:
        """Apply changes from ``effect``; returns the new moment. UnreadableFile for what cannot have come from it."""
        absent = [st for st in changes.deleted if isinstance(st.object, Text) and st not in self._texts]
        if absent:
            raise UnreadableFile(f"it deletes a statement that is not there: {str(tuple(absent[0]))[:80]}")
        known_before = len(self._entities), len(self._relations)
        labelled = {st.subject for st in changes.deleted + changes.inserted if st.relation == LABEL}
        rows: list[list[Triple]] = [[], []]
        for found, statements, is_in in ((rows[0], changes.deleted, False), (rows[1], changes.inserted, True)):
            for statement in statements:
                if isinstance(statement.object, Text):
                    (self._add_text if is_in else self._drop_text)(statement)
                else:
                    found.append(self._change(statement.subject, statement.relation, statement.object, is_in))
        for name in list(self._entities)[known_before[0] :]:
            if name in self._labels:
                labelled.add(name)
        names_changed = known_before != (len(self._entities), len(self._relations))
        if names_changed:
            base = self.splits.vocabulary
            self._names = _grown(base.entities, self._entities), _grown(base.relations, self._relations)
        if labelled:
            self._relabel(labelled)
        before = self.moment
        vocabulary = self._vocabulary() if names_changed or labelled else before.vocabulary
        self.moment = Moment(before.version + 1, vocabulary, frozenset(self._literal_relations))
        before.delta = Delta(changes, as_triples(rows[1]), as_triples(rows[0]))
        before.next = self.moment
        return self.moment

    def _change(self, subject: str, relation: str, object_: str, is_in: bool) -> Triple:
        entities, relations = self._ids
        triple = (
            _id(subject, self._entities, entities),
            _id(relation, self._relations, relations),
            _id(object_, self._entities, entities),
        )
        # A triple of the base is never among the added ones, and one that is not is never among the removed ones.
        back, forth = (self._removed, self._added) if is_in else (self._added, self._removed)
        if triple in back:
            back.remove(triple)
        else:
            forth.add(triple)
        return triple

    def _add_text(self, statement: Statement) -> None:
        self._texts[statement] = None
        self._literal_relations[statement.relation] += 1
        if statement.relation == LABEL and isinstance(statement.object, Text):
            self._labels.setdefault(statement.subject, {})[statement.object] = None

    def _drop_text(self, statement: Statement) -> None:
        del self._texts[statement]
        self._literal_relations -= Counter([statement.relation])
        if statement.relation == LABEL and isinstance(statement.object, Text):
            texts = self._labels[statement.subject]
            del texts[statement.object]
            if not texts:
                del self._labels[statement.subject]

    def _relabel(self, names: Iterable[str]) -> None:
        labels = dict(self._own_labels)  # a copy, because older moments use the present one
        for name in names:
            entity = self.entity(name)
            if entity is None:
                continue  # labelled when it becomes an entity
            label = self._best_label(name)
            if label is None:
                labels.pop(entity, None)
            else:
                labels[entity] = label
        self._own_labels = labels

    def _best_label(self, name: str) -> str | None:
        """The label of ``name`` by the rules of ``biqe import``; None if no statement gives one."""
        book = LabelBook()
        for text in self._labels.get(name, ()):
            book.add(name, " ".join(text.value.split()), text.language)
        return next((label for _, label in book.items()), None)

    def _vocabulary(self) -> Vocabulary:
        own = self.splits.vocabulary
        labels = ChangedLabels(own.labels, self._own_labels) if self._own_labels else own.labels
        if not (self._entities or self._relations or self._own_labels):
            return own
        return Vocabulary(*self._names, labels, own.descriptions, own.aliases)


class _Ids:
    """Ids of names in a base, each looked up once: an update names most of its entities and relations several times."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._found: dict[str, int | None] = {}

    def find(self, name: str) -> int | None:
        """As ``Names.find``."""
        found = self._found.get(name, -1)
        if found == -1:
            if len(self._found) >= MOST_IDS:
                self._found.clear()
            found = self._found[name] = self.names.find(name)
        return found


def _id(name: str, new: dict[str, int], base: _Ids) -> int:
    found = new.get(name)
    if found is None:
        found = base.find(name)
    if found is None:
        found = new[name] = len(base.names) + len(new)
    return found


def _grown(base: Names, new: dict[str, int]) -> Names:
    return GrownNames(base, Names.of(new)) if new else base
