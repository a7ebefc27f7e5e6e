"""Choosing a model by the shape of a query, from reports on validation queries."""

from __future__ import annotations

import json

import pytest

from biqe.errors import EmptyResult, InvalidOption, UnreadableFile
from biqe.knowledge_base.model_selection import FILE, Selection, read_selection, select, write_selection


def summary(value: float) -> dict:
    return {"queries": 1, "targets": 1, "metrics": {"realistic": {"mrr": value, "hits@1": value / 2}}, "intervals": {}}


def report(overall: float, by_shape=None, by_kind=None, split="valid", protocol="cq") -> dict:
    return {
        "protocol": protocol,
        "notes": {"split": split},
        "overall": summary(overall),
        "by_shape": {shape: summary(value) for shape, value in (by_shape or {}).items()},
        "by_kind": {kind: summary(value) for kind, value in (by_kind or {}).items()},
    }


REPORTS = {
    "biqe": report(0.4, {"1p": 0.3, "2p": 0.4, "2i": 0.5}, {"path": 0.4, "dag": 0.5}),
    "cqd": report(0.35, {"1p": 0.6, "2p": 0.2}, {"path": 0.3, "dag": 0.2}),
    "gqe": report(0.1),
}


def test_best_of_each_shape():
    selection = select(REPORTS)
    assert selection.shapes == {"1p": "cqd", "2p": "biqe", "2i": "biqe", "path": "biqe", "dag": "biqe"}
    assert selection.default == "biqe"
    names = ["gqe", "cqd", "biqe"]
    assert selection.order("1p", names) == ["cqd", "biqe", "gqe"]
    assert selection.order("2p", names) == ["biqe", "cqd", "gqe"]
    assert selection.order("3p", names) == ["biqe", "cqd", "gqe"], "paths stand for 3p"
    assert selection.order("pi", names) == ["biqe", "cqd", "gqe"], "DAGs stand for pi"
    assert selection.order("other", names) == ["biqe", "cqd", "gqe"], "the headline figure stands for the rest"
    assert selection.order("1p", ["new", "gqe"]) == ["gqe", "new"]
    assert Selection().order("1p", names) == names
    assert selection.reason("1p", "cqd") == "mrr 0.600 on validation queries of shape 1p"
    assert selection.reason("other", "gqe") == "mrr 0.100 on all validation queries"
    assert Selection().reason("1p", "cqd") == ""


def test_another_metric():
    assert select(REPORTS, "hits@1").scores["1p"] == {"biqe": 0.15, "cqd": 0.3}
    with pytest.raises(InvalidOption, match="no report has the metric 'auc'"):
        select(REPORTS, "auc")


@pytest.mark.parametrize("split", ["test", None, "train"])
def test_models_are_not_chosen_by_test_answers(split):
    with pytest.raises(InvalidOption, match="models are chosen by validation queries"):
        select({"biqe": report(0.5, split=split)})


def test_reports_must_be_alike():
    with pytest.raises(InvalidOption, match="of one protocol. Got cq, q2b"):
        select({"a": report(0.1), "b": report(0.2, protocol="q2b")})
    with pytest.raises(EmptyResult):
        select({})


def test_written_and_read(tmp_path):
    selection = write_selection(tmp_path, REPORTS)
    assert read_selection(tmp_path) == selection
    data = json.loads((tmp_path / FILE).read_text())
    assert data["shapes"]["1p"] == "cqd" and data["default"] == "biqe"
    assert read_selection(tmp_path / "nowhere") is None


def test_a_hand_written_selection(tmp_path):
    (tmp_path / FILE).write_text('{"format": "biqe-selection", "version": 1, "shapes": {"1p": "b"}, "default": "a"}')
    selection = read_selection(tmp_path)
    assert selection.order("1p", ["a", "b"]) == ["b", "a"]
    assert selection.order("2i", ["b", "a"]) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "biqe-selection", "version": 2}',
        '{"format": "biqe-selection", "version": 1, "scores": []}',
        '{"format": "biqe-selection", "version": 1, "scores": {"1p": {"a": "much"}}}',
        '{"format": "biqe-selection", "version": 1, "scores": {"1p": {"a": NaN}}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_selection(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UnreadableFile) as caught:
        read_selection(tmp_path)
    assert "delete it" in str(caught.value.hint)
