"""Small models and queries for the tests of this room."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.models.biqe import BiQE, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

ENTITIES, RELATIONS = 30, 4

TRIPLE = BoundQuery((3, TARGET), ((0, 1, 1),), (1,))
PATH = BoundQuery((5, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3))
DAG = BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4))
TWINS = BoundQuery(
    (7, TARGET, 8, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 4), (2, 2, 3), (3, 1, 4), (4, 3, 5)), (1, 3, 4, 5)
)
"""Two targets, nodes 1 and 3, at equal distance from the tail on two branches."""
QUERIES = (TRIPLE, PATH, DAG, TWINS)


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
