"""The search beside an encoder: assignments weighed by both, enumerated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.links import search
from biqe.links.search import TUPLE_WEIGHT, marginals, tuples_beside_encoder

from .conftest import ENTITIES, EVERYTHING, SHAPES, TableLinks, batch_of, best_rows, marginals_of, random_links

SEVERAL = [name for name, query in SHAPES.items() if len(query.targets) > 1]


def encoder_says(query, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(torch.randn(len(query.targets), ENTITIES, generator=generator), 1)


def beside_encoder(batch, links, own, weight, width):
    """Scores of all targets; those of no group keep what the encoder says."""
    found = own.clone()
    for rows, scores in search.beside_encoder(batch.groups, links, own, weight, width):
        found[rows] = scores
    return found


def scaled(links: TableLinks, weight: float) -> TableLinks:
    return TableLinks(links.table * weight, certain=links.certain)


@pytest.mark.parametrize("weight", [0.25, 0.7, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_those_of_the_best_assignment(shape, weight):
    query, links, own = SHAPES[shape], random_links(1), encoder_says(SHAPES[shape])
    expected = marginals_of(query, scaled(links, weight), beside=(1 - weight) * own)
    found = beside_encoder(batch_of(query), links, own, weight, EVERYTHING)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-3)


def test_for_one_target_it_is_the_geometric_mean_of_encoder_and_links():
    query, links, own = SHAPES["2p"], random_links(2), encoder_says(SHAPES["2p"])
    by_links = marginals(batch_of(query).groups[0], links, "product", ENTITIES)[0]
    for weight in (0.25, 1.0):
        found = beside_encoder(batch_of(query), links, own, weight, ENTITIES)
        torch.testing.assert_close(found, (1 - weight) * own + weight * by_links, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("certain_share", [0.0, 0.3])
@pytest.mark.parametrize("shape", SEVERAL)
def test_tuples_are_the_best_assignments_that_miss_a_link(shape, certain_share):
    query, links, own = SHAPES[shape], random_links(3, certain_share), encoder_says(SHAPES[shape])
    expected = best_rows(
        query, scaled(links, TUPLE_WEIGHT), beside=(1 - TUPLE_WEIGHT) * own, only_missing=links.certain
    )
    (found,) = tuples_beside_encoder(batch_of(query), links, own, 10, EVERYTHING)
    truths = sorted((truth for truth, _ in expected.values()), reverse=True)[:10]
    np.testing.assert_allclose(found.scores, truths, rtol=1e-3, atol=1e-3)
    for row, assignment in zip(found.rows.tolist(), found.assignments.tolist(), strict=True):
        assert tuple(assignment) in expected[tuple(row)][1]


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_what_the_encoder_holds_impossible_stays_so(weight):
    query, links, own = SHAPES["two targets"], random_links(4), encoder_says(SHAPES["two targets"])
    own[0, 4:], own[1, ::2] = -torch.inf, -torch.inf
    (found,) = tuples_beside_encoder(batch_of(query), links, own, 200, EVERYTHING)
    possible = [(a, b) for a in range(4) for b in range(1, ENTITIES, 2)]
    assert sorted(map(tuple, found.rows.tolist())) == possible
    scores = beside_encoder(batch_of(query), links, own, weight, ENTITIES)
    assert bool(torch.isneginf(scores[1, ::2]).all())
