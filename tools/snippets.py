"""Run the snippets of a Markdown page and compare what they print with what the page shows.

A fenced block under the line ``<!-- run -->`` is run. The blocks of one page run in order, in one empty folder and one
Python session, so that a guide can be followed from top to bottom:

    console   lines that start with ``$ `` are commands (``\\`` at the end continues them); what stands below is what
              they print on standard output, compared where there is anything
    pycon     lines that start with ``>>> `` and ``... `` are Python; what stands below is what it prints

``...`` in an output stands for any text. ``python tools/snippets.py README.md`` checks a page, with ``--write`` it
replaces the outputs that differ.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SECONDS = re.compile(r"\d+\.\d+ s\b")


@dataclass(frozen=True)
class Step:
    """One command or statement of a block."""

    language: str
    shown: str
    """As the page has it, with prompts."""
    source: str
    expected: str

    def run(self, folder: Path, names: dict[str, object]) -> str:
        """What it prints on standard output."""
        return run_console(self.source, folder) if self.language == "console" else run_python(self.source, names)

    def fits(self, printed: str) -> bool:
        """Whether ``printed`` is what the page shows."""
        if self.language == "console" and not self.expected.strip():
            return True
        return doctest.OutputChecker().check_output(_line_end(self.expected), _line_end(printed), FLAGS)


def _line_end(text: str) -> str:
    return text.strip() + "\n" if text.strip() else ""


def languages(page: str) -> list[str]:
    """Languages of the blocks that are run."""
    return [match[1] for match in BLOCK.finditer(page)]


def steps(language: str, text: str) -> Iterator[Step]:
    """Commands or statements of a block, in order."""
    first, more = {"console": ("$ ", "> "), "pycon": (">>> ", "... ")}[language]
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        if not lines[place].startswith(first):
            place += 1  # an empty line between two steps
            continue
        start = place
        place += 1
        while place < len(lines) and _continues(language, lines[place - 1], lines[place], more):
            place += 1
        shown, output = lines[start:place], place
        while place < len(lines) and not lines[place].startswith(first):
            place += 1
        source = "\n".join(
            line[len(first) :] if line.startswith((first, more)) else line.removeprefix(more.strip()) for line in shown
        )
        yield Step(language, "\n".join(shown), source, "\n".join(lines[output:place]))


def _continues(language: str, before: str, line: str, more: str) -> bool:
    return before.endswith("\\") if language == "console" else line.startswith(more) or line == more.strip()


def run_console(command: str, folder: Path) -> str:
    """Standard output of a shell command in which ``biqe`` is this interpreter's."""
    script = f'biqe() {{ {shlex.quote(sys.executable)} -m biqe "$@"; }}; {command}'
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"$ {command}\n{done.stderr}")
    return done.stdout


def run_python(source: str, names: dict[str, object]) -> str:
    """What a statement prints in an interactive session with these names; an error as its last lines."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(source + "\n", "<page>", "single"), names)
        except Exception as error:
            print("Traceback (most recent call last):")
            print("".join(traceback.format_exception_only(error)), end="")
    return printed.getvalue()


def check(page: str, folder: Path) -> Iterator[str]:
    """What differs between a page and what its snippets print, run in ``folder``."""
    names: dict[str, object] = {}
    with contextlib.chdir(folder):
        for match in BLOCK.finditer(page):
            for step in steps(match[1], match[2]):
                printed = step.run(folder, names)
                if not step.fits(printed):
                    yield f"{step.shown}\nprinted\n{printed}\nnot\n{step.expected}"


def rewritten(page: str, folder: Path) -> str:
    """The page with outputs replaced where they differ; times are left open."""
    names: dict[str, object] = {}

    def block(match: re.Match[str]) -> str:
        lines = []
        for step in steps(match[1], match[2]):
            printed = step.run(folder, names)
            output = step.expected if step.fits(printed) else SECONDS.sub("... s", printed)
            lines += [step.shown, *(line.rstrip() for line in output.rstrip().splitlines())]
        body = "\n".join(lines)
        return f"<!-- run -->\n```{match[1]}\n{body}\n```"

    with contextlib.chdir(folder):
        return BLOCK.sub(block, page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or rewrite pages; 1 if one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the outputs that differ")
    options = parser.parse_args(arguments)
    faults = 0
    for path in (page.resolve() for page in options.pages):
        with tempfile.TemporaryDirectory() as folder:
            if options.write:
                path.write_text(rewritten(path.read_text("utf-8"), Path(folder)), "utf-8")
                continue
            for fault in check(path.read_text("utf-8"), Path(folder)):
                faults += 1
                print(f"{path.name}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
