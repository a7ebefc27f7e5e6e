"""Messages on trees against brute force, and what is kept of each variable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.benchmarks.shaped import LAYOUTS, NEGATIONS, lay_out
from biqe.links import max_product
from biqe.links.beam import beam_marginals
from biqe.links.max_product import EXCLUDED, after_the_best, best, keep, tree_marginals, with_constants
from biqe.links.structures import support
from biqe.query.bound import BoundQuery

from .conftest import ENTITIES, SHAPES, T, batch_of, marginals_of, random_links

TREES = [name for name, query in SHAPES.items() if batch_of(query).groups[0].structure.is_forest]


@pytest.mark.parametrize("certain_share", [0.0, 0.3])
@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", TREES)
def test_with_all_entities_kept_marginals_are_brute_force(shape, t_norm, certain_share):
    query, links = SHAPES[shape], random_links(1, certain_share)
    (group,) = batch_of(query).groups
    found = tree_marginals(group, links, t_norm, ENTITIES)[0]
    np.testing.assert_allclose(found.numpy(), marginals_of(query, links, t_norm), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("certain_share", [0.0, 0.3])
@pytest.mark.parametrize("shape", NEGATIONS)
def test_a_negated_part_counts_its_complement(shape, certain_share, scale):
    """By loops over all assignments: the product of what is asked for and of 1 - s times the best negated match."""
    layout, links = LAYOUTS[shape], random_links(3, certain_share)
    links.negation = scale
    rows = lay_out(shape, np.array([[3, 5, 1][: layout.anchors]]), np.array([[1, 2, 4][: len(layout.edges)]]))
    query, truth = rows[0], links.table.exp()
    expected = np.zeros(ENTITIES)
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    parts = list(zip(query.edges, query.negated, strict=True))
    inside = [v for v in variables if all(part for edge, part in parts if v in edge[::2])]
    outside = [node for node in variables if node not in inside]

    def product_of(at, part):
        return np.prod([truth[r, at[s], at[o]] for (s, r, o), p in parts if p == part])

    for entities in itertools.product(range(ENTITIES), repeat=len(outside)):
        at = {**dict(enumerate(query.nodes)), **dict(zip(outside, entities, strict=True))}
        against = max(
            product_of({**at, **dict(zip(inside, own, strict=True))}, 1)
            for own in itertools.product(range(ENTITIES), repeat=len(inside))
        )
        chance = product_of(at, 0) * max(np.exp(EXCLUDED), 1 - min(1.0, scale * against))
        expected[at[query.targets[0]]] = max(expected[at[query.targets[0]]], chance)
    (group,) = batch_of(query).groups
    for found in (tree_marginals(group, links, "product", ENTITIES), beam_marginals(group, links, "product", 50)):
        np.testing.assert_allclose(found[0, 0].exp().numpy(), expected, rtol=1e-4, atol=1e-9)


def test_a_negated_part_that_shares_two_variables_is_refused():
    query = BoundQuery((3, T, T), ((0, 1, 1), (0, 2, 2), (1, 0, 2)), (1, 2), negated=(0, 0, 1))
    assert not support(query, "test") and "one variable" in support(query, "test").reason
    nothing = BoundQuery((3, T), ((0, 1, 1),), (1,), negated=(1,))
    assert not support(nothing, "test")


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", ["2p", "3p", "ip", "pi", "branches", "hidden branch"])
def test_however_few_are_kept_answers_by_certain_links_are_found(shape, t_norm, seed, width):
    query, links = SHAPES[shape], random_links(seed, certain_share=0.6)
    (group,) = batch_of(query).groups
    exact = marginals_of(query, links, t_norm)
    found = tree_marginals(group, links, t_norm, width)[0].numpy()
    assert (exact == 0.0).any()
    assert (found[exact == 0.0] == 0.0).all() and (found <= 1e-6).all()


def test_beside_certain_links_a_preference_cuts_none_of_them_off():
    """What an encoder prefers decides among the others, and never crowds out what is stored."""
    query, links = SHAPES["2p"], random_links(0, certain_share=0.4)
    (group,) = batch_of(query).groups
    beside = 20.0 * torch.rand(1, ENTITIES)
    exact = marginals_of(query, links)
    found = tree_marginals(group, links, "product", 1, beside)[0].numpy()
    held = exact == 0.0
    np.testing.assert_allclose(found[held], beside.numpy()[held], rtol=1e-5)


@pytest.mark.parametrize("certain_share", [0.0, 0.4])
@pytest.mark.parametrize("width", [1, 3])
def test_a_query_scores_the_same_alone_and_among_others(monkeypatch, certain_share, width):
    """Other queries of the batch may have more certain entities, or none."""
    links = random_links(5, certain_share)
    query = SHAPES["path of targets"]
    several = [type(query)((anchor, *query.nodes[1:]), query.edges, query.targets) for anchor in range(ENTITIES)]
    (group,) = batch_of(*several).groups
    together = tree_marginals(group, links, "product", width)
    for number, one in enumerate(several):
        alone = tree_marginals(batch_of(one).groups[0], links, "product", width)[0]
        torch.testing.assert_close(together[number], alone)
    monkeypatch.setattr(max_product, "CHUNK_BYTES", 1)
    torch.testing.assert_close(tree_marginals(group, links, "product", width), together)


def test_links_of_constants_that_are_looked_up_together_are_the_same():
    links = random_links(6)
    groups = batch_of(*(SHAPES[name] for name in TREES)).groups
    for plain, looked_up in zip(groups, with_constants(groups, links), strict=True):
        torch.testing.assert_close(
            tree_marginals(looked_up, links, "product", 2), tree_marginals(plain, links, "product", 2)
        )


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 20), st.integers(0, 10))
def test_what_is_kept_is_all_that_is_certain_and_the_best_of_the_rest(seed, width, columns, most):
    rng = np.random.default_rng(seed)
    values, certain = rng.normal(size=(3, columns)).astype(np.float32), rng.random((3, columns)) < 0.4
    truths, places = keep(torch.from_numpy(values), width, torch.from_numpy(certain), most)
    for row in range(3):
        real = torch.isfinite(truths[row])
        found = places[row][real].tolist()
        assert truths[row][real].tolist() == values[row, found].tolist()
        order = np.argsort(-values[row]).tolist()
        sure = [place for place in order if certain[row, place]][:most]
        rest = [place for place in order if not certain[row, place]][:width]
        if min(most, int(certain.sum(1).max())) == 0:  # then the best are kept, certain or not
            sure, rest = [], order[:width]
        assert found == sure + rest


def test_entities_that_were_not_kept_come_last_in_their_own_order():
    order = torch.tensor([[5.0, 1.0, 4.0, 3.0, 2.0]])
    ranked = after_the_best(order, torch.tensor([[2, 4, 2]]), torch.tensor([[-9.0, -7.0, -8.0]]))
    assert ranked.argsort(descending=True).tolist() == [[4, 2, 0, 3, 1]]
    assert ranked[0, [4, 2]].tolist() == [-7.0, -8.0] and torch.isfinite(ranked).all()
    ranked = after_the_best(order, torch.tensor([[2, 4]]), torch.tensor([[-9.0, float("-inf")]]))
    assert ranked.argsort(descending=True).tolist() == [[2, 0, 3, 4, 1]]


@given(st.integers(1, 700), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_best_of_a_row_are_its_best(columns, count, rows, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    found, where = best(values, count)
    expected = values.sort(1, descending=True).values[:, :count]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(values.gather(1, where), expected, rtol=0, atol=0)


def test_the_best_of_a_long_row_with_equals():
    values = torch.zeros(2, 5000)
    values[1, 4321] = 1.0
    found, where = best(values, 3)
    assert found.tolist() == [[0.0] * 3, [1.0, 0.0, 0.0]]
    assert where[1, 0] == 4321 and all(len(set(row)) == 3 and max(row) < 5000 for row in where.tolist())
