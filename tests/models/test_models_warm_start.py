"""Models that go on from a trained one on a grown graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.errors import InvalidOption, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue
from biqe.models._warm_start import take_over
from biqe.models.store import LoadedModel

from .grown_graphs import GROWN, MODELS, OLD, SHUFFLED, SMALL, asked, build, graph_over


def test_every_model_is_tested_here():
    assert set(_catalogue.names()) <= set(SMALL)


def by_name(scores: torch.Tensor, vocabulary: Vocabulary) -> np.ndarray:
    """(V, 12) log-probabilities of the old entities in their old order, among themselves."""
    columns = [vocabulary.entity_id(name) for name in OLD.entities]
    return torch.log_softmax(scores[:, columns], 1).numpy()


@pytest.mark.parametrize("vocabulary", [GROWN, SHUFFLED], ids=["behind", "shuffled"])
@pytest.mark.parametrize("name", MODELS)
def test_what_was_learnt_is_kept_by_name(name, vocabulary):
    old = build(name, OLD)
    fresh = build(name, vocabulary, seed=1)
    take_over(fresh, LoadedModel(old, OLD, {}), graph_over(vocabulary))
    with torch.inference_mode():
        before = by_name(old.scores(old.encoder(asked(OLD))), OLD)
        scores = fresh.scores(fresh.encoder(asked(vocabulary)))
    assert scores.shape == (2, 14) and torch.isfinite(scores).all()
    np.testing.assert_allclose(by_name(scores, vocabulary), before, atol=2e-4)


def test_shared_matrices_are_taken_over_too():
    old, fresh = build("mpqe", OLD, bases=2), build("mpqe", SHUFFLED, seed=1, bases=2)
    take_over(fresh, LoadedModel(old, OLD, {}), graph_over(SHUFFLED))
    with torch.inference_mode():
        before = by_name(old.scores(old.encoder(asked(OLD))), OLD)
        after = by_name(fresh.scores(fresh.encoder(asked(SHUFFLED))), SHUFFLED)
    np.testing.assert_allclose(after, before, atol=2e-4)


def test_links_inside_are_taken_over_by_name():
    old, fresh = build("hybrid", OLD), build("hybrid", SHUFFLED, seed=1)
    take_over(fresh, LoadedModel(old, OLD, {}), graph_over(SHUFFLED))
    entities = [SHUFFLED.entity_id(name) for name in OLD.entities]
    relations = [SHUFFLED.relation_id(name) for name in OLD.relations]
    assert torch.equal(fresh.links.entities[entities], old.links.entities)
    count = len(SHUFFLED.relations)
    both_ways = [*relations, *(relation + count for relation in relations)]
    assert torch.equal(fresh.links.relations[both_ways], old.links.relations)


def test_a_new_entity_begins_near_its_peers():
    old, fresh = build("cqd", OLD), build("cqd", GROWN, seed=1)
    take_over(fresh, LoadedModel(old, OLD, {}), graph_over(GROWN))
    table, rows = old.links.entities.detach(), fresh.links.entities.detach()
    # e1 and e2 have new0's link to e5; nobody else has its other relation, which leads nowhere.
    peers = table[[1, 2]].mean(0)
    assert (rows[12] - peers).norm() < 0.6 * table.std(0).norm()
    assert not torch.equal(rows[12], peers)
    assert (rows[13] - table.mean(0)).norm() < 0.6 * table.std(0).norm()  # no link at all: the mean of everybody


def test_a_graph_that_lacks_what_the_model_knows_is_refused():
    fresh = build("biqe", Vocabulary(OLD.entities[:11], OLD.relations))
    with pytest.raises(VocabularyMismatch, match="1 entities that this graph does not have, such as 'e11'"):
        take_over(
            fresh,
            LoadedModel(build("biqe", OLD), OLD, {}),
            Graph(Vocabulary(OLD.entities[:11], OLD.relations), as_triples([])),
        )
    with pytest.raises(InvalidOption, match="as it was built"):
        take_over(build("biqe", GROWN, width=32), LoadedModel(build("biqe", OLD), OLD, {}), graph_over(GROWN))
