"""Reports: on disk and back, and broken ones."""

import json
from dataclasses import replace

import pytest

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.evaluate.report import Report


def test_saved_and_loaded_are_equal(report, tmp_path):
    path = tmp_path / "deep" / "report.json"
    report.save(path)
    assert Report.load(path) == report
    assert json.loads(path.read_text()) == report.to_json()
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


def test_json_stores_all_tie_rules(report):
    stored = json.loads(json.dumps(report.to_json()))
    assert {rule: part["mrr"] for rule, part in stored["overall"]["metrics"].items()} == {
        "realistic": 0.25,
        "optimistic": 0.26,
        "pessimistic": 0.24,
    }
    assert (stored["protocol"], stored["protocol_version"], stored["filter_graph"]) == ("cq", 1, "split")


def test_value(report):
    assert report.value("mrr") == 0.25
    assert report.value("mrr", "optimistic") == 0.26
    for arguments in (("map",), ("mrr", "hopeful")):
        with pytest.raises(InvalidOption, match="it has metrics mrr"):
            report.value(*arguments)


def test_a_failed_write_leaves_the_old_report(report, tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    report.save(path)
    old = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunFailed, match="No space left"):
        replace(report, model="other").save(path)
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_place_that_cannot_be_written(report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match="could not be written"):
        report.save(tmp_path / "file" / "report.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-20], "cannot be read"),
        (lambda text: "[]", "not a whole report"),
        (lambda text: text.replace("biqe-report", "other"), "format must be"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version must be 1"),
        (lambda text: text.replace('"overall"', '"underall"'), "not a whole report"),
    ],
)
def test_broken_files_are_refused(report, tmp_path, damage, message):
    path = tmp_path / "report.json"
    report.save(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(UnreadableFile, match=message):
        Report.load(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UnreadableFile):
        Report.load(tmp_path / "nothing.json")
