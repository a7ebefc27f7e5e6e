"""The probability of a link: one number, from three voices, fitted on facts that were held out from training.

A link is a subject, a relation and an object. Three voices have something to say about it:

    ComplEx   its share among all objects of that subject and relation, and among all subjects of that object
    rules     closed paths between its ends, and how often such paths meant such a link (rules.py)
    kinds     how well its ends fit the relation, judged by their other links (kinds.py)

A small network weighs them, with the number of known links of both ends and what kind of relation it is, and gives

    P(link) = sigmoid(linear(x) + hidden(x) + relation's own weights . x)

It is fitted on held-out facts: for each, the questions (s, r, ?) and (?, r, o) are asked, the entities that complete a
held-out fact are right, and all others that the training graph does not have are wrong. The features of a link do not
depend on the end from which it is asked for, so neither does its probability.

Links to all entities of the graph (``to_all``) are found in two steps: a sum of the voices picks CANDIDATES entities,
and these get their probability; all others stay below them, in the order of that sum. On a graph with fewer entities
every link gets its own probability.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from biqe.errors import UnreadableFile
from biqe.exact.checkpoint import checkpoint
from biqe.graph.knowledge_graph import Graph
from biqe.links.complex import ComplEx, conjugate_product, product
from biqe.links.kinds import Kinds, Traits
from biqe.links.max_product import best
from biqe.links.rules import Fired, Rules, Walks, mine

FILE = "links.safetensors"
FORMAT, VERSION = "biqe-links", 1
CANDIDATES = 256
"""Entities of each question that get a probability of their own."""
CERTAIN = 0.0
"""Log-probability of a link that the graph holds."""
LOOP = -30.0
"""Log-probability of a link from an entity to itself, by a relation that has no such link in the graph."""
LOWEST = -14.0
"""No link that is possible has a lower log-probability (a millionth)."""
KIND_DOUBT = math.log(30.0)
"""Odds by which kinds may be wrong: an entity that never had a link of this kind may have one thirty times as likely
as its least fitting trait says. A trait of thousands of which none has such links makes it impossible, in effect."""
FIT_FACTS = 2_000
"""Held-out facts that the weights are fitted on, at most."""
FEWEST_FACTS = 20
"""With fewer held-out facts nothing is fitted, and what links have is a score."""
NEAR, FAR = 64, 48
"""Of each question that is fitted on: the candidates nearest to the top, and a sample of all others."""
WIDTH = 16
"""Of the hidden layers."""
LIMIT = 6.0
"""Features are cut at so many standard deviations."""
CACHE_BYTES = 128 << 20
"""Rows of all entities that are remembered."""
ROWS_AT_ONCE = 256
"""Heads and directions that are judged in one go."""
ROWS_BYTES = 32 << 20
"""Scores of all entities that are worked on at once."""

FEATURES = (
    "share of the object",
    "share of the subject",
    "score",
    "best rule",
    "all rules",
    "subject fits best",
    "subject fits on average",
    "subject fits least",
    "object fits best",
    "object fits on average",
    "object fits least",
    "known objects",
    "known subjects",
    "objects a subject",
    "subjects an object",
    "triples",
)
COMPLEX_FEATURES = 3
"""The first features are ComplEx's; they are 0 for entities that it does not know."""

Ids = NDArray[np.int64]


class Weigher(nn.Module):
    """Features of links in, logits of their probability out."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, relation_count: int, *, hidden: bool = True) -> None:
        super().__init__()
        size = len(FEATURES)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.linear = nn.Linear(size, 1)
        self.relation_bias = nn.Parameter(torch.zeros(relation_count))
        self.relation_weights = nn.Parameter(torch.zeros(relation_count, size))
        self.hidden = None
        if hidden:
            last = nn.Linear(WIDTH, 1)
            nn.init.zeros_(last.weight)
            self.hidden = nn.Sequential(nn.Linear(size, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)

    def forward(self, features: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n,) logits of (n, FEATURES) features of links of (n,) relations."""
        x = ((features - self.mean) / self.scale).clamp(-LIMIT, LIMIT)
        logits = (
            self.linear(x).squeeze(1) + self.relation_bias[relations] + (self.relation_weights[relations] * x).sum(1)
        )
        return logits if self.hidden is None else logits + self.hidden(x).squeeze(1)


