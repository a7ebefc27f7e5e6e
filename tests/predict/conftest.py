"""A model whose joint distribution is known, so that everything built on it can be checked by enumeration."""

from __future__ import annotations

import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models._contract import Support
from biqe.query.bound import HIDDEN, BoundQuery


class FactorModel:
    """p(all variables) is proportional to the product of link weights over the edges of the query.

    So p(x, y) = p(x) p(y | x) exactly, and each step of a beam is exact too.
    """

    name = "factor"

    def __init__(self, weights: np.ndarray, *, inverses: bool = False, refuses: str = "") -> None:
        self.weights = weights  # (R, E, E)
        self.relation_count, self.entity_count, _ = weights.shape
        self.config = SimpleNamespace(inverses=inverses)
        self.refuses = refuses
        self.calls = 0

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        return Support(not self.refuses, self.refuses)

    def encoder(self, queries):
        return queries

    def scores(self, queries) -> torch.Tensor:
        self.calls += 1
        rows = []
        for query in queries:
            joint, variables = self.joint(query)
            for node in sorted(query.targets):
                axes = tuple(axis for axis, other in enumerate(variables) if other != node)
                rows.append(np.log(joint.sum(axis=axes)))
        return torch.tensor(np.array(rows).reshape(-1, self.entity_count), dtype=torch.float32)

    def joint(self, query: BoundQuery) -> tuple[np.ndarray, list[int]]:
        """Probability of each assignment of the variables (an axis each), and their nodes."""
        variables = [node for node, value in enumerate(query.nodes) if value < 0]
        weights = np.ones((self.entity_count,) * len(variables))
        for assignment in product(range(self.entity_count), repeat=len(variables)):
            nodes = list(query.nodes)
            for node, entity in zip(variables, assignment, strict=True):
                nodes[node] = entity
            for subject, relation, object_ in query.edges:
                if relation < self.relation_count:
                    weights[assignment] *= self.weights[relation, nodes[subject], nodes[object_]]
                else:
                    weights[assignment] *= self.weights[relation - self.relation_count, nodes[object_], nodes[subject]]
        return weights / weights.sum(), variables

    def link(self, subject: int, relation: int, object_: int) -> float:
        """Probability of one link by itself: the object's share."""
        return float(self.weights[relation, subject, object_] / self.weights[relation, subject].sum())

    def every_tuple(self, query: BoundQuery) -> dict[tuple[int, ...], float]:
        """Joint probability of every tuple over the targets, by enumeration."""
        joint, variables = self.joint(query)
        kept = [variables.index(node) for node in query.targets]
        found: dict[tuple[int, ...], float] = {}
        for assignment in product(range(self.entity_count), repeat=len(variables)):
            key = tuple(assignment[axis] for axis in kept)
            found[key] = found.get(key, 0.0) + float(joint[assignment])
        return found


def random_model(seed: int, entities: int, relations: int, **options) -> FactorModel:
    # Exponentials of normals: some links are far more likely than others, none has probability 0.
    weights = np.exp(2 * np.random.default_rng(seed).normal(size=(relations, entities, entities)))
    return FactorModel(weights, **options)


def graph_of(triples, entities, relations, labels=None) -> Graph:
    """A graph over these names, or over e0, e1, … and r0, r1, … where counts are given."""
    if isinstance(entities, int):
        entities = [f"e{number}" for number in range(entities)]
    if isinstance(relations, int):
        relations = [f"r{number}" for number in range(relations)]
    return Graph(Vocabulary(entities, relations, labels), as_triples(list(triples)))


def best_evidence(graph: Graph, query: BoundQuery, row) -> int:
    """The least number of patterns that no assignment of the hidden variables can avoid missing, by enumeration."""
    stored = set(map(tuple, graph.triples.tolist()))
    nodes = list(query.nodes)
    for node, entity in zip(query.targets, row, strict=True):
        nodes[node] = entity
    hidden = [node for node, value in enumerate(nodes) if value == HIDDEN]
    least = len(query.edges)
    for assignment in product(range(graph.entity_count), repeat=len(hidden)):
        for node, entity in zip(hidden, assignment, strict=True):
            nodes[node] = entity
        links = [(nodes[subject], relation, nodes[object_]) for subject, relation, object_ in set(query.edges)]
        least = min(least, sum(link not in stored for link in links))
    return least


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """The doubles of this file."""
    return SimpleNamespace(
        FactorModel=FactorModel, random_model=random_model, graph_of=graph_of, best_evidence=best_evidence
    )


@pytest.fixture(scope="session")
def rivers(toy) -> SimpleNamespace:
    """Rhine and Elbe with three cities; that Bonn is on the Rhine is not stored."""
    names = ["Rhine", "Elbe", "Cologne", "Bonn", "Dresden", "Germany", "France"]
    flows, located = 0, 1
    triples = [(0, flows, 5), (0, flows, 6), (1, flows, 5), (2, located, 0), (4, located, 1)]
    graph = toy.graph_of(triples, names, ["flows_through", "located_on"], {3: "Bonn am Rhein"})
    weights = np.full((2, 7, 7), 0.01)
    for subject, relation, object_ in triples:
        weights[relation, subject, object_] = 1.0
    weights[located, 3, 0] = 0.8
    weights[located, 3, 1] = 0.1
    # ?river flows_through Germany . ?city located_on ?river
    query = BoundQuery((-1, 5, -1), ((0, flows, 1), (2, located, 0)), (0, 2), ("river", "", "city"))
    return SimpleNamespace(graph=graph, model=FactorModel(weights), query=query)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of random weights over a random graph, and a set of paths of its three splits."""
    from biqe.graph import folder as graph_folder
    from biqe.mine import folder as set_folder
    from biqe.mine.dataset import MineConfig, mine
    from biqe.models import store
    from biqe.models.biqe import BiQE, Config

    root = tmp_path_factory.mktemp("calibrate")
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers([30, 3, 30], size=(600, 3)), axis=0)
    triples = rng.permutation(triples)
    vocabulary = Vocabulary([f"e{n}" for n in range(30)], [f"r{n}" for n in range(3)])
    parts = (as_triples(part.tolist()) for part in (triples[:350], triples[350:], triples[:0]))
    splits = Splits(vocabulary, *parts)
    graph_folder.save(splits, root / "kg")
    set_folder.save(mine(splits, MineConfig(recipe="paths", paths=40, eval_paths=60, longest=3)), root / "set")
    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16), 30, 3)
    store.save(model, root / "run" / "model", vocabulary=vocabulary, graph_fingerprint=splits.fingerprint)
    (root / "run" / "run.json").write_text(json.dumps({"graph": {"name": "kg", "path": str(root / "kg")}}))
    return root
