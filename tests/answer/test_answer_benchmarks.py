"""The benchmarks of asking, on a toy: they run, select what they are told to, and write what they print."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch, capsys):
    def run(name: str, *arguments: object) -> tuple[dict, str]:
        """The JSON object of the last line, and the lines before it."""
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        module.main()
        *lines, last = capsys.readouterr().out.splitlines()
        return json.loads(last), "\n".join(lines)

    return run


def test_whole_tuples_by_number_of_targets(bench, run, tmp_path):
    options = ("--run", run / "run", "--set", run / "set", "--ways", "product,beam", "--count", 30)
    everything, _ = bench("joint_tuples", *options)
    found = {}
    for targets in (2, 3):
        place = tmp_path / "results" / f"{targets}.json"
        found[targets], shown = bench("joint_tuples", *options, "--targets", targets, "--out", place)
        assert json.loads(place.read_text()) == found[targets]
        assert list(found[targets]["queries_by_targets"]) == [str(targets)]
        assert f"MRR, {targets} targets" in shown
        # tools/results_table.py shows these.
        assert found[targets]["metrics"] == found[targets]["ways"]["beam"]["metrics"]
    for targets, part in found.items():
        assert part["queries"] == everything["queries_by_targets"][str(targets)] > 0
        for way in ("product", "beam"):
            own = everything["ways"][way]["by_targets"][str(targets)]["mrr"]
            assert part["ways"][way]["metrics"]["mrr"] == pytest.approx(own, abs=1e-6)
    with pytest.raises(SystemExit, match="no valid queries with 9 targets"):
        bench("joint_tuples", *options, "--targets", 9)
