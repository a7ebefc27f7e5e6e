"""Sampled softmax against the full one: equal where everything is drawn, and on average where little is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.softmax import soft_cross_entropy
from biqe.models._entity_loss import EntitySampler, Sample, sample_entities, sampled_cross_entropy, sparse_weights
from biqe.models.biqe import BiQE, Config
from biqe.query.bound import QuerySet

from .conftest import ENTITIES, QUERIES, RELATIONS

TARGETS, WIDTH = 6, 5


def material(entities: int, *, seed: int = 0, most: int = 3, scale: float = 1.0):
    """Hidden rows, tables and true answers; every row has one to ``most`` different ones."""
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(TARGETS, WIDTH, generator=draw, dtype=torch.float64) * scale
    weight = torch.randn(entities, WIDTH, generator=draw, dtype=torch.float64)
    bias = torch.randn(entities, generator=draw, dtype=torch.float64)
    lengths = torch.randint(1, min(most, entities) + 1, (TARGETS,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    answers = torch.cat([torch.randperm(entities, generator=draw)[:n].sort().values for n in lengths.tolist()])
    return [hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()], offsets, answers


def gradients(loss: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    return [g.to_dense() if g.is_sparse else g for g in torch.autograd.grad(loss, leaves)]


def full(leaves, offsets, answers, smoothing):
    loss = soft_cross_entropy(*leaves, offsets, answers, smoothing)
    return loss.detach(), gradients(loss, leaves)


def sampled(leaves, offsets, answers, smoothing, sample):
    sample = Sample(sample.entities, sample.log_weights.double())
    loss = sampled_cross_entropy(*leaves, offsets, answers, sample, smoothing)
    return loss.detach(), gradients(loss, leaves)


@settings(max_examples=40)
@given(entities=st.integers(1, 40), seed=st.integers(0, 99), smoothing=st.sampled_from([0.0, 0.1]))
def test_with_all_entities_drawn_it_is_the_full_softmax(entities, seed, smoothing):
    leaves, offsets, answers = material(entities, seed=seed)
    everything = EntitySampler(torch.ones(entities), entities).draw()
    expected = full(leaves, offsets, answers, smoothing)
    found = sampled(leaves, offsets, answers, smoothing, everything)
    torch.testing.assert_close(found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("drawn", [[], [3], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_true_answers_count_once_whatever_is_drawn(drawn):
    """Two roads: the definition of Z' written out over rows, and the kernel."""
    leaves, offsets, answers = material(8, most=4)
    hidden, weight, bias = (leaf.detach() for leaf in leaves)
    log_weights = torch.linspace(0.3, 1.2, len(drawn), dtype=torch.float64)
    logits = hidden @ weight.T + bias
    expected = 0.0
    for row in range(TARGETS):
        true = answers[offsets[row] : offsets[row + 1]].tolist()
        total = sum(logits[row, a].exp() for a in true)
        total += sum(logits[row, j].exp() * w.exp() for j, w in zip(drawn, log_weights, strict=True) if j not in true)
        expected += (torch.log(total) - logits[row, true].mean()) / TARGETS
    if not drawn:
        drawn, log_weights = [0], torch.tensor([-torch.inf], dtype=torch.float64)  # one that counts for nothing
    sample = Sample(torch.tensor(drawn), log_weights)
    found = sampled_cross_entropy(*leaves, offsets, answers, sample)
    torch.testing.assert_close(found.detach(), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_on_average_it_is_the_full_softmax(smoothing):
    """The mean over many samples of loss and gradients, to five standard errors. Logits are flat enough for the bias of
    the logarithm, half the relative variance of the sum, to be smaller than that."""
    entities, draws = 300, 400
    leaves, offsets, answers = material(entities, scale=0.3)
    for leaf in leaves[1:]:
        leaf.data *= 0.3
    sampler = EntitySampler(1.0 / torch.arange(1, entities + 1), 150)
    expected, gradients_expected = full(leaves, offsets, answers, smoothing)
    torch.manual_seed(0)
    found = [sampled(leaves, offsets, answers, smoothing, sampler.draw()) for _ in range(draws)]
    losses = torch.stack([loss for loss, _ in found])
    assert (losses.mean() - expected).abs() < 5 * losses.std() / draws**0.5
    assert losses.std() / draws**0.5 < 0.004, "the test could see an error of a few percent"
    for number, wanted in enumerate(gradients_expected):
        each = torch.stack([grads[number] for _, grads in found])
        error = each.std(0) / draws**0.5
        assert ((each.mean(0) - wanted).abs() <= 5 * error + 0.01 * wanted.abs()).all()
    drawn = sampler.draw().entities
    uncorrected = sampled(leaves, offsets, answers, smoothing, Sample(drawn, torch.zeros(len(drawn))))[0]
    assert (uncorrected - expected).abs() > 0.3, "without the correction it would be another loss"


def test_the_estimate_of_the_sum_is_unbiased():
    """Horvitz and Thompson: weights of the drawn add up, on average, to any sum over all entities."""
    values = torch.randn(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64).exp()
    sampler = EntitySampler(torch.arange(200).double() ** 2, 30)
    torch.manual_seed(0)
    found = []
    for _ in range(4000):
        sample = sampler.draw()
        assert (sample.entities.diff() > 0).all()
        found.append(float((values[sample.entities] * sample.log_weights.exp()).sum()))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - float(values.sum())) < 4 * error
    assert error < 0.02 * float(values.sum()), "the test could see a bias of a few percent"


