"""Truth values: finite, in the order of the scores, and certain where links are stored."""

from __future__ import annotations

import pytest
import torch

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.complex import ComplEx
from biqe.links.stored import StoredLinks
from biqe.links.truth import RULES, ScoredLinks, truth_of

GRAPH = Graph(Vocabulary([f"e{n}" for n in range(6)], ["a", "b"]), as_triples([(0, 0, 1), (0, 0, 2), (3, 1, 0)]))


@pytest.mark.parametrize("rule", RULES)
def test_truths_keep_the_order_of_scores_and_are_finite(rule):
    scores = torch.tensor([[-300.0, -20.0, -1.0, 0.0, 2.0, 15.0], [4.0] * 6])
    truth = truth_of(scores.clone(), rule)
    assert torch.isfinite(truth).all() and (truth.diff(dim=1) >= 0).all()
    assert rule == "raw" or (truth <= 0).all()


def test_truths_by_hand():
    scores = torch.tensor([[1.0, 2.0, 4.0]])
    p = torch.softmax(scores, 1)
    for rule, expected in {
        "softmax": p,
        "peak": p / p.max(),
        "counted": 3 * p / (1 + 3 * p),
        "sigmoid": torch.sigmoid(scores),
        "raw": torch.log1p(scores.exp()),
    }.items():
        torch.testing.assert_close(truth_of(scores.clone(), rule, torch.tensor([3])).exp(), expected)
    torch.testing.assert_close(truth_of(scores.clone(), "minmax")[0, 1:].exp(), torch.tensor([1 / 3, 1.0]))


def test_stored_links_are_certain_where_asked_for_and_always_counted():
    torch.manual_seed(0)
    predictor, stored = ComplEx(4, 6, 2, spread=0.5), StoredLinks(GRAPH)
    heads, relations = torch.tensor([0, 3, 2]), torch.tensor([0, 1, 2])  # relation 2 is relation 0 walked backwards
    with torch.no_grad():
        scores = predictor.scores(heads, relations)
        predicted = ScoredLinks(predictor, "counted", stored, certain=False)
        certain = ScoredLinks(predictor, "counted", stored, certain=True)
        expected = truth_of(scores.clone(), "counted", torch.tensor([2, 1, 1]))
        torch.testing.assert_close(predicted.to_all(heads, relations), expected)
        found = certain.to_all(heads, relations)
    assert certain.certain and not predicted.certain and certain.entity_count == 6
    held = torch.zeros(3, 6, dtype=torch.bool)
    held[0, [1, 2]] = held[1, 0] = held[2, 0] = True
    assert torch.equal(found == 0.0, held)
    torch.testing.assert_close(found[~held], expected[~held])


def test_without_a_graph_nothing_is_certain():
    links = ScoredLinks(ComplEx(4, 6, 2), "counted", None, certain=True)
    assert not links.certain
    assert (links.to_all(torch.tensor([0]), torch.tensor([0])) < 0).all()
