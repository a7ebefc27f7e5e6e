"""What a model learns from, epoch by epoch, cut into batches by token budget.

Three kinds of stream: mixed epochs of triples, paths and DAGs (paper, section "Datasets": the tail of every
triple, and every entity but the source of paths and DAGs, are predicted); questions of a benchmark; and, for link
predictors, all triples in both directions. An epoch is a pure function of the seed and its number, so a run that
is resumed sees what it would have seen.

Where several ranks train together, triples and the queries of a set are dealt out by one permutation that all of them
draw, and each rank mines its own share of paths and DAGs. Budgets are those of a step of all ranks.
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
from biqe.mine.online import epoch_queries
from biqe.models._contract import Encoded, QueryModel
from biqe.query.queryset import QuerySet, concatenate
from biqe.train.config import TrainConfig
from biqe.train.queries import (
    attach_answers,
    both_directions,
    every_question,
    gold_as_answers,
    sample_questions,
    some_triples,
    triple_queries,
    vary_targets,
)
from biqe.train.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Epoch:
    """One pass: the queries in the model's form, and which of them make each batch."""

    encoded: Encoded
    batches: list[NDArray[np.int64]]
    steps: int
    """As many as the rank with the most batches has; the others begin theirs again."""

    def __len__(self) -> int:
        return self.steps

    def from_batch(self, first: int) -> Iterator[tuple[int, Any]]:
        """Number of queries and batch, starting at batch number ``first``."""
        turns = (self.batches[step % len(self.batches)] for step in range(first, self.steps))
        return ((len(rows), self.encoded.batch(rows)) for rows in turns)


def check_budgets(config: TrainConfig, ranks: int) -> None:
    """Refuse budgets of a step that leave some of ``ranks`` ranks without a query."""
    for name in ("batch_tokens", "batch_queries"):
        if getattr(config, name) < ranks:
            raise InvalidOption(
                f"{name!r} is shared by the ranks, and must be at least their number. "
                f"Got {getattr(config, name)} for {ranks} ranks",
                hint=f"start fewer ranks, or use -O {name}={ranks * getattr(config, name)} or more",
            )


class Stream:
    """Epochs of training queries over one graph: of ``questions`` where a benchmark gives some, of the ``fixed``
    queries of a mined set, or of freshly mined ones."""

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
        self._together = config.triple_answers if uses_answers else 1

    def epoch(self, number: int) -> Epoch:
        """Epoch ``number``, the same each time it is asked for; this rank's part of it."""
        ranks = self._ranks
        encoded, batches = ranks.all_or_none(lambda: self._own(number))
        return Epoch(encoded, batches, int(max(row[0] for row in ranks.table([len(batches)]))))

    def _own(self, number: int) -> tuple[Encoded, list[NDArray[np.int64]]]:
        """This rank's queries, and which of them make each of its batches."""
        config, ranks = self._config, self._ranks
        rng = np.random.default_rng([config.seed, number, 1])
        every_answer = config.answers == "all"
        if getattr(self._model, "learns_from", "queries") == "triples":
            graph = some_triples(self._graph, config.triples, rng)
            queries = every_question(graph) if every_answer else both_directions(graph, rng, self._together)
            queries = self._dealt(queries, number)
        elif self._questions is not None:
            queries = self._dealt(sample_questions(self._questions, config.set_queries, rng), number)
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

    def _dealt(self, queries: QuerySet, number: int) -> QuerySet:
        """This rank's share of queries that all ranks hold."""
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
            triples = triple_queries(graph, rng, self._inverse_share, self._together)
        triples = self._dealt(triples, number)
        mined = self._mined(number)
        if mined is None or len(mined) == 0:
            return triples
        mined = vary_targets(mined, self._own_random(number, 6, rng), config.hide_share, config.reveal_share)
        # Where triples carry answers, all must: what only some parts have is dropped when they are joined.
        return concatenate([triples, gold_as_answers(mined) if triples.filters else mined])

    def _with_answers(self, queries: QuerySet, rng: np.random.Generator, every_answer: bool) -> QuerySet:
        config = self._config
        # Negatives that are to be free of true answers need all of them.
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
            return None if self._fixed is None else self._dealt(self._fixed, number)
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
        """Random numbers for what this rank alone does: what all ranks draw alike, they must draw equally often."""
        if not self._ranks.several:
            return common
        return np.random.default_rng([self._config.seed, number, use, self._ranks.rank])

    def _part(self, count: int) -> int:
        """How many of ``count`` this rank makes; over all ranks they add up."""
        return count // self._ranks.world + (self._ranks.rank < count % self._ranks.world)


def cut_batches(
    sizes: NDArray[np.integer], tokens: int, queries: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Rows of each batch: all of one size, so that nothing is padded, within the budget, in random order."""
    shuffled = rng.permutation(len(sizes))
    order = shuffled[np.argsort(sizes[shuffled], kind="stable")]
    ordered = sizes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    batches = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        step = max(1, min(queries, tokens // max(1, int(ordered[start]))))
        batches += [order[at : min(at + step, stop)] for at in range(start, stop, step)]
    return [batches[i] for i in rng.permutation(len(batches))]
