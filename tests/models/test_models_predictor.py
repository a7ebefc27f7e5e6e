"""The link predictor inside biqe: what it says equals a plain walk, and the encoder may listen or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from biqe.errors import InvalidOption
from biqe.models._complex import ComplEx
from biqe.models._plan import EncodedPlans
from biqe.models._predictor import LinkPredictor, principal
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.queryset import QuerySet
from biqe.query.token_table import FIRST_ENTITY

ENTITIES, RELATIONS, RANK = 30, 4, 5
QUERIES = (
    BoundQuery((3, TARGET), ((0, 1, 1),), (1,)),
    BoundQuery((3, TARGET, 5), ((0, 1, 1), (2, 6, 1)), (1,)),
    BoundQuery((5, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,)),
    BoundQuery((7, HIDDEN, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (3, 4)),
)


@pytest.fixture
def complex_():
    torch.manual_seed(0)
    return ComplEx(RANK, ENTITIES, RELATIONS, spread=0.5)


def logits_of(complex_: ComplEx, query: BoundQuery) -> dict[int, torch.Tensor]:
    """Logits at every variable, node by node in the order of the docstring, with complex numbers."""
    entities = torch.complex(*complex_.entities.detach().chunk(2, 1))
    relations = torch.complex(*complex_.relations.detach().chunk(2, 1))
    states = {node: entities[value] for node, value in enumerate(query.nodes) if value >= 0}
    found: dict[int, torch.Tensor] = {}
    while len(states) < len(query.nodes):
        for node in range(len(query.nodes)):
            into = [(s, r) for s, r, o in query.edges if o == node]
            if node not in states and all(s in states for s, _ in into):
                arrived = sum(states[s] * relations[r] for s, r in into)
                found[node] = (entities.conj() @ arrived).real
                states[node] = torch.softmax(found[node], 0).to(entities.dtype) @ entities
    return found


def test_what_arrives_equals_a_plain_walk(complex_):
    predictor = LinkPredictor(RANK, ENTITIES, RELATIONS)
    predictor.entities.copy_(complex_.entities.detach())
    predictor.relations.copy_(complex_.relations.detach())
    queries = QuerySet.of(QUERIES)
    plan = EncodedPlans(queries, RELATIONS).batch(range(len(queries)))
    logits = predictor.arriving(plan) @ predictor.entities.t()
    plain = [logits_of(complex_, query)[node] for query in QUERIES for node in query.targets]
    torch.testing.assert_close(logits, torch.stack(plain), rtol=1e-4, atol=1e-5)


class Link(nn.Module):
    """What biqe asks of a model that it starts from."""

    name = "cqd"

    def __init__(self, complex_: ComplEx) -> None:
        super().__init__()
        self.predictor = complex_


@pytest.fixture
def listening(make_model, complex_):
    """Function from options to a biqe model that has taken the link predictor over."""

    def make(**options):
        model = make_model(predictor_rank=RANK, **options)
        model.start_from(Link(complex_))
        return model

    return make


def scores(model, *queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(queries)))


@pytest.mark.parametrize("mask_average", ["hidden", "probability"])
def test_a_query_scores_the_same_alone_and_among_others(listening, mask_average):
    model = listening(mask_average=mask_average)
    together = scores(model, *QUERIES)
    torch.testing.assert_close(together, torch.cat([scores(model, query) for query in QUERIES]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.exp().sum(1), torch.ones(len(together)), rtol=1e-4, atol=1e-5)


def test_with_a_silent_encoder_the_predictor_decides(listening, complex_):
    model = listening()
    with torch.no_grad():
        model.head[2].weight.zero_()
        model.head[2].bias.zero_()
        model.entity_bias.zero_()
        model.predictor_gate.weight.zero_()
        model.predictor_gate.bias.fill_(0.5413248)  # softplus of it is 1
    for query in QUERIES[:2]:
        (expected,) = (torch.log_softmax(logits_of(complex_, query)[node], 0) for node in query.targets)
        torch.testing.assert_close(scores(model, query)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask_average", ["hidden", "probability"])
def test_the_loss_is_the_cross_entropy_of_the_scores(listening, with_gold, mask_average):
    """One mask a target in these queries, so both ways of averaging are plain cross-entropy."""
    model = listening(mask_average=mask_average)
    queries = with_gold(QuerySet.of([QUERIES[0], QUERIES[2]]))
    batch = model.encoder(queries)
    with torch.inference_mode():
        expected = -model.scores(batch).gather(1, batch.targets.gold[:, None]).mean()
    torch.testing.assert_close(model.loss(batch), expected, rtol=1e-4, atol=1e-4)


def test_dropped_out_it_says_nothing(listening, with_gold):
    """Where it is silent, neither the predictor's tables nor its gate get or give anything."""
    model = listening(predictor_dropout=0.999999, dropout=0.0).train()
    batch = model.encoder(with_gold(QuerySet.of(QUERIES)))
    torch.manual_seed(1)
    before = model.loss(batch)
    before.backward()
    assert model.predictor_gate.weight.grad.abs().max() == 0
    model.predictor.entities.mul_(3.0)
    torch.testing.assert_close(model.loss(batch), before)


