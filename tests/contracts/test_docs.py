"""What the pages claim: marked snippets print what they show, docstring examples hold, links lead somewhere.

How snippets are marked and run: tools/snippets.py.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


snippets = tool("snippets")
RUN = [page for page in PAGES if snippets.languages(page.read_text("utf-8"))]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a page may train a model; on a busy machine that takes its time
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_print_what_they_show(page, tmp_path):
    assert "\n".join(snippets.check(page.read_text("utf-8"), tmp_path)) == ""


def test_the_readme_has_snippets_that_run():
    assert set(snippets.languages((ROOT / "README.md").read_text("utf-8"))) == {"pycon"}


PAGE = """\
<!-- run -->
```console
$ echo one \\
>   two
one ...
$ touch file
```
<!-- run -->
```pycon
>>> for n in range(2):
...     print(n)
0
1

>>> import os; os.listdir()
['file']
```
"""


def test_the_runner_accepts_what_is_printed(tmp_path):
    assert list(snippets.check(PAGE, tmp_path)) == []
    assert snippets.rewritten(PAGE, tmp_path).replace("\n\n>>>", "\n>>>") == PAGE.replace("\n\n>>>", "\n>>>")


@pytest.mark.parametrize(("right", "wrong"), [("one ...", "three"), ("0\n1", "0"), ("['file']", "[]")])
def test_the_runner_notices_and_repairs_a_wrong_output(right, wrong, tmp_path):
    page = PAGE.replace(right, wrong)
    assert len(list(snippets.check(page, tmp_path))) == 1
    repaired = snippets.rewritten(page, tmp_path)
    assert list(snippets.check(repaired, tmp_path)) == []


def test_the_runner_notices_a_command_that_fails(tmp_path):
    with pytest.raises(AssertionError):
        list(snippets.check("<!-- run -->\n```console\n$ false\n```\n", tmp_path))


WITH_EXAMPLES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_docstring_examples_hold(path):
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert any(test.examples for test in doctest.DocTestFinder().find(module)), "an example that doctest cannot find"
    assert doctest.testmod(module, optionflags=snippets.FLAGS).failed == 0


def test_links_lead_somewhere():
    check = tool("check_links")
    assert [fault for page in check.pages() for fault in check.broken(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_pages_show_exist(page):
    from biqe.cli import COMMANDS

    shown = set(re.findall(r"^(?:\$ |    )(?:\.venv/bin/)?biqe (\w+)", page.read_text("utf-8"), re.MULTILINE))
    assert shown <= set(COMMANDS)


GUIDES = [page for page in PAGES if "docs" in page.parts and not page.name[0].isdigit()]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_begin_with_what_a_reader_can_do_then(page):
    title, _, begin, *_ = page.read_text("utf-8").split("\n")
    assert title.startswith("# ") and begin.startswith("After "), begin


def test_the_python_reference_has_every_public_name():
    import biqe

    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    told = re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    assert sorted(told) == sorted(home.replace(":", ".") for home in biqe._HOMES.values())
    assert {*biqe._HOMES, "__version__"} == set(biqe.__all__)


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
