"""Trained models and graphs that have grown since: answering over one, and learning on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue
from biqe.models._contract import FindsTuples, HasAttention, SolvesOtherwise, UsesGraph, use_graph
from biqe.models._grown_graph import ExtendedModel, over_graph, take_over
from biqe.models.store import LoadedModel
from biqe.query.bound import TARGET, BoundQuery, QuerySet

OLD = Vocabulary([f"e{n}" for n in range(12)], ["r0", "r1", "r2"])
GROWN = Vocabulary([*OLD.entities, "new0", "new1"], [*OLD.relations, "new_relation"])
SHUFFLED = Vocabulary(
    ["new0", *(OLD.entities[n] for n in (5, 3, 0, 1, 2, 4, 11, 10, 9, 8, 7, 6)), "new1"],
    ["r2", "new_relation", "r0", "r1"],
)
SMALL = {
    "biqe": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16},
    "hybrid": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "rank": 3},
    "gqe": {"width": 8},
    "query2box": {"width": 8},
    "mpqe": {"width": 8, "layers": 1},
    "tractor": {"components": 6},
    "cqd": {"rank": 4},
}
MODELS = sorted(SMALL)


def build(name: str, vocabulary: Vocabulary, seed: int = 0, **options: object):
    torch.manual_seed(seed)
    sizes = len(vocabulary.entities), len(vocabulary.relations)
    return _catalogue.build(name, {**SMALL[name], **options}, *sizes).eval()


def graph_over(vocabulary: Vocabulary) -> Graph:
    def triple(s: str, r: str, o: str) -> tuple[int, int, int]:
        return vocabulary.entity_id(s), vocabulary.relation_id(r), vocabulary.entity_id(o)

    rows = [triple(f"e{n}", f"r{n % 3}", f"e{(n + 1) % 12}") for n in range(12)]
    rows += [triple("e1", "r0", "e5"), triple("e2", "r0", "e5")]
    if vocabulary.entities.find("new0") is not None:
        rows += [triple("new0", "r0", "e5"), triple("new0", "new_relation", "e7")]
    return Graph(vocabulary, as_triples(rows))


def asked(vocabulary: Vocabulary) -> QuerySet:
    """Two questions in names: r1 from e3, and the inverse of r2 from e4."""
    count = len(vocabulary.relations)
    forward = BoundQuery((vocabulary.entity_id("e3"), TARGET), ((0, vocabulary.relation_id("r1"), 1),), (1,))
    backward = BoundQuery((vocabulary.entity_id("e4"), TARGET), ((0, vocabulary.relation_id("r2") + count, 1),), (1,))
    return QuerySet.of([forward, backward])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_front_of_a_grown_graph_scores_as_before(name):
    old = build(name, OLD)
    use_graph(old, graph_over(OLD))
    model = over_graph(old, graph_over(GROWN))
    assert (model.entity_count, model.relation_count) == (14, 4)
    with torch.inference_mode():
        before = old.scores(old.encoder(asked(OLD)))
        after = model.scores(model.encoder(asked(GROWN)))
    torch.testing.assert_close(after[:, :12], before, atol=1e-5, rtol=1e-5)
    assert (after[:, 12:] == -torch.inf).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_newer_than_a_model_is_refused_and_never_reaches_it(name):
    model = over_graph(build(name, OLD), graph_over(GROWN))
    for nodes, relation in (((12, TARGET), 0), ((0, TARGET), 3), ((0, TARGET), 7)):
        query = BoundQuery(nodes, ((0, relation, 1),), (1,))
        support = model.supports(query)
        assert not support.yes and "newer than the model" in support.reason and "--continue" in support.hint
        with pytest.raises(UnsupportedQuery):
            model.encode(QuerySet.of([query]))
    assert model.supports(BoundQuery((0, TARGET), ((0, 4 + 2, 1),), (1,))).yes == old_supports(name)


def old_supports(name: str) -> bool:
    return build(name, OLD).supports(BoundQuery((0, TARGET), ((0, 3 + 2, 1),), (1,))).yes


def test_a_graph_of_the_same_size_needs_nothing_in_front():
    model = build("biqe", OLD)
    assert over_graph(model, graph_over(OLD)) is model
    assert isinstance(over_graph(model, graph_over(GROWN)), ExtendedModel)


@pytest.mark.parametrize("name", MODELS)
def test_it_has_the_optional_abilities_of_the_model_and_no_others(name):
    old = build(name, OLD)
    model = over_graph(old, graph_over(GROWN))
    for protocol in (FindsTuples, HasAttention, SolvesOtherwise, UsesGraph):
        assert isinstance(model, protocol) == isinstance(old, protocol)
    if isinstance(model, SolvesOtherwise):
        other = model.solving(known="off")
        assert other.config.known == "off" and other.entity_count == 14 and isinstance(other, UsesGraph)


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
