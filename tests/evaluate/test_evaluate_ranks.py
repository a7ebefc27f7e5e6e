"""Ranks: a worked example, equality with counting by hand, and input that is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.evaluate import ranks as ranks_module
from biqe.evaluate.ranks import TIE_RULES, Ranks, rank_answers, rank_targets
from biqe.query.bound import AnswerSets


def answer_sets(sets):
    offsets = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    return AnswerSets(offsets, np.array([value for one in sets for value in sorted(one)], np.int32))


def counted(scores, gold, filtered):
    """Ranks of one row, by looking at each entity in turn."""
    better = equal = candidates = 0
    for entity, score in enumerate(scores):
        if entity in filtered and entity != gold:
            continue
        candidates += 1
        better += score > scores[gold]
        equal += score == scores[gold]
    return better + 1, (better + 1 + better + equal) / 2, better + equal, candidates


def test_worked_example():
    scores = torch.tensor(
        [
            # gold 3 (.4). Above it: 0 (.9), 1 (.7). 1 is filtered, so one is better: rank 2. Nothing ties.
            # The gold is in its own filter and stays. Candidates: 5 entities less entity 1.
            [0.9, 0.7, 0.1, 0.4, 0.2],
            # gold 0 (.5). Above it: 4 (.8). Tied with it: 1, 2 and 3, of which 2 is filtered.
            # Best case rank 2, worst case rank 4 (1 better, then 1 and 3, then the gold); mean 3.
            [0.5, 0.5, 0.5, 0.5, 0.8],
            # gold 2 is the worst of all; everything else is filtered: it is alone, so rank 1 of 1.
            [0.9, 0.8, 0.1, 0.7, 0.6],
        ]
    )
    ranks = rank_targets(scores, np.array([3, 0, 2]), answer_sets([{1, 3}, {2}, {0, 1, 3, 4}]))
    assert ranks.optimistic.tolist() == [2, 2, 1]
    assert ranks.realistic.tolist() == [2.0, 3.0, 1.0]
    assert ranks.pessimistic.tolist() == [2, 4, 1]
    assert ranks.candidates.tolist() == [4, 4, 1]


@st.composite
def rankings(draw):
    entities = draw(st.integers(1, 12))
    rows = draw(st.integers(0, 6))
    # Few distinct values, so that ties are common; infinities are scores like any other.
    score = st.sampled_from([-np.inf, -2.0, -0.5, 0.0, 0.25, 3.0, np.inf])
    scores = draw(st.lists(st.lists(score, min_size=entities, max_size=entities), min_size=rows, max_size=rows))
    gold = draw(st.lists(st.integers(0, entities - 1), min_size=rows, max_size=rows))
    filters = draw(st.lists(st.sets(st.integers(0, entities - 1)), min_size=rows, max_size=rows))
    return np.array(scores, np.float32).reshape(rows, entities), gold, filters


@settings(max_examples=50)
@given(rankings(), st.integers(1, 40))
def test_equal_to_counting(case, chunk_bytes):
    scores, gold, filters = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "CHUNK_BYTES", chunk_bytes)
        ranks = rank_targets(torch.from_numpy(scores), np.array(gold, np.int64), answer_sets(filters))
    expected = [counted(*row) for row in zip(scores.tolist(), gold, filters, strict=True)]
    found = zip(ranks.optimistic, ranks.realistic, ranks.pessimistic, ranks.candidates, strict=True)
    assert [tuple(map(float, row)) for row in found] == [tuple(map(float, row)) for row in expected]


@settings(max_examples=50)
@given(rankings())
def test_realistic_is_the_mean_of_the_other_two(case):
    scores, gold, filters = case
    ranks = rank_targets(torch.from_numpy(scores), np.array(gold, np.int64), answer_sets(filters))
    assert np.array_equal(ranks.realistic, (ranks.optimistic + ranks.pessimistic) / 2)
    assert (ranks.optimistic <= ranks.pessimistic).all()
    assert (ranks.pessimistic <= ranks.candidates).all()


@settings(max_examples=50)
@given(rankings(), st.randoms(use_true_random=False))
def test_renaming_entities_changes_nothing(case, random):
    scores, gold, filters = case
    order = list(range(scores.shape[1]))
    random.shuffle(order)  # new id i is old id order[i]
    new_id = {old: new for new, old in enumerate(order)}
    before = rank_targets(torch.from_numpy(scores), np.array(gold, np.int64), answer_sets(filters))
    after = rank_targets(
        torch.from_numpy(np.ascontiguousarray(scores[:, order])),
        np.array([new_id[entity] for entity in gold], np.int64),
        answer_sets([{new_id[entity] for entity in one} for one in filters]),
    )
    for rule in TIE_RULES:
        assert np.array_equal(before.by(rule), after.by(rule))


def test_without_filters_all_entities_compete():
    ranks = rank_targets(torch.tensor([[3.0, 2.0, 1.0]]), np.array([2]))
    assert (ranks.realistic.item(), ranks.candidates.item()) == (3, 3)


def test_nan_is_refused_and_located():
    scores = torch.zeros(5, 3)
    scores[3, 1] = float("nan")
    with pytest.raises(InvalidOption, match="target 3 hold NaN"):
        rank_targets(scores, np.zeros(5, np.int64))


def test_scores_that_need_a_gradient_can_be_ranked():
    scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    assert rank_targets(scores, np.array([0])).realistic.tolist() == [2.0]


@pytest.mark.parametrize(
    ("gold", "filters", "message"),
    [
        ([0], None, "one entity id for each of 2 rows"),
        ([0, 3], None, r"gold ids must be in \[0, 3\)"),
        ([0, -1], None, r"gold ids must be in \[0, 3\)"),
        ([0, 1], [[1]], "one set for each of 2 rows"),
        ([0, 1], [[1], [3]], r"filter values must be in \[0, 3\)"),
        ([0, 1], [[-1], [1]], r"filter values must be in \[0, 3\)"),
    ],
)
def test_bad_input_is_refused(gold, filters, message):
    sets = None if filters is None else answer_sets(filters)
    with pytest.raises(InvalidOption, match=message):
        rank_targets(torch.zeros(2, 3), np.array(gold), sets)


@pytest.mark.parametrize("values", [[2, 1], [1, 1]])
def test_filters_out_of_order_or_repeated_are_refused(values):
    # A repeated value would be taken away twice.
    with pytest.raises(InvalidOption, match="sorted and free of repeats"):
        rank_targets(torch.zeros(2, 3), np.array([0, 0]), AnswerSets(np.array([0, 0, 2]), np.array(values, np.int32)))


def test_a_set_may_start_below_the_end_of_the_one_before():
    ranks = rank_targets(torch.zeros(3, 3), np.array([0, 0, 0]), answer_sets([{2}, set(), {1}]))
    assert ranks.candidates.tolist() == [2, 3, 2]


def test_join_and_take():
    ranks = rank_targets(torch.eye(4), np.array([0, 0, 0, 3]))
    joined = Ranks.join([ranks.take(np.array([3])), ranks.take(np.array([1, 0]))])
    assert joined.realistic.tolist() == ranks.realistic[[3, 1, 0]].tolist()
    assert len(Ranks.join([])) == 0
    with pytest.raises(InvalidOption, match="tie rule"):
        ranks.by("hopeful")


@given(st.data())
def test_sorting_equals_counting(data):
    entities = data.draw(st.integers(1, 12))
    numbers = st.sampled_from([-np.inf, -1.5, -1.0, -0.5, 0.0, np.inf])
    scores = np.array(data.draw(st.lists(numbers, min_size=entities, max_size=entities)), np.float32)
    answers = data.draw(st.sets(st.integers(0, entities - 1)))
    hard = data.draw(st.sets(st.integers(0, entities - 1), min_size=1))

    def one(values):
        return AnswerSets(np.array([0, len(values)]), np.array(sorted(values), np.int32))

    ranks = rank_answers(scores[None], one(answers), one(hard))
    others = [scores[e] for e in range(entities) if e not in answers | hard]
    for place, answer in enumerate(sorted(hard)):
        better, equal = sum(s > scores[answer] for s in others), sum(s == scores[answer] for s in others)
        assert (ranks.optimistic[place], ranks.pessimistic[place]) == (better + 1, better + equal + 1)
        assert ranks.candidates[place] == len(others) + 1
