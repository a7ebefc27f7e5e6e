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
    extras = [name for extra in ("serve", "telemetry") for name in project["optional-dependencies"][extra]]
    declared = {
        re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in project["dependencies"] + extras
    }
    imported = {"opentelemetry_api": "opentelemetry", "opentelemetry_sdk": "opentelemetry"}
    # llvmlite is part of numba, starlette of fastapi; pandas serves those who have it already.
    beyond = {"biqe", "llvmlite", "pandas", "starlette"}
    assert imported_packages(root / "src") - beyond == {imported.get(name, name) for name in declared}


def test_only_serving_needs_extras(root):
    """What every installation has is enough for all rooms but serve, and for all models."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    everyone = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}
    beyond = {"biqe", "llvmlite", "pandas"}
    for room in (root / "src" / "biqe").iterdir():
        if room.is_dir() and room.name != "serve":
            assert imported_packages(room) - beyond - everyone <= set(), room
