"""Joint assignments against brute force over all of them: tuples, witnesses, certain links."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biqe.links import beam
from biqe.links.beam import beam_marginals, joint_tuples
from biqe.links.max_product import tree_marginals

from .conftest import ENTITIES, EVERYTHING, SHAPES, H, T, batch_of, best_rows, marginals_of, random_links


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tuples_are_those_of_brute_force(shape, t_norm):
    query, links = SHAPES[shape], random_links(1)
    expected = best_rows(query, links, t_norm)
    (found,) = joint_tuples(batch_of(query), links, t_norm, EVERYTHING, 10)
    assert len(found.rows) == len(found.scores) == min(10, len(expected))
    assert len({tuple(row) for row in found.rows.tolist()}) == len(found.rows)
    truths = sorted((truth for truth, _ in expected.values()), reverse=True)[:10]
    np.testing.assert_allclose(found.scores, truths, rtol=1e-4, atol=1e-4)
    own = [expected[tuple(row)][0] for row in found.rows.tolist()]
    np.testing.assert_allclose(found.scores, own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("only_missing", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_witnesses_are_the_best_assignments(shape, seed, only_missing):
    """Of all assignments that have the row at the targets, hidden variables included."""
    query, links = SHAPES[shape], random_links(seed, certain_share=0.3)
    expected = best_rows(query, links, only_missing=only_missing)
    (found,) = joint_tuples(batch_of(query), links, "product", EVERYTHING, 30, only_missing=only_missing)
    variables = tuple(node for node, value in enumerate(query.nodes) if value < 0)
    assert found.variables == variables and found.assignments.shape == (len(found.rows), len(variables))
    assert len(found.rows) == min(30, len(expected))
    for row, score, assignment in zip(
        found.rows.tolist(), found.scores.tolist(), found.assignments.tolist(), strict=True
    ):
        truth, witnesses = expected[tuple(row)]
        assert score == pytest.approx(truth, abs=1e-4) and tuple(assignment) in witnesses


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["2p", "path of targets", "two targets", "branches", "ring", "3p"])
def test_a_narrow_beam_loses_no_assignment_of_certain_links(shape, seed, width):
    """All rows that the graph holds, and all that miss only the last link, are found with a beam of one or two."""
    query, links = SHAPES[shape], random_links(seed, certain_share=0.4)
    held = {row for row, (truth, _) in best_rows(query, links).items() if truth == 0.0}
    (found,) = joint_tuples(batch_of(query), links, "product", width, EVERYTHING)
    assert held and held <= {tuple(row) for row in found.rows.tolist()}
    links.certain = False
    (cut,) = joint_tuples(batch_of(query), links, "product", width, EVERYTHING)
    assert len(cut.rows) <= len(found.rows)


def test_without_certain_links_a_narrow_beam_does_lose_them():
    lost = 0
    for seed in range(4):
        query, links = SHAPES["two targets"], random_links(seed, certain_share=0.4)
        held = {row for row, (truth, _) in best_rows(query, links).items() if truth == 0.0}
        links.certain = False
        (found,) = joint_tuples(batch_of(query), links, "product", 1, EVERYTHING)
        lost += len(held - {tuple(row) for row in found.rows.tolist()})
    assert lost > 0


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", ["ring", "ring of targets", "cycle", "2p", "branches"])
def test_a_wide_beam_has_the_marginals_of_brute_force(shape, t_norm):
    query, links = SHAPES[shape], random_links(2)
    (group,) = batch_of(query).groups
    found = beam_marginals(group, links, t_norm, EVERYTHING)[0]
    np.testing.assert_allclose(found.numpy(), marginals_of(query, links, t_norm), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("shape", ["2p", "pi", "two targets", "intersection of paths", "branches", "3i"])
def test_the_joint_beam_has_the_marginals_of_the_tree(shape, t_norm):
    (group,), links = batch_of(SHAPES[shape]).groups, random_links(3)
    joint = beam_marginals(group, links, t_norm, EVERYTHING)
    torch.testing.assert_close(joint, tree_marginals(group, links, t_norm, ENTITIES))


@pytest.mark.parametrize("certain_share", [0.0, 0.3])
def test_batched_is_one_by_one(monkeypatch, certain_share):
    links = random_links(4, certain_share)
    queries = list(SHAPES.values())
    together = joint_tuples(batch_of(*queries), links, "product", 3, 4)
    for _ in range(2):
        for query, found in zip(queries, together, strict=True):
            (expected,) = joint_tuples(batch_of(query), links, "product", 3, 4)
            np.testing.assert_array_equal(found.rows, expected.rows)
        monkeypatch.setattr(beam, "CHUNK_BYTES", 1)
        together = joint_tuples(batch_of(*queries), links, "product", 3, 4)


@given(st.integers(0, 200), st.integers(1, 3), st.integers(1, 40))
def test_repeated_states_are_those_that_equal_an_earlier_one(seed, columns, states):
    drawn = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, (2, states, columns)))
    expected = [[row in rows[:place] for place, row in enumerate(rows)] for rows in drawn.tolist()]
    assert beam._repeated(drawn).tolist() == expected


def test_many_tuples_over_a_hidden_variable_take_no_table_of_all_pairs():
    """25,600 states are looked at; a truth value for each pair of them would be 655 MB."""
    links = random_links(0, entities=400)
    query = type(SHAPES["1p"])((3, T, H, T), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (1, 3))
    (found,) = joint_tuples(batch_of(query, entities=400), links, "product", 64, 2**15)
    assert len(found.rows) >= 400 and len(np.unique(found.rows, axis=0)) == len(found.rows)
