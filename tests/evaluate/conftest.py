"""Models and questions whose scores are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from biqe.benchmarks.shaped import ShapedQueries
from biqe.evaluate.protocol import Summary
from biqe.evaluate.report import Report
from biqe.evaluate.scoring import Skipped
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue, store
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet


@dataclass(frozen=True)
class Answer:
    yes: bool
    reason: str = ""
    hint: str | None = None


class Encoded:
    def __init__(self, queries):
        self.queries = queries
        self.sizes = np.diff(queries.edge_offsets)

    def batch(self, rows):
        assert len(np.unique(self.sizes[rows])) <= 1, "a batch holds queries of one size"
        return self.queries.take(rows)


class Scripted(nn.Module):
    """Gives each query the scores that ``script`` says; asks nothing of weights."""

    name = "scripted"

    def __init__(self, script, entities, relations=5, refuse=lambda query: None):
        super().__init__()
        self.script = script
        self.entity_count = entities
        self.relation_count = relations
        self.refuse = refuse
        self.asked = 0

    def supports(self, query, *, strict=True):
        self.asked += 1
        reason = self.refuse(query)
        return Answer(reason is None, reason or "")

    def encode(self, queries):
        assert not queries.filters, "a model must not see the answers"
        return Encoded(queries)

    def encoder(self, queries):
        return self.encode(queries).batch(np.arange(len(queries)))

    def scores(self, batch):
        assert not self.training
        assert not torch.is_grad_enabled()
        rows = [self.script(query, target) for query in batch for target in query.targets]
        return torch.tensor(np.array(rows), dtype=torch.float32).reshape(len(rows), -1)

    def raw_scores(self, batch):
        return self.scores(batch)


def sets(values) -> AnswerSets:
    """One sorted set for each of the given collections."""
    chosen = [np.array(sorted(part), np.int32) for part in values]
    offsets = np.cumsum([0, *map(len, chosen)]).astype(np.int64)
    return AnswerSets(offsets, np.concatenate([np.zeros(0, np.int32), *chosen]))


def one_hop(entity, relation=0):
    return BoundQuery((entity, TARGET), ((0, relation, 1),), (1,))


def two_hops(entity, first=0, second=1):
    return BoundQuery((entity, HIDDEN, TARGET), ((0, first, 1), (1, second, 2)), (2,))


def questions(rows_of, shape, shapes, **answers) -> ShapedQueries:
    """Questions from the conjunctive rows of each."""
    owner = [number for number, rows in enumerate(rows_of) for _ in rows]
    return ShapedQueries(
        QuerySet.of([row for rows in rows_of for row in rows]),
        np.array(owner, np.int64),
        tuple(shapes),
        np.array(shape, np.int8),
        **{name: None if value is None else sets(value) for name, value in answers.items()},
    )


@pytest.fixture
def make():
    """What tests build questions and models from."""
    from types import SimpleNamespace

    return SimpleNamespace(
        Scripted=Scripted, sets=sets, one_hop=one_hop, two_hops=two_hops, questions=questions, Encoded=Encoded
    )


@pytest.fixture
def small_biqe():
    """Function from options to an untrained encoder whose outputs are far from uniform."""
    from biqe.models.biqe import BiQE, Config

    def build(entities=30, relations=4, **options):
        torch.manual_seed(0)
        model = BiQE(
            Config(**{"width": 16, "layers": 2, "heads": 2, "feed_forward": 32, **options}), entities, relations
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model.eval()

    return build


@pytest.fixture(scope="session")
def dense_splits() -> Splits:
    """Sixty entities, four relations, six hundred triples drawn at random over train, valid and test."""
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary([f"e{n}" for n in range(60)], [f"r{n}" for n in range(4)])
    triples = as_triples(np.column_stack([rng.integers(size, size=600) for size in (60, 4, 60)]))
    part = rng.integers(3, size=len(triples))
    return Splits(vocabulary, *(as_triples(triples[part == number]) for number in range(3)))


@pytest.fixture(scope="session")
def run_folder(dense_splits):
    """Function that writes graph and run/model, of a small model that has learnt nothing, into a folder; the model."""

    def write(place):
        graph_folder.save(dense_splits, place / "graph")
        torch.manual_seed(0)
        model = _catalogue.build("biqe", {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32}, 60, 4)
        store.save(
            model,
            place / "run" / "model",
            vocabulary=dense_splits.vocabulary,
            graph_fingerprint=dense_splits.fingerprint,
        )
        return model

    return write


def summary(mrr=0.25):
    figures = {"mrr": mrr, "hits@1": 0.1, "hits@3": 0.3, "hits@10": 0.5}
    return Summary(
        queries=1234,
        targets=1234567,
        metrics={"realistic": figures, "optimistic": {**figures, "mrr": 0.26}, "pessimistic": {**figures, "mrr": 0.24}},
        intervals={metric: (value - 0.01, value + 0.01) for metric, value in figures.items()},
    )


@pytest.fixture
def report():
    return Report(
        protocol="cq",
        protocol_version=1,
        model="biqe",
        filter_graph="split",
        overall=summary(),
        macro=summary(0.3),
        by_position={"tail": summary(0.2), "intersection": summary(0.4), "branch": summary(0.1)},
        by_kind={"path": summary(), "dag": summary()},
        by_targets={"1": summary(), "12": summary()},
        counts={
            "queries": 1300,
            "targets": 1300000,
            "ranked_queries": 1234,
            "ranked_targets": 1234567,
            "targets_without_gold": 3,
        },
        skipped=tuple(Skipped(f"reason {number} " + "with many words " * 8, number + 1, (0, 1)) for number in range(9)),
        settings={"level": 0.95, "seed": 0},
        fingerprints={"queries": "0123456789abcdef"},
        notes={"left_out": {"query with an unknown entity": 17}},
        seconds=12.5,
        queries_per_second=98.7,
        versions={"biqe": "0"},
    )
