"""A town whose people have citizenships to be suggested, and a model of it that was fitted at once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import biqe
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links import fit, knowledge
from biqe.models import store
from biqe.models.hybrid import Config, Hybrid
from biqe.suggest import Suggester

PEOPLE, CITIES, COUNTRIES = 60, 8, 2
FIRST_COUNTRY = PEOPLE + CITIES
ENTITIES = FIRST_COUNTRY + COUNTRIES
RELATIONS = ["lives_in", "in", "citizen_of"]


@pytest.fixture(scope="session")
def town(tmp_path_factory):
    """Two thirds of the citizenships are unknown. ``grown`` is the same graph with a person, a city and a relation that
    came after training; ``hidden`` are facts that the model was fitted on."""
    root = tmp_path_factory.mktemp("town")
    rng = np.random.default_rng(0)
    city = rng.integers(PEOPLE, FIRST_COUNTRY, PEOPLE)
    country = FIRST_COUNTRY + np.arange(CITIES) % COUNTRIES
    citizens = [(p, 2, int(country[city[p] - PEOPLE])) for p in range(PEOPLE)]
    known = [(p, 0, int(city[p])) for p in range(PEOPLE)] + [(PEOPLE + c, 1, int(country[c])) for c in range(CITIES)]
    train, hidden = as_triples([*known, *citizens[: PEOPLE // 3]]), as_triples(citizens[PEOPLE // 3 : -20])
    names = [f"e{n}" for n in range(ENTITIES)]
    splits = Splits(Vocabulary(names, RELATIONS), train)
    folder.save(splits, root / "kg")
    more = [(ENTITIES, 0, PEOPLE), (ENTITIES, 3, 5), (ENTITIES + 1, 1, FIRST_COUNTRY), (3, 0, ENTITIES + 1)]
    grown = Vocabulary([*names, "newcomer", "newtown"], [*RELATIONS, "fan_of"])
    folder.save(Splits(grown, as_triples([*train.tolist(), *more])), root / "grown")
    torch.manual_seed(0)
    model = Hybrid(Config(width=16, layers=1, heads=2, feed_forward=16, rank=4), ENTITIES, 3)
    store.save(model, root / "model", vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)
    knowledge.save(fit.fit(model.links, splits["train"], hidden), root / "model")
    return SimpleNamespace(
        root=root,
        hidden=hidden,
        kb=biqe.open(root / "model", graph=root / "kg"),
        grown=biqe.open(root / "model", graph=root / "grown"),
    )


@pytest.fixture
def suggester(town):
    """One that has searched nothing yet."""
    return Suggester(town.kb.predictor, {"": ""})
