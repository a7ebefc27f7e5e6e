"""MPQE: the fast convolution is the plain one, batches are their queries, and each read-out is its formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.models import _catalogue
from biqe.models._contract import TRAINING
from biqe.models.mpqe import MPQE, Config, Messages, convolve, furthest
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet

ENTITIES, RELATIONS = 30, 4
TRIPLE = BoundQuery((3, TARGET), ((0, 1, 1),), (1,))
PATH = BoundQuery((5, HIDDEN, TARGET), ((0, 0, 1), (1, 5, 2)), (2,))
MEET = BoundQuery((7, HIDDEN, 8, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3)), (3,))
TWO = BoundQuery((5, TARGET, 6, TARGET), ((0, 0, 1), (1, 1, 3), (2, 7, 3)), (1, 3))
CYCLE = BoundQuery((3, TARGET, HIDDEN), ((0, 1, 1), (1, 0, 2), (2, 0, 1)), (1,))


def make(seed=0, **options):
    torch.manual_seed(seed)
    return MPQE(Config(**{"width": 6, "dropout": 0.0, **options}), ENTITIES, RELATIONS).double().eval()


def scores(model, queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(list(queries))))


@st.composite
def connected_queries(draw):
    """Any connected query of up to six nodes with a target, loops, cycles and parallel edges among them."""
    count = draw(st.integers(2, 6))
    nodes = [TARGET, *(draw(st.sampled_from([TARGET, HIDDEN, 0, 4, 29])) for _ in range(count - 1))]
    pairs = [(draw(st.integers(0, node - 1)), node) for node in range(1, count)]
    pairs += draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=2))
    edges = tuple((s, draw(st.integers(0, 2 * RELATIONS - 1)), o) for s, o in pairs)
    return BoundQuery(tuple(nodes), edges, tuple(n for n, value in enumerate(nodes) if value == TARGET))


# The convolution


@pytest.mark.parametrize("messages", [0, 1, 40])
def test_the_convolution_is_the_loop_over_edges(messages):
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    subjects, objects = rng.integers(0, 9, messages), rng.integers(0, 9, messages)
    relations = rng.integers(0, 2 * RELATIONS, messages)
    matrices = torch.randn(2 * RELATIONS, 5, 5, dtype=torch.float64, requires_grad=True)
    nodes = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    edges = Messages.both_ways(subjects, relations, objects, RELATIONS)
    fast = convolve(nodes, matrices, edges)

    slow = torch.zeros(9, 5, dtype=torch.float64)
    for s, r, o in zip(subjects, relations, objects, strict=True):
        slow = slow.index_add(0, torch.tensor([o]), nodes[[s]] @ matrices[r].t())
        inverse = r + RELATIONS if r < RELATIONS else r - RELATIONS
        slow = slow.index_add(0, torch.tensor([s]), nodes[[o]] @ matrices[inverse].t())
    torch.testing.assert_close(fast, slow)
    if messages:
        direction = torch.randn_like(fast)
        expected = torch.autograd.grad((slow * direction).sum(), (nodes, matrices))
        torch.testing.assert_close(torch.autograd.grad((fast * direction).sum(), (nodes, matrices)), expected)


# What it computes


def plain_embedding(model, query, steps):
    """The states of all nodes after ``steps`` steps, edge by edge."""
    h = []
    for node, value in enumerate(query.nodes):
        if value >= 0:
            h.append(model.embed_entities[value])
            continue
        ends = [model.embed_ends[r] for _, r, o in query.edges if o == node]
        ends += [model.embed_ends[(r + RELATIONS) % (2 * RELATIONS)] for s, r, _ in query.edges if s == node]
        h.append(model.embed_variables[0 if value == TARGET else 1] + sum(ends) / len(ends))
    for step in range(steps):
        layer = model.layers[min(step, len(model.layers) - 1)]
        z = [layer.own(state) for state in h]
        for s, r, o in query.edges:
            z[o] = z[o] + layer.matrices[r] @ h[s]
            z[s] = z[s] + layer.matrices[(r + RELATIONS) % (2 * RELATIONS)] @ h[o]
        h = [torch.relu(state) for state in z]
    return torch.stack(z)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("readout", ["sum", "target"])
def test_read_outs_are_their_formulas(readout, layers):
    model = make(readout=readout, layers=layers)
    # PATH is 2 wide and its target 2 from the constant; MEET is 3 wide, its target 2 from the further constant.
    for query, width, away in ((TRIPLE, 1, 1), (PATH, 2, 2), (MEET, 3, 2)):
        states = plain_embedding(model, query, away if readout == "target" else width)
        target = query.targets[0]
        expected = states[target] if readout == "target" else states.sum(0)
        hidden = model.hidden(model.encoder(QuerySet.of([TRIPLE, query, MEET])))
        torch.testing.assert_close(hidden[1], expected)


@settings(max_examples=15, deadline=None)
@given(st.lists(connected_queries(), min_size=1, max_size=4))
def test_a_batch_is_its_queries_one_by_one(queries):
    model = make(layers=3)
    torch.testing.assert_close(scores(model, queries), torch.cat([scores(model, [query]) for query in queries]))


@settings(max_examples=15, deadline=None)
@given(connected_queries(), st.randoms(use_true_random=False))
def test_turned_edges_and_other_node_numbers_change_nothing(query, random):
    model = make()
    turned = tuple(
        (o, (r + RELATIONS) % (2 * RELATIONS), s) if random.random() < 0.5 else (s, r, o) for s, r, o in query.edges
    )
    order = list(range(len(query.nodes)))
    random.shuffle(order)
    place = {node: number for number, node in enumerate(order)}
    other = BoundQuery(
        tuple(query.nodes[node] for node in order),
        tuple((place[s], r, place[o]) for s, r, o in random.sample(turned, len(turned))),
        (),
    )
    before, after = scores(model, [query]), scores(model, [other])
    moved = [node for node in order if query.nodes[node] == TARGET]
    torch.testing.assert_close(after, before[[query.targets.index(node) for node in moved]])


@settings(max_examples=40, deadline=None)
@given(st.lists(connected_queries(), min_size=1, max_size=3))
def test_distances_are_those_of_plain_searches(queries):
    table = QuerySet.of(queries)
    ends = table.nodes != HIDDEN
    expected = []
    for query in queries:
        for start in range(len(query.nodes)):
            seen, ring, away = {start}, {start}, {start: 0}
            while ring:
                ring = {b for s, _, o in query.edges for a, b in ((s, o), (o, s)) if a in ring} - seen
                seen |= ring
                away |= dict.fromkeys(ring, max(away.values()) + 1)
            expected.append(max(away[node] for node, value in enumerate(query.nodes) if value != HIDDEN))
    assert furthest(table, np.arange(len(table.nodes)), ends).tolist() == expected


# Losses


def with_gold(queries, answers=None):
    table = QuerySet.of(list(queries))
    gold = np.where(table.nodes == TARGET, np.arange(len(table.nodes)) + 10, table.nodes).astype(np.int32)
    table = replace(table, gold=gold)
    if answers is None:
        return table
    offsets = np.cumsum([0, *map(len, answers)])
    return table.with_filters(**{TRAINING: AnswerSets(offsets, np.concatenate(answers).astype(np.int32))})


def test_the_softmax_loss_is_cross_entropy_of_the_scores():
    model = make()
    batch = model.encoder(with_gold([TRIPLE, TWO, MEET]))
    expected = torch.nn.functional.cross_entropy(model.scores(batch), batch.targets.gold, label_smoothing=0.2)
    torch.testing.assert_close(model.loss(batch, label_smoothing=0.2), expected)


def test_all_answers_have_equal_shares():
    model, answers = make(), [[1, 4, 9], [2], [3, 5], [0, 29]]
    batch = model.encoder(with_gold([TRIPLE, TWO, MEET], answers))
    logs = model.scores(batch)
    expected = -torch.stack([logs[row, found].mean() for row, found in enumerate(answers)]).mean()
    torch.testing.assert_close(model.loss(batch), expected)


@pytest.mark.parametrize("filter_negatives", [False, True])
def test_the_margin_loss_is_its_formula(filter_negatives):
    # As many negatives as entities: all of them, so nothing is left to chance.
    model = make(loss="margin", margin=0.7, negatives=ENTITIES, filter_negatives=filter_negatives)
    batch = model.encoder(with_gold([TRIPLE, TWO]))
    logits = model.hidden(batch) @ model.embed_entities.t()
    terms = [
        torch.relu(0.7 - logits[row, gold] + logits[row, e])
        for row, gold in enumerate(batch.targets.gold.tolist())
        for e in range(ENTITIES)
        if not (filter_negatives and e == gold)
    ]
    torch.testing.assert_close(model.loss(batch), torch.stack(terms).mean())


@pytest.mark.parametrize("options", [{"readout": "sum"}, {"readout": "target"}])
def test_every_weight_learns(options):
    model = make(layers=2, **options).train()
    model.loss(model.encoder(with_gold([TRIPLE, PATH, MEET]))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


# What it refuses


def test_says_what_it_supports():
    target, pooled = make(), make(readout="sum")
    assert target.supports(CYCLE) and pooled.supports(CYCLE) and target.supports(TWO)
    assert torch.isfinite(scores(pooled, [CYCLE])).all()
    assert "one target, not 2" in pooled.supports(TWO).reason
    apart = BoundQuery((3, TARGET, 4, HIDDEN), ((0, 1, 1), (2, 1, 3)), (1,))
    for model in (target, pooled):
        assert "separate parts" in model.supports(apart).reason
        assert "none" in model.supports(BoundQuery((TARGET,), (), (0,))).reason
        with pytest.raises(UnsupportedQuery, match="separate parts"):
            model.encode(QuerySet.of([apart]))
    with pytest.raises(UnsupportedQuery, match="exactly one target"):
        pooled.encode(QuerySet.of([TRIPLE, TWO]))


def test_a_query_without_constants_is_read():
    assert torch.isfinite(scores(make(), [BoundQuery((TARGET, HIDDEN), ((0, 1, 1),), (0,))])).all()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("width", 0),
        ("layers", 0),
        ("negatives", 0),
        ("dropout", 1.0),
        ("margin", 0.0),
        ("readout", "mean"),
        ("loss", "hinge"),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(InvalidOption, match=option):
        Config(**{option: value})


def test_the_papers_variant_has_a_name():
    assert _catalogue.build("mpqe-sum", {"width": 4}, ENTITIES, RELATIONS).config.readout == "sum"
