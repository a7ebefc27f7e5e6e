"""What the pages claim: marked snippets print what they show, docstring examples hold, links lead somewhere.

A fenced block under the line ``<!-- run -->`` is run. The blocks of one page run in order, in one empty folder
and one Python session, so that a guide can be followed from top to bottom:

    console   lines that start with ``$ `` are commands; what stands below is what they print on standard output,
              compared where there is anything, with ``...`` for any text
    pycon     a doctest
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Snippet(NamedTuple):
    language: str
    text: str


def snippets(page: Path) -> list[Snippet]:
    return [Snippet(*match.groups()) for match in BLOCK.finditer(page.read_text("utf-8"))]


def run_console(text: str, folder: Path) -> None:
    """Run the commands of a console block in ``folder`` and compare what they print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            line, _, expected = expected.partition("\n")
            command = command[:-1] + line.lstrip("> ")
        script = f'biqe() {{ {shlex.quote(sys.executable)} -m biqe "$@"; }}; {command}'
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=environment())
        assert done.returncode == 0, f"$ {command}\n{done.stderr}"
        if expected.strip():
            same = doctest.OutputChecker().check_output(expected.strip() + "\n", done.stdout.strip() + "\n", FLAGS)
            assert same, f"$ {command}\nprinted\n{done.stdout}\nnot\n{expected}"


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}


def run_pycon(text: str, names: dict[str, object], page: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not report, "".join(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if snippets(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_snippets_print_what_they_show(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, text in snippets(page):
        if language == "console":
            run_console(text, tmp_path)
        elif language == "pycon":
            run_pycon(text, names, page.name)
        else:
            pytest.fail(f"a block of {language} cannot be run; use console or pycon")


def test_the_readme_has_snippets_that_run():
    assert {snippet.language for snippet in snippets(ROOT / "README.md")} == {"console", "pycon"}


def test_the_runner_notices_a_wrong_output(tmp_path):
    run_console("$ echo one \\\n>   two\none ...\n", tmp_path)
    with pytest.raises(AssertionError, match="printed"):
        run_console("$ echo one\ntwo\n", tmp_path)
    with pytest.raises(AssertionError):
        run_console("$ false\n", tmp_path)
    with pytest.raises(AssertionError):
        run_pycon(">>> 1 + 1\n3\n", {}, "page")


WITH_EXAMPLES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_docstring_examples_hold(path):
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert tried
    assert failed == 0


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_lead_somewhere():
    check = tool("check_links")
    assert [fault for page in check.pages() for fault in check.broken(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_pages_show_exist(page):
    from biqe.cli import COMMANDS

    shown = set(re.findall(r"^(?:\$ |    )(?:\.venv/bin/)?biqe (\w+)", page.read_text("utf-8"), re.MULTILINE))
    assert shown <= set(COMMANDS)


def test_make_targets_that_the_readme_shows_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    shown = set(
        re.findall(
            r"\bmake ([a-z-]+)\b",
            "\n".join(re.findall(r"`[^`]+`|^    .*$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)),
        )
    )
    assert {"demo", "test"} <= shown
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in shown)
