"""The exact engine against two others: pyoxigraph, and every assignment tried one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.exact.adjacency import adjacency, numpy_join
from biqe.exact.answers import answer_sets, answers, tuples
from biqe.exact.match import match
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

ENTITIES, RELATIONS = 7, 3


def graph_of(rows: list[tuple[int, int, int]], entities: int = ENTITIES, relations: int = RELATIONS) -> Graph:
    vocabulary = Vocabulary([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    return Graph(vocabulary, as_triples(rows))


def graphs() -> st.SearchStrategy[Graph]:
    entity = st.integers(0, ENTITIES - 1)
    triple = st.tuples(entity, st.integers(0, RELATIONS - 1), entity)
    return st.lists(triple, max_size=40).map(graph_of)


@st.composite
def queries(draw: st.DrawFn, nodes: int = 5, edges: int = 6, trees: bool = False) -> BoundQuery:
    """Any conjunctive query: cycles, loops, parallel edges, several parts, ground patterns, inverse ids.

    With ``trees`` each node but the first hangs on one before it.
    """
    count = draw(st.integers(2 if trees else 1, nodes))
    value = st.one_of(st.just(TARGET), st.just(TARGET), st.just(HIDDEN), st.integers(0, ENTITIES - 1))
    values = draw(st.lists(value, min_size=count, max_size=count))
    relation = st.integers(0, 2 * RELATIONS - 1)
    if trees:
        body = []
        for node in range(1, count):
            other = draw(st.integers(0, node - 1))
            body.append((node, draw(relation), other) if draw(st.booleans()) else (other, draw(relation), node))
    else:
        node = st.integers(0, count - 1)
        body = draw(st.lists(st.tuples(node, relation, node), min_size=1, max_size=edges))
    targets = [node for node, value in enumerate(values) if value == TARGET]
    return BoundQuery(tuple(values), tuple(body), tuple(draw(st.permutations(targets))))


def every_assignment(graph: Graph, query: BoundQuery) -> set[tuple[int, ...]]:
    """Rows of the query by trying all values of all variables."""
    stored = set(map(tuple, graph.triples.tolist()))
    stored |= {(o, r + graph.relation_count, s) for s, r, o in stored}
    domains = [[value] if value >= 0 else range(graph.entity_count) for value in query.nodes]
    return {
        tuple(match[target] for target in query.targets)
        for match in itertools.product(*domains)
        if all((match[s], r, match[o]) in stored for s, r, o in query.edges)
    }


def check(graph: Graph, query: BoundQuery, expected: set[tuple[int, ...]]) -> None:
    """All roads to the answers: the table, the kernels, and the front door that chooses between them."""
    width = len(query.targets)
    rows = [list(row) for row in sorted(expected)]
    assert tuples(graph, query).tolist() == rows
    assert as_sets(answers(graph, query)) == columns_of(expected, width)
    table = numpy_join(adjacency(graph), query, query.targets)
    assert table is not None and table.shape == (len(rows), width) and table.tolist() == rows
    if width:
        assert match(adjacency(graph), query, query.targets, len(rows) + 1).tolist() == rows
        assert match(adjacency(graph), query, query.targets, len(rows) // 2).tolist() == rows[: len(rows) // 2]
    sets = answer_sets(graph, QuerySet.of([query]))
    by_node = [values for _, values in sorted(zip(query.targets, columns_of(expected, width), strict=True))]
    assert [sets[target].tolist() for target in range(len(sets))] == by_node


def as_sets(columns: list[np.ndarray]) -> list[list[int]]:
    return [column.tolist() for column in columns]


def columns_of(rows: set[tuple[int, ...]], width: int) -> list[list[int]]:
    return [sorted({row[column] for row in rows}) for column in range(width)]


@settings(max_examples=150, deadline=None)
@given(graphs(), queries(nodes=4))
def test_answers_and_tuples_are_those_of_every_assignment(graph: Graph, query: BoundQuery) -> None:
    check(graph, query, every_assignment(graph, query))


@settings(max_examples=100, deadline=None)
@given(graphs(), queries(nodes=5, trees=True))
def test_trees_are_those_of_every_assignment(graph: Graph, query: BoundQuery) -> None:
    check(graph, query, every_assignment(graph, query))


# --- pyoxigraph


def store_of(graph: Graph) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    store.extend(
        pyoxigraph.Quad(*(pyoxigraph.NamedNode(f"http://x/{kind}{id_}") for kind, id_ in zip("ere", row, strict=True)))
        for row in graph.triples.tolist()
    )
    return store


def sparql_of(query: BoundQuery, relation_count: int) -> str:
    def term(node: int) -> str:
        return f"?v{node}" if query.nodes[node] < 0 else f"<http://x/e{query.nodes[node]}>"

    patterns = [
        f"{term(s)} <http://x/r{r}> {term(o)}"
        if r < relation_count
        else f"{term(o)} <http://x/r{r - relation_count}> {term(s)}"
        for s, r, o in query.edges
    ]
    return f"SELECT DISTINCT {' '.join(f'?v{node}' for node in query.targets)} WHERE {{ {' . '.join(patterns)} }}"


def oxigraph_rows(store: pyoxigraph.Store, query: BoundQuery, relation_count: int) -> set[tuple[int, ...]]:
    return {
        tuple(int(term.value.removeprefix("http://x/e")) for term in solution)
        for solution in store.query(sparql_of(query, relation_count))
    }


def without_loose_variables(query: BoundQuery) -> bool:
    """Whether every target has a pattern; SPARQL leaves a variable without one unbound."""
    touched = {node for s, _, o in query.edges for node in (s, o)}
    return bool(query.targets) and set(query.targets) <= touched


@settings(max_examples=150, deadline=None)
@given(graphs(), queries(nodes=6, edges=7).filter(without_loose_variables))
def test_rows_are_those_of_pyoxigraph(graph: Graph, query: BoundQuery) -> None:
    check(graph, query, oxigraph_rows(store_of(graph), query, RELATIONS))


@settings(max_examples=100, deadline=None)
@given(graphs(), queries(nodes=7, trees=True).filter(without_loose_variables))
def test_rows_of_trees_are_those_of_pyoxigraph(graph: Graph, query: BoundQuery) -> None:
    check(graph, query, oxigraph_rows(store_of(graph), query, RELATIONS))


# --- many at once


@settings(max_examples=60, deadline=None)
@given(graphs(), queries(), st.integers(0, 12))
def test_a_table_that_outgrows_its_cap_is_given_up(graph: Graph, query: BoundQuery, cap: int) -> None:
    rows = numpy_join(adjacency(graph), query, query.targets, cap)
    assert rows is None or (len(rows) <= cap and rows.tolist() == tuples(graph, query).tolist())


@settings(max_examples=60, deadline=None)
@given(graphs(), st.lists(queries(), max_size=8), st.integers(1, 3))
def test_a_batch_is_its_queries_one_by_one(graph: Graph, asked: list[BoundQuery], threads: int) -> None:
    sets = answer_sets(graph, QuerySet.of(asked), threads=threads)
    expected = [
        values
        for query in asked
        for _, values in sorted(zip(query.targets, as_sets(answers(graph, query)), strict=True))
    ]
    assert [sets[target].tolist() for target in range(len(sets))] == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_scratch_is_clean_from_query_to_query(threads: int) -> None:
    # Many chunks of unlike queries, on a graph where sets are dense: what one query leaves would show in the next.
    rng = np.random.default_rng(0)
    graph = graph_of(rng.integers(0, (300, 4, 300), (6000, 3)).tolist(), 300, 4)
    asked = []
    for _ in range(800):
        count = int(rng.integers(2, 6))
        values = rng.choice([TARGET, TARGET, HIDDEN, 0], count)
        values[values == 0] = rng.integers(0, 300, (values == 0).sum())
        body = [(int(rng.integers(node)), int(rng.integers(8)), node) for node in range(1, count)]
        body += [tuple(rng.integers(0, (count, 8, count)).tolist()) for _ in range(rng.integers(2))]
        asked.append(BoundQuery(tuple(values.tolist()), tuple(body), tuple(np.flatnonzero(values == TARGET).tolist())))
    sets = answer_sets(graph, QuerySet.of(asked), threads=threads)
    one_by_one = [values.tolist() for query in asked for values in answers(graph, query)]
    assert [sets[target].tolist() for target in range(len(sets))] == one_by_one
