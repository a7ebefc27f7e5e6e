"""Training queries made from triples or drawn from a benchmark, with varied targets and with their answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import TRAINING
from biqe.query.bound import HIDDEN, KINDS, ROLES, TARGET, AnswerSets, QuerySet

BLOCK = 256
"""Triples that ``some_triples`` takes together."""


def some_triples(graph: Graph, most: int, rng: np.random.Generator) -> Graph:
    """A random sample of about ``most`` triples; all of them for 0.

    Consecutive triples are taken in blocks, so that triples of one subject stay together and a graph on disk is read in
    few places.
    """
    if not 0 < most < len(graph.triples):
        return graph
    length = min(BLOCK, most)
    starts = np.arange(0, len(graph.triples), length)
    taken = np.sort(rng.choice(starts, max(1, most // length), replace=False))
    return Graph(graph.vocabulary, np.concatenate([graph.triples[start : start + length] for start in taken]))


def triple_queries(graph: Graph, rng: np.random.Generator, inverse_share: float = 0.0, together: int = 1) -> QuerySet:
    """Every triple as a query for its tail; a random share of them inverted, as a query for its head. Up to
    ``together`` triples with the same source and relation make one query (see ``_grouped``)."""
    triples = graph.triples
    source, relation, tail = triples[:, 0].copy(), triples[:, 1].copy(), triples[:, 2].copy()
    inverted = np.flatnonzero(rng.random(len(triples)) < inverse_share)
    source[inverted], tail[inverted] = triples[inverted, 2], triples[inverted, 0]
    relation[inverted] += graph.relation_count
    return _grouped(source, relation, tail, rng, together)


def gold_as_answers(queries: QuerySet) -> QuerySet:
    """The queries with the gold entity of each target as its only answer."""
    gold = queries.gold[queries.target_nodes]
    return queries.with_filters(**{TRAINING: AnswerSets(np.arange(len(gold) + 1), gold)})


def both_directions(graph: Graph, rng: np.random.Generator, together: int = 1) -> QuerySet:
    """Every triple twice: as a query for its tail and, inverted, for its head. ``together`` as in
    ``triple_queries``."""
    triples = graph.triples
    source = np.concatenate([triples[:, 0], triples[:, 2]])
    relation = np.concatenate([triples[:, 1], triples[:, 1] + graph.relation_count])
    tail = np.concatenate([triples[:, 2], triples[:, 0]])
    return _grouped(source, relation, tail, rng, together)


def every_question(graph: Graph) -> QuerySet:
    """Each distinct (source, relation) of the graph, inverse relations included, as one query; its gold entity is its
    first answer."""
    twice = both_directions(graph, np.random.default_rng(0))
    source, relation = twice.nodes[::2], twice.edges[:, 1]
    kept = np.unique(source.astype(np.int64) * (2 * graph.relation_count) + relation, return_index=True)[1]
    return twice.take(kept)


def _grouped(
    source: NDArray[np.int32], relation: NDArray[np.int32], tail: NDArray[np.int32], rng: np.random.Generator, most: int
) -> QuerySet:
    """The triples as queries for their tails. Up to ``most`` triples with the same source and relation, grouped at
    random, make one query with several answers. So an epoch has fewer queries, while questions with many answers still
    count more than those with few."""
    if most == 1:
        return _single_edges(source, relation, tail)
    question = source.astype(np.int64) * (int(relation.max(initial=0)) + 1) + relation
    dealt = np.lexsort((rng.random(len(question)), question))
    first = np.flatnonzero(np.diff(question[dealt], prepend=-1))
    place = np.arange(len(dealt)) - np.repeat(first, np.diff(first, append=len(dealt)))
    starts = np.flatnonzero(place % most == 0)
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(dealt)))
    dealt = dealt[np.lexsort((tail[dealt], group))]  # answers of one query are sorted
    asked = _single_edges(source[dealt[starts]], relation[dealt[starts]], tail[dealt[starts]])
    answers = AnswerSets(np.append(starts, len(dealt)).astype(np.int64), tail[dealt])
    return asked.with_filters(**{TRAINING: answers})


def _single_edges(source: NDArray[np.int32], relation: NDArray[np.int32], tail: NDArray[np.int32]) -> QuerySet:
    count = len(source)
    nodes = np.full((count, 2), TARGET, np.int32)
    nodes[:, 0] = source
    edges = np.zeros((count, 3), np.int32)
    edges[:, 1], edges[:, 2] = relation, 1
    return QuerySet(
        np.arange(0, 2 * count + 1, 2),
        nodes.ravel(),
        np.stack([source, tail], 1).ravel(),
        np.tile(np.array([ROLES.index("none"), ROLES.index("tail")], np.int8), count),
        np.arange(count + 1),
        edges,
        np.full(count, KINDS.index("triple"), np.int8),
    )


def vary_targets(queries: QuerySet, rng: np.random.Generator, hide_share: float, reveal_share: float) -> QuerySet:
    """The queries, with targets made existential in a share ``hide_share`` of them, and given in ``reveal_share``.

    A changed query loses each of its targets with probability one half, but always keeps one.
    """
    if hide_share == 0.0 and reveal_share == 0.0:
        return queries
    count = len(queries)
    lengths = np.diff(queries.node_offsets)
    owner = np.repeat(np.arange(count), lengths)
    is_target = queries.nodes == TARGET
    # The target with the largest draw of its query is the one that stays.
    draw = np.where(is_target, rng.random(len(owner)), -1.0)
    largest = np.maximum.reduceat(draw, queries.node_offsets[:-1]) if len(draw) else draw
    lost = is_target & (draw < largest[owner]) & (rng.random(len(owner)) < 0.5)
    fate = rng.random(count)
    hide = lost & (fate < hide_share)[owner]
    reveal = lost & ((fate >= hide_share) & (fate < hide_share + reveal_share))[owner]
    nodes = np.where(hide, HIDDEN, np.where(reveal, queries.gold, queries.nodes)).astype(np.int32)
    return replace(queries, nodes=nodes, filters={})


def sample_questions(questions: ShapedQueries, count: int, rng: np.random.Generator) -> QuerySet:
    """About ``count`` of the questions, equally many of each shape, as one query set."""
    present = np.unique(questions.shape)
    share = max(1, count // len(present))
    taken = []
    for shape in present:
        members = np.flatnonzero(questions.shape == shape)
        taken.append(rng.choice(members, min(share, len(members)), replace=False))
    return replace(questions.take(np.sort(np.concatenate(taken))).rows, filters={})


def attach_answers(graph: Graph, queries: QuerySet, *, most: int, rng: np.random.Generator, threads: int) -> QuerySet:
    """The queries with the answers of each target in ``graph``: at most ``most``, sampled evenly, or all of them for 0.

    Targets without a gold entity get one of their answers as gold. Queries with a target that has no answer in the
    graph are left out.
    """
    answers = answer_sets(graph, queries, threads=threads)
    lengths = np.diff(answers.offsets)
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        owner = np.searchsorted(queries.target_offsets, empty, side="right") - 1
        kept = np.setdiff1d(np.arange(len(queries)), owner)
        queries = replace(queries, filters={TRAINING: answers}).take(kept)
        answers = queries.filters[TRAINING]
        lengths = np.diff(answers.offsets)
    targets = queries.target_nodes
    gold = queries.gold.copy()
    drawn = answers.values[answers.offsets[:-1] + (rng.random(len(lengths)) * lengths).astype(np.int64)]
    gold[targets] = np.where(gold[targets] >= 0, gold[targets], drawn)
    if most and (lengths > most).any():
        answers = _thinned(answers, most, rng)
    return replace(queries, gold=gold, filters={TRAINING: answers})


def _thinned(answers: AnswerSets, most: int, rng: np.random.Generator) -> AnswerSets:
    """At most ``most`` members of each set. A longer set is cut down to members at equal distances from a random start,
    so that each is equally likely."""
    lengths = np.diff(answers.offsets)
    kept = np.minimum(lengths, most)
    offsets = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=offsets[1:])
    number = np.arange(offsets[-1]) - np.repeat(offsets[:-1], kept)
    stretch = np.repeat(lengths / np.maximum(kept, 1), kept)
    start = np.repeat(rng.random(len(kept)), kept)
    # Steps are at least 1 long, so no member is taken twice; rounding up must not leave the set.
    within = np.minimum(((number + start) * stretch).astype(np.int64), np.repeat(lengths, kept) - 1)
    return AnswerSets(offsets, answers.values[np.repeat(answers.offsets[:-1], kept) + within])
