"""Structures of queries: what is solved, in which order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from biqe.errors import UnsupportedQuery, VocabularyMismatch
from biqe.links.structures import StructuredQueries, support
from biqe.query.bound import BoundQuery, QuerySet

from .conftest import ENTITIES, RELATIONS, SHAPES, H, T, batch_of

REFUSED = [
    (BoundQuery((T, T), ((0, 1, 1),), (0, 1)), "constants"),
    (BoundQuery((3, T, T), ((0, 1, 1), (2, 0, 2)), (1, 2)), "itself"),
    (BoundQuery((3, T, 4, T), ((0, 1, 1), (2, 0, 3)), (1, 3)), "separate"),
    (BoundQuery((3, H), ((0, 1, 1),), ()), "asks for none"),
]


def test_which_structures_are_trees():
    rings = {"ring", "ring of targets"}
    assert {name for name, query in SHAPES.items() if not batch_of(query).groups[0].structure.is_forest} == rings


def test_variables_come_after_what_leads_to_them():
    for query in SHAPES.values():
        structure = batch_of(query).groups[0].structure
        assert sorted(structure.order) == [node for node, value in enumerate(query.nodes) if value < 0]
        for link in structure.links:
            before = [node for node in structure.order if node == link.start]
            assert not before or structure.order.index(link.start) < structure.order.index(link.end)


def test_links_are_walked_away_from_constants():
    (group,) = batch_of(BoundQuery((T, 3), ((0, 1, 1),), (0,))).groups
    assert group.relations.tolist() == [[1 + RELATIONS]] and group.structure.links[0].start == 1
    assert group.structure.is_single_link and not batch_of(SHAPES["2p"]).groups[0].structure.is_single_link


def test_queries_of_one_structure_share_a_group_in_their_order():
    queries = [SHAPES["1p"], SHAPES["2i"], BoundQuery((5, T), ((0, 2, 1),), (1,))]
    first, second = sorted(batch_of(*queries).groups, key=lambda group: group.queries.tolist())
    assert first.queries.tolist() == [0, 2] and second.queries.tolist() == [1]
    assert first.entities[:, 0].tolist() == [3, 5] and first.rows.tolist() == [[0], [2]]


@pytest.mark.parametrize(("query", "reason"), REFUSED)
def test_refuses_with_a_reason_or_leaves_out(query, reason):
    answer = support(query, "it")
    assert not answer and reason in answer.reason and answer.hint
    queries = QuerySet.of([query, SHAPES["1p"]])
    with pytest.raises(UnsupportedQuery, match=reason):
        StructuredQueries(queries, ENTITIES, RELATIONS, "it")
    batch = StructuredQueries(queries, ENTITIES, RELATIONS, "it", leave_out=True).batch(np.arange(2))
    assert [group.queries.tolist() for group in batch.groups] == [[1]]


def test_refuses_ids_of_others():
    for query, what in (
        (BoundQuery((ENTITIES, T), ((0, 0, 1),), (1,)), "entity"),
        (BoundQuery((0, T), ((0, 2 * RELATIONS, 1),), (1,)), "relation"),
    ):
        with pytest.raises(VocabularyMismatch, match=what):
            batch_of(query)
