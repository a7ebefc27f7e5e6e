"""AnyCQ's files: small ones written here in the same form, hostile ones, and the published ones where at hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from biqe.benchmarks import anycq
from biqe.benchmarks.anycq import EASY, HARD, NONE, read_split
from biqe.benchmarks.query2box import Binding
from biqe.errors import EmptyResult, UnreadableFile
from biqe.query.bound import HIDDEN, TARGET

BINDING = Binding(np.arange(10, dtype=np.int32)[::-1].copy(), np.array([1, 4, 0, 3, 2, 5], np.int32))
"""Ten entities, numbered backwards in the graph; three relations, of which the second comes first."""
FORMULA = "(r1(s2,e3))&(r2(e3,f1))&(r2(e3,f1))"
ENTRY = [{"r1": 0, "r2": 3, "s2": 9}, {"f1": [[1], [0]]}, "h"]


def written(folder, held, name="qar_valid_3hub_efo1.json"):
    (folder / name).write_text(held if isinstance(held, str) else json.dumps(held), "utf-8")
    return folder


def test_questions_are_read_in_the_ids_of_the_graph(tmp_path):
    written(tmp_path, {FORMULA: [ENTRY, [ENTRY[0], {"f1": []}, "n"]]})
    two = {"(r1(f2,f1))&(r1(s1,f2))": [[{"r1": 2, "s1": 0}, {"f1&f2": [[3, 4]]}, "e"]]}
    written(tmp_path, two, "qar_valid_5hub_efo2.json")
    found = read_split(tmp_path, "valid", BINDING)
    assert found.sets == ("3hub efo1", "5hub efo2") and found.set_of.tolist() == [0, 0, 1]
    assert found.kinds.tolist() == [HARD, NONE, EASY]
    first, _, last = found.queries
    assert first.nodes == (TARGET, 0, HIDDEN) and first.targets == (0,)
    assert first.edges == ((1, 1, 2), (2, 3, 0)), "an atom that is said twice counts once"
    assert found.answers[0].tolist() == [[8], [9]] and found.answers[1].shape == (0, 1)
    assert last.nodes == (TARGET, TARGET, 9) and last.edges == ((1, 0, 0), (2, 0, 1))
    assert found.answers[2].tolist() == [[6, 5]]
    assert found.take(np.array([2])).kinds.tolist() == [EASY]


def test_test_files_are_found_by_their_names(tmp_path):
    written(tmp_path, {FORMULA: [ENTRY]}, "qar_test_4hub_efo1.json")
    assert read_split(tmp_path, "test", BINDING).sets == ("4hub efo1",)
    with pytest.raises(EmptyResult, match="no valid questions"):
        read_split(tmp_path, "valid", BINDING)


@pytest.mark.parametrize(
    "held",
    [
        "{",
        "[" * 100_000,
        [],
        {"r1(s2": [ENTRY]},
        {"(r1(s2,f1))" * 2: [ENTRY]},
        {"&".join(["r1(s2,f1)"] * 1_001): [ENTRY]},
        {FORMULA: ENTRY[0]},
        {FORMULA: [ENTRY[:2]]},
        {FORMULA: [[ENTRY[0], ENTRY[1], "x"]]},
        {FORMULA: [[{"r1": 0}, ENTRY[1], "h"]]},
        {FORMULA: [[{**ENTRY[0], "s2": 10}, ENTRY[1], "h"]]},
        {FORMULA: [[{**ENTRY[0], "s2": -1}, ENTRY[1], "h"]]},
        {FORMULA: [[{**ENTRY[0], "r1": True}, ENTRY[1], "h"]]},
        {FORMULA: [[ENTRY[0], {"f1": [[1, 2]]}, "h"]]},
        {FORMULA: [[ENTRY[0], {"f2": [[1]]}, "h"]]},
        {FORMULA: [[ENTRY[0], {"f1": [["a"]]}, "h"]]},
        {"r1(s2,f2)": [ENTRY]},
    ],
    ids=range(17),
)
def test_what_is_no_such_file_is_refused(tmp_path, held):
    with pytest.raises(UnreadableFile, match="qar_valid"):
        read_split(written(tmp_path, held), "valid", BINDING)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(anycq, "MOST_BYTES", 10)
    with pytest.raises(UnreadableFile, match="more than 10 bytes"):
        read_split(written(tmp_path, {FORMULA: [ENTRY]}), "valid", BINDING)
