"""What a user asks about missing links, and what a user gets."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.graph.knowledge_graph import counted
from biqe.graph.words import for_notebook, html_table, probability
from biqe.predict.evidence import IdLink
from biqe.query.bind import find_entity, find_relation
from biqe.query.scan import in_query, name_in

if TYPE_CHECKING:
    from biqe.predict.predictor import Predictor
    from biqe.suggest.likeliest import Best

TOP = 20
"""Suggestions, by default."""
MOST = 100_000
"""Suggestions that can be asked for, those that are skipped counted."""
FEWEST = 200
"""Links that are searched at least, so that the next pages are there at once."""
REMEMBERED = 64
"""Searches whose links are remembered."""


@dataclass(frozen=True)
class Suggestion:
    """A link that the graph does not hold, but the model expects.

    >>> import biqe
    >>> first = biqe.open("atlas").suggest(relation=":capital_of", top=1)[0]
    >>> first.query[1], 0 < first.probability < 1, len(first.why) > 10
    (':capital_of', True, True)
    """

    subject: str
    """Name of an entity, as the graph has it."""
    relation: str
    object: str
    probability: float
    """The calibrated probability of the link, the same as ``ask`` shows."""
    ids: IdLink = field(repr=False, compare=False)
    _suggester: Suggester = field(repr=False, compare=False)

    @cached_property
    def why(self) -> str:
        """One sentence on what speaks for the link; found when it is first asked for."""
        from biqe.explain.reasons import why

        suggester = self._suggester
        return why(suggester.predictor, suggester.vocabulary, {self.ids: self.probability})

    @property
    def labels(self) -> tuple[str, str, str]:
        """Subject, relation and object as people read them."""
        from biqe.explain.reasons import named, said

        vocabulary = self._suggester.vocabulary
        return (
            named(vocabulary, self.ids.subject),
            said(vocabulary, self.ids.relation),
            named(vocabulary, self.ids.object),
        )

    @property
    def query(self) -> tuple[str, str, str]:
        """Subject, relation and object as they can be pasted into a query."""
        names, prefixes = self._suggester.vocabulary, self._suggester.prefixes
        return (
            in_query(names.entities, self.ids.subject, prefixes),
            in_query(names.relations, self.ids.relation, prefixes),
            in_query(names.entities, self.ids.object, prefixes),
        )

    def _repr_html_(self) -> str:
        told = [["missing", " ".join(self.labels)], ["probability", probability(self.probability)], ["why", self.why]]
        return for_notebook(html_table([], [], told))


@dataclass(frozen=True)
class Suggestions(Sequence[Suggestion]):
    """The likeliest missing links, the most probable first.

    >>> import biqe
    >>> found = biqe.open("atlas").suggest(entity="Bonn", top=3)
    >>> found
    Suggestions(3 missing links by hybrid)
    >>> all("Bonn" in (row.subject, row.object) for row in found)
    True
    """

    rows: tuple[Suggestion, ...]
    model: str
    note: str
    """What a user has to know about how they were found; '' for nothing."""
    seconds: float

    @overload
    def __getitem__(self, index: int) -> Suggestion: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Suggestion]: ...
    def __getitem__(self, index: int | slice) -> Suggestion | Sequence[Suggestion]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"Suggestions({counted(len(self), 'missing link')} by {self.model})"

    def __str__(self) -> str:
        return "\n".join(f"{probability(row.probability)}  {' '.join(row.labels)}" for row in self)

    def _repr_html_(self) -> str:
        head = [f"{counted(len(self), 'missing link')}, {self.model}", *filter(None, [self.note])]
        rows = [[probability(row.probability), *row.labels] for row in self]
        return for_notebook(html_table(head, ["probability", "subject", "relation", "object"], rows))


class Suggester:
    """Suggestions of one model over one graph. What was searched last is remembered, so that a second page costs
    nothing."""

    def __init__(self, predictor: Predictor, prefixes: Mapping[str, str] | None = None) -> None:
        if predictor.links is None:
            raise UnsupportedQuery(
                f"{predictor.name} has no calibrated probabilities of links, so there is nothing to rank them by",
                hint="train a hybrid, which is the default: biqe train GRAPH --out RUN",
            )
        self.predictor = predictor
        self.links = predictor.links
        self.vocabulary = predictor.links.graph.vocabulary
        self.prefixes = dict(prefixes or {})
        self._found: OrderedDict[tuple[Any, ...], tuple[int, Sequence[IdLink], bool]] = OrderedDict()

    def suggest(
        self,
        relation: str | None = None,
        entity: str | None = None,
        *,
        top: int = TOP,
        skip: int = 0,
        each: int | None = None,
        without: Collection[tuple[int, int, int]] = (),
        min_probability: float = 0.0,
        seconds: float | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Suggestions:
        """The likeliest missing links: of the whole graph, of a relation, of an entity as subject or object, of both.

        ``relation`` and ``entity`` are names as queries have them, names of the graph, or labels. ``skip`` leaves out
        the first ones, for paging. ``each`` takes at most so many of each relation. ``without`` are links, in ids, that
        are left out. After ``seconds``, what was found until then is returned, with a note. ``progress`` is called with
        the share of the work that was done since.
        """
        start = time.monotonic()
        for name, value, least in (("top", top, 1), ("skip", skip, 0), ("each", 1 if each is None else each, 1)):
            if not least <= value <= MOST:
                raise InvalidOption(f"{name!r} must be between {least} and {MOST:,}. Got {value}")
        r = None if relation is None else find_relation(self._name(relation), self.vocabulary)
        e = None if entity is None else find_entity(self._name(entity), self.vocabulary)
        wanted = skip + top + len(without)
        found, is_complete = self._search(r, e, wanted, each, seconds, progress)
        kept = [link for link in found if link not in without][skip : skip + top]
        chances = self.predictor.link_probabilities(kept) if kept else []
        rows = [
            Suggestion(*self._names(link), chance, link, self)
            for link, chance in zip(kept, chances, strict=True)
            if chance >= min_probability
        ]
        notes = [self.predictor.note, "" if is_complete else "time ran out before all links were judged"]
        note = "; ".join(filter(None, notes))
        return Suggestions(tuple(rows), self.predictor.name, note, time.monotonic() - start)

    def _name(self, text: str) -> str:
        if not isinstance(text, str):
            raise InvalidOption(f"a name is a text. Got {type(text).__name__}")
        vocabulary = self.vocabulary
        is_own = vocabulary.entities.find(text) is not None or vocabulary.relations.find(text) is not None
        return text if is_own else name_in(text, self.prefixes)

    def _names(self, link: IdLink) -> tuple[str, str, str]:
        vocabulary = self.vocabulary
        return vocabulary.entities[link.subject], vocabulary.relations[link.relation], vocabulary.entities[link.object]

    def _search(
        self,
        relation: int | None,
        entity: int | None,
        count: int,
        each: int | None,
        seconds: float | None,
        progress: Callable[[float], None],
    ) -> tuple[Sequence[IdLink], bool]:
        """The best ``count`` links, and whether all were judged."""
        from biqe.suggest import likeliest

        key = relation, entity, each
        known = self._found.get(key)
        if known is not None and (known[0] >= count or not known[2]):
            return known[1][:count], known[2]
        count = max(count, FEWEST)
        shared = likeliest.Best.none(count)
        own: dict[int, Best] = {}

        def best(r: int) -> Best:
            return shared if each is None else own.setdefault(r, likeliest.Best.none(min(count, each)))

        relations = range(self.links.graph.relation_count) if relation is None else [relation]
        if entity is None:
            end = None if seconds is None else time.monotonic() + seconds
            is_complete = likeliest.of_relations(self.links, relations, best, end=end, progress=progress)
        else:
            likeliest.of_entity(self.links, entity, relations, best)
            is_complete = True
        for part in own.values():
            shared.take(part.links, part.chances)
        found = [IdLink(*link) for link in shared.links.tolist()]
        self._found[key] = count, found, is_complete
        while len(self._found) > REMEMBERED:
            self._found.popitem(last=False)
        return found, is_complete
