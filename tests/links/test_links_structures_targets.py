"""Targets of a batch: which have answers, and what is refused where none is known."""

from __future__ import annotations

import pytest
import torch

from biqe.errors import UnsupportedQuery
from biqe.links.structures import Targets, refuse_unknown


def test_gold_entities_stand_in_for_answers():
    offsets, answers = Targets(torch.tensor([4, 2]), None, None).known_answers("it")
    assert offsets.tolist() == [0, 1, 2] and answers.tolist() == [4, 2]
    with pytest.raises(UnsupportedQuery, match=r"it learns .* 1 of the 2 targets .*gold is -1"):
        Targets(torch.tensor([4, -1]), None, None).known_answers("it")


def test_targets_without_an_answer_are_left_out():
    known, offsets, answers = Targets(torch.tensor([-1, 4, -1, 2]), None, None).with_answers("it")
    assert known.tolist() == [1, 3] and offsets.tolist() == [0, 1, 2] and answers.tolist() == [4, 2]
    given = Targets(torch.tensor([-1, -1, -1]), torch.tensor([0, 2, 2, 3]), torch.tensor([1, 5, 4]))
    known, offsets, answers = given.with_answers("it")
    assert known.tolist() == [0, 2] and offsets.tolist() == [0, 2, 3] and answers.tolist() == [1, 5, 4]
    with pytest.raises(UnsupportedQuery, match="2 of the 2"):
        Targets(torch.tensor([-1, -1]), None, None).with_answers("it")


def test_a_batch_without_targets_is_not_refused():
    refuse_unknown(torch.zeros(0, dtype=torch.bool), "gqe")
    refuse_unknown(torch.zeros(0, dtype=torch.bool), "gqe", every=False)
