"""The encoder with links beside it: where it starts, and assignments weighed by both, enumerated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.models._contract import UsesGraph
from biqe.models._grown_graph import over_graph
from biqe.models.biqe import BiQE
from biqe.models.biqe import Config as EncoderConfig
from biqe.models.cqd import CQD
from biqe.models.cqd import Config as CqdConfig
from biqe.models.hybrid import Config, Hybrid
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.training.config import TrainConfig
from biqe.training.training_data import validation

ENTITIES, RELATIONS, RANK = 30, 4, 5
QUERIES = (
    BoundQuery((3, TARGET), ((0, 1, 1),), (1,)),
    BoundQuery((3, TARGET, 5), ((0, 1, 1), (2, 6, 1)), (1,)),
    BoundQuery((5, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,)),
    BoundQuery((7, HIDDEN, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (3, 4)),
)


def graph_of(triples, entities=ENTITIES):
    names = [f"e{n}" for n in range(entities)], [f"r{n}" for n in range(RELATIONS)]
    return Graph(Vocabulary(*names), as_triples(triples))


# Pairs with several tails, so that how many there are makes a difference.
GRAPH = graph_of(
    [(s, r, (3 * s + 5 * r + k) % ENTITIES) for s in range(ENTITIES) for r in range(3) for k in range(r + 1)]
)


@pytest.fixture
def cqd():
    torch.manual_seed(0)
    model = CQD(CqdConfig(rank=RANK, spread=0.5), ENTITIES, RELATIONS).eval()
    model.use_graph(GRAPH)
    return model


def fresh(**options):
    """A hybrid whose encoder has weights that make its outputs far from uniform."""
    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32, "rank": RANK}
    config = Config(**{**sizes, "search": 0.0, **options})
    model = Hybrid(config, ENTITIES, RELATIONS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


@pytest.fixture
def beside(cqd):
    """Function from options to a hybrid that has taken cqd's links over."""

    def make(**options):
        model = fresh(**options)
        model.start_from(cqd)
        model.use_graph(GRAPH)
        return model.eval()

    return make


def scores(model, *queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(queries)))


def assignments(model, cqd, query, weight):
    """(n, targets) entities of the targets in every assignment of all variables, and (n,) its weight, enumerated."""
    own = dict(zip(sorted(query.targets), scores(model, query), strict=True))
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    every = torch.cartesian_prod(*[torch.arange(ENTITIES)] * len(variables)).view(-1, len(variables))
    at = {
        node: every[:, variables.index(node)] if value < 0 else torch.full((len(every),), value)
        for node, value in enumerate(query.nodes)
    }
    total = (1 - weight) * sum(own[node][at[node]] for node in own)
    with torch.inference_mode():
        for s, relation, o in query.edges:
            truth = cqd.truths().to_all(torch.arange(ENTITIES), torch.full((ENTITIES,), relation))
            total = total + weight * truth[at[s], at[o]]
    if cqd.config.known == "one":  # what the graph holds is no prediction
        held = {tuple(triple) for triple in GRAPH.triples.tolist()}
        links = [
            [(s, relation, o) for s, o in zip(at[start].tolist(), at[end].tolist(), strict=True)]
            for start, relation, end in query.edges
        ]
        all_held = torch.tensor([held.issuperset(assignment) for assignment in zip(*links, strict=True)])
        rows = torch.stack([at[node] for node in own], 1)
        left_out = {tuple(row) for row in rows[all_held].tolist()}
        total = total.masked_fill(torch.tensor([tuple(row) in left_out for row in rows.tolist()]), -torch.inf)
    return torch.stack([at[node] for node in own], 1), total


