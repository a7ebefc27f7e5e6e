"""A toy graph with learnable rules, on disk, and a quick run configuration."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples, difference
from biqe.graph.vocabulary import Vocabulary


def town(towns: int = 12, streets: int = 5) -> Splits:
    """Streets in towns, towns on a ring road, and the inverse of both; a few facts held out whose answers follow."""
    triples = []
    for t in range(towns):
        triples += [(t, 2, (t + 1) % towns), ((t + 1) % towns, 3, t)]
        for s in range(streets):
            street = towns + t * streets + s
            triples += [(street, 0, t), (t, 1, street)]
    everything = as_triples(triples)
    rng = np.random.default_rng(0)
    held = as_triples(everything[rng.choice(len(everything), len(everything) // 10, replace=False)])
    names = [f"town{t}" for t in range(towns)] + [f"street{s}" for s in range(towns * streets)]
    vocabulary = Vocabulary(names, ["in", "has", "next", "previous"])
    half = len(held) // 2
    return Splits(vocabulary, difference(everything, held), held[:half], held[half:])


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("train") / "town"
    folder.save(town(), path)
    return path


@pytest.fixture
def quiet():
    """A listener that remembers."""

    class Quiet:
        def __init__(self):
            self.validations, self.steps = [], []

        def stepped(self, fraction, facts):
            self.steps.append((fraction, facts))

        def validated(self, facts):
            self.validations.append(facts)

    return Quiet()


TINY = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32}
EPOCHS = {"paths": 200, "dags": 200, "batch_tokens": 300, "warmup_steps": 10, "validations": 4, "threads": 1}


@pytest.fixture
def tiny():
    return dict(TINY)


@pytest.fixture
def settings_of():
    from biqe.training.config import TrainConfig

    return lambda **more: TrainConfig(**{**EPOCHS, **more})
