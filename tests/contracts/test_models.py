"""Every model at hand, found by listing: what it must be able to do, and the toy town that it must solve."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue, store
from biqe.query.bound import TARGET, BoundQuery, QuerySet
from biqe.training.config import TrainConfig
from biqe.training.stream import Stream

SMALL = {"width": 64, "layers": 2, "heads": 4, "feed_forward": 128, "dropout": 0.1, "gamma": 4.0}
"""For models that have such options; the defaults are for real graphs."""
QUERIES = [
    BoundQuery((3, TARGET), ((0, 1, 1),), (1,)),
    BoundQuery((3, TARGET, 5), ((0, 1, 1), (2, 0, 1)), (1,)),
    BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 0, 2)), (1, 2)),
]


@pytest.fixture(params=_catalogue.names())
def build(request):
    module = _catalogue.module_of(request.param)

    def make(entities=20, relations=3, **options):
        torch.manual_seed(0)
        known = {field.name for field in dataclasses.fields(module.Config)}
        options = {name: value for name, value in options.items() if name in known}
        return module.MODEL(module.Config(**options), entities, relations)

    return make


def supported(model):
    queries = [query for query in QUERIES if model.supports(query)]
    assert queries, "a model supports at least single triples"
    return QuerySet.of(queries)


def test_scores_are_finite_rows_of_all_entities(build):
    model = build().eval()
    queries = supported(model)
    with torch.inference_mode():
        scores = model.scores(model.encoder(queries))
    assert scores.shape == (len(queries.target_nodes), 20) and torch.isfinite(scores).all()


def test_the_order_of_queries_changes_nothing(build):
    model = build().eval()
    queries = supported(model)
    encoded = model.encode(queries)
    rows = np.arange(len(queries))
    with torch.inference_mode():
        forward, backward = model.scores(encoded.batch(rows)), model.scores(encoded.batch(rows[::-1]))
    counts = np.diff(queries.target_offsets)
    parts = torch.split(backward, counts[::-1].tolist())
    torch.testing.assert_close(forward, torch.cat(parts[::-1]), rtol=1e-4, atol=1e-5)


def test_saves_and_loads_to_equal_scores(build, tmp_path):
    model = build().eval()
    vocabulary = Vocabulary([f"e{i}" for i in range(20)], ["a", "b", "c"])
    store.save(model, tmp_path, vocabulary=vocabulary, graph_fingerprint="g")
    loaded = store.load(tmp_path).model
    queries = supported(model)
    with torch.inference_mode():
        assert torch.equal(model.scores(model.encoder(queries)), loaded.scores(loaded.encoder(queries)))


def test_refuses_in_a_sentence(build):
    cycle = BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 0, 2), (2, 0, 1)), (1, 2))
    answer = build().supports(cycle)
    assert answer or len(answer.reason.split()) > 4


def test_says_what_it_is(build):
    model = build()
    assert model.paper.authors and model.paper.title and model.paper.year > 1990
    type(model.config)()  # every option has a default
    assert type(model).__module__.rpartition(".")[2] == model.name


@pytest.mark.slow
def test_solves_the_toy_town(build):
    """Two relations say the same: who lives in a house also resides there. One person in five has no residence in
    the graph, and the address decides it: the withheld residence must rank first."""
    people, houses = 60, 8
    homes = np.random.default_rng(0).integers(0, houses, people).tolist()
    triples, withheld = [], []
    for person, home in enumerate(homes, start=houses):
        triples.append((person, 0, home))
        (withheld if person % 5 == 0 else triples).append((person, 1, home))
    names = [f"e{i}" for i in range(houses + people)]
    graph = Graph(Vocabulary(names, ["lives", "resides", "unused"]), as_triples(triples))
    model = build(graph.entity_count, 3, **SMALL)
    config = TrainConfig(epochs=1, paths=0, dags=0, inverse_share=0.5, batch_tokens=400)
    stream = Stream(graph, model, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    asked = QuerySet.of([BoundQuery((s, TARGET), ((0, r, 1),), (1,)) for s, r, _ in withheld])
    gold = torch.tensor([o for _, _, o in withheld])
    correct = 0.0
    for epoch in range(200):
        model.train()
        for _, batch in stream.epoch(epoch).from_batch(0):
            optimizer.zero_grad()
            model.loss(batch).backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            correct = float((model.scores(model.encoder(asked)).argmax(1) == gold).float().mean())
        if correct >= 0.9:
            break
    assert correct >= 0.9
