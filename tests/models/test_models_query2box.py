"""Query2Box: kernel equals tensors, batched boxes equal a plain computation, losses equal their equations."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.models import _box_kernels
from biqe.models._box_kernels import box_distances
from biqe.models._draws import draw_negatives, draw_positives
from biqe.models.query2box import Config, Query2Box
from biqe.query.bound import TARGET, AnswerSets, BoundQuery, QuerySet

from .conftest import DAGS, ENTITIES, RELATIONS, SHAPES


def build(seed=0, **options):
    torch.manual_seed(seed)
    model = Query2Box(Config(**{"width": 8, "gamma": 3.0, **options}), ENTITIES, RELATIONS).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def plain_distances(centres, offsets, points, alpha):
    """(V, K) as the paper writes it, by the corners of the box."""
    low, high = (centres - offsets).unsqueeze(1), (centres + offsets).unsqueeze(1)
    outside = (points - high).clamp_min(0) + (low - points).clamp_min(0)
    inside = centres.unsqueeze(1) - torch.minimum(high, torch.maximum(low, points.expand(len(centres), -1, -1)))
    return outside.abs().sum(2) + alpha * inside.abs().sum(2)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("boxes", "points", "width"), [(5, 9, 7), (1, 3, 16), (2, 4, 1), (70, 40, 33), (6, 1, 5)])
@pytest.mark.parametrize("alpha", [0.02, 0.0, 1.0])
def test_the_kernel_is_the_plain_distance(boxes, points, width, alpha, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(_box_kernels, "TILE_BYTES", 16 * width * 8)  # several tiles
    torch.manual_seed(boxes * points)
    parts = [torch.randn(boxes, width), torch.rand(boxes, width), torch.randn(points, width)]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        c, o, p = (part.to(dtype).requires_grad_() for part in parts)
        pull = torch.randn(boxes, points, dtype=dtype)
        pull[torch.rand(boxes, points) < 0.3] = 0.0  # as filtered negatives leave it
        results = []
        for distances in (box_distances(c, o, p, alpha), plain_distances(c, o, p, alpha)):
            results.append([distances, *torch.autograd.grad((distances * pull).sum(), (c, o, p))])
        for fast, slow in zip(*results, strict=True):
            torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def test_the_thread_that_asks_measures_a_share(monkeypatch):
    """So that a budget of its processor time is a budget of the whole step."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done = []
    _box_kernels._deal(7, lambda part, first, last: done.append((part, first, last, threading.get_ident())))
    assert sorted(part[:3] for part in done) == [(0, 0, 2), (1, 2, 4), (2, 4, 7)]
    assert next(part[3] for part in done if part[0] == 0) == threading.get_ident()


def test_the_kernel_takes_nothing_and_slices():
    c = torch.randn(4, 6, dtype=torch.float64)
    assert box_distances(c[:0], c[:0], c, 0.5).shape == (0, 4) and box_distances(c, c, c[:0], 0.5).shape == (4, 0)
    left, right = c[:, :3], c[:, 3:].abs()  # not contiguous
    torch.testing.assert_close(box_distances(left, right, left, 0.1), plain_distances(left, right, left, 0.1))


def reference(model, query):
    """Box of each target, one node after the other, as the equations are written."""
    op = model.intersect

    def box(node):
        if query.nodes[node] >= 0:
            point = model.entities[query.nodes[node]]
            return point, torch.zeros_like(point)
        arriving = []
        for source, relation, end in query.edges:
            if end == node:
                centre, offset = box(source)
                arriving.append(
                    (centre + model.centres[relation], offset + functional.softplus(model.offsets[relation]))
                )
        if len(arriving) == 1:
            return arriving[0]
        logits, inner = [], 0.0
        for centre, offset in arriving:
            p = torch.cat([centre, offset])
            logits.append(op.attend_out(functional.relu(op.attend_in(p))))
            inner = inner + op.shrink_inner(functional.relu(op.shrink_in(p))) / len(arriving)
        total = sum(logit.exp() for logit in logits)
        centre = sum(logit.exp() / total * c for logit, (c, _) in zip(logits, arriving, strict=True))
        smallest = torch.stack([offset for _, offset in arriving]).min(0).values
        return centre, smallest * torch.sigmoid(op.shrink_out(functional.relu(inner)))

    found = [box(target) for target in query.targets]
    return torch.stack([c for c, _ in found]), torch.stack([o for _, o in found])


def test_batched_boxes_are_those_of_each_query_alone():
    model = build()
    asked = [*SHAPES.values(), *DAGS]
    encoded = model.encode(QuerySet.of(asked))
    with torch.no_grad():
        together = model.boxes(encoded.batch(np.arange(len(asked))))
        for part in range(2):
            plain = torch.cat([reference(model, query)[part] for query in asked])
            alone = torch.cat([model.boxes(encoded.batch(np.array([row])))[part] for row in range(len(asked))])
            torch.testing.assert_close(together[part], plain)
            torch.testing.assert_close(together[part], alone)


def test_the_order_of_branches_changes_nothing():
    model = build()
    for query in (SHAPES["2i"], SHAPES["3i"], SHAPES["ip"], SHAPES["pi"], *DAGS):
        turned = replace(query, edges=query.edges[::-1])
        with torch.no_grad():
            first, second = (model.scores(model.encoder(QuerySet.of([each]))) for each in (query, turned))
        torch.testing.assert_close(first, second)


