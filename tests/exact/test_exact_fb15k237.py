"""The exact engine against pyoxigraph on a real graph with real hubs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyoxigraph
import pytest

from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph
from biqe.graph.read import read_graph
from biqe.mine.dataset import epoch_queries
from biqe.query.bound import TARGET, BoundQuery, QuerySet

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def graph(benchmark_data: Callable[[str], Path]) -> Graph:
    # Mined and asked on the validation triples: enough hubs for the kernels, few enough matches for pyoxigraph.
    return read_graph([benchmark_data("FB15k-237")]).splits["valid"]


@pytest.fixture(scope="module")
def store(graph: Graph) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    store.bulk_extend(
        pyoxigraph.Quad(*(pyoxigraph.NamedNode(f"http://x/{kind}{id_}") for kind, id_ in zip("ere", row, strict=True)))
        for row in graph.triples.tolist()
    )
    return store


def expected(store: pyoxigraph.Store, graph: Graph, query: BoundQuery, target: int) -> list[int]:
    count = graph.relation_count
    terms = [f"<http://x/e{value}>" if value >= 0 else f"?v{node}" for node, value in enumerate(query.nodes)]
    body = " . ".join(
        f"{terms[s]} <http://x/r{r}> {terms[o]}" if r < count else f"{terms[o]} <http://x/r{r - count}> {terms[s]}"
        for s, r, o in query.edges
    )
    solutions = store.query(f"SELECT DISTINCT ?v{target} WHERE {{ {body} }}")
    return sorted(int(solution[0].value.removeprefix("http://x/e")) for solution in solutions)


def check(store: pyoxigraph.Store, graph: Graph, queries: QuerySet) -> None:
    sets = answer_sets(graph, queries)
    number = 0
    for query in queries:
        for target in query.targets:
            assert sets[number].tolist() == expected(store, graph, query, target)
            number += 1
    assert number == len(sets) > 100


def test_mined_queries(graph: Graph, store: pyoxigraph.Store) -> None:
    queries = epoch_queries(graph, paths=60, dags=60, seed=0, epoch=0, inverse_share=0.3)
    answers_of_gold = answer_sets(graph, queries)
    for target, node in enumerate(queries.target_nodes):
        assert queries.gold[node] in answers_of_gold[target]
    check(store, graph, queries)


def test_cycles(graph: Graph, store: pyoxigraph.Store) -> None:
    # ?x r ?y, ?y s ?z and an edge t between ?x and ?z that the graph has for some values.
    rng = np.random.default_rng(0)
    triples = graph.triples
    by_pair: dict[tuple[int, int], int] = {(s, o): r for s, r, o in triples.tolist()}
    by_pair |= {(o, s): r + graph.relation_count for (s, o), r in by_pair.items() if (o, s) not in by_pair}
    neighbours: dict[int, list[int]] = {}
    for s, o in by_pair:
        neighbours.setdefault(s, []).append(o)
    asked = []
    for x in rng.permutation(list(neighbours)).tolist():
        for y in neighbours[x][:5]:
            closing = [z for z in neighbours[y] if (x, z) in by_pair and len({x, y, z}) == 3]
            if closing and len(asked) < 60:
                edges = ((0, by_pair[x, y], 1), (1, by_pair[y, closing[0]], 2), (0, by_pair[x, closing[0]], 2))
                asked.append(BoundQuery((TARGET, TARGET, TARGET), edges, (0, 1, 2)))
    check(store, graph, QuerySet.of(asked))
