"""Reports: on disk and back, on a screen, and broken ones."""

import json
from dataclasses import replace

import pytest

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.evaluate.protocols import Summary
from biqe.evaluate.report import Report, Skipped


def summary(mrr=0.25):
    figures = {"mrr": mrr, "hits@1": 0.1, "hits@3": 0.3, "hits@10": 0.5}
    return Summary(
        queries=1234,
        targets=1234567,
        metrics={"realistic": figures, "optimistic": {**figures, "mrr": 0.26}, "pessimistic": {**figures, "mrr": 0.24}},
        intervals={metric: (value - 0.01, value + 0.01) for metric, value in figures.items()},
    )


@pytest.fixture
def report():
    return Report(
        protocol="cq",
        protocol_version=1,
        model="biqe",
        filter_graph="split",
        overall=summary(),
        macro=summary(0.3),
        by_position={"tail": summary(0.2), "intersection": summary(0.4), "branch": summary(0.1)},
        by_kind={"path": summary(), "dag": summary()},
        by_targets={"1": summary(), "12": summary()},
        counts={
            "queries": 1300,
            "targets": 1300000,
            "ranked_queries": 1234,
            "ranked_targets": 1234567,
            "targets_without_gold": 3,
        },
        skipped=tuple(Skipped(f"reason {number} " + "with many words " * 8, number + 1, (0, 1)) for number in range(9)),
        settings={"level": 0.95, "seed": 0},
        fingerprints={"queries": "0123456789abcdef"},
        notes={"left_out": {"query with an unknown entity": 17}},
        seconds=12.5,
        queries_per_second=98.7,
        versions={"biqe": "0"},
    )


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


def test_table_fits_80_columns_and_says_what_matters(report):
    table = report.to_table()
    assert max(map(len, table.splitlines())) <= 80
    for words in (
        "protocol cq version 1",
        "split's own graph",
        "all targets",
        "intersection",
        "12 targets",
        "0.240 - 0.260",
        "0.2400 if every tie is lost",
        "1,234 of 1,300 queries",
        "17 ×",
        "3 targets without a gold",
    ):
        assert words in table
    assert "24 queries for 3 more reasons" in table  # 7 + 8 + 9


def test_table_without_intervals(report):
    table = replace(report, overall=replace(report.overall, intervals={})).to_table()
    assert max(map(len, table.splitlines())) <= 80


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
        (lambda text: text.replace('"version": 2', '"version": 3'), "version must be 1 or 2"),
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


def test_reports_of_version_1_are_read(report, root):
    old = report.to_json()
    for name in ("by_shape", "mean_over", "machine"):
        del old[name]
    assert Report.from_json({**old, "version": 1}) == report
    recorded = [
        path
        for path in (root / "results").rglob("*.json")
        if json.loads(path.read_text("utf-8")).get("format") == "biqe-report"
    ]
    assert recorded
    for path in recorded:
        loaded = Report.load(path)
        assert 0 < loaded.value("mrr") < 1
        assert max(map(len, loaded.to_table().splitlines())) <= 80


def shapes(report, names, **changes):
    return replace(
        report,
        by_shape={name: summary() for name in names},
        macro=None,
        by_position={},
        by_kind={},
        by_targets={},
        **changes,
    )


def test_table_by_shape(report, tmp_path):
    found = shapes(
        report,
        ["1p", "2p", "3p", "2i", "3i", "ip", "pi", "2u", "up"],
        protocol="q2b",
        filter_graph="answers",
        mean_over=("1p", "2p", "3p", "2i", "3i", "ip", "pi"),
    )
    lines = found.to_table().splitlines()
    assert max(map(len, lines)) <= 80
    head = next(line for line in lines if line.startswith("shape"))
    assert head.split() == ["shape", "queries", "answers", "HITS@3", "95%", "interval", "MRR", "HITS@1", "HITS@10"]
    names = [line.split("  ")[0] for line in lines]
    assert names[names.index("pi") :][:4] == ["pi", "mean of 7", "not in the mean", "2u"]
    found.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == found


def test_table_of_a_sample_says_so(report):
    assert "a sample of at most 50 questions" in replace(report, notes={"limit": 50}).to_table()
