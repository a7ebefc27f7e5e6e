"""Questions that a graph has answers to: those that the page begins with, and those about one entity."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.exact.store import is_blank
from biqe.graph.knowledge_graph import Graph
from biqe.graph.search import local_name
from biqe.graph.words import short
from biqe.query.bind import RDF_TYPE, relation_called
from biqe.query.scan import in_query
from biqe.serve import schemas as out

if TYPE_CHECKING:
    from biqe.links.probability import LinkProbability

EXAMPLES = 6
JUDGED, JUDGED_OF_SMALL_GRAPHS, JUDGED_LINKS = 16, 200, 100_000
"""Relations and objects, and as many subjects and relations, of which the most likely questions are made, at least and
at most; between these, as many as have so many possible links."""
LISTED = 5
"""Predicted rows by which questions are compared."""
SAMPLED = 50
"""Entities that tell of what kind those are that a question asks for."""
_Link = tuple[int, int]
"""A direction and the entity that is its head: of a relation and its object, the inverse relation and the object."""

PAPER = (
    (
        "Cities on rivers that flow through Germany and France",
        "SELECT ?river ?city WHERE {\n  ?river :flows_through :Germany, :France .\n  ?city :located_on ?river\n}",
    ),
    ("Cities on the Rhine", "SELECT ?city WHERE { ?city :located_on :Rhine }"),
)
"""Examples for graphs with the names of the paper's question."""