@dataclass(frozen=True)
class Record:
    """How well held-out facts were found, each by weights that were fitted on the others."""

    facts: int
    questions: int
    hits_1: float
    hits_3: float
    hits_10: float
    mrr: float
    guess_1: float
    """HITS@1 of guessing: the entities that the relation has most often."""
    guess_10: float
    error: float
    """Expected calibration error of the ten most probable new links of each question."""
    calibrated: bool
    """False where there were too few held-out facts: then links have scores, not probabilities."""


@dataclass(frozen=True)
class Knowledge:
    """What was learnt about links beside ComplEx's vectors: all that is saved."""

    rules: Rules
    kinds: Kinds
    pairs: Ids
    """Keys, direction * E + head, of the pairs that have tails in the training graph; ascending."""
    normalisers: NDArray[np.float32]
    """Of each pair: the logarithm of the sum of exp(score) over the entities that are not its tails."""
    usual: NDArray[np.float32]
    """(2R,) the mean of these by direction, for pairs without tails."""
    has_loops: NDArray[np.bool_]
    """(R,) whether a relation joins some entity to itself."""
    weigher: Weigher
    """For entities that ComplEx knows."""
    plain_weigher: Weigher
    """For entities that came after training: rules and kinds alone."""
    record: Record


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

    def believing(self, certain: bool) -> LinkProbability:
        """The same with stored links certain, or judged like all others."""
        if certain == self.certain:
            return self
        other = LinkProbability(self.knowledge, self.predictor, self.graph, certain=certain)
        other.__dict__.update(
            walks=self.walks, traits=self.traits, rules=self.rules, _zrows=self._zrows, _rows=self._rows
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

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n, E) log-probabilities of the links from each head along its relation to every entity."""
        keys, place = np.unique(relations.numpy() * self.entity_count + heads.numpy(), return_inverse=True)
        found = self._rows.get(keys, self._judged)[torch.from_numpy(place)]
        if self.certain and len(place):
            rows, tails = self.walks.of_heads(heads.numpy(), relations.numpy())
            found.view(-1)[torch.from_numpy(rows * self.entity_count + tails)] = CERTAIN
        return found

    def _judged(self, keys: Ids) -> torch.Tensor:
        """(n, E) log-probabilities of the links of heads and directions, as if the graph held none of them."""
        rows = min(ROWS_AT_ONCE, max(1, ROWS_BYTES // (4 * self.entity_count)))
        parts = []
        for first in range(0, len(keys), rows):
            checkpoint()  # a question that was cancelled, or has no time left, ends here
            parts.append(self._judged_few(keys[first : first + rows]))
        return torch.cat(parts) if parts else torch.zeros(0, self.entity_count)

    def _judged_few(self, keys: Ids) -> torch.Tensor:
        asked = self._ask(keys % self.entity_count, keys // self.entity_count)
        found, chosen = asked.order, asked.candidates(CANDIDATES)
        truth = self._log_probabilities(asked, chosen)  # (n, k)
        if chosen.shape[1] < self.entity_count:
            # What is no candidate follows the last of them.
            others = found.scatter(1, chosen, -torch.inf).amax(1, keepdim=True)
            found = (found - others + truth.amin(1, keepdim=True) - 1.0).clamp_min_(2 * LOWEST)
        return found.scatter_(1, chosen, truth)

    def of(self, subjects: Ids, relations: Ids, objects: Ids) -> NDArray[np.float64]:
        """(n,) log-probabilities of single links, the same numbers as ``to_all`` has for its candidates; relations may
        be walked either way."""
        subjects, relations, objects = (np.asarray(ids, np.int64) for ids in (subjects, relations, objects))
        found = np.empty(len(subjects))
        keys, place = np.unique(relations * self.entity_count + subjects, return_inverse=True)
        heads, directions = keys % max(1, self.entity_count), keys // max(1, self.entity_count)
        step = max(1, ROWS_BYTES // (4 * self.entity_count))
        for first in range(0, len(keys), step):
            asked = self._ask(heads[first : first + step], directions[first : first + step])
            links = np.flatnonzero((place >= first) & (place < first + step))
            rows = place[links] - first
            found[links] = self._log_probabilities_of(asked, rows, objects[links])
        if self.certain and len(found):
            for number, link in enumerate(zip(subjects.tolist(), relations.tolist(), objects.tolist(), strict=True)):
                tails = self.walks.of_head(link[0], link[1])
                at = np.searchsorted(tails, link[2])
                if at < len(tails) and tails[at] == link[2]:
                    found[number] = CERTAIN
        return found

    def reasons(self, subject: int, relation: int, object_: int) -> list[Fired]:
        """The rules that speak for a link, the most confident first."""
        return self.rules.fired(self.walks, subject, relation, object_)

    # Questions: a head and a direction each

    def _ask(self, heads: Ids, directions: Ids) -> _Asked:
        """What the voices say about all tails of each head and direction."""
        best, joint = (torch.from_numpy(part) for part in self.rules.evidence(self.walks, heads, directions))
        order = torch.log(joint + 1e-3).mul_(0.5).add_(torch.log(best + 1e-3), alpha=0.5)
        there = back = None
        if self.predictor is not None:
            known = self._complex_ids(heads, directions)
            there, back = self._scores(*known)
            inverse = (directions + self._R) % (2 * self._R)
            backwards = back - torch.stack([self._normalisers_of_all(d) for d in inverse.tolist()])
            order[:, : there.shape[1]] += there + backwards
            order[:, there.shape[1] :] += (there + backwards).mean(1, keepdim=True)
        return _Asked(heads, directions, order, best, joint, there, back)

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
        there = product(entities[heads], relations[directions])
        back = conjugate_product(relations[(directions + R) % (2 * R)], entities[heads])
        with torch.no_grad():
            return tuple((torch.cat([there, back]) @ entities.t()).split(len(heads)))  # type: ignore[return-value]

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

    def _log_probabilities(self, asked: _Asked, tails: torch.Tensor) -> torch.Tensor:
        """(n, k) log-probabilities of the links to (n, k) tails."""
        rows = np.repeat(np.arange(len(tails)), tails.shape[1])
        found = self._log_probabilities_of(asked, rows, tails.reshape(-1).numpy())
        return torch.from_numpy(found).to(torch.float32).view(tails.shape)

    def _log_probabilities_of(self, asked: _Asked, rows: Ids, tails: Ids) -> NDArray[np.float64]:
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
                found[members] = F.logsigmoid(logits.double()).numpy()
        # A link is no more probable than that its ends have such links at all. Ends with some have shown that they do.
        for fits, known in ((features[:, 7], features[:, 11]), (features[:, 10], features[:, 12])):
            most = -np.logaddexp(0.0, -(fits.astype(np.float64) + KIND_DOUBT))
            found = np.where(known == 0, np.minimum(found, most), found)
        np.maximum(found, LOWEST, out=found)
        loops = asked.heads[rows] == tails
        if loops.any():
            without = ~np.append(knowledge.has_loops, np.zeros(self._R - self._known_relations, bool))[relations]
            found[loops & without] = LOOP
        return found

    def features(self, asked: _Asked, rows: Ids, tails: Ids) -> tuple[NDArray[np.float32], Ids, NDArray[np.bool_]]:
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
        """(R, 3) logarithms: objects a subject, subjects an object, triples."""
        triples, R = self.graph.triples, self._R
        count = np.bincount(triples[:, 1], minlength=R)
        figures = [np.log1p(count)]
        for column in (2, 0):
            ends = np.unique(triples[:, [1, column]], axis=0)[:, 0]
            figures.insert(0, np.log(np.maximum(1, count) / np.maximum(1, np.bincount(ends, minlength=R))))
        return np.stack([figures[0], figures[1], figures[2]], 1).astype(np.float32)


class _RowCache:
    """Rows of all entities that were computed lately. On a small graph that is all of them."""

    def __init__(self, width: int) -> None:
        self._capacity = max(1, CACHE_BYTES // (4 * max(1, width)))
        self._table = torch.empty(0, width)
        self._slots: dict[int, int] = {}
        self._keys: list[int] = []
        self._next = 0
        self._lock = threading.Lock()

    def get(self, keys: Ids, compute: Callable[[Ids], torch.Tensor]) -> torch.Tensor:
        """(n, width) the rows of ``keys``, all different, those that are not there computed."""
        with self._lock:
            slots = [self._slots.get(key, -1) for key in keys.tolist()]
            there = [number for number, slot in enumerate(slots) if slot >= 0]
            stored = self._table[[slots[number] for number in there]]  # a copy
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
            self._table = torch.cat([self._table, torch.empty(size - len(self._table), self._table.shape[1])])
            self._keys += [-1] * (size - len(self._keys))
        for key, row in zip(keys, rows, strict=True):
            if self._next == self._capacity:
                self._next = 0
            self._slots.pop(self._keys[self._next], None)
            self._table[self._next] = row
            self._keys[self._next], self._slots[key] = key, self._next
            self._next += 1


@dataclass(frozen=True)
class _Asked:
    """What the voices say about the tails of n heads and directions."""

    heads: Ids
    directions: Ids
    order: torch.Tensor
    """(n, E) their sum, which chooses the candidates."""
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


# Fitting


def fit(
    predictor: ComplEx | None, graph: Graph, held_out: NDArray[np.integer], *, rule_seconds: float = 60.0, seed: int = 0
) -> Knowledge:
    """What ``graph``, which lacks the facts ``held_out`` (n, 3), teaches about links, and weights for the voices."""
    rules, kinds = mine(graph, seconds=rule_seconds, seed=seed), Kinds.of(graph)
    pairs, normalisers, usual = _normalisers(predictor, graph)
    loops = graph.triples[graph.triples[:, 0] == graph.triples[:, 2], 1]
    has_loops = np.bincount(loops, minlength=graph.relation_count) > 0
    knowledge = Knowledge(
        rules,
        kinds,
        pairs,
        normalisers,
        usual,
        has_loops,
        _untrained(graph.relation_count),
        _untrained(graph.relation_count),
        Record(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, calibrated=False),
    )
    facts = np.asarray(held_out, np.int64).reshape(-1, 3)
    facts = facts[np.random.default_rng(seed).permutation(len(facts))[:FIT_FACTS]]
    if len(facts) < FEWEST_FACTS:
        return replace(knowledge, record=replace(knowledge.record, facts=len(facts)))
    links = LinkProbability(knowledge, predictor, graph, certain=False)
    examples = _examples(links, facts, np.asarray(held_out, np.int64).reshape(-1, 3), seed)
    judged, hidden = _crossed(examples, graph.relation_count, seed)
    every = np.arange(len(examples.right))
    return replace(
        knowledge,
        weigher=_trained(examples, every, graph.relation_count, hidden, seed),
        plain_weigher=_trained(examples.without_complex(), every, graph.relation_count, hidden, seed),
        record=_record(examples, judged, len(facts)),
    )


def _untrained(relation_count: int) -> Weigher:
    """Weights that add the voices up, for graphs with nothing to fit on."""
    weigher = Weigher(relation_count, hidden=False)
    with torch.no_grad():
        weigher.linear.weight.zero_()
        weigher.linear.weight[0, [0, 1, 3, 4]] = torch.tensor([0.5, 0.5, 0.5, 0.25])
        weigher.linear.bias.fill_(-1.0)
    return weigher


def _normalisers(predictor: ComplEx | None, graph: Graph) -> tuple[Ids, NDArray[np.float32], NDArray[np.float32]]:
    """Pairs of the graph, their normalisers, and the usual one of each direction."""
    R, E = graph.relation_count, graph.entity_count
    walks = Walks.of(graph)
    heads = np.repeat(np.arange(E), np.diff(walks.offsets))
    keys = walks.directions.astype(np.int64) * E + heads
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    if predictor is None or len(pairs) == 0:
        return pairs[:0], np.zeros(0, np.float32), np.zeros(2 * R, np.float32)
    ends, tails = np.append(starts, len(order)), walks.tails[order].astype(np.int64)
    found = np.empty(len(pairs), np.float32)
    step = max(1, ROWS_BYTES // (4 * E))
    with torch.no_grad():
        for first in range(0, len(pairs), step):
            some = pairs[first : first + step]
            scores = predictor.scores(torch.from_numpy(some % E), torch.from_numpy(some // E))
            counts = np.diff(ends[first : first + len(some) + 1])
            rows = np.repeat(np.arange(len(some)), counts)
            known = tails[ends[first] : ends[first + len(some)]]
            scores.view(-1)[torch.from_numpy(rows * E + known)] = -1e4
            found[first : first + len(some)] = torch.logsumexp(scores, 1).numpy()
    counts = np.bincount(pairs // E, minlength=2 * R)
    usual = np.bincount(pairs // E, found, 2 * R) / np.maximum(1, counts)
    usual[counts == 0] = found.mean()
    return pairs, found, usual.astype(np.float32)


@dataclass(frozen=True)
class _Examples:
    """Links of questions about held-out facts, right and wrong."""

    features: NDArray[np.float32]
    relations: Ids
    right: NDArray[np.float32]
    weights: NDArray[np.float32]
    """How many links of its question each stands for."""
    questions: Ids
    facts: Ids
    """The held-out fact that each question is about; both of its questions are in one half."""
    asked: NDArray[np.bool_]
    """The link of that fact itself."""
    guess_ranks: NDArray[np.float64]
    """Rank of each question's fact by how often the relation has the entity: what somebody would guess."""

    def without_complex(self) -> _Examples:
        """The same as rules and kinds alone see them."""
        features = self.features.copy()
        features[:, :COMPLEX_FEATURES] = 0.0
        return replace(self, features=features)


