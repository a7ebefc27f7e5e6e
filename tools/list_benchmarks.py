"""List the benchmarks of this repository, with the first line of each one's docstring."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def main() -> None:
    """Print one line a benchmark."""
    for path in sorted(FOLDER.glob("[!_]*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "(no description)"
        print(f"  .venv/bin/python benchmarks/{path.name:<24} {docstring.splitlines()[0]}")
    print("Each prints one JSON object as its last line, explains its options with --help and has a --quick size.")


if __name__ == "__main__":
    main()
