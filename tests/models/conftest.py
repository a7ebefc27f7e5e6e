"""Small models and queries for the tests of this room."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.models.biqe import BiQE, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import analyse

ENTITIES, RELATIONS = 30, 4

TRIPLE = BoundQuery((3, TARGET), ((0, 1, 1),), (1,))
PATH = BoundQuery((5, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3))
DAG = BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4))
TWINS = BoundQuery(
    (7, TARGET, 8, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 4), (2, 2, 3), (3, 1, 4), (4, 3, 5)), (1, 3, 4, 5)
)
"""Two targets, nodes 1 and 3, at equal distance from the tail on two branches."""
QUERIES = (TRIPLE, PATH, DAG, TWINS)

SHAPES = {
    "1p": BoundQuery((3, TARGET), ((0, 1, 1),), (1,)),
    "2p": BoundQuery((3, HIDDEN, TARGET), ((0, 1, 1), (1, 6, 2)), (2,)),
    "3p": BoundQuery((5, HIDDEN, HIDDEN, TARGET), ((0, 1, 1), (1, 6, 2), (2, 0, 3)), (3,)),
    "2i": BoundQuery((5, 9, TARGET), ((0, 1, 2), (1, 6, 2)), (2,)),
    "3i": BoundQuery((5, 9, 2, TARGET), ((0, 1, 3), (1, 6, 3), (2, 3, 3)), (3,)),
    "ip": BoundQuery((5, 9, HIDDEN, TARGET), ((0, 1, 2), (1, 6, 2), (2, 3, 3)), (3,)),
    "pi": BoundQuery((5, HIDDEN, 9, TARGET), ((0, 1, 1), (1, 6, 3), (2, 3, 3)), (3,)),
}
"""Query2Box's shapes, by their names; relations from 4 on are the inverse ones."""


def random_dag(seed):
    """Constants, then variables that earlier nodes lead to, some of them targets."""
    rng = np.random.default_rng(seed)
    constants, variables = int(rng.integers(1, 4)), int(rng.integers(2, 7))
    nodes = [*rng.integers(0, ENTITIES, constants).tolist(), *rng.choice([TARGET, HIDDEN], variables - 1), TARGET]
    edges = [
        (int(rng.integers(0, node)), int(rng.integers(0, 2 * RELATIONS)), node)
        for node in range(constants, constants + variables)
        for _ in range(int(rng.integers(1, 4)))
    ]
    nodes = tuple(int(value) for value in nodes)
    return BoundQuery(nodes, tuple(edges), tuple(n for n, value in enumerate(nodes) if value == TARGET))


DAGS = [query for query in map(random_dag, range(20)) if analyse(query).is_connected]
"""Any number of constants, joins and targets."""


@pytest.fixture
def make_model():
    """Function from options to a model with weights that make its outputs far from uniform."""

    def make(seed: int = 0, **options: object) -> BiQE:
        torch.manual_seed(seed)
        model = BiQE(
            Config(**{"width": 16, "layers": 2, "heads": 2, "feed_forward": 32, **options}), ENTITIES, RELATIONS
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model.eval()

    return make


@pytest.fixture
def with_gold():
    """Function that gives every target of a query set a gold entity."""

    def add(queries, seed: int = 0):
        from dataclasses import replace

        drawn = np.random.default_rng(seed).integers(0, ENTITIES, len(queries.nodes))
        return replace(queries, gold=np.where(queries.nodes < 0, drawn, queries.nodes).astype(np.int32))

    return add
