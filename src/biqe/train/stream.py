"""What a model learns from, epoch by epoch, cut into batches by token budget.

Three kinds of stream: mixed epochs of triples, paths and DAGs (paper, section "Datasets": the tail of every
triple, and every entity but the source of paths and DAGs, are predicted); questions of a benchmark; and, for link
predictors, all triples in both directions. An epoch is a pure function of the seed and its number, so a run that
is resumed sees what it would have seen.
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
    triple_queries,
    vary_targets,
)


@dataclass(frozen=True)
class Epoch:
    """One pass: the queries in the model's form, and which of them make each batch."""

    encoded: Encoded
    batches: list[NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.batches)

    def from_batch(self, first: int) -> Iterator[tuple[int, Any]]:
        """Number of queries and batch, starting at batch number ``first``."""
        return ((len(rows), self.encoded.batch(rows)) for rows in self.batches[first:])


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
    ) -> None:
        if len(graph.triples) == 0:
            raise EmptyResult("the training split has no triples", hint="import the graph again, or split it anew")
        if config.answers == "all" and not model.uses_answers:
            raise InvalidOption(f"{model.name} learns from one answer at a time. Got answers='all'",
                                hint="leave it out, or use a model that learns from all: biqe models")  # fmt: skip
        self._graph = graph
        self._model = model
        self._config = config
        self._fixed = fixed
        self._questions = questions
        self._inverse_share = config.inverse_share if getattr(model.config, "inverses", False) else 0.0
        self._together = config.triple_answers if model.uses_answers else 1

    def epoch(self, number: int) -> Epoch:
        """Epoch ``number``, the same each time it is asked for."""
        config = self._config
        rng = np.random.default_rng([config.seed, number, 1])
        every_answer = config.answers == "all"
        if self._model.learns_from == "triples":
            queries = every_question(self._graph) if every_answer else both_directions(self._graph, rng, self._together)
        elif self._questions is not None:
            queries = sample_questions(self._questions, config.set_queries, rng)
        else:
            queries = self._mixed(number, rng)
        if every_answer or (queries.gold[queries.target_nodes] < 0).any():
            queries = self._with_answers(queries, rng, every_answer)
        encoded = self._model.encode(queries)
        return Epoch(encoded, cut_batches(encoded.sizes, config.batch_tokens, config.batch_queries, rng))

    def _mixed(self, number: int, rng: np.random.Generator) -> QuerySet:
        config = self._config
        if config.answers == "all":
            triples = every_question(self._graph)
            keep = (triples.edges[:, 1] < self._graph.relation_count) | (rng.random(len(triples)) < self._inverse_share)
            triples = triples.take(np.flatnonzero(keep))
        else:
            triples = triple_queries(self._graph, rng, self._inverse_share, self._together)
        mined = self._mined(number)
        if mined is None or len(mined) == 0:
            return triples
        mined = vary_targets(mined, rng, config.hide_share, config.reveal_share)
        # Where triples carry answers, all must: what only some parts have is dropped when they are joined.
        return concatenate([triples, gold_as_answers(mined) if triples.filters else mined])

    def _with_answers(self, queries: QuerySet, rng: np.random.Generator, every_answer: bool) -> QuerySet:
        config = self._config
        # Negatives that are to be free of true answers need all of them.
        most = 0 if getattr(self._model.config, "filter_negatives", False) else config.most_answers
        threads = config.threads or os.cpu_count() or 1
        found = attach_answers(self._graph, queries, most=most, rng=rng, threads=threads)
        if len(found) == 0:
            raise EmptyResult("none of the training queries has an answer in the training graph",
                              hint="the set and the graph do not belong together")  # fmt: skip
        return found if every_answer else replace(found, filters={})

    def _mined(self, number: int) -> QuerySet | None:
        config = self._config
        if not config.online:
            return self._fixed
        if config.paths + config.dags == 0:
            return None
        return epoch_queries(
            self._graph,
            paths=config.paths,
            dags=config.dags,
            seed=config.seed,
            epoch=number,
            inverse_share=self._inverse_share,
        )


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
