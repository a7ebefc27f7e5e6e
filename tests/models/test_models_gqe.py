"""GQE: batched states equal a plain computation of each query; losses equal their equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from biqe.errors import InvalidOption
from biqe.models._contract import Targets
from biqe.models._draws import draw_negatives, draw_positives, true_among
from biqe.models.gqe import GQE, PRESETS, Config
from biqe.query.bound import TARGET, AnswerSets, BoundQuery, QuerySet

from .conftest import DAGS, ENTITIES, RELATIONS, SHAPES


def build(seed=0, **options):
    torch.manual_seed(seed)
    model = GQE(Config(**{"width": 8, "dropout": 0.0, **options}), ENTITIES, RELATIONS).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def reference(model, query):
    """(targets, D) one node after the other, as the equations are written."""

    def state(node):
        if query.nodes[node] >= 0:
            return model.entities[query.nodes[node]]
        arriving = []
        for source, relation, end in query.edges:
            if end == node:
                q, r = state(source), model.relations[relation]
                arriving.append({"transe": q + r, "distmult": q * r, "bilinear": r @ q}[model.config.projection])
        if len(arriving) == 1:
            return arriving[0]
        if model.config.intersection == "mean":
            met = sum(arriving) / len(arriving)
        else:
            operator = model.set_operator
            inner = [torch.relu(operator.before.weight @ q + operator.before.bias) for q in arriving]
            met = operator.after.weight @ (sum(inner) / len(inner))
        if model.config.loss == "log_sigmoid":
            return met
        return met / met.norm() * sum(q.norm() for q in arriving) / len(arriving)

    return torch.stack([state(target) for target in query.targets])


OPERATORS = [
    {"projection": projection, "intersection": intersection, "loss": loss}
    for projection in ("transe", "distmult", "bilinear")
    for intersection, loss in (("mean", "softmax"), ("deepset", "log_sigmoid"), ("deepset", "softmax"))
]


@pytest.mark.parametrize("options", OPERATORS, ids=lambda options: "-".join(options.values()))
def test_batched_states_are_those_of_each_query_alone(options):
    model = build(**options)
    asked = [*SHAPES.values(), *DAGS]
    encoded = model.encode(QuerySet.of(asked))
    with torch.no_grad():
        together = model.states(encoded.batch(np.arange(len(asked))))
        plain = torch.cat([reference(model, query) for query in asked])
        alone = torch.cat([model.states(encoded.batch(np.array([row]))) for row in range(len(asked))])
    torch.testing.assert_close(together, plain)
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("options", OPERATORS, ids=lambda options: "-".join(options.values()))
def test_the_order_of_branches_changes_nothing(options):
    model = build(**options)
    for query in (SHAPES["2i"], SHAPES["3i"], SHAPES["ip"], SHAPES["pi"], *DAGS):
        turned = replace(query, edges=query.edges[::-1])
        with torch.no_grad():
            first, second = (model.scores(model.encoder(QuerySet.of([each]))) for each in (query, turned))
        torch.testing.assert_close(first, second)


def test_a_chain_by_hand():
    model = build(projection="transe", width=2)
    with torch.no_grad():
        model.entities[5] = torch.tensor([1.0, -2.0])
        model.relations[1] = torch.tensor([0.5, 0.25])
        model.relations[6] = torch.tensor([-3.0, 1.0])
        model.relations[0] = torch.tensor([10.0, 20.0])
        state = model.states(model.encoder(QuerySet.of([SHAPES["3p"]])))
    assert state.tolist() == [[8.5, 19.25]]
    model = build(projection="distmult", width=2)
    with torch.no_grad():
        model.entities[3] = torch.tensor([1.0, -2.0])
        model.relations[1] = torch.tensor([0.5, 4.0])
        model.relations[6] = torch.tensor([-3.0, 1.0])
        state = model.states(model.encoder(QuerySet.of([SHAPES["2p"]])))
    assert state.tolist() == [[-1.5, -8.0]]


def test_the_set_operator_begins_near_the_mean():
    torch.manual_seed(0)
    model = GQE(Config(width=64), ENTITIES, RELATIONS)
    states = torch.randn(20, 3, 64)
    with torch.no_grad():
        error = (model.intersect(states) - states.mean(1)).norm() / states.mean(1).norm()
    assert error < 0.5


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_what_training_does_not_see_of_an_intersection_does_not_move_what_follows_it(loss):
    """Cosines do not feel the length of a state. Trained on single edges, chains and bare intersections alone, the set
    operator may therefore make states of any length, and a later q + r must not depend on it."""
    model = build(loss=loss)
    trained, unseen = (QuerySet.of([SHAPES[name] for name in names]) for names in (("2i", "3i"), ("ip",)))
    with torch.no_grad():
        before = [model.scores(model.encoder(queries)) for queries in (trained, unseen)]
        lengths = model.states(model.encoder(trained)).norm(dim=1)
        model.set_operator.after.weight.mul_(100.0)
        after = [model.scores(model.encoder(queries)) for queries in (trained, unseen)]
        torch.testing.assert_close(model.states(model.encoder(trained)).norm(dim=1), lengths)
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1], before[1])


SCORES = [
    {"projection": "transe", "loss": "log_sigmoid"},
    {"projection": "distmult", "loss": "margin"},
    {"projection": "distmult", "loss": "softmax"},
]


@pytest.mark.parametrize("options", SCORES, ids=lambda options: options["loss"])
def test_scores_are_log_probabilities_of_the_equations(options):
    model = build(**options)
    batch = model.encoder(QuerySet.of([*SHAPES.values(), *DAGS]))
    with torch.no_grad():
        q, z = model.states(batch), model.entities
        if options["loss"] == "log_sigmoid":
            by_hand = 24.0 - (q.unsqueeze(1) - z).abs().sum(2)
        else:
            by_hand = model.log_scale.exp() * torch.cosine_similarity(q.unsqueeze(1), z, dim=2)
        torch.testing.assert_close(model.raw_scores(batch), by_hand)
        torch.testing.assert_close(model.scores(batch), torch.log_softmax(by_hand, 1))


def with_answers(queries, seed=0):
    """Gold entities, and one to five answers of each target, the gold one among them."""
    rng = np.random.default_rng(seed)
    sets = [np.sort(rng.choice(ENTITIES, rng.integers(1, 6), replace=False)) for _ in queries.target_nodes]
    gold = queries.gold.copy()
    gold[queries.target_nodes] = [answers[0] for answers in sets]
    offsets = np.cumsum([0, *map(len, sets)])
    return replace(queries, gold=gold).with_filters(train=AnswerSets(offsets, np.concatenate(sets).astype(np.int32)))


@pytest.mark.parametrize("attached", [True, False])
def test_softmax_is_cross_entropy_over_all_entities(attached):
    model = build(loss="softmax")
    asked = with_answers(QuerySet.of([*SHAPES.values(), *DAGS]))
    batch = model.encoder(asked if attached else replace(asked, filters={}))
    truth = torch.zeros(len(asked.target_nodes), ENTITIES, dtype=torch.float64)
    for row, answers in enumerate(asked.filters["train"][i] for i in range(len(truth))):
        truth[row, answers if attached else answers[:1]] = 1.0 / (len(answers) if attached else 1)
    explicit = -(truth * model.scores(batch)).sum(1).mean()
    fused = model.loss(batch)
    torch.testing.assert_close(fused, explicit)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for one, other in zip(
        torch.autograd.grad(fused, parameters), torch.autograd.grad(explicit, parameters), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_targets_of_which_nothing_is_known_do_not_count():
    asked = with_answers(QuerySet.of([SHAPES["1p"], SHAPES["2i"]]))
    unknown = replace(asked, gold=np.where(np.arange(len(asked.nodes)) == 1, -1, asked.gold).astype(np.int32))
    for loss in ("softmax", "margin", "log_sigmoid"):
        model = build(loss=loss, negatives=ENTITIES)
        whole = model.encode(replace(unknown, filters={}))
        both, second = (float(model.loss(whole.batch(np.array(rows))).detach()) for rows in ([0, 1], [1]))
        assert both == pytest.approx(second)
    # The same where all answers are attached, and one target has none.
    model = build(loss="softmax")
    emptied = asked.filters["train"].take(np.array([1]))
    emptied = AnswerSets(np.concatenate([[0], emptied.offsets]), emptied.values)
    whole = model.encode(replace(asked, filters={"train": emptied}))
    both, second = (float(model.loss(whole.batch(np.array(rows))).detach()) for rows in ([0, 1], [1]))
    assert both == pytest.approx(second)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("options", SCORES[:2], ids=["log_sigmoid", "margin"])
def test_sampled_losses_are_their_equations(options, filtered):
    model = build(**options, negatives=12, filter_negatives=filtered, gamma=3.0)
    asked = with_answers(QuerySet.of([*SHAPES.values(), *DAGS]))
    batch = model.encoder(asked)
    torch.manual_seed(7)
    found = model.loss(batch)
    torch.manual_seed(7)
    positives, negatives = draw_positives(batch.targets), draw_negatives(12, ENTITIES)
    with torch.no_grad():
        s = model.raw_scores(batch)
    total, removed = 0.0, 0
    for row, answers in enumerate(asked.filters["train"][i] for i in range(len(s))):
        used = [n for n in negatives.tolist() if not (filtered and n in answers)]
        removed += len(negatives) - len(used)
        good = s[row, positives[row]]
        if options["loss"] == "margin":
            total += sum(max(0.0, float(1.0 - good + s[row, n])) for n in used) / len(used)
        else:
            total += float(functional.softplus(-good)) + sum(float(functional.softplus(s[row, n])) for n in used) / len(
                used
            )
    assert float(found.detach()) == pytest.approx(total / len(s)) and (removed > 0) == filtered


def test_filtering_negatives_removes_the_answers_and_nothing_else():
    targets = Targets(torch.tensor([4, 9, -1]), torch.tensor([0, 3, 3, 4]), torch.tensor([1, 4, 6, 0]))
    negatives = torch.tensor([6, 0, 9, 4, 7])
    hits = true_among(targets, negatives, 10)
    assert hits.tolist() == [
        [True, False, False, True, False],
        [False, False, True, False, False],
        [False, True, False, False, False],
    ]
    only_gold = true_among(Targets(targets.gold, None, None), negatives, 10)
    assert only_gold.nonzero().tolist() == [[0, 3], [1, 2]]


def test_draws_come_from_the_answers_and_the_global_generator():
    offsets = torch.tensor([*range(0, 901, 3), 900, 900])  # three answers each, and two targets without
    targets = Targets(torch.tensor([4] * 300 + [9, -1]), offsets, torch.tensor([1, 4, 6] * 300))
    torch.manual_seed(0)
    drawn = draw_positives(targets)
    counts = torch.bincount(drawn[:300], minlength=7)
    assert counts[[1, 4, 6]].sum() == 300 and counts[[1, 4, 6]].min() > 60
    assert drawn[300:].tolist() == [9, -1]
    torch.manual_seed(0)
    assert torch.equal(drawn, draw_positives(targets))
    assert torch.equal(draw_positives(Targets(targets.gold, None, None)), targets.gold)
    negatives = draw_negatives(7, 10)
    assert len(negatives.unique()) == 7 and int(negatives.max()) < 10
    assert draw_negatives(99, 10).tolist() == list(range(10))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"projection": "transe"},
        {"projection": "bilinear"},
        *SCORES,
        {"intersection": "mean"},
    ],
    ids=str,
)
def test_the_loss_falls(options):
    torch.manual_seed(0)
    model = GQE(Config(**{"width": 16, "negatives": 16, "gamma": 4.0, **options}), ENTITIES, RELATIONS)
    batch = model.encoder(with_answers(QuerySet.of([*SHAPES.values(), *DAGS])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:5])


def test_presets_are_configurations():
    built = {name: GQE(Config(**options), ENTITIES, RELATIONS) for name, options in PRESETS.items()}
    assert set(built) == {"gqe", "gqe-double", "gqe-mp"}
    assert built["gqe"].config == Config()
    as_published = built["gqe"].config
    assert (as_published.width, as_published.gamma, as_published.negatives) == (400, 24.0, 128)
    assert as_published.loss == "log_sigmoid" and as_published.filter_negatives
    assert built["gqe-double"].config == replace(as_published, width=800)
    assert built["gqe-mp"].config.intersection == "mean"
    several = QuerySet.of(DAGS)
    assert len(built["gqe-mp"].scores(built["gqe-mp"].encoder(several))) == len(several.target_nodes) > len(DAGS)


@pytest.mark.parametrize(
    "options",
    [
        {"projection": "rotate"},
        {"intersection": "max"},
        {"loss": "hinge"},
        {"width": 0},
        {"negatives": 0},
        {"margin": 0.0},
        {"gamma": -1.0},
        {"dropout": 1.0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOption, match="of gqe"):
        Config(**options)


def test_supports_what_constants_lead_to():
    model = build()
    assert all(model.supports(query) for query in (*SHAPES.values(), *DAGS))
    backwards = BoundQuery((TARGET, 7), ((0, 2, 1),), (0,))
    assert model.supports(backwards) and not build(inverses=False).supports(backwards)
