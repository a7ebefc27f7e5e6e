"""Training queries, epoch by epoch, cut into batches by number of tokens.

There are three kinds of stream: triples, paths and DAGs mixed (paper, section "Datasets": the tail of every triple, and
every entity but the source of paths and DAGs, are predicted); questions of a benchmark; and, for link predictors, all
triples in both directions. An epoch depends only on the seed and its number, so that a resumed run sees the same
queries.

With several ranks, triples and the queries of a set are divided among them by one common permutation, and each rank
mines its own share of paths and DAGs. Budgets are for a step of all ranks together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.mine.dataset import epoch_queries
from biqe.models._contract import Encoded, QueryModel
from biqe.query.bound import QuerySet, concatenate
from biqe.training.config import TrainConfig
from biqe.training.queries import (
    attach_answers,
    both_directions,
    every_question,
    gold_as_answers,
    sample_questions,
    some_triples,
    triple_queries,
    vary_targets,
)
from biqe.training.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Epoch:
    """The queries of one epoch, encoded for the model, and which of them make each batch."""

    encoded: Encoded
    batches: list[NDArray[np.int64]]
    steps: int
    """The largest number of batches of any rank. Ranks with fewer repeat theirs."""

    def __len__(self) -> int:
        return self.steps

    def from_batch(self, first: int) -> Iterator[tuple[int, Any]]:
        """Pairs of number of queries and batch, starting with batch number ``first``."""
        turns = (self.batches[step % len(self.batches)] for step in range(first, self.steps))
        return ((len(rows), self.encoded.batch(rows)) for rows in turns)


def check_budgets(config: TrainConfig, ranks: int) -> None:
    """InvalidOption if a step has too few tokens or queries for ``ranks`` ranks."""
    for name in ("batch_tokens", "batch_queries"):
        if getattr(config, name) < ranks:
            raise InvalidOption(
                f"{name!r} is shared by the ranks, and must be at least their number. "
                f"Got {getattr(config, name)} for {ranks} ranks",
                hint=f"start fewer ranks, or use -O {name}={ranks * getattr(config, name)} or more",
            )


class Stream:
    """Epochs of training queries over one graph: the ``questions`` of a benchmark, the ``fixed`` queries of a mined
    set, or freshly mined ones."""

    def __init__(
        self,
        graph: Graph,
        model: QueryModel,
        config: TrainConfig,
        fixed: QuerySet | None = None,
        questions: ShapedQueries | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        if len(graph.triples) == 0:
            raise EmptyResult("the training split has no triples", hint="import the graph again, or split it anew")
        uses_answers = getattr(model, "uses_answers", False)
        if config.answers == "all" and not uses_answers:
            raise InvalidOption(
                f"{model.name} learns from one answer at a time. Got answers='all'",
                hint="leave it out, or use a model that learns from all: biqe models",
            )
        check_budgets(config, ranks.world)
        self._graph = graph
        self._ranks = ranks
        self._model = model
        self._config = config
        self._fixed = fixed
        self._questions = questions
        self._inverse_share = config.inverse_share if getattr(model.config, "inverses", False) else 0.0
        self._triple_answers = config.triple_answers if uses_answers else 1

    def epoch(self, number: int) -> Epoch:
        """This rank's part of epoch ``number``, the same on every call."""
        ranks = self._ranks
        encoded, batches = ranks.all_or_none(lambda: self.own_batches(number))
        return Epoch(encoded, batches, int(max(row[0] for row in ranks.gather_numbers([len(batches)]))))

    def own_batches(self, number: int) -> tuple[Encoded, list[NDArray[np.int64]]]:
        """This rank's queries of epoch ``number``, and the rows of each of its batches."""
        config, ranks = self._config, self._ranks
        rng = np.random.default_rng([config.seed, number, 1])
        every_answer = config.answers == "all"
        if getattr(self._model, "learns_from", "queries") == "triples":
            graph = some_triples(self._graph, config.triples, rng)
            queries = every_question(graph) if every_answer else both_directions(graph, rng, self._triple_answers)
            queries = self._own_share(queries, number)
        elif self._questions is not None:
            queries = self._own_share(sample_questions(self._questions, config.set_queries, rng), number)
        else:
            queries = self._mixed(number, rng)
        rng = self._own_random(number, 5, rng)
        if every_answer or (queries.gold[queries.target_nodes] < 0).any():
            queries = self._with_answers(queries, rng, every_answer)
        if len(queries) == 0:
            raise EmptyResult(
                f"rank {ranks.rank} of {ranks.world} has no query to learn from", hint="start fewer ranks"
            )
        encoded = self._model.encode(queries)
        budget = config.batch_tokens // ranks.world, config.batch_queries // ranks.world
        return encoded, cut_batches(encoded.sizes, *budget, rng)

    def _own_share(self, queries: QuerySet, number: int) -> QuerySet:
        """This rank's part of queries that all ranks hold."""
        ranks = self._ranks
        if not ranks.several:
            return queries
        order = np.random.default_rng([self._config.seed, number, 3]).permutation(len(queries))
        return queries.take(order[ranks.rank :: ranks.world])

    def _mixed(self, number: int, rng: np.random.Generator) -> QuerySet:
        config = self._config
        graph = some_triples(self._graph, config.triples, rng)
        if config.answers == "all":
            triples = every_question(graph)
            keep = (triples.edges[:, 1] < self._graph.relation_count) | (rng.random(len(triples)) < self._inverse_share)
            triples = triples.take(np.flatnonzero(keep))
        else:
            triples = triple_queries(graph, rng, self._inverse_share, self._triple_answers)
        triples = self._own_share(triples, number)
        mined = self._mined(number)
        if mined is None or len(mined) == 0:
            return triples
        mined = vary_targets(mined, self._own_random(number, 6, rng), config.hide_share, config.reveal_share)
        # If triples carry answers, the others must too: concatenating drops what only some parts have.
        return concatenate([triples, gold_as_answers(mined) if triples.filters else mined])

    def _with_answers(self, queries: QuerySet, rng: np.random.Generator, every_answer: bool) -> QuerySet:
        config = self._config
        # A model that filters true answers out of its negatives needs all of them.
        most = 0 if getattr(self._model.config, "filter_negatives", False) else config.most_answers
        threads = config.threads or max(1, (os.cpu_count() or 1) // self._ranks.here)
        found = attach_answers(self._graph, queries, most=most, rng=rng, threads=threads)
        if len(found) == 0:
            raise EmptyResult(
                "none of the training queries has an answer in the training graph",
                hint="the set and the graph do not belong together",
            )
        return found if every_answer else replace(found, filters={})

    def _mined(self, number: int) -> QuerySet | None:
        config = self._config
        if not config.online:
            return None if self._fixed is None else self._own_share(self._fixed, number)
        if config.paths + config.dags == 0:
            return None
        return epoch_queries(
            self._graph,
            paths=self._part(config.paths),
            dags=self._part(config.dags),
            seed=config.seed,
            epoch=number,
            inverse_share=self._inverse_share,
            rank=self._ranks.rank,
        )

    def _own_random(self, number: int, use: int, common: np.random.Generator) -> np.random.Generator:
        """Random numbers for what this rank does alone. The ``common`` generator must stay in step on all ranks."""
        if not self._ranks.several:
            return common
        return np.random.default_rng([self._config.seed, number, use, self._ranks.rank])

    def _part(self, count: int) -> int:
        """This rank's part of ``count``; the parts of all ranks add up to it."""
        return count // self._ranks.world + (self._ranks.rank < count % self._ranks.world)


def cut_batches(
    sizes: NDArray[np.integer], tokens: int, queries: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Rows of each batch, in random order. Queries of a batch have one size, so that nothing is padded; a batch has at
    most ``tokens`` tokens and ``queries`` queries."""
    shuffled = rng.permutation(len(sizes))
    order = shuffled[np.argsort(sizes[shuffled], kind="stable")]
    ordered = sizes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    batches = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        step = max(1, min(queries, tokens // max(1, int(ordered[start]))))
        batches += [order[at : min(at + step, stop)] for at in range(start, stop, step)]
    return [batches[i] for i in rng.permutation(len(batches))]