def test_it_is_heard_in_its_share_of_batches(listening, with_gold):
    model = listening(predictor_dropout=0.25, dropout=0.0).train()
    batch = model.encoder(with_gold(QuerySet.of(QUERIES)))
    torch.manual_seed(2)
    heard = sum(model._said(batch) is not None for _ in range(400))
    assert 260 < heard < 340
    assert model.eval()._said(batch) is not None


def test_embeddings_begin_as_the_predictors_own(listening, complex_):
    """Neighbours in the predictor are neighbours in the encoder: principal directions keep distances."""
    model = listening(width=16)
    ours, theirs = model.entity_weight.detach(), complex_.entities.detach()
    ours, theirs = ours - ours.mean(0), theirs - theirs.mean(0)
    kept = ours[:, : 2 * RANK]
    ratio = torch.cdist(kept, kept) / torch.cdist(theirs, theirs).clamp_min(1e-9)
    off = ~torch.eye(ENTITIES, dtype=torch.bool)
    assert float(ratio[off].std() / ratio[off].mean()) < 1e-3


def test_without_room_for_the_predictor_its_embeddings_are_taken_alone(make_model, listening, complex_):
    model, inside = make_model(width=8), listening(width=8)
    assert model.config.predictor_rank == 0
    model.start_from(Link(complex_))
    for ours, theirs in (
        (model.entity_weight, inside.entity_weight),
        (model.embed_others.weight[FIRST_ENTITY:], inside.embed_others.weight[FIRST_ENTITY:]),
    ):
        # How far they spread is drawn by each model for itself.
        torch.testing.assert_close(ours / ours.std(), theirs / theirs.std(), rtol=1e-3, atol=1e-4)
    assert not any(name.startswith("predictor") for name in model.state_dict())


def test_fewer_directions_keep_the_most_of_the_table(complex_):
    table = complex_.entities.detach()
    kept = principal(table, 3, 0.02)
    assert kept.shape == (ENTITIES, 3) and abs(float(kept.std()) - 0.02) < 1e-6


def test_refuses_another_rank_and_other_models(make_model, listening, complex_):
    with pytest.raises(InvalidOption, match="rank 5"):
        make_model(predictor_rank=3).start_from(Link(complex_))
    with pytest.raises(InvalidOption, match="link predictor cqd"):
        make_model(predictor_rank=5).start_from(make_model())


def test_refuses_variables_that_no_constant_leads_to(listening):
    open_end = BoundQuery((TARGET, TARGET, 3), ((0, 0, 1), (2, 1, 1)), (0, 1))
    answer = listening().supports(open_end)
    assert not answer and "constant" in answer.reason
