"""The probability of a link: one number, from three voices, fitted on facts that were held out from training.

A link is a subject, a relation and an object. Three voices have something to say about it:

    ComplEx   its share among all objects of that subject and relation, and among all subjects of that object
    rules     closed paths between its ends, and how often such paths meant such a link (rules.py)
    kinds     how well its ends fit the relation, judged by their other links (kinds.py)

A small network weighs them, with the number of known links of both ends and what kind of relation it is, and gives

    P(link) = sigmoid(linear(x) + hidden(x) + relation's own weights . x)

It is fitted on held-out facts (fit.py). The features of a link do not depend on the end from which it is asked for, so
neither does its probability.

Links to all entities of the graph (``to_all``) are found in two steps: a sum of the voices picks CANDIDATES entities,
and these get their probability; all others get an estimate from that sum. On a graph with few entities every link gets
its own probability.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.exact.answers import checkpoint
from biqe.graph.knowledge_graph import Graph
from biqe.links.complex import ComplEx, conjugate_product, product
from biqe.links.kinds import Traits
from biqe.links.knowledge import COMPLEX_FEATURES, FEATURES, Ids, Knowledge
from biqe.links.link_rules import LinkRules
from biqe.links.max_product import best
from biqe.links.rules import Fired, Rules, Walks
from biqe.links.softmax import with_all

CANDIDATES = 256
"""Entities of each question that get a probability of their own."""
TAIL_BEGINS, TAIL_SLOPE = 0.3, 0.25
"""What all other entities get: this quantile of the candidates' logarithms, and less in proportion to the sum of the
voices. They matter where several links meet: there an entity that no candidate list holds may still be the best."""
CERTAIN = 0.0
"""Log-probability of a link that the graph holds."""
LOOP = -30.0
"""Log-probability of a link from an entity to itself, by a relation that has no such link in the graph."""
LOWEST = -14.0
"""No link that is possible has a lower log-probability (a millionth)."""
CACHE_BYTES = 128 << 20
"""Rows of all entities that are remembered."""
RECENT, RECENT_ROWS = 4, 32
"""Batches of heads and directions that are remembered as they were judged, and the rows that such a batch may have."""
ROWS_AT_ONCE = 256
"""Heads and directions that are judged in one go."""
ROWS_BYTES = 32 << 20
"""Scores of all entities that are worked on at once."""


class LinkProbability:
    """Probabilities of links over one graph, as natural logarithms. Relation ids run to 2R; r + R is r walked from its
    object to its subject."""

    def __init__(self, knowledge: Knowledge, predictor: ComplEx | None, graph: Graph, *, certain: bool = True) -> None:
        """``graph`` has the vocabulary that was learnt from, and perhaps more behind it. ``certain``: whether links
        that it holds have probability 1."""
        self.knowledge = knowledge
        self.predictor = predictor
        self.graph = graph
        self.certain = certain
        self.entity_count = graph.entity_count
        self._R = graph.relation_count
        self._known_entities = knowledge.kinds.entity_count
        self._known_relations = knowledge.kinds.relation_count
        self._zrows: dict[int, torch.Tensor] = {}
        self._fit_tables: dict[int, NDArray[np.float32]] = {}
        self._rows = _RowCache(graph.entity_count)
        self._recent: deque[tuple[Ids, Asked]] = deque(maxlen=RECENT)
        """What was judged last: links of rows that a search has found are asked about at once again."""

    def believing(self, certain: bool) -> LinkProbability:
        """The same with stored links certain, or judged like all others."""
        if certain == self.certain:
            return self
        other = LinkProbability(self.knowledge, self.predictor, self.graph, certain=certain)
        other.__dict__.update(
            walks=self.walks,
            traits=self.traits,
            rules=self.rules,
            link_rules=self.link_rules,
            _zrows=self._zrows,
            _rows=self._rows,
            _recent=self._recent,
        )
        return other

    @cached_property
    def walks(self) -> Walks:
        return Walks.of(self.graph)

    @cached_property
    def traits(self) -> Traits:
        return self.knowledge.kinds.traits(self.graph)

    @cached_property
    def rules(self) -> Rules:
        return self.knowledge.rules.widened(self._R)

    @cached_property
    def link_rules(self) -> LinkRules:
        return self.knowledge.link_rules.widened(self._R)

    def is_of_kind(self, entity: int, direction: int) -> bool:
        """Whether the kind of an entity lets it have links in ``direction`` (relation ids to 2R), as far as known."""
        known, relation = self._known_relations, direction % self._R
        if relation >= known:
            return True
        of_kinds = relation + known * (direction >= self._R)
        return not self.knowledge.kinds.rules_out(self.traits, entity, of_kinds)

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) log-probabilities of the links from each head along its relation to every entity."""
        device, heads, relations = heads.device, heads.cpu(), relations.cpu()  # rules and kinds are arrays
        keys, place = np.unique(relations.numpy() * self.entity_count + heads.numpy(), return_inverse=True)
        found = self._rows.get(keys, self._judged)[torch.from_numpy(place)]
        if self.certain and len(place):
            rows, tails = self.walks.of_heads(heads.numpy(), relations.numpy())
            found.view(-1)[torch.from_numpy(rows * self.entity_count + tails)] = CERTAIN
        return found.to(device)

    def _judged(self, keys: Ids) -> torch.Tensor:
        """(n, E) log-probabilities of the links of heads and directions, as if the graph held none of them."""
        rows = min(ROWS_AT_ONCE, max(1, ROWS_BYTES // (4 * self.entity_count)))
        parts = []
        for first in range(0, len(keys), rows):
            checkpoint()  # a question that was cancelled, or has no time left, ends here
            parts.append(self._judged_few(keys[first : first + rows]))
        return torch.cat(parts) if parts else torch.zeros(0, self.entity_count)

    def _judged_few(self, keys: Ids) -> torch.Tensor:
        asked = self.asked(keys % self.entity_count, keys // self.entity_count)
        if len(keys) <= RECENT_ROWS:  # ascending, as np.unique gives them
            self._recent.append((keys, asked))
        found, chosen = asked.order, asked.candidates(CANDIDATES)
        truth = self._log_probabilities(asked, chosen)  # (n, k)
        if chosen.shape[1] < self.entity_count:
            # What is no candidate goes on from the lower candidates, in the order of the voices' sum.
            lowest = found.gather(1, chosen).amin(1, keepdim=True)
            begin = truth.quantile(TAIL_BEGINS, 1, keepdim=True)
            found = found.sub_(lowest).mul_(TAIL_SLOPE).add_(begin).clamp_min_(2 * LOWEST)
        return found.scatter_(1, chosen, truth)

    def of(self, subjects: Ids, relations: Ids, objects: Ids) -> NDArray[np.float64]:
        """(n,) log-probabilities of single links, the same numbers as ``to_all`` has for its candidates; relations may
        be walked either way."""
        subjects, relations, objects = (np.asarray(ids, np.int64) for ids in (subjects, relations, objects))
        found = np.empty(len(subjects))
        keys, place = np.unique(relations * self.entity_count + subjects, return_inverse=True)
        heads, directions = keys % max(1, self.entity_count), keys // max(1, self.entity_count)
        step = max(1, ROWS_BYTES // (4 * self.entity_count))
        for known, asked in list(self._recent):
            own = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            if len(keys) and (known[own] == keys).all():
                found[:] = self.of_asked(asked, own[place], objects)
                break
        else:
            for first in range(0, len(keys), step):
                asked = self.asked(heads[first : first + step], directions[first : first + step])
                links = np.flatnonzero((place >= first) & (place < first + step))
                rows = place[links] - first
                found[links] = self.of_asked(asked, rows, objects[links])
        if self.certain and len(found):
            for number, link in enumerate(zip(subjects.tolist(), relations.tolist(), objects.tolist(), strict=True)):
                tails = self.walks.of_head(link[0], link[1])
                at = np.searchsorted(tails, link[2])
                if at < len(tails) and tails[at] == link[2]:
                    found[number] = CERTAIN
        return found

    def openness(self, direction: int) -> NDArray[np.float64]:
        """(E,) how much each entity looks like one that has a link in ``direction``, and none yet; in logits."""
        known = direction % self._R < self._known_relations
        own = direction % self._R + self._known_relations * (direction >= self._R)
        fits = self._fits(own)[:, 1].astype(np.float64) if known else np.zeros(self.entity_count)
        return fits - np.log1p(self.walks.counts(np.arange(self.entity_count), np.full(self.entity_count, direction)))

    def reasons(self, subject: int, relation: int, object_: int) -> list[Fired]:
        """The rules that speak for a link, the most confident first."""
        found = self.rules.fired(self.walks, subject, relation, object_)
        found += self.link_rules.fired(self.walks, subject, relation, object_)
        return sorted(found, key=lambda each: -each.confidence)

    # Questions: a head and a direction each

    def asked(self, heads: Ids, directions: Ids) -> Asked:
        """What the voices say about all tails of each head and direction."""
        found = self.rules.evidence(self.walks, heads, directions)
        self.link_rules.add_to(*found, self.walks, heads, directions)
        best, joint = (torch.from_numpy(part) for part in found)
        order = torch.log(joint + 1e-3).mul_(0.5).add_(torch.log(best + 1e-3), alpha=0.5)
        there = back = None
        if self.predictor is not None:
            known = self._complex_ids(heads, directions)
            there, back = self._scores(*known)
            inverse = (directions + self._R) % (2 * self._R)
            backwards = back - torch.stack([self._normalisers_of_all(d) for d in inverse.tolist()])
            # Less the head's own normaliser, so that heads can be compared, too.
            own = self._normaliser(np.minimum(heads, self._known_entities - 1), directions)
            judged = there + backwards - torch.from_numpy(own).unsqueeze(1)
            # Of heads and relations that it does not know it says nothing.
            unknown = (heads >= self._known_entities) | (directions % self._R >= self._known_relations)
            judged[torch.from_numpy(unknown)] = 0.0
            order[:, : there.shape[1]] += judged
            order[:, there.shape[1] :] += judged.mean(1, keepdim=True)
        return Asked(heads, directions, order, best, joint, there, back)

    def _complex_ids(self, heads: Ids, directions: Ids) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids as ComplEx has them; 0 stands in for what it does not know, and its scores are not looked at."""
        inverse, relation = directions >= self._R, directions % self._R
        own = np.where(inverse, relation + self._known_relations, relation)
        own = np.where(relation < self._known_relations, own, 0)
        return torch.from_numpy(np.where(heads < self._known_entities, heads, 0)), torch.from_numpy(own)

    def _scores(self, heads: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, E) scores of each tail from the head, and of the head from each tail."""
        assert self.predictor is not None
        R, entities, relations = self._known_relations, self.predictor.entities, self.predictor.relations
        heads, directions = heads.to(entities.device), directions.to(entities.device)
        there = product(entities[heads], relations[directions])
        back = conjugate_product(relations[(directions + R) % (2 * R)], entities[heads])
        with torch.no_grad():
            return tuple(with_all(torch.cat([there, back]), entities).cpu().split(len(heads)))  # type: ignore[return-value]

    def _normalisers_of_all(self, direction: int) -> torch.Tensor:
        """(E,) of every entity as the head of ``direction``."""
        if direction not in self._zrows:
            E = self._known_entities
            if len(self._zrows) * E * 4 > ROWS_BYTES * 4:
                self._zrows.clear()
            self._zrows[direction] = torch.from_numpy(
                self._normaliser(np.arange(E), np.full(E, direction)).astype(np.float32)
            )
        return self._zrows[direction]

    def _normaliser(self, heads: Ids, directions: Ids) -> NDArray[np.float32]:
        """(n,) normalisers of pairs; the usual one of the direction where the pair has no tails."""
        knowledge = self.knowledge
        inverse, relation = directions >= self._R, directions % self._R
        known = relation < self._known_relations
        own = np.where(known, np.where(inverse, relation + self._known_relations, relation), 0)
        keys = own * self._known_entities + heads
        place = np.minimum(np.searchsorted(knowledge.pairs, keys), max(0, len(knowledge.pairs) - 1))
        usual = knowledge.usual[own] if len(knowledge.usual) else np.zeros(len(heads), np.float32)
        if len(knowledge.pairs) == 0:
            return usual
        return np.where(knowledge.pairs[place] == keys, knowledge.normalisers[place], usual)

    # Features

    def _log_probabilities(self, asked: Asked, tails: torch.Tensor) -> torch.Tensor:
        """(n, k) log-probabilities of the links to (n, k) tails."""
        rows = np.repeat(np.arange(len(tails)), tails.shape[1])
        found = self.of_asked(asked, rows, tails.reshape(-1).numpy())
        return torch.from_numpy(found).to(torch.float32).view(tails.shape)

    def of_asked(self, asked: Asked, rows: Ids, tails: Ids) -> NDArray[np.float64]:
        """(m,) log-probabilities of the links from the head of each row to a tail."""
        features, relations, is_known = self.features(asked, rows, tails)
        knowledge, found = self.knowledge, np.full(len(rows), LOWEST)
        relations_known = relations < self._known_relations
        for weigher, members in (
            (knowledge.weigher, np.flatnonzero(is_known & relations_known)),
            (knowledge.plain_weigher, np.flatnonzero(~is_known & relations_known)),
        ):
            if len(members):
                with torch.no_grad():
                    logits = weigher(torch.from_numpy(features[members]), torch.from_numpy(relations[members]))
                found[members] = logits.double().numpy()
        found = knowledge.straightened(bounded_by_kinds(found, features, knowledge.kind_doubt))
        found = np.maximum(-np.logaddexp(0.0, -found), LOWEST)
        loops = asked.heads[rows] == tails
        if loops.any():
            without = ~np.append(knowledge.has_loops, np.zeros(self._R - self._known_relations, bool))[relations]
            found[loops & without] = LOOP
        return found

    def features(self, asked: Asked, rows: Ids, tails: Ids) -> tuple[NDArray[np.float32], Ids, NDArray[np.bool_]]:
        """(m, FEATURES) of the links from the head of each row to a tail; their relations; and whether ComplEx knows
        both ends. They are the same from whichever end the link is asked for."""
        R = self._R
        heads, directions = asked.heads[rows], asked.directions[rows]
        is_back, relations = directions >= R, directions % R
        subjects, objects = np.where(is_back, tails, heads), np.where(is_back, heads, tails)
        inverse = relations + R
        x = np.zeros((len(rows), len(FEATURES)), np.float32)
        is_known = np.zeros(len(rows), bool)
        if asked.there is not None and asked.back is not None:
            is_known = (heads < self._known_entities) & (tails < self._known_entities)
            is_known &= relations < self._known_relations
            flat = torch.from_numpy(rows * asked.there.shape[1] + np.where(is_known, tails, 0))
            there, back = (part.view(-1)[flat].numpy() for part in (asked.there, asked.back))
            of_object, of_subject = np.where(is_back, back, there), np.where(is_back, there, back)
            inside = np.where(is_known, subjects, 0), np.where(is_known, objects, 0)
            x[:, 0] = of_object - self._normaliser(inside[0], relations)
            x[:, 1] = of_subject - self._normaliser(inside[1], inverse)
            x[:, 2] = 0.5 * (of_object + of_subject)
            x[~is_known, :COMPLEX_FEATURES] = 0.0
        flat = torch.from_numpy(rows * self.entity_count + tails)
        best, joint = (part.view(-1)[flat].numpy() for part in (asked.best, asked.joint))
        x[:, 3] = np.log(best + 1e-3) - np.log1p(-np.minimum(best, 0.999))
        x[:, 4] = np.log(joint + 1e-3)
        for relation in np.unique(relations[relations < self._known_relations]).tolist():
            members = np.flatnonzero(relations == relation)
            x[members, 5:8] = self._fits(relation)[subjects[members]]
            x[members, 8:11] = self._fits(relation + self._known_relations)[objects[members]]
        x[:, 11] = np.log1p(self.walks.counts(subjects, relations))
        x[:, 12] = np.log1p(self.walks.counts(objects, inverse))
        x[:, 13:16] = self._relation_figures[relations]
        return x, relations, is_known

    def _fits(self, direction: int) -> NDArray[np.float32]:
        """(E, 3) how each entity fits as the head of a direction, of those that kinds know."""
        if direction not in self._fit_tables:
            if len(self._fit_tables) * self.entity_count * 12 > CACHE_BYTES // 2:
                self._fit_tables.clear()
            self._fit_tables[direction] = self.knowledge.kinds.fit(self.traits, direction)
        return self._fit_tables[direction]

    @cached_property
    def _relation_figures(self) -> NDArray[np.float32]:
        """(R, 3) as they were when the weights were fitted; 0 for relations that came later."""
        own = self.knowledge.figures
        if own is None:
            return relation_figures(self.graph)
        return np.concatenate([own, np.zeros((self._R - len(own), 3), np.float32)])


def relation_figures(graph: Graph) -> NDArray[np.float32]:
    """(R, 3) logarithms: objects a subject, subjects an object, triples."""
    triples, R = graph.triples, graph.relation_count
    count = np.bincount(triples[:, 1], minlength=R)
    figures = [np.log1p(count)]
    for column in (2, 0):
        ends = np.unique(triples[:, [1, column]], axis=0)[:, 0]
        figures.insert(0, np.log(np.maximum(1, count) / np.maximum(1, np.bincount(ends, minlength=R))))
    return np.stack(figures, 1).astype(np.float32)


def bounded_by_kinds(logits: NDArray[np.float64], features: NDArray[np.float32], doubt: float) -> NDArray[np.float64]:
    """(n,) logits of links with these (n, FEATURES) features, none larger than that its ends have such links at all, as
    their least fitting traits say, times ``doubt`` in odds. Ends with such links have shown that they do."""
    for least, known in (("subject fits least", "known objects"), ("object fits least", "known subjects")):
        most = features[:, FEATURES.index(least)].astype(np.float64) + math.log(doubt)
        logits = np.where(features[:, FEATURES.index(known)] == 0, np.minimum(logits, most), logits)
    return logits


class _RowCache:
    """Rows of all entities that were computed lately. On a small graph that is all of them."""

    def __init__(self, width: int) -> None:
        self._capacity = max(1, CACHE_BYTES // (4 * max(1, width)))
        self._table = np.empty((0, width), np.float32)  # arrays know nothing of torch's inference mode
        self._slots: dict[int, int] = {}
        self._keys: list[int] = []
        self._next = 0
        self._lock = threading.Lock()

    def get(self, keys: Ids, compute: Callable[[Ids], torch.Tensor]) -> torch.Tensor:
        """(n, width) the rows of ``keys``, all different, those that are not there computed."""
        with self._lock:
            slots = [self._slots.get(key, -1) for key in keys.tolist()]
            there = [number for number, slot in enumerate(slots) if slot >= 0]
            stored = torch.from_numpy(self._table[[slots[number] for number in there]])  # a copy
        missing = [number for number, slot in enumerate(slots) if slot < 0]
        if not missing:
            return stored
        new = compute(keys[missing])
        with self._lock:
            self._keep(keys[missing].tolist(), new)
        if not there:
            return new
        found = torch.empty(len(keys), new.shape[1])
        found[there], found[missing] = stored, new
        return found

    def _keep(self, keys: list[int], rows: torch.Tensor) -> None:
        keys, rows = keys[: self._capacity], rows[: self._capacity]
        wanted = min(self._capacity, max(self._next + len(keys), len(self._table)))
        if wanted > len(self._table):  # grown in steps, so that a process that asks little stays small
            size = min(self._capacity, max(wanted, 2 * len(self._table)))
            self._table = np.concatenate(
                [self._table, np.empty((size - len(self._table), self._table.shape[1]), np.float32)]
            )
            self._keys += [-1] * (size - len(self._keys))
        for key, row in zip(keys, rows, strict=True):
            if self._next == self._capacity:
                self._next = 0
            self._slots.pop(self._keys[self._next], None)
            self._table[self._next] = row.numpy()
            self._keys[self._next], self._slots[key] = key, self._next
            self._next += 1


@dataclass(frozen=True)
class Asked:
    """What the voices say about the tails of n heads and directions."""

    heads: Ids
    directions: Ids
    order: torch.Tensor
    """(n, E) their sum, which chooses the candidates: of one head, and of all heads of a direction."""
    best: torch.Tensor
    """(n, E) confidence of the best rule."""
    joint: torch.Tensor
    """(n, E) all rules together."""
    there: torch.Tensor | None
    """(n, E) ComplEx's scores of the tails; None without ComplEx."""
    back: torch.Tensor | None
    """(n, E) ComplEx's scores of the head, asked from each tail."""

    def candidates(self, count: int) -> torch.Tensor:
        """(n, k) the entities that come first in ``order``."""
        entities = self.order.shape[1]
        if entities <= 2 * count:
            return torch.arange(entities).expand(len(self.order), -1)
        return best(self.order, count)[1]
