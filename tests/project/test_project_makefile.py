"""The Makefile lists itself, and continuous integration runs what people run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib


def test_make_lists_every_target(root):
    text = (root / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    listed = subprocess.run(["make", "-C", root], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\S+)", listed, re.MULTILINE) == phony


def test_make_test_checks_before_it_tests(root):
    """In this order: ruff, the format, types, the docs, the tests; ``make check`` runs all but the tests."""
    checks = ["ruff check .", "ruff format --check .", "mypy", *DOCS_CHECKS]
    assert steps_of(root, "check") == checks
    assert steps_of(root, "test") == [*checks, "python -m pytest"]


DOCS_CHECKS = [
    "python tools/check_links.py",
    "python tools/check_paper_map.py",
    "python tools/results_table.py --check",
]


def steps_of(root, target) -> list[str]:
    """The tools of .venv that a target runs, in order, without setting it up."""
    words = ["make", "-C", root, "--dry-run", "--no-print-directory", "-o", "setup", target]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return re.findall(
        r"\.venv/bin/((?:ruff|mypy|python (?:tools/|-m pytest))[^\n]*?)(?: -n [^\n]*)?$", shown, re.MULTILINE
    )


def test_the_hooks_check_style_and_format(root):
    hooks = (root / ".pre-commit-config.yaml").read_text("utf-8")
    assert ".venv/bin/ruff check" in hooks and ".venv/bin/ruff format --check" in hooks


def test_ci_runs_make_test_and_nothing_else(root):
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [
        line for line in script.read_text("utf-8").splitlines() if line and not line.startswith(("#", "set", "cd"))
    ]
    assert commands == ["exec make test </dev/null"]


def test_every_dependency_is_pinned_and_has_its_reason(root):
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in wanted} - {"biqe"}  # extras made of extras
    pinned = set(re.findall(r"^([\w-]+)==", (root / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    assert names <= pinned
    reasons = "".join(path.read_text("utf-8") for path in (root / "docs" / "decisions").glob("*.md"))
    assert {name for name in names if name not in reasons} == set()


def imported_packages(folder) -> set[str]:
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names)


def test_what_the_package_imports_is_declared_and_nothing_more(root):
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [
        name
        for extra in ("agents", "pictures", "serve", "telemetry")
        for name in project["optional-dependencies"][extra]
    ]
    declared = {
        re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in project["dependencies"] + extras
    }
    imported = {"opentelemetry_api": "opentelemetry", "opentelemetry_sdk": "opentelemetry"}
    # llvmlite is part of numba, mcp_types of mcp, starlette of fastapi; the others serve those who have them already.
    beyond = {"biqe", "IPython", "llvmlite", "mcp_types", "pandas", "rdflib", "starlette"}
    assert imported_packages(root / "src") - beyond == {imported.get(name, name) for name in declared} - beyond


def test_only_serving_and_pictures_need_extras(root):
    """What every installation has is enough for all rooms but serve and agents, and for all models."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    everyone = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}
    beyond = {"biqe", "IPython", "llvmlite", "pandas", "rdflib"}
    for room in (root / "src" / "biqe").iterdir():
        if room.is_dir() and room.name not in ("agents", "serve"):
            drawing = {"matplotlib"} if room.name in ("evaluate", "explain", "training") else set()
            for_serve = {"orjson"} if room.name == "answer" else set()  # imported for the endpoint alone
            assert imported_packages(room) - beyond - everyone <= drawing | for_serve, room
