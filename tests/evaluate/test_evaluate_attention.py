"""Attention outside of ancestors and descendants: a toy query by hand, and a slow way."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biqe.errors import EmptyResult, UnsupportedQuery
from biqe.evaluate.attention import attention_shares, non_ancestors, query_attention
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.query.dag import analyse
from biqe.query.tokens import token_table, tokens

# e7 -r0-> ?1 -r1-> ?3 <-r2- e8,  ?3 -r3-> ?4
DAG = BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4))
PATH = BoundQuery((5, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3))


class Looking(torch.nn.Module):
    """Its attention is what ``look`` says of the number of tokens; one layer, one head."""

    name, entity_count, relation_count = "looking", 10, 4

    def __init__(self, look):
        super().__init__()
        self.look = look

    def supports(self, query, *, strict=True):
        return SimpleNamespace(yes=True, reason="", hint=None)

    def encode(self, queries):
        table = token_table(queries, self.entity_count)
        return SimpleNamespace(sizes=table.lengths, batch=lambda rows: SimpleNamespace(table=table, rows=rows))

    def trace(self, batch):
        sizes = batch.table.lengths[batch.rows]
        looked = torch.stack([torch.tensor(self.look(int(size)), dtype=torch.float32) for size in sizes])
        return SimpleNamespace(attention=(looked[:, None],), batch=batch)


def even(size):
    return np.full((size, size), 1 / size)


def test_by_hand_where_attention_is_even():
    # Paths, tail first: ?4 r3 ?3 r1 ?1 r0 e7 (7 tokens) and ?4 r3 ?3 r2 e8 (5 tokens): 12 tokens, 5 masks.
    # Outside of ?1 are r2 and e8: 2 tokens of 12. Nothing is outside of ?3 and ?4, which have two masks each.
    # Mean over the masks ?4 ?3 ?1 ?4 ?3: (2/12) / 5 = 1/30; where there is anything outside, 1/6.
    found = attention_shares(Looking(even), QuerySet.of([DAG]))
    assert (
        str(tokens(DAG))
        == "[MASK 4]@0 r3@1 [MASK 3]@2 r1@3 [MASK 1]@4 r0@5 e7@6 | [MASK 4]@0 r3@1 [MASK 3]@2 r2@3 e8@4"
    )
    assert found.outside == pytest.approx(1 / 30)
    assert found.outside_where_any == pytest.approx(1 / 6)
    assert found.outside == pytest.approx(found.uniform)
    assert found.uniform_where_any == pytest.approx(1 / 6)
    assert (found.masks, found.masks_with_outside, found.queries) == (5, 1, 1)
    assert found.by_position == pytest.approx({"tail": 0, "intersection": 0, "branch": 1 / 6})
    assert found.masks_by_position == {"tail": 2, "intersection": 2, "branch": 1}


def test_by_hand_where_attention_goes_to_one_token():
    # All attention on the last token, e8, which is outside of ?1 and an ancestor of ?3 and ?4: 1 mask of 5.
    def last(size):
        weights = np.zeros((size, size))
        weights[:, -1] = 1
        return weights

    found = attention_shares(Looking(last), QuerySet.of([DAG, DAG]))
    assert found.outside == pytest.approx(1 / 5)
    assert found.outside_where_any == pytest.approx(1)
    assert found.by_layer == pytest.approx((1 / 5,))
    assert found.by_head == (pytest.approx((1 / 5,)),)


def test_what_is_outside_equals_a_search_over_all_walks():
    rng = np.random.default_rng(0)
    for _ in range(30):
        count = int(rng.integers(2, 7))
        edges = tuple((a, 0, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.4)
        query = BoundQuery((TARGET,) * count, edges, tuple(range(count)))

        def reach(start, edges=edges):
            found, todo = {start}, [start]
            while todo:
                here = todo.pop()
                for a, _, b in edges:
                    if a == here and b not in found:
                        found.add(b)
                        todo.append(b)
            return found

        outside = non_ancestors(query)
        for node in range(count):
            for other in range(count):
                assert outside[node, other] == (other not in reach(node) and node not in reach(other))
            for number, (a, _, b) in enumerate(edges):
                assert outside[node, count + number] == (a not in reach(node) and node not in reach(b))


@pytest.mark.parametrize("positions", ["paper", "structure"])
def test_a_real_model_against_a_slow_way(small_biqe, positions):
    model = small_biqe(positions=positions)
    queries = [DAG, PATH, BoundQuery((3, TARGET), ((0, 1, 1),), (1,)), DAG]
    found = attention_shares(model, QuerySet.of(queries))
    shares = []
    for query in queries:
        with torch.no_grad():
            trace = model.trace(model.encoder(QuerySet.of([query])))
        seen = tokens(query)
        dag = analyse(query)
        for place, (kind, node) in enumerate(zip(seen.kinds, seen.elements, strict=True)):
            if kind != "mask":
                continue
            heads = []
            for layer in trace.attention:
                for head in layer[0]:
                    outside = 0.0
                    for other, element in enumerate(seen.elements):
                        ends = [element] if element < len(query.nodes) else None
                        if ends is None:
                            subject, _, object_ = query.edges[element - len(query.nodes)]
                            related = object_ == node or object_ in dag.ancestors[node]
                            related |= subject == node or subject in dag.descendants[node]
                        else:
                            related = element == node or element in dag.ancestors[node] | dag.descendants[node]
                        outside += 0.0 if related else float(head[place, other])
                    heads.append(outside)
            shares.append(np.mean(heads))
    assert found.outside == pytest.approx(np.mean(shares), rel=1e-5)
    assert found.outside == pytest.approx(np.mean(found.by_layer))
    assert 0 < found.outside < 1
    assert json.loads(json.dumps(found.to_json()))["published"] == 0.304


def test_models_without_attention_over_tokens_are_refused(make):
    class Blind(Looking):
        def trace(self, batch):
            return SimpleNamespace(attention=(), batch=object())

    with pytest.raises(UnsupportedQuery, match="not over the tokens"):
        attention_shares(Blind(even), QuerySet.of([DAG]))
    tired = Looking(even)
    tired.supports = lambda query, strict=True: SimpleNamespace(yes=False, reason="tired", hint=None)
    with pytest.raises(EmptyResult, match="tired"):
        attention_shares(tired, QuerySet.of([DAG]))


TOWN = Vocabulary([f"e{n}" for n in range(30)], ["flows", "passes <b> & more", "in", "near"], {7: "Besançon", 8: "川"})


def test_the_data_of_a_picture(small_biqe):
    model = small_biqe()
    named = BoundQuery(DAG.nodes, DAG.edges, DAG.targets, ("", "river", "", "x", "city"))
    found = query_attention(model, named, TOWN)
    assert found.targets == ("?river", "?x", "?city")
    assert found.words[:7] == ("?city", "near", "?x", "passes <b> & more", "?river", "flows", "Besançon")
    assert found.patterns[0] == "Besançon  flows  ?river"
    assert found.weights.shape == (2, 2, 3, 12)
    assert np.allclose(found.weights.sum(axis=-1), 1)
    # The share that a picture tells is the one that the analysis counts: ?river has one mask, ?x and ?city nothing.
    shares = attention_shares(model, QuerySet.of([DAG]))
    assert (found.mean() * found.outside).sum(axis=1) == pytest.approx([shares.by_position["branch"], 0, 0])
    assert found.mean().shape == (3, 12)
    with torch.no_grad():
        best = model.scores(model.encoder(QuerySet.of([DAG]))).argmax(1).tolist()
    assert [target[0][0] for target in found.predictions] == [TOWN.label(entity) for entity in best]
    assert json.loads(json.dumps(found.to_json()))["targets"] == ["?river", "?x", "?city"]
    assert query_attention(model, PATH).targets == ("?1", "?2")
    assert query_attention(model, PATH).patterns[0] == "entity 5  relation 0  ?h1"


def test_a_query_that_the_model_refuses(small_biqe):
    cycle = BoundQuery((TARGET, TARGET), ((0, 0, 1), (1, 1, 0)), (0, 1))
    with pytest.raises(UnsupportedQuery, match="cycle"):
        query_attention(small_biqe(), cycle)