def examples(graph: Graph, prefixes: Mapping[str, str], links: LinkProbability | None) -> list[out.Example]:
    """Queries that this graph has answers to; the page opens with the first. With ``links``, those whose predictions
    are most probable come first; the paper's own follow the first where the graph has its names."""
    triples = graph.triples
    if not len(triples):
        return []
    ask = Questions(graph, prefixes)
    whos, whoms = ([list(each) for each in _by_direction(graph, ask.type_relation, side).values()] for side in (2, 0))
    asked: Iterable[tuple[_Link, int | None]] = ((several[0], None) for several in whos)
    if links is not None:
        rounds = ([pair for some in zip_longest(*side) for pair in some if pair] for side in (whos, whoms))
        judged = min(max(JUDGED, JUDGED_LINKS // graph.entity_count), JUDGED_OF_SMALL_GRAPHS)
        asked = _likely([pair for side in rounds for pair in side[:judged]], links)
    found = [ask.about(*link, other) for link, other in asked]
    if all(graph.vocabulary.entities.find(name) is not None for name in ("Germany", "France", "Rhine")):
        found[1:1] = [out.Example(title=title, query=query) for title, query in PAPER]
    return found[:EXAMPLES]


def _by_direction(graph: Graph, without: int | None, side: int) -> dict[int, list[_Link]]:
    """Links with this side given that have several answers, by direction: the most frequent ones, except very frequent
    ones."""
    triples = graph.triples[:: max(1, len(graph.triples) // 20_000)]
    direction = triples[:, 1] + graph.relation_count * (side == 2)
    pairs = Counter(zip(direction.tolist(), triples[:, side].tolist(), strict=True))
    named = [pair for pair in pairs if not is_blank(graph.vocabulary.entities[pair[1]])]
    fitting = [pair for pair in named if without is None or pair[0] % graph.relation_count != without] or named
    middle = sorted((pair for pair in fitting if pairs[pair] <= 50), key=lambda pair: -pairs[pair])[:200] or fitting
    found: dict[int, list[_Link]] = {}
    for pair in middle:
        found.setdefault(pair[0], []).append(pair)
    return found


class Questions:
    """Questions of one graph, whose variables are called after the classes of what they stand for."""

    def __init__(self, graph: Graph, prefixes: Mapping[str, str]) -> None:
        self.graph = graph
        self.prefixes = prefixes

    @cached_property
    def type_relation(self) -> int | None:
        """The relation that leads to classes."""
        return relation_called(RDF_TYPE, self.graph.vocabulary)

    def classes(self, entity: int) -> list[int]:
        """Classes of an entity."""
        if self.type_relation is None:
            return []
        return self.graph.objects(entity, self.type_relation).tolist()

    def about(self, direction: int, entity: int, other: int | None = None) -> out.Example:
        """Where does a direction lead to from an entity, and what does another relation lead to from there?"""
        relation = direction % self.graph.relation_count
        if direction < self.graph.relation_count:
            return self.whom(entity, relation)
        return self.who(relation, entity) if other is None else self.who_and_what(relation, entity, other)

    def who(self, relation: int, entity: int) -> out.Example:
        """Who has this link?"""
        kind = self._kind(self._ends(relation, entity)[0])
        title, link = self._relation(relation)
        query = f"SELECT ?{kind or 'x'} WHERE {{ ?{kind or 'x'} {link} {self._name(entity)} }}"
        return out.Example(title=f"{_which(kind)} {title} {self._label(entity)}{'?' * bool(kind)}", query=query)

    def whom(self, entity: int, relation: int) -> out.Example:
        """What does a relation lead to from an entity?"""
        kind = self._kind(self._ends(relation)[1])
        title, link = self._relation(relation)
        query = f"SELECT ?{kind or 'x'} WHERE {{ {self._name(entity)} {link} ?{kind or 'x'} }}"
        shown = f"{self._label(entity)} {title} {_which(kind).lower()}{'?' * bool(kind)}"
        return out.Example(title=shown, query=query)

    def who_and_what(self, relation: int, entity: int, other: int) -> out.Example:
        """Who has this link, and what does another relation lead to from there?"""
        subjects = self._ends(relation, entity)[0]
        subject, object_ = self._kind(subjects), self._kind(self._ends(other)[1])
        if subject == object_:
            subject, object_ = subject and f"{subject}_1", object_ and f"{object_}_2"
        x, y = subject or "x", object_ or "y"
        (title, link), (more, further) = self._relation(relation), self._relation(other)
        query = f"SELECT ?{x} ?{y} WHERE {{\n  ?{x} {link} {self._name(entity)} .\n  ?{x} {further} ?{y}\n}}"
        ahead = f"{_which(subject)} {title} {self._label(entity)}"
        shown = f"{ahead}, and {more} {_which(object_).lower()}?" if subject and object_ else f"{ahead}, {more} …"
        return out.Example(title=shown, query=query)

    def _ends(self, relation: int, entity: int | None = None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Subjects and objects of links of a relation, or of those with this object."""
        triples = self.graph.triples
        chosen = triples[:, 1] == relation
        if entity is not None:
            chosen &= triples[:, 2] == entity
        found = triples[chosen]
        return np.unique(found[:, 0]), np.unique(found[:, 2])

    def _kind(self, entities: NDArray[np.int32]) -> str | None:
        """The class that most of these have, as the name of a variable."""
        sample = entities[:: max(1, len(entities) // SAMPLED)].tolist()
        counts = Counter(each for entity in sample for each in self.classes(entity))
        if not counts:
            return None
        (best, count), *_ = counts.most_common(1)
        name = re.sub(r"\W+", "_", local_name(self._label(best))).strip("_").lower()
        return name if 2 * count > len(sample) and name.isascii() and name and len(name) <= 24 else None

    def _relation(self, relation: int) -> tuple[str, str]:
        relations = self.graph.vocabulary.relations
        return local_name(relations[relation]).replace("_", " "), in_query(relations, relation, self.prefixes)

    def _name(self, entity: int) -> str:
        return in_query(self.graph.vocabulary.entities, entity, self.prefixes)

    def _label(self, entity: int) -> str:
        return short(self.graph.vocabulary.label(entity))


def _which(kind: str | None) -> str:
    return "…" if kind is None else f"Which {re.sub(r'_[12]$', '', kind).replace('_', ' ')}"


def _likely(pairs: list[_Link], links: LinkProbability) -> list[tuple[_Link, int | None]]:
    """Questions whose five likeliest predicted rows are most probable, those first, one of each kind: who else has a
    link; what else a relation leads to; and what another relation leads to from those who have a link, where most of
    them have that relation but some lack it."""
    import torch

    count, triples = links.graph.relation_count, links.graph.triples
    asked: list[tuple[_Link, int | None]] = []
    heads: list[tuple[int, int, int]] = []  # number of the question, head, direction
    for direction, entity in pairs:
        heads.append((len(asked), entity, direction))
        asked.append(((direction, entity), None))
        if direction < count:
            continue
        relation = direction - count
        subjects = triples[(triples[:, 1] == relation) & (triples[:, 2] == entity), 0]
        uses = np.unique(triples[np.isin(triples[:, 0], subjects)][:, :2], axis=0)  # who has which relation
        having = np.bincount(uses[:, 1], minlength=count)
        having[(2 * having < len(subjects)) | (having == len(subjects))] = len(subjects) + 1
        if having.min() <= len(subjects):
            other = int(having.argmin())
            lacking = np.setdiff1d(subjects, uses[uses[:, 1] == other, 0])[:LISTED]
            heads += [(len(asked), head, other) for head in lacking.tolist()]
            asked.append(((direction, entity), other))
    question, head, directions = np.array(heads).T
    with torch.inference_mode():  # as where questions are answered: rows are remembered from one to the other
        found = links.to_all(torch.from_numpy(head), torch.from_numpy(directions)).numpy()
    rows, stored = links.walks.of_heads(head, directions)
    found[rows, stored] = -np.inf
    likeliest = np.exp(np.sort(found, axis=1)[:, ::-1][:, :LISTED])
    # Of a question with several heads, the best row of each.
    likeliest[[asked[number][1] is not None for number in question], 1:] = 0.0
    scores = np.bincount(question, likeliest.sum(axis=1), len(asked))
    best: dict[tuple[int, int | None], tuple[_Link, int | None]] = {}
    for number in np.argsort(-scores, kind="stable").tolist():
        (direction, _), other = asked[number]
        best.setdefault((direction, other), asked[number])
    return list(best.values())
