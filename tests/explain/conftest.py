"""Models whose probabilities are known beforehand, and a small world to explain."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from biqe.errors import UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models._contract import Support, Trace
from biqe.query.bound import HIDDEN, BoundQuery
from biqe.query.tokens import token_table


class FactorModel(nn.Module):
    """p(all variables) is proportional to the product of link weights over the edges of the query.

    So p(x, y) = p(x) p(y | x) exactly, in whatever order.
    """

    name = "factor"

    def __init__(self, weights: np.ndarray, *, inverses: bool = True, refuse=lambda query: None) -> None:
        super().__init__()
        self.weights = weights  # (R, E, E)
        self.relation_count, self.entity_count, _ = weights.shape
        self.config = SimpleNamespace(inverses=inverses)
        self.refuse = refuse
        self.asked: list[BoundQuery] = []

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        reason = self.refuse(query)
        return Support(reason is None, reason or "")

    def encoder(self, queries):
        return queries

    def scores(self, queries) -> torch.Tensor:
        rows = []
        for query in queries:
            self.asked.append(query)
            joint, variables = self.joint(query)
            for node in sorted(query.targets):
                axes = tuple(axis for axis, other in enumerate(variables) if other != node)
                rows.append(np.log(joint.sum(axis=axes)))
        return torch.tensor(np.array(rows).reshape(-1, self.entity_count))

    def trace(self, queries) -> Trace:
        raise UnsupportedQuery(f"{self.name} has no attention to show")

    def weight(self, subject: int, relation: int, object_: int) -> float:
        if relation >= self.relation_count:
            subject, relation, object_ = object_, relation - self.relation_count, subject
        return float(self.weights[relation, subject, object_])

    def joint(self, query: BoundQuery) -> tuple[np.ndarray, list[int]]:
        """Probability of each assignment of the variables (an axis each), and their nodes."""
        variables = [node for node, value in enumerate(query.nodes) if value < 0]
        weights = np.ones((self.entity_count,) * len(variables))
        for assignment in product(range(self.entity_count), repeat=len(variables)):
            nodes = list(query.nodes)
            for node, entity in zip(variables, assignment, strict=True):
                nodes[node] = entity
            for subject, relation, object_ in query.edges:
                weights[assignment] *= self.weight(nodes[subject], relation, nodes[object_])
        return weights / weights.sum(), variables

    def share(self, query: BoundQuery, row: dict[int, int]) -> float:
        """p(row) by enumeration, for a query that hangs together."""
        joint, variables = self.joint(query)
        place = tuple(row[node] if node in row else slice(None) for node in variables)
        return float(joint[place].sum())

    def link(self, subject: int, relation: int, object_: int) -> float:
        """Probability of one link by itself: the object's share."""
        weights = [self.weight(subject, relation, other) for other in range(self.entity_count)]
        return weights[object_] / sum(weights)


class LookingModel(FactorModel):
    """Also looks into the graph: a stored link weighs ten times as much."""

    name = "looking"
    looks_facts_up = True
    graph: Graph | None = None

    def use_graph(self, graph: Graph) -> None:
        self.graph = graph

    def weight(self, subject: int, relation: int, object_: int) -> float:
        if relation >= self.relation_count:
            subject, relation, object_ = object_, relation - self.relation_count, subject
        stored = self.graph is not None and [subject, relation, object_] in self.graph.triples.tolist()
        return float(self.weights[relation, subject, object_]) * (10 if stored else 1)


class WatchedModel(FactorModel):
    """Also shows attention: two layers of two heads, the same in every run."""

    name = "watched"

    def trace(self, queries) -> Trace:
        table = token_table(queries, self.entity_count)
        count = int(table.lengths[0])
        layers = []
        for layer in range(2):
            weights = torch.tensor(
                [
                    [
                        [1.0 + (3 * row + 2 * column + layer + head) % 5 for column in range(count)]
                        for row in range(count)
                    ]
                    for head in range(2)
                ],
                dtype=torch.float64,
            )
            layers.append((weights / weights.sum(-1, keepdim=True))[None])
        return Trace(self.scores(queries), tuple(layers), SimpleNamespace(table=table, rows=np.arange(len(queries))))


def graph_of(triples, entities, relations, labels=None) -> Graph:
    """A graph over these names, or over e0, e1, … and r0, r1, … where counts are given."""
    if isinstance(entities, int):
        entities = [f"e{number}" for number in range(entities)]
    if isinstance(relations, int):
        relations = [f"r{number}" for number in range(relations)]
    return Graph(Vocabulary(entities, relations, labels), as_triples(list(triples)))


def random_weights(seed: int, entities: int, relations: int) -> np.ndarray:
    """Some links are far more likely than others, none has probability 0."""
    return np.exp(2 * np.random.default_rng(seed).normal(size=(relations, entities, entities)))


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """The doubles of this file."""
    return SimpleNamespace(
        FactorModel=FactorModel,
        LookingModel=LookingModel,
        WatchedModel=WatchedModel,
        graph_of=graph_of,
        random_weights=random_weights,
    )


NAMES = ["Rhine", "Elbe", "Cologne", "Bonn", "Dresden", "Germany", "France"]
FLOWS, LOCATED = 0, 1
TRIPLES = [(0, FLOWS, 5), (0, FLOWS, 6), (1, FLOWS, 5), (2, LOCATED, 0), (4, LOCATED, 1)]


def _weights() -> np.ndarray:
    weights = np.full((2, 7, 7), 0.01)
    for subject, relation, object_ in TRIPLES:
        weights[relation, subject, object_] = 1.0
    weights[LOCATED, 3, 0] = 0.8
    weights[LOCATED, 3, 1] = 0.1
    return weights


@pytest.fixture(scope="session")
def rivers() -> SimpleNamespace:
    """Rhine and Elbe with three cities; that Bonn is on the Rhine is not stored.

    ``query``: which river flows through Germany, and which city is on it? ``hidden``: which city is on a river that
    flows through Germany and France?
    """
    graph = graph_of(TRIPLES, NAMES, ["flows_through", "located_on"], {3: "Bonn am Rhein"})
    query = BoundQuery((-1, 5, -1), ((0, FLOWS, 1), (2, LOCATED, 0)), (0, 2), ("river", "", "city"))
    hidden = BoundQuery(
        (-1, HIDDEN, 5, 6), ((0, LOCATED, 1), (1, FLOWS, 2), (1, FLOWS, 3)), (0,), ("city", "r", "", "")
    )
    return SimpleNamespace(
        graph=graph,
        vocabulary=graph.vocabulary,
        query=query,
        hidden=hidden,
        weights=_weights(),
        predicted={0: 0, 2: 3},
        known={0: 0, 2: 2},
        names=NAMES,
        triples=TRIPLES,
    )