@pytest.mark.parametrize("mask_average", ["hidden", "probability"])
@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_those_of_the_best_assignment(beside, cqd, mask_average, query):
    model = beside(mask_average=mask_average, search_beam=ENTITIES)
    for weight in (0.25, 0.7, 1.0):
        rows, total = assignments(model.without_search(), cqd, query, weight)
        best = torch.full((rows.shape[1], ENTITIES), -torch.inf)
        for target, entities in enumerate(rows.t()):
            best[target].scatter_reduce_(0, entities, total, "amax")
        found = scores(model.solving(search=weight), query)
        torch.testing.assert_close(found, torch.log_softmax(best, 1), rtol=1e-3, atol=1e-3)


def test_a_query_scores_the_same_alone_and_among_others(beside):
    model = beside().solving(search=0.4)
    together = scores(model, *QUERIES)
    torch.testing.assert_close(together, torch.cat([scores(model, query) for query in QUERIES]), rtol=1e-4, atol=1e-4)
    batch = model.encoder(QuerySet.of(QUERIES))
    torch.testing.assert_close(model.trace(batch).scores, together, rtol=1e-4, atol=1e-4)


def test_the_graph_says_how_many_tails_a_pair_has(beside):
    model = beside(search=0.5)
    assert isinstance(model, UsesGraph) and not model.looks_facts_up
    before = scores(model, QUERIES[1])
    model.use_graph(graph_of([(3, 1, 0)]))
    assert (scores(model, QUERIES[1]) - before).abs().max() > 1e-3
    quiet = model.solving(search=0.0)
    before = scores(quiet, QUERIES[1])
    quiet.use_graph(GRAPH)
    torch.testing.assert_close(scores(quiet, QUERIES[1]), before)


def test_training_and_validation_never_search(beside, with_gold, monkeypatch):
    splits = Splits(GRAPH.vocabulary, GRAPH.triples[3:], GRAPH.triples[:3], GRAPH.triples[:0])
    model = beside(search=0.5, dropout=0.0)
    monkeypatch.setattr("biqe.links.search.beside_encoder", lambda *_: pytest.fail("searched"))
    batch = model.encoder(with_gold(QuerySet.of(QUERIES)))
    torch.manual_seed(3)
    expected = model.solving(search=0.0).train().loss(batch)
    torch.manual_seed(3)
    torch.testing.assert_close(model.train().loss(batch), expected)
    validate = validation(splits, None, TrainConfig(epochs=1, validation_queries=5)).measure
    assert validate is not None and 0 < validate(model.eval())["mrr"] <= 1


def test_it_is_kept_in_the_folder(beside, tmp_path):
    model = beside(search=0.3)
    store.save(model, tmp_path / "m", vocabulary=GRAPH.vocabulary, graph_fingerprint="x")
    loaded = store.load(tmp_path / "m").model
    loaded.use_graph(GRAPH)
    torch.testing.assert_close(scores(loaded, *QUERIES), scores(model, *QUERIES), rtol=1e-4, atol=1e-4)


def test_over_a_graph_that_has_grown_it_knows_its_own_part(beside):
    larger = graph_of([*GRAPH.triples.tolist(), (ENTITIES, 0, 3)], ENTITIES + 1)
    model = beside(search=0.5)
    found = scores(over_graph(model, larger), *QUERIES)
    torch.testing.assert_close(found[:, :ENTITIES], scores(model, *QUERIES), rtol=1e-4, atol=1e-4)
    assert bool(torch.isneginf(found[:, ENTITIES]).all())


