"""Check docs/paper-map.md: each statement of the paper names code and a test, and all of them exist.

A row is ``| statement | code | test |``. Code is `` `room/file.py:name` `` below src/biqe, where name is a function,
a class, ``Class.method`` or a constant; a test is `` `tests/room/test_file.py::test_name` ``. A cell may hold several.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each table row, without headers and rules."""
    header_ended = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            header_ended = False
        elif re.fullmatch(r"[|\s:-]+", line):
            header_ended = True
        elif header_ended:
            yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]


def names_in(path: Path) -> set[str]:
    """Functions, classes, methods (``Class.method``) and constants that a file defines at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef))
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            found.update(f"{node.name}.{field.id}" for field in fields if isinstance(field, ast.Name))
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


def fault(root: Path, reference: str, separator: str) -> str | None:
    """Why ``file<separator>name`` leads nowhere, or None."""
    file, found, name = reference.partition(separator)
    if not found:
        return f"`{reference}` must read file{separator}name"
    if not (root / file).is_file():
        return f"`{reference}`: there is no file {file}"
    if name not in names_in(root / file):
        return f"`{reference}`: {file} defines no {name}"
    return None


def faults(text: str, root: Path) -> Iterator[str]:
    """What is wrong with the map, a sentence each."""
    count = 0
    for number, cells in rows(text):
        count += 1
        if len(cells) != 3:
            yield f"line {number}: a row has 3 cells, this one {len(cells)}"
            continue
        for cell, folder, separator in ((cells[1], root / "src" / "biqe", ":"), (cells[2], root, "::")):
            references = re.findall(r"`([^`]+)`", cell)
            if not references:
                yield f"line {number}: '{cell}' names nothing"
            for reference in references:
                problem = fault(folder, reference, separator)
                if problem:
                    yield f"line {number}: {problem}"
    if count == 0:
        yield "the map has no rows"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    text = (ROOT / "docs" / "paper-map.md").read_text("utf-8")
    found = list(faults(text, ROOT))
    print("\n".join(found) if found else f"paper map: {sum(1 for _ in rows(text))} statements, code and tests exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
