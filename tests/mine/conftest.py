"""A graph, and what is mined from it."""

from __future__ import annotations

import pytest
from tests.mine.splits import SMALL, random_splits

from biqe.graph.knowledge_graph import Splits
from biqe.mine.dataset import MinedSet, mine


@pytest.fixture(scope="module")
def splits() -> Splits:
    return random_splits(4, entities=60, train=400, held_out=150)


@pytest.fixture(scope="module")
def mined(splits) -> MinedSet:
    return mine(splits, SMALL)
