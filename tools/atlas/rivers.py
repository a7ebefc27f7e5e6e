"""Rivers: the source's lines under reviewed names, joined where one river has several lines.

``river_aliases.tsv`` gives names; lines of one name that lie apart are different rivers, and only the one of
highest rank keeps the name unless the table says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import shapely
from shapely.geometry import box
from shapely.geometry.base import BaseGeometry

from atlas import shapefiles, tables

JOIN_DEGREES = 2.5
"""Lines of one name within this distance are one river; lakes and wide water leave gaps of up to two degrees."""


@dataclass(frozen=True)
class River:
    """One river."""

    name: str
    line: BaseGeometry
    rank: int
    """Natural Earth's scale rank: 0 for the largest rivers, 10 for the smallest."""


def read(shapes: bytes, table: bytes) -> tuple[list[River], list[str]]:
    """Rivers in alphabetical order, and what was left out, one line each."""
    aliases = tables.read("river_aliases.tsv")
    pieces: dict[str, list[tuple[BaseGeometry, int]]] = {}
    left_out = []
    used: set[int] = set()
    for record, line in shapefiles.read(shapes, table):
        source = record["name"] or "-"
        rows = _rows(aliases, source, str(record["rivernum"]))
        used.update(id(row) for row in rows)
        if not rows:
            if source == "-":
                left_out.append(f"unnamed line {record['rivernum']}")
                continue
            if "?" in source or "(" in source or "  " in source:
                raise SystemExit(f"river {source!r} ({record['rivernum']}) needs a row in river_aliases.tsv")
            rows = [{"name": source, "where": "*"}]
        for row in rows:
            part = _clip(line, row["where"])
            if row["name"] == "-":
                left_out.append(source)
            elif not part.is_empty:
                pieces.setdefault(row["name"], []).append((part, int(record["scalerank"])))
    unused = [row["source"] + " " + row["number"] for row in aliases if id(row) not in used]
    if unused:
        raise SystemExit(f"river_aliases.tsv: no line of the source for {', '.join(unused)}")
    rivers = []
    for name, parts in sorted(pieces.items()):
        clusters = _clusters(parts)
        rivers.append(River(name, clusters[0][0], clusters[0][1]))
        left_out += [f"second river called {name}" for _ in clusters[1:]]
    return rivers, left_out


def _rows(aliases: list[dict[str, str]], source: str, number: str) -> list[dict[str, str]]:
    named = [row for row in aliases if row["source"] == source]
    return [row for row in named if row["number"] == number] or [row for row in named if row["number"] == "*"]


def _clip(line: BaseGeometry, where: str) -> BaseGeometry:
    """The part of ``line`` where all clauses such as ``lon>5`` hold."""
    if where == "*":
        return line
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    for clause in where.split():
        match = re.fullmatch(r"(lon|lat)([<>])(-?[\d.]+)", clause)
        if match is None:
            raise SystemExit(f"river_aliases.tsv: cannot read {clause!r}; write lon>5 or lat<-27.3")
        axis, sign, value = match[1], match[2], float(match[3])
        if axis == "lon":
            west, east = (max(west, value), east) if sign == ">" else (west, min(east, value))
        else:
            south, north = (max(south, value), north) if sign == ">" else (south, min(north, value))
    return shapely.intersection(line, box(west, south, east, north))


def _clusters(parts: list[tuple[BaseGeometry, int]]) -> list[tuple[BaseGeometry, int]]:
    """Parts joined by nearness, the best rank and then the longest first."""
    groups: list[list[tuple[BaseGeometry, int]]] = []
    for part in parts:
        near = [g for g in groups if any(shapely.dwithin(part[0], other, JOIN_DEGREES) for other, _ in g)]
        groups = [g for g in groups if g not in near] + [[part, *(item for g in near for item in g)]]
    joined = [
        (shapely.line_merge(shapely.union_all([line for line, _ in g])), min(rank for _, rank in g)) for g in groups
    ]
    return sorted(joined, key=lambda item: (item[1], -item[0].length))