def test_rings_are_searched_by_beam(beside, cqd):
    """Two ways from one constant to one target, over two hidden variables that a third link joins."""
    ring = BoundQuery((3, HIDDEN, HIDDEN, TARGET), ((0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 3)), (3,))
    model = beside()
    torch.testing.assert_close(
        scores(model.solving(search=1.0, search_beam=64), ring),
        torch.log_softmax(scores(cqd, ring), 1),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    "query",
    [
        BoundQuery((3, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2)),
        BoundQuery((7, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 3, 3)), (2, 3)),
        BoundQuery((3, TARGET, 5, TARGET), ((0, 1, 1), (2, 2, 1), (1, 0, 3)), (1, 3)),
    ],
)
@pytest.mark.parametrize("search", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("known", ["one", "off"])
def test_tuples_are_likely_entities_that_links_join(beside, cqd, query, search, known):
    model = beside(search=search, known=known)
    rows, total = assignments(model, cqd.solving(known=known), query, 0.95)
    expected = {}
    for row, weight in zip(map(tuple, rows.tolist()), total.tolist(), strict=True):
        expected[row] = max(weight, expected.get(row, -np.inf))
    with torch.inference_mode():
        (found,) = model.tuples(QuerySet.of([query]), 10, width=ENTITIES**2)
    np.testing.assert_allclose(found.scores, sorted(expected.values(), reverse=True)[:10], rtol=1e-3, atol=1e-3)
    own = [expected[tuple(row)] for row in found.rows.tolist()]
    np.testing.assert_allclose(found.scores, own, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("search", [0.0, 0.3, 1.0])
def test_tuples_of_given_marginals_hold_nothing_impossible(beside, search):
    query = BoundQuery((3, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
    model = beside(search=search)
    marginals = scores(model, query).clone()
    marginals[0, 4:], marginals[1, ::2] = -torch.inf, -torch.inf
    (found,) = model.tuples(QuerySet.of([query]), 200, marginals)
    assert sorted(map(tuple, found.rows.tolist())) == [(a, b) for a in range(4) for b in range(1, ENTITIES, 2)]


def test_a_row_that_misses_one_link_comes_before_rows_that_miss_more(beside):
    """An untrained predictor, whose opinion is worth nothing: what the graph holds decides."""
    query = BoundQuery((3, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
    held = {(int(s), int(r), int(o)) for s, r, o in GRAPH.triples}

    def missing(model):
        (found,) = model.tuples(QuerySet.of([query]), 200)
        return [((3, 0, a) not in held) + ((a, 1, b) not in held) for a, b in found.rows.tolist()]

    sure = missing(beside())
    assert sure == sorted(sure) and set(sure) == {1, 2}
    unsure = missing(beside(known="off"))
    assert unsure != sorted(unsure)
    untold = beside()
    untold.use_graph(graph_of([(ENTITIES - 1, 3, 0)]))
    assert missing(untold) != sorted(missing(untold))


def test_tuples_over_a_graph_that_has_grown_are_the_same(beside, cqd):
    """A relation that is walked backwards has another number there."""
    query = BoundQuery((3, TARGET, TARGET), ((0, RELATIONS, 1), (1, RELATIONS + 1, 2)), (1, 2))
    names = [f"e{n}" for n in range(ENTITIES + 1)], [f"r{n}" for n in range(RELATIONS + 1)]
    larger = Graph(Vocabulary(*names), as_triples([*GRAPH.triples.tolist(), (ENTITIES, RELATIONS, 3)]))
    there = BoundQuery(query.nodes, ((0, RELATIONS + 1, 1), (1, RELATIONS + 2, 2)), query.targets)
    for model in (beside(search=0.5), cqd):
        wide = over_graph(model, larger)
        with torch.inference_mode():
            (expected,) = model.tuples(QuerySet.of([query]), 5)
            marginals = wide.scores(wide.encoder(QuerySet.of([there])))
            for (found,) in (wide.tuples(QuerySet.of([there]), 5), wide.tuples(QuerySet.of([there]), 5, marginals)):
                np.testing.assert_array_equal(found.rows, expected.rows)
                np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": 1.5}, r"'search' of hybrid must be in \[0, 1\]. Got 1.5"),
        ({"search": float("nan")}, "'search' of hybrid must be in"),
        ({"search_beam": 0}, "'search_beam' of hybrid must be at least 1"),
        ({"layers": 1}, "'layers' of hybrid cannot be changed after training"),
    ],
)
def test_refuses(beside, options, message):
    with pytest.raises(InvalidOption, match=message):
        beside().solving(**options)


def test_queries_that_name_no_entity_are_left_to_the_encoder(beside):
    nothing_given = BoundQuery((TARGET, TARGET), ((0, 0, 1),), (0, 1))
    model = beside(search=0.5)
    assert model.supports(nothing_given)
    alone = scores(model.without_search(), nothing_given)
    torch.testing.assert_close(scores(model, nothing_given), alone, rtol=1e-4, atol=1e-4)
    among = scores(model, QUERIES[0], nothing_given, QUERIES[1])
    torch.testing.assert_close(among[1:3], alone, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(among[[0, 3]], scores(model, *QUERIES[:2]), rtol=1e-4, atol=1e-4)


def test_queries_without_constants_have_no_tuples(beside):
    nothing_given = BoundQuery((TARGET, TARGET), ((0, 0, 1),), (0, 1))
    assert beside().tuples(QuerySet.of([nothing_given]), 5) is None


def test_without_search_it_is_the_encoder(beside):
    hybrid = beside(search=0.0)
    encoder = BiQE(EncoderConfig(width=16, layers=2, heads=2, feed_forward=32), ENTITIES, RELATIONS).eval()
    own = {name: weight for name, weight in hybrid.state_dict().items() if not name.startswith("links.")}
    encoder.load_state_dict(own)
    assert torch.equal(scores(hybrid, *QUERIES), scores(encoder, *QUERIES))
    assert torch.equal(scores(beside(search=0.7).without_search(), *QUERIES), scores(encoder, *QUERIES))


def test_it_begins_with_the_links_and_their_embeddings(beside, cqd):
    model = beside()
    assert torch.equal(model.links.entities, cqd.links.entities) and not model.links.entities.requires_grad
    ours, theirs = model.embed_entities.weight.detach(), cqd.links.entities.detach()
    ours, theirs = ours - ours.mean(0), theirs - theirs.mean(0)
    kept = ours[:, : 2 * RANK]
    ratio = torch.cdist(kept, kept) / torch.cdist(theirs, theirs).clamp_min(1e-9)
    off = ~torch.eye(ENTITIES, dtype=torch.bool)
    assert float(ratio[off].std() / ratio[off].mean()) < 1e-3, "principal directions keep distances"


def test_links_are_never_trained(beside, with_gold):
    model = beside().train()
    model.loss(model.encoder(with_gold(QuerySet.of(QUERIES)))).backward()
    assert model.links.entities.grad is None and model.embed_entities.weight.grad is not None


def test_refuses_another_rank_and_other_models(beside, cqd):
    assert Hybrid.options_from(cqd) == {"rank": RANK}
    with pytest.raises(InvalidOption, match="rank 5"):
        fresh(rank=3).start_from(cqd)
    other = BiQE(EncoderConfig(width=16, layers=1, heads=2), ENTITIES, RELATIONS)
    with pytest.raises(InvalidOption, match="link predictor cqd. Got biqe"):
        fresh().start_from(other)


def test_a_search_counts_facts_and_looks_none_up(beside, cqd):
    """So an explanation hides a name instead of taking one fact out of a graph, which would change nothing."""
    assert not beside(search=0.5).looks_facts_up
    assert not cqd.looks_facts_up and cqd.solving(known="one").looks_facts_up


def test_rows_of_a_union_are_compared_by_truths_where_links_decide(beside, cqd):
    """A row with many answers must not lose to one with few, as it would by shares of 1."""
    links, both = beside(search=1.0, search_beam=64, truth="counted"), beside(search=0.5)
    queries = QuerySet.of(QUERIES[:3])
    with torch.no_grad():
        torch.testing.assert_close(links.raw_scores(links.encoder(queries)), cqd.scores(cqd.encoder(queries)))
        assert links.raw_scores(links.encoder(queries)).exp().sum(1).max() > 1.01, "no shares of 1"
        for model in (both, links.without_search()):
            torch.testing.assert_close(model.raw_scores(model.encoder(queries)), model.scores(model.encoder(queries)))