def _examples(links: LinkProbability, facts: Ids, held_out: Ids, seed: int) -> _Examples:
    rng, R = np.random.default_rng(seed + 1), links.graph.relation_count
    heads = np.concatenate([facts[:, 0], facts[:, 2]])
    directions = np.concatenate([facts[:, 1], facts[:, 1] + R])
    tails = np.concatenate([facts[:, 2], facts[:, 0]])
    hidden: dict[tuple[int, int], list[int]] = {}
    for s, r, o in held_out.tolist():
        hidden.setdefault((s, r), []).append(o)
        hidden.setdefault((o, r + R), []).append(s)
    parts: list[tuple[NDArray[Any], ...]] = []
    guess_ranks: list[float] = []
    everybody = np.arange(links.entity_count)
    frequencies: dict[int, NDArray[np.int64]] = {}
    step = max(1, ROWS_BYTES // (4 * links.entity_count))
    for first in range(0, len(heads), step):
        asked = links._ask(heads[first : first + step], directions[first : first + step])
        collected: list[tuple[NDArray[Any], ...]] = []
        for row in range(len(asked.heads)):
            head, direction = int(asked.heads[row]), int(asked.directions[row])
            order = asked.order[row].numpy().copy()
            order[links.walks.of_head(head, direction)] = -np.inf
            if not links.knowledge.has_loops[direction % R]:
                order[head] = -np.inf
            true = np.asarray(hidden[head, direction])
            open_ = np.flatnonzero(np.isfinite(order))
            near = open_[np.argsort(-order[open_], kind="stable")[:NEAR]]
            near = np.union1d(near, true)
            others = np.setdiff1d(open_, near, assume_unique=True)
            far = rng.choice(others, min(FAR, len(others)), replace=False)
            some = np.concatenate([near, far])
            stands_for = np.append(np.ones(len(near)), np.full(len(far), len(others) / max(1, len(far))))
            numbers = np.full(len(some), row)
            collected.append((numbers, some, np.isin(some, true), stands_for, some == tails[first + row]))
            if direction not in frequencies:
                frequencies[direction] = links.walks.counts(
                    everybody, np.full(len(everybody), (direction + R) % (2 * R))
                )
            wrong = frequencies[direction][np.setdiff1d(open_, true)]
            own = frequencies[direction][tails[first + row]]
            guess_ranks.append(1 + (wrong > own).sum() + (wrong == own).sum() / 2)
        places, entities, *rest = (np.concatenate(column) for column in zip(*collected, strict=True))
        features, relations, _ = links.features(asked, places, entities)
        parts.append((features, relations, places + first, *rest))
    features, relations, questions, right, weights, is_fact = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _Examples(
        features,
        relations,
        right.astype(np.float32),
        weights.astype(np.float32),
        questions,
        questions % len(facts),
        is_fact,
        np.array(guess_ranks),
    )


def _trained(examples: _Examples, members: Ids, relation_count: int, hidden: bool, seed: int) -> Weigher:
    """Weights fitted on the examples ``members``."""
    torch.manual_seed(seed)
    weigher = Weigher(relation_count, hidden=hidden)
    features = torch.from_numpy(examples.features[members])
    weigher.mean.copy_(features.mean(0))
    weigher.scale.copy_(features.std(0) + 1e-6)
    relations = torch.from_numpy(examples.relations[members])
    right, weights = torch.from_numpy(examples.right[members]), torch.from_numpy(examples.weights[members])
    positives = float(right.sum())
    optimizer = torch.optim.Adam(weigher.parameters(), lr=0.01)
    size = min(4_096, len(members))
    steps = int(np.clip(6 * len(members) / size, 300, 1_500))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 0.02 * (1 - step / steps) + 1e-4
            some = torch.randint(len(members), (size,))
            logits = weigher(features[some], relations[some])
            each = F.binary_cross_entropy_with_logits(logits, right[some], reduction="none")
            loss = (each * weights[some]).sum() * (len(members) / size)
            penalty = 3.0 * (weigher.relation_weights.square().sum() + 0.1 * weigher.relation_bias.square().sum())
            loss = (loss + penalty) / positives + 1e-4 * weigher.linear.weight.square().sum()
            if weigher.hidden is not None:
                loss = loss + 1e-4 * sum(w.square().sum() for w in weigher.hidden.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return weigher.eval().requires_grad_(False)


def _crossed(examples: _Examples, relation_count: int, seed: int) -> tuple[NDArray[np.float64], bool]:
    """Probabilities of all examples, each by weights fitted on the other half of the facts; and whether a hidden layer
    is better than none."""
    found = {}
    for hidden in (True, False):
        judged = np.empty(len(examples.right))
        for half in (0, 1):
            mine_, others = np.flatnonzero(examples.facts % 2 == half), np.flatnonzero(examples.facts % 2 != half)
            weigher = _trained(examples, others, relation_count, hidden, seed)
            with torch.no_grad():
                logits = weigher(
                    torch.from_numpy(examples.features[mine_]), torch.from_numpy(examples.relations[mine_])
                )
            judged[mine_] = torch.sigmoid(logits.double()).numpy()
        p = np.clip(judged, 1e-9, 1 - 1e-9)
        losses = -np.where(examples.right > 0, np.log(p), np.log1p(-p)) * examples.weights
        found[hidden] = float(losses.sum()), judged
    hidden = found[True][0] <= found[False][0]
    return found[hidden][1], hidden


def _record(examples: _Examples, judged: NDArray[np.float64], facts: int) -> Record:
    ranks, guesses = _ranks(examples, judged), examples.guess_ranks
    listed = np.lexsort((-judged, examples.questions))
    first = np.searchsorted(examples.questions[listed], examples.questions[listed])
    top = listed[np.arange(len(listed)) - first < 10]
    return Record(
        facts,
        len(ranks),
        float((ranks <= 1).mean()),
        float((ranks <= 3).mean()),
        float((ranks <= 10).mean()),
        float((1 / ranks).mean()),
        float((guesses <= 1).mean()),
        float((guesses <= 10).mean()),
        calibration_error(judged[top], examples.right[top]),
        calibrated=True,
    )


def _ranks(examples: _Examples, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rank of each question's own fact, other right answers left out; ties count half."""
    fact = np.flatnonzero(examples.asked)
    own = np.empty(int(examples.questions.max()) + 1)
    own[examples.questions[fact]] = scores[fact]
    against = own[examples.questions]
    wrong = (examples.right == 0) * examples.weights
    above = np.bincount(examples.questions, wrong * (scores > against))
    level = np.bincount(examples.questions, wrong * (scores == against))
    return 1 + above + level / 2


def calibration_error(said: NDArray[np.floating], true: NDArray[np.floating], bins: int = 10) -> float:
    """Expected calibration error: how far the mean probability of a bin is from the share that is true, on average."""
    number = np.minimum((np.asarray(said) * bins).astype(int), bins - 1)
    errors = [
        abs(said[number == b].mean() - true[number == b].mean()) * (number == b).mean()
        for b in range(bins)
        if (number == b).any()
    ]
    return float(sum(errors))


# Files


def save(knowledge: Knowledge, folder: str | os.PathLike[str]) -> None:
    """Write FILE into a model folder."""
    from safetensors.numpy import save_file

    arrays: dict[str, NDArray[Any]] = {
        f"rules.{name}": getattr(knowledge.rules, name) for name in ("relations", "bodies", "hits", "totals")
    }
    arrays |= {f"kinds.{name}": getattr(knowledge.kinds, name) for name in ("links", "sizes", "together")}
    arrays |= {name: getattr(knowledge, name) for name in ("pairs", "normalisers", "usual", "has_loops")}
    for which in ("weigher", "plain_weigher"):
        arrays |= {f"{which}.{name}": value.numpy() for name, value in getattr(knowledge, which).state_dict().items()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "entities": knowledge.kinds.entity_count,
        "relations": knowledge.kinds.relation_count,
        "record": asdict(knowledge.record),
    }
    path = Path(folder) / FILE
    new = path.with_suffix(".new")
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, new, {"biqe": json.dumps(head)})
    os.replace(new, path)


def load(folder: str | os.PathLike[str]) -> Knowledge | None:
    """What ``save`` wrote into a model folder; None where there is none."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            head = json.loads((file.metadata() or {})["biqe"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if head["format"] != FORMAT or head["version"] != VERSION:
            raise UnreadableFile(f"{path} is no {FORMAT} file of version {VERSION}", hint="train the model anew")
        E, R = int(head["entities"]), int(head["relations"])
        rules = Rules(R, *(arrays[f"rules.{name}"] for name in ("relations", "bodies", "hits", "totals")))
        kinds = Kinds(R, E, *(arrays[f"kinds.{name}"] for name in ("links", "sizes", "together")))
        weighers = []
        for which in ("weigher", "plain_weigher"):
            state = {
                name.removeprefix(f"{which}."): torch.from_numpy(array)
                for name, array in arrays.items()
                if name.startswith(f"{which}.")
            }
            weigher = Weigher(R, hidden="hidden.0.weight" in state)
            weigher.load_state_dict(state)
            weighers.append(weigher.eval().requires_grad_(False))
        knowledge = Knowledge(
            rules,
            kinds,
            arrays["pairs"],
            arrays["normalisers"],
            arrays["usual"],
            arrays["has_loops"],
            weighers[0],
            weighers[1],
            Record(**head["record"]),
        )
        _check(knowledge, path)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise UnreadableFile(f"{path} is damaged: {error}", hint="train the model anew") from error
    return knowledge


def _check(knowledge: Knowledge, path: Path) -> None:
    """UnreadableFile where arrays do not fit together: they are used as places in other arrays."""
    R, n, rules, kinds = knowledge.kinds.relation_count, len(knowledge.rules), knowledge.rules, knowledge.kinds
    fits = [
        rules.bodies.shape == (n, 2),
        rules.hits.shape == rules.totals.shape == (n, 4),
        n == 0
        or (0 <= rules.relations.min() and rules.relations.max() < R and bool((np.diff(rules.relations) >= 0).all())),
        n == 0 or (-1 <= rules.bodies.min() and rules.bodies[:, 0].min() >= 0 and rules.bodies.max() < 2 * R),
        n == 0 or (rules.hits.min() >= 0 and bool((rules.hits <= rules.totals).all())),
        kinds.sizes.shape == (2 * R + len(kinds.links),),
        kinds.together.shape == (2 * R + len(kinds.links), 2 * R),
        knowledge.pairs.shape == knowledge.normalisers.shape,
        knowledge.usual.shape == (2 * R,) and knowledge.has_loops.shape == (R,),
        bool(np.isfinite(knowledge.normalisers).all() and np.isfinite(knowledge.usual).all()),
        all(
            bool(torch.isfinite(w).all())
            for part in (knowledge.weigher, knowledge.plain_weigher)
            for w in part.state_dict().values()
        ),
    ]
    if not all(fits):
        raise UnreadableFile(f"{path} is damaged: its arrays do not fit together", hint="train the model anew")
