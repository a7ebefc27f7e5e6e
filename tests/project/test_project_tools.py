"""The tools that keep pages and files honest."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from biqe.reproduce import recipe as recipes


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


RESULT = {
    **{"format": "biqe-result", "version": 1, "table": "q2b-fb15k237", "recipe": "cqd", "seed": 0, "state": "done"},
    "settings": {"split": "valid", "train": {"minutes": 30}, "quick": False},
    "figures": {"all": {"hits@3": 0.25}},
}


def test_pages_are_written_from_results_and_checked(tool, tmp_path):
    table = tool("results_table")
    (tmp_path / "README.md").write_text(f"a\n{table.BEGIN}\nold\n{table.END}\nb\n")
    quick = RESULT | {"recipe": "hybrid", "settings": RESULT["settings"] | {"quick": True}}
    for name, result in {"x/cqd": RESULT, "x/quick": quick, "speed/fast": {"ratio": 10.04}}.items():
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(result))
    assert table.main(["--root", str(tmp_path), "--check"]) == 1
    assert table.main(["--root", str(tmp_path)]) == 0
    assert table.main(["--root", str(tmp_path), "--check"]) == 0
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("a\n<!--") and page.endswith("-->\nb\n") and "old" not in page
    row = "| [q2b-fb15k237](RESULTS.md#q2b-fb15k237) | CQD-Beam | mean HITS@3 | 0.250 (valid) | 0.314 | 0 s |"
    assert row in page and "Before you compare" in page.split(row)[0]
    assert "| Hybrid |" not in page, "a quick run is no result"
    page = (tmp_path / "RESULTS.md").read_text()
    assert "[fast](results/speed/fast.json) | 10.0 |" in page
    assert all(f"## {name}\n" in page for name in recipes.names())


def test_the_readme_shows_a_small_table(tool, root):
    table = tool("results_table")
    shown = (root / "README.md").read_text("utf-8").partition(table.BEGIN)[2].partition(table.END)[0]
    assert sum(line.startswith("| [") for line in shown.splitlines()) <= 8


def test_a_speed_result_without_a_ratio_is_refused(tool, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SystemExit, match="no ratio"):
        tool("results_table").speed_rows(tmp_path)


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