def test_a_chain_by_hand():
    model = build(width=2)
    with torch.no_grad():
        model.entities[3] = torch.tensor([1.0, -2.0])
        model.centres[1] = torch.tensor([0.5, 0.25])
        model.centres[6] = torch.tensor([-3.0, 1.0])
        model.offsets[1] = torch.tensor([1.0, 2.0]).expm1().log()  # softplus gives 1 and 2
        model.offsets[6] = torch.tensor([0.5, 0.5]).expm1().log()
        centre, offset = model.boxes(model.encoder(QuerySet.of([SHAPES["2p"]])))
    torch.testing.assert_close(centre, torch.tensor([[-1.5, -0.75]], dtype=torch.float64))
    torch.testing.assert_close(offset, torch.tensor([[1.5, 2.5]], dtype=torch.float64), rtol=1e-6, atol=1e-6)
    # From (1, 0): 2.5 and .75 off the centre, so 1 outside and 1.5 + .75 inside.
    point = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert float(box_distances(centre, offset, point, 0.02)) == pytest.approx(1.0 + 0.02 * 2.25, rel=1e-6)


def test_an_intersection_lies_between_the_boxes_and_is_smaller():
    model = build()
    boxes = torch.cat([torch.randn(50, 3, 8), torch.rand(50, 3, 8)], 2).double()
    with torch.no_grad():
        found = model.intersect(boxes)
    centres, offsets = boxes[..., :8], boxes[..., 8:]
    assert (found[:, :8] <= centres.amax(1)).all() and (found[:, :8] >= centres.amin(1)).all()
    assert (found[:, 8:] <= offsets.amin(1)).all() and (found[:, 8:] >= 0).all()


def test_scores_are_log_probabilities_of_the_distances():
    model = build()
    batch = model.encoder(QuerySet.of([*SHAPES.values(), *DAGS]))
    with torch.no_grad():
        plain = plain_distances(*model.boxes(batch), model.entities, 0.02)
        torch.testing.assert_close(model.scores(batch), torch.log_softmax(-plain, 1))


def with_answers(queries, seed=0):
    """Gold entities, and one to five answers of each target, the gold one among them."""
    rng = np.random.default_rng(seed)
    sets = [np.sort(rng.choice(ENTITIES, rng.integers(1, 6), replace=False)) for _ in queries.target_nodes]
    gold = queries.gold.copy()
    gold[queries.target_nodes] = [answers[0] for answers in sets]
    offsets = np.cumsum([0, *map(len, sets)])
    return replace(queries, gold=gold).with_filters(train=AnswerSets(offsets, np.concatenate(sets).astype(np.int32)))


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("loss", ["log_sigmoid", "softmax"])
def test_the_loss_is_its_equation(loss, attached, filtered):
    model = build(loss=loss, negatives=12, filter_negatives=filtered)
    asked = with_answers(QuerySet.of([*SHAPES.values(), *DAGS]))
    batch = model.encoder(asked if attached else replace(asked, filters={}))
    torch.manual_seed(7)
    found = model.loss(batch)
    torch.manual_seed(7)
    positives, negatives = draw_positives(batch.targets), draw_negatives(12, ENTITIES)
    with torch.no_grad():
        d = plain_distances(*model.boxes(batch), model.entities, 0.02)
    total, removed = 0.0, 0
    for row, answers in enumerate(asked.filters["train"][i] for i in range(len(d))):
        true = answers if attached else answers[:1]
        used = torch.tensor([n for n in negatives.tolist() if not (filtered and n in true)])
        removed += len(negatives) - len(used)
        good, bad = d[row, positives[row]], d[row, used]
        if loss == "log_sigmoid":
            total += float(-functional.logsigmoid(3.0 - good).mean() - functional.logsigmoid(bad - 3.0).mean())
        else:
            rest = ENTITIES / len(negatives) * (-bad).exp().sum()
            total += float(-((-good).exp() / ((-good).exp() + rest)).log().mean())
    assert float(found.detach()) == pytest.approx(total / len(d)) and (removed > 0) == filtered


@pytest.mark.parametrize("loss", ["log_sigmoid", "softmax"])
def test_rows_without_negatives_or_answers_keep_the_loss_finite(loss):
    """Every entity an answer and filtered; and a target of which nothing is known."""
    model = build(loss=loss, negatives=ENTITIES, filter_negatives=True)
    asked = QuerySet.of([SHAPES["1p"], SHAPES["2i"]])
    everything = AnswerSets(np.array([0, ENTITIES, ENTITIES]), np.arange(ENTITIES, dtype=np.int32))
    encoded = model.encode(asked.with_filters(train=everything))
    value = model.loss(encoded.batch(np.array([0, 1])))
    value.backward()
    assert torch.isfinite(value) and all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    with pytest.raises(UnsupportedQuery, match="1 of the 1 targets"):
        model.loss(encoded.batch(np.array([1])))


@pytest.mark.parametrize("options", [{}, {"loss": "softmax"}, {"filter_negatives": False}], ids=str)
def test_the_loss_falls(options):
    torch.manual_seed(0)
    model = Query2Box(Config(**{"width": 16, "negatives": 16, "gamma": 6.0, **options}), ENTITIES, RELATIONS)
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


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "hinge"},
        {"width": 0},
        {"negatives": 0},
        {"alpha": 1.5},
        {"gamma": 0.0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOption, match="of query2box"):
        Config(**options)


def test_the_defaults_are_as_published():
    config = Config()
    assert (config.width, config.alpha, config.gamma, config.negatives) == (400, 0.02, 24.0, 128)
    assert config.loss == "log_sigmoid" and config.filter_negatives


def test_supports_what_constants_lead_to():
    model = build()
    assert all(model.supports(query) for query in (*SHAPES.values(), *DAGS))
    cycle = BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 0, 2), (2, 0, 1)), (1, 2))
    assert "cycle" in model.supports(cycle).reason
