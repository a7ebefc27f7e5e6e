"""Reviewed tables beside this file: tab-separated, comments after '#', first row the column names."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def read(name: str) -> list[dict[str, str]]:
    """Rows of table ``name``; a row with a missing or extra cell is refused with its line number."""
    rows: list[dict[str, str]] = []
    columns: list[str] | None = None
    for number, line in enumerate((FOLDER / name).read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        cells = line.split("\t")
        if columns is None:
            columns = cells
        elif len(cells) != len(columns):
            raise SystemExit(f"{name}, line {number}: {len(cells)} cells, {len(columns)} expected")
        else:
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows
