"""The link predictor: its score is complex arithmetic, its loss what plain torch gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from biqe.links import complex as complex_
from biqe.links import softmax
from biqe.links.complex import ComplEx, conjugate_product, cubes, principal, product

ENTITIES, RELATIONS, RANK = 9, 3, 4


def make(seed=0):
    torch.manual_seed(seed)
    return ComplEx(RANK, ENTITIES, RELATIONS, spread=0.7).double()


def as_complex(rows):
    rows = rows.detach().numpy()
    return rows[..., :RANK] + 1j * rows[..., RANK:]


def drawn(count=17, seed=1):
    torch.manual_seed(seed)
    return (
        torch.randint(ENTITIES, (count,)),
        torch.randint(2 * RELATIONS, (count,)),
        torch.randint(ENTITIES, (count,)),
    )


def test_the_score_is_complex_arithmetic():
    model = make()
    h, r, t = drawn()
    entities, relations = as_complex(model.entities), as_complex(model.relations)
    expected = (entities[h] * relations[r] * entities[t].conj()).sum(1).real
    np.testing.assert_allclose(model.score(h, r, t).detach().numpy(), expected, rtol=1e-12)
    row = (entities[h] * relations[r]) @ entities.conj().T
    np.testing.assert_allclose(model.scores(h, r).detach().numpy(), row.real, rtol=1e-9, atol=1e-12)


def test_products_are_those_of_complex_numbers():
    a, b = torch.randn(5, 2 * RANK, dtype=torch.double), torch.randn(5, 2 * RANK, dtype=torch.double)
    np.testing.assert_allclose(as_complex(product(a, b)), as_complex(a) * as_complex(b), rtol=1e-12)
    np.testing.assert_allclose(as_complex(conjugate_product(a, b)), as_complex(a).conj() * as_complex(b), rtol=1e-12)


def test_relation_scores_are_scores_of_single_links():
    model = make()
    h, _, t = drawn()
    found = model.relation_scores(model.entities[h], model.entities[t])
    assert found.shape == (len(h), RELATIONS)
    for relation in range(RELATIONS):
        torch.testing.assert_close(found[:, relation], model.score(h, torch.full_like(h, relation), t))


def test_the_nuclear_norm_by_hand():
    # |3 + 4i|^3 + |0 + 2i|^3 = 125 + 8
    assert cubes(torch.tensor([[3.0, 0.0, 4.0, 2.0]])).tolist() == pytest.approx([133.0])
    nothing = torch.zeros(2, 4, requires_grad=True)
    cubes(nothing).sum().backward()
    assert nothing.grad.tolist() == [[0.0] * 4] * 2


def plain_loss(model, h, r, t, *, n3, relation_weight, smoothing=0.0):
    """The definition, written out with whole matrices."""
    head, relation, tail = model.entities[h], model.relations[r], model.entities[t]
    logits = product(head, relation) @ model.entities.t()
    loss = cross_entropy(logits, t, label_smoothing=smoothing)
    guesses = []
    for i in range(len(h)):
        start, end = (t[i], h[i]) if r[i] >= RELATIONS else (h[i], t[i])
        every = torch.arange(RELATIONS)
        guess = model.score(start.expand(RELATIONS), every, end.expand(RELATIONS))
        guesses.append(-torch.log_softmax(guess, 0)[r[i] % RELATIONS])
    norm = torch.zeros((), dtype=torch.double)
    for part in (head, relation, tail):
        norm = norm + torch.hypot(part[:, :RANK], part[:, RANK:]).pow(3).sum()
    return loss + relation_weight * torch.stack(guesses).mean() + n3 * norm / len(h)


@pytest.mark.parametrize("chunk", [8 << 20, 300], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize(("n3", "relation_weight", "smoothing"), [(0, 0, 0), (0.1, 0, 0), (0, 2.0, 0), (0.3, 0.5, 0.1)])
def test_the_loss_is_the_plain_one(monkeypatch, n3, relation_weight, smoothing, chunk):
    monkeypatch.setattr(softmax, "CHUNK_BYTES", chunk)
    ours, theirs = make(), make()
    links = drawn()
    heads, relations, tails = links
    one_each = torch.arange(len(tails) + 1)
    loss = ours.loss(heads, relations, one_each, tails, n3=n3, relation_weight=relation_weight, smoothing=smoothing)
    plain = plain_loss(theirs, *links, n3=n3, relation_weight=relation_weight, smoothing=smoothing)
    torch.testing.assert_close(loss, plain)
    loss.backward()
    plain.backward()
    torch.testing.assert_close(ours.entities.grad, theirs.entities.grad)
    torch.testing.assert_close(ours.relations.grad, theirs.relations.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_links_that_ask_the_same_need_one_softmax(smoothing):
    """Questions with several tails give the loss and gradients of their links, one by one."""
    ours, theirs = make(), make()
    h, r, t = drawn(6)
    sets = [sorted({int(tail), (int(tail) + 3) % ENTITIES, *range(number % 3)}) for number, tail in enumerate(t)]
    counts = torch.tensor([len(members) for members in sets])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    tails = torch.tensor([entity for members in sets for entity in members])
    loss = ours.loss(h, r, offsets, tails, n3=0.1, relation_weight=1.5, smoothing=smoothing)
    apart = h.repeat_interleave(counts), r.repeat_interleave(counts), tails
    plain = plain_loss(theirs, *apart, n3=0.1, relation_weight=1.5, smoothing=smoothing)
    torch.testing.assert_close(loss, plain)
    loss.backward()
    plain.backward()
    torch.testing.assert_close(ours.entities.grad, theirs.entities.grad)
    torch.testing.assert_close(ours.relations.grad, theirs.relations.grad)


def test_principal_directions_keep_distances():
    """Neighbours in the table are neighbours in its principal directions; missing directions are filled with noise."""
    table = make().entities.detach().float()
    kept = principal(table, 16, 0.02)[:, : 2 * RANK]
    ratio = torch.cdist(kept, kept) / torch.cdist(table, table).clamp_min(1e-9)
    off = ~torch.eye(ENTITIES, dtype=torch.bool)
    assert float(ratio[off].std() / ratio[off].mean()) < 1e-3


def test_fewer_directions_have_the_given_spread():
    kept = principal(make().entities.detach(), 3, 0.02)
    assert kept.shape == (ENTITIES, 3) and abs(float(kept.std()) - 0.02) < 1e-6


@pytest.mark.parametrize("relation_weight", [0.0, 0.5])
def test_a_sample_that_holds_all_entities_gives_the_full_loss_and_gradients(relation_weight):
    full, sampled = make(), make()
    sampled.negatives = ENTITIES - 1
    heads, relations, tails = torch.tensor([0, 3, 3]), torch.tensor([1, 0, 4]), torch.tensor([2, 5, 5, 7])
    offsets = torch.tensor([0, 1, 2, 4])

    def holds_all(seed):
        torch.manual_seed(seed)
        return len(complex_.drawn_beside(tails, ENTITIES - 1, ENTITIES)[0]) == ENTITIES

    seed = next(seed for seed in range(1_000) if holds_all(seed))
    for model in (full, sampled):
        torch.manual_seed(seed)
        model.loss(heads, relations, offsets, tails, n3=0.05, relation_weight=relation_weight).backward()
    assert sampled.entities.grad.is_sparse
    torch.testing.assert_close(sampled.entities.grad.to_dense(), full.entities.grad)
    torch.testing.assert_close(sampled.relations.grad, full.relations.grad)


def test_the_sum_over_all_entities_is_estimated_without_bias():
    model = make()
    heads, relations, tails = drawn(3)
    all_scores = model.scores(heads, relations).detach().exp().sum(1)
    torch.manual_seed(0)
    found = torch.zeros(3, dtype=torch.double)
    for _ in range(4_000):
        compared, log_weights, places = complex_.drawn_beside(tails, 8, ENTITIES)
        assert (compared[places] == tails).all() and len(compared.unique()) == len(compared)
        found += (model.scores(heads, relations).detach()[:, compared] + log_weights).exp().sum(1) / 4_000
    torch.testing.assert_close(found, all_scores, rtol=0.03, atol=0)
