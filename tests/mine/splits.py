"""Splits of small graphs, by hand or drawn."""

from __future__ import annotations

import numpy as np

from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig

SMALL = MineConfig(paths=60, dags=40, eval_paths=40, eval_dags=30)


def splits_of(train, valid=(), test=(), entities=10, relations=3) -> Splits:
    vocabulary = Vocabulary([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    return Splits(vocabulary, *(as_triples(list(part)) for part in (train, valid, test)))


def random_splits(seed: int, entities=12, relations=3, train=18, held_out=12) -> Splits:
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, [entities, relations, entities], (train + 2 * held_out, 3)), axis=0)
    rows = rng.permutation(rows)
    return splits_of(
        rows[2 * held_out :], rows[:held_out], rows[held_out : 2 * held_out], entities=entities, relations=relations
    )
