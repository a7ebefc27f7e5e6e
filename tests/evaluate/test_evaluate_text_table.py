"""Reports as tables: 80 columns, and all that matters."""

from dataclasses import replace

from biqe.evaluate import Report


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


def shapes(report, names, **changes):
    return replace(
        report,
        by_shape={name: report.overall for name in names},
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
