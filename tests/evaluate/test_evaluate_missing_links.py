"""How many links an answer needs that are not stored, against trying all assignments."""

import itertools

import numpy as np
import pytest

from biqe.evaluate import Cq, Query2Box, evaluate
from biqe.evaluate.missing_links import UNKNOWN, MissingLinks, strata
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

E, R = 7, 2
QUERIES = {
    "2p": BoundQuery((0, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (2,)),
    "backwards": BoundQuery((TARGET, HIDDEN, 3), ((1, 0 + R, 0), (2, 1, 1)), (0,)),
    "pi": BoundQuery((0, HIDDEN, 1, TARGET), ((0, 0, 1), (1, 1, 3), (2, 0, 3)), (3,)),
    "several targets": BoundQuery(
        (0, TARGET, 2, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 1, 3), (3, 0, 4)), (1, 3, 4)
    ),
    "cycle": BoundQuery((HIDDEN, HIDDEN, TARGET), ((0, 0, 1), (1, 0, 2), (2, 1, 0)), (2,)),
    "apart": BoundQuery((0, TARGET, 1, HIDDEN), ((0, 0, 1), (2, 0, 3)), (1,)),
    "a constant between": BoundQuery((0, TARGET, 1, TARGET), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3)),
    "between constants": BoundQuery((0, TARGET, 1), ((0, 0, 1), (0, 1, 2)), (1,)),
}


def fewest(query, target, entity, known, complete):
    """Over all assignments of the variables under which every pattern holds."""
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    best = None
    for chosen in itertools.product(range(E), repeat=len(variables)):
        nodes = list(query.nodes)
        for node, value in zip(variables, chosen, strict=True):
            nodes[node] = value
        if nodes[target] != entity:
            continue
        links = [(nodes[s], r, nodes[o]) if r < R else (nodes[o], r - R, nodes[s]) for s, r, o in query.edges]
        if all(link in complete for link in links):
            needed = sum(link not in known for link in links)
            best = needed if best is None else min(best, needed)
    return UNKNOWN if best is None else best


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_trying_all_assignments(name, seed):
    rng, query = np.random.default_rng(seed), QUERIES[name]
    triples = as_triples(np.column_stack([rng.integers(size, size=28) for size in (E, R, E)]))
    vocabulary = Vocabulary([f"e{n}" for n in range(E)], ["r0", "r1"])
    known = triples[rng.random(len(triples)) < 0.5]
    links = MissingLinks(Graph(vocabulary, known), Graph(vocabulary, triples))
    stored, true = ({tuple(row) for row in some.tolist()} for some in (known, triples))
    for entity in range(E):
        queries = QuerySet.of([query, query])
        queries.gold[queries.target_nodes] = entity
        found = links.of_targets(queries, np.arange(len(queries.target_nodes)))
        expected = [fewest(query, target, entity, stored, true) for target in query.targets]
        if name == "cycle":
            expected = [UNKNOWN] * len(query.targets)
        assert found.tolist() == 2 * expected


def test_answers_of_a_union_need_what_its_better_row_needs(make):
    vocabulary = Vocabulary([f"e{n}" for n in range(E)], ["r0", "r1"])
    complete = Graph(vocabulary, as_triples([[0, 0, 5], [1, 0, 5], [1, 0, 6]]))
    links = MissingLinks(Graph(vocabulary, as_triples([[1, 0, 5]])), complete)
    asked = make.questions([[make.one_hop(0), make.one_hop(1)], [make.one_hop(0)]], [0, 1], ["2u", "1p"])
    assert links.of_answers(asked, make.sets([[4, 5, 6], [5]])).tolist() == [UNKNOWN, 0, 1, 1]


def test_reports_have_groups_whose_figures_are_those_of_the_group_alone(make):
    vocabulary = Vocabulary([f"e{n}" for n in range(6)], ["r0"])
    complete = Graph(vocabulary, as_triples([[n, 0, 5 - n] for n in range(6)]))
    links = MissingLinks(Graph(vocabulary, complete.triples[:2]), complete)
    model = make.Scripted(lambda query, target: np.eye(6)[(query.nodes[0] + 1) % 6] + 0.1 * np.arange(6), 6, 1)
    queries = QuerySet.of([make.one_hop(n) for n in range(6)])
    queries.gold[queries.target_nodes] = 5 - np.arange(6)
    queries = queries.with_filters(complete=make.sets([[5 - n] for n in range(6)]))
    report = evaluate(model, queries, Cq(missing=links), bootstrap=20)
    assert {name: part.targets for name, part in report.by_missing.items()} == {"0": 2, "1": 4}
    alone = evaluate(model, queries.take(np.arange(2)), Cq(), bootstrap=0)
    assert report.by_missing["0"].metrics == alone.overall.metrics
    assert "  1 missing" in report.to_table()
    answers = [[5 - n] for n in range(6)]
    shaped = make.questions([[make.one_hop(n)] for n in range(6)], [0] * 6, ["1p"], answers=answers, hard=answers)
    shown = evaluate(model, shaped, Query2Box(missing=links), bootstrap=20)
    assert {name: part.queries for name, part in shown.by_missing.items()} == {"0": 2, "1": 4}
    assert shown.by_missing["0"].metrics == alone.overall.metrics
    assert max(map(len, shown.to_table().splitlines())) <= 80


def test_strata_are_named_by_number():
    assert [name for name, _ in strata(np.array([5, 0, 3, UNKNOWN, 1]))] == ["0", "1", "3+"]