def test_entities_that_no_triple_names_are_drawn_too():
    vocabulary = Vocabulary([f"e{i}" for i in range(50)], ["r"])
    graph = Graph(vocabulary, as_triples([(0, 0, 1), (0, 0, 2), (3, 0, 0)]))
    torch.manual_seed(0)
    sampler = EntitySampler.of(graph, 20)
    seen = np.zeros(50)
    for _ in range(400):
        seen[sampler.draw().entities.numpy()] += 1
    assert (seen > 0).all() and seen[0] > 390 and seen[0] > 2 * seen[10:].max()
    chance = np.exp(-sampler._log_weights.numpy())
    assert np.abs(seen / 400 - chance).max() < 5 * np.sqrt(0.25 / 400)


def test_gradients_hold_only_rows_that_were_read(with_gold):
    torch.manual_seed(0)
    model = BiQE(Config(width=8, layers=1, heads=2, feed_forward=8, dropout=0.0), ENTITIES, RELATIONS)
    graph = Graph(Vocabulary([f"e{i}" for i in range(ENTITIES)], list("abcd")), as_triples([(0, 0, 1), (2, 1, 3)]))
    queries = with_gold(QuerySet.of(QUERIES))
    batch = model.encoder(queries)
    model.loss(batch, label_smoothing=0.1).backward()
    dense = model.embed_entities.weight.grad.clone(), model.entity_bias.grad.clone()
    model.zero_grad()
    sample_entities(model, graph, ENTITIES)
    assert sparse_weights(model) == ("embed_entities.weight", "entity_bias")
    model.loss(batch, label_smoothing=0.1).backward()
    for expected, weight in zip(dense, (model.embed_entities.weight, model.entity_bias), strict=True):
        assert weight.grad.is_sparse
        torch.testing.assert_close(weight.grad.to_dense(), expected, rtol=1e-4, atol=1e-6)
    model.zero_grad()
    sample_entities(model, graph, 4)
    model.loss(batch, label_smoothing=0.1).backward()
    anchors = {3, 5, 7, 8}
    rows = set(model.embed_entities.weight.grad.coalesce().indices()[0].tolist())
    assert rows <= anchors | set(batch.targets.gold.tolist()) | set(range(ENTITIES)) and len(rows) < ENTITIES
    assert rows >= anchors | set(batch.targets.gold.tolist())
