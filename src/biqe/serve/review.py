"""Suggested links on the server: the likeliest missing ones, and what becomes of them.

An accepted link is inserted into the live graph. A rejected one is remembered in the folder of the live graph.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from biqe.errors import InvalidOption
from biqe.exact.store import is_blank
from biqe.query.bind import find_entity, find_relation
from biqe.query.question import written
from biqe.serve import schemas as out
from biqe.serve.live.generations import REJECTED
from biqe.serve.views import entity_value
from biqe.suggest import Suggester
from biqe.suggest.rejections import Names, Rejections

if TYPE_CHECKING:
    from biqe.serve.engine import Engine

SHARE = 1 / 3
"""Share of a request's time after which a search ends with what it has found."""


class Review:
    """Suggestions over the present graph of an engine."""

    def __init__(self, engine: Engine, prefixes: Mapping[str, str]) -> None:
        self.engine = engine
        self.prefixes = prefixes
        self.rejections = None if engine.live is None else Rejections(engine.live.folder / REJECTED)
        self._lock = threading.Lock()
        self._suggester: Suggester | None = None

    def suggest(self, relation: str | None, entity: str | None, top: int, skip: int, writable: bool) -> out.SuggestOut:
        """The likeliest missing links: of all, of a relation, of an entity. Call it in a thread."""
        suggester = self._present()
        if suggester is None:
            note = "There is no model here with probabilities of links, so nothing can be suggested."
            return out.SuggestOut(suggestions=[], model=None, note=note, seconds=0.0, writable=False)
        without = set() if self.rejections is None else self.rejections.ids(suggester.vocabulary)
        seconds = SHARE * self.engine.config.seconds
        found = suggester.suggest(relation, entity, top=top, skip=skip, without=without, seconds=seconds)
        suggestions = [
            out.SuggestionOut(
                subject=entity_value(each.ids.subject, suggester.vocabulary),
                predicate=each.relation,
                label=each.labels[1],
                object=entity_value(each.ids.object, suggester.vocabulary),
                probability=each.probability,
                why=each.why,
            )
            for each in found
        ]
        return out.SuggestOut(
            suggestions=suggestions, model=found.model, note=found.note, seconds=found.seconds, writable=writable
        )

    def _present(self) -> Suggester | None:
        """The suggester of the present graph; None where no model can rank links."""
        plain = self.engine.current.plain
        if self.engine.links is None or plain is None:
            return None
        predictor = plain.predictor_of(None)
        with self._lock:
            if self._suggester is None or self._suggester.links is not predictor.links:
                self._suggester = Suggester(predictor, self.prefixes)
            return self._suggester

    async def decide(self, verdict: out.ReviewIn) -> out.ReviewOut:
        """Accept or reject a link, or take either back."""
        live, rejections = self.engine.live, self.rejections
        assert live is not None and rejections is not None
        link = await self.engine.run(self._spelt, verdict)
        is_rejected = link in await self.engine.run(lambda: rejections.names)
        version = None
        if verdict.verdict == "reject":
            await self.engine.run(rejections.add, link)
        elif verdict.verdict == "undo" and is_rejected:
            await self.engine.run(lambda: rejections.add(link, rejected=False))
        else:
            form = "INSERT" if verdict.verdict == "accept" else "DELETE"
            version = (await self.engine.update(f"{form} DATA {{ {' '.join(map(written, link))} }}")).version
        return out.ReviewOut(subject=link[0], predicate=link[1], object=link[2], version=version)

    def _spelt(self, verdict: out.ReviewIn) -> Names:
        """The link as the graph spells it."""
        vocabulary = self.engine.graph[0].vocabulary
        subject, object_ = (find_entity(name, vocabulary) for name in (verdict.subject, verdict.object))
        relation = find_relation(verdict.predicate, vocabulary)
        link = vocabulary.entities[subject], vocabulary.relations[relation], vocabulary.entities[object_]
        if any(map(is_blank, link)):
            raise InvalidOption("a blank node has no name, so no update can name it")
        return link
