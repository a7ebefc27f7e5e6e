"""The tools that keep pages and files honest."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest


@pytest.fixture
def tool(root):
    def load(name: str):
        spec = importlib.util.spec_from_file_location(name, root / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_the_readme_shows_the_recorded_results(tool):
    assert tool("results_table").main(["--check"]) == 0


SUMMARY = {"metrics": {"realistic": {"mrr": 0.25, "hits@10": 0.5}}, "intervals": {"mrr": [0.2, 0.3]}}
REPORT = {"model": "biqe", "filter_graph": "split", "overall": SUMMARY, "counts": {"ranked_queries": 2785}}
SHORT = {"name": "a run", "benchmark": "toy", "model": "biqe", "settings": {}, "metrics": {"mrr": 0.125}}


def test_the_table_lists_reports_and_benchmarks(tool, tmp_path):
    table = tool("results_table")
    (tmp_path / "README.md").write_text(f"a\n{table.BEGIN}\nold\n{table.END}\nb\n")
    for name, result in {"x/report": REPORT, "x/short": SHORT, "speed": {"ratio": 10.04}}.items():
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(result))
    assert table.main(["--root", str(tmp_path), "--check"]) == 1
    assert table.main(["--root", str(tmp_path)]) == 0
    assert table.main(["--root", str(tmp_path), "--check"]) == 0
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("a\n<!--")
    assert page.endswith("-->\nb\n")
    assert "old" not in page
    assert "[speed](results/speed.json) | 10.0 |" in page and "2,785" not in page
    page = (tmp_path / "RESULTS.md").read_text()
    assert "| split | 2,785 | 0.250 (0.200 - 0.300) | - | - | 0.500 | - |" in page
    assert "[a run](results/x/short.json) | toy | biqe | - | - | 0.125 |" in page
    assert "speed.json" not in page


def test_a_result_of_neither_kind_is_refused(tool, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SystemExit, match="neither"):
        tool("results_table").section(tmp_path)


def test_broken_links_are_found(tool, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One title\n[a](#one-title) [b](#two) [c](nothing.md) [d](page.md) [e](https://x) ![f](no.png)\n"
        "```\n[g](in-code.md)\n```\n"
    )
    assert [fault.split(": ")[1].split(" ")[0] for fault in tool("check_links").broken(page)] == [
        "#two",
        "nothing.md",
        "no.png",
    ]


def test_large_files_are_refused(tool, tmp_path, capsys):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    with large.open("wb") as file:
        file.truncate(5 * 2**20)
    sizes = tool("check_file_sizes")
    assert sizes.main([str(small)]) == 0
    assert sizes.main([str(small), str(large)]) == 1
    assert capsys.readouterr().out.count("\n") == 1


def test_every_benchmark_describes_itself(root):
    command = [sys.executable, root / "tools" / "list_benchmarks.py"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "(no description)" not in listed
    assert all(path.name in listed for path in (root / "benchmarks").glob("[!_]*.py"))
