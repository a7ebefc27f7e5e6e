"""What a table looks like, judged by its first rows: its separator, its header, and what a row is.

A row is a fact (subject, relation, object), or an entity with a column for each relation:

    title,director,country,year             one row an entity: Alien has three links and a number
    Alien,Ridley Scott,"UK, USA",1979

A table of another number of columns than three, whose header is not that of facts, has one row an entity. Of three
columns, a first row that shares no value with any other is a header; if the first column then never repeats and the
second does not look like relations, a row is an entity, too.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from biqe.errors import BadLine, BiqeError
from biqe.graph.blocks import blocks

SAMPLE_BYTES = 1 << 18
"""Bytes at the start of a file by which it is judged."""
SEPARATORS = (",", ";", "\t", "|")
AGREEING = 0.8
"""Share of the rows that must have the same number of columns."""
FEWEST_ROWS = 5
"""Rows below a header by which it is told from a fact."""
DIFFERENT = 0.95
"""From this share of different values on, a text column holds descriptions rather than names."""
MISSING = frozenset({"", "na", "n/a", "null", "none", "nan", "-", "?"})
"""Values that stand for none, in any case."""
_XSD = "http://www.w3.org/2001/XMLSchema#"
_KINDS = (
    (re.compile(r"[+-]?\d{1,18}"), _XSD + "integer"),
    (re.compile(r"[+-]?\d*\.\d+"), _XSD + "decimal"),
    (re.compile(r"[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?"), _XSD + "double"),
    (re.compile(r"\d{4}-\d\d-\d\d"), _XSD + "date"),
)
_TEXT = _XSD + "string"
_KEYS = ("name", "title", "label", "id")
_HEADERS = tuple(
    (subject, relation, object_)
    for subject, object_, relations in (
        ("head", "tail", ("relation", "rel")),
        ("subject", "object", ("predicate", "relation")),
        ("source", "target", ("relation", "rel")),
        ("from", "to", ("relation", "rel")),
        ("h", "t", ("r",)),
        ("s", "o", ("p", "r")),
    )
    for relation in relations
)
"""Usual names of the columns of subject, relation and object."""
_ROLES = (
    ("subject", "head", "source", "from"),
    ("predicate", "relation", "property", "rel"),
    ("object", "tail", "target", "to", "value"),
)
"""Words that a header may combine otherwise. Single letters are not among them: small graphs have such names."""
_RELATION = re.compile(r"[a-z_]|.*[:/#]")


@dataclass(frozen=True)
class Columns:
    """Where subject, relation and object stand in a row of ``count`` columns."""

    subject: int = 0
    relation: int = 1
    object: int = 2
    count: int = 3
    ignored: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return (self.subject, self.relation, self.object, self.count) == (0, 1, 2, 3)


def header_columns(row: Sequence[str]) -> Columns | None:
    """The columns that ``row`` names, in any order and case, or None if it is a row of data.

    >>> header_columns(["Tail", "Head", "Relation", "source"]).ignored
    ('source',)
    >>> header_columns(["Value", "Subject", "Property"])
    Columns(subject=1, relation=2, object=0, count=3, ignored=())
    """
    names = [name.strip().lower() for name in row]
    headers = list(_HEADERS)
    words = [[name for name in names if name in role] for role in _ROLES]
    if all(len(found) == 1 for found in words):
        headers.append((words[0][0], words[1][0], words[2][0]))
    for header in headers:
        if all(names.count(name) == 1 for name in header):
            places = [names.index(name) for name in header]
            ignored = tuple(name for place, name in enumerate(row) if place not in places)
            return Columns(places[0], places[1], places[2], len(row), ignored)
    return None


@dataclass(frozen=True)
class Wide:
    """A table with one row an entity."""

    names: tuple[str, ...]
    """Names of the columns."""
    key: int
    """The column that names the entity."""
    literals: dict[int, str] = field(default_factory=dict)
    """Columns of values, with their types; all others are links."""
    several: dict[int, str] = field(default_factory=dict)
    """Separator within a cell, by column, where cells hold several values."""

    def __str__(self) -> str:
        links = [name for place, name in enumerate(self.names) if place != self.key and place not in self.literals]
        said = f"one row an entity, named by {self.names[self.key]!r}; links: {', '.join(links) or 'none'}"
        values = [self.names[place] for place in self.literals]
        return said + (f"; values: {', '.join(values)}" if values else "")

    def without_values(self) -> Wide:
        """The same table, read with numbers and dates as names of entities."""
        return replace(self, literals={place: kind for place, kind in self.literals.items() if kind == _TEXT})

    def facts(self, row: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """The facts of a row; a value is written as N-Triples has it."""
        subject = row[self.key].strip()
        for place, cell in enumerate(row):
            if place == self.key:
                continue
            parts = cell.split(self.several[place]) if place in self.several else [cell]
            for part in dict.fromkeys(part.strip() for part in parts):
                if part.casefold() in MISSING:
                    continue
                if place in self.literals:
                    kind = self.literals[place]
                    yield subject, self.names[place], _literal(part, kind if value_kind(part) else _TEXT)
                else:
                    yield subject, self.names[place], " ".join(part.split())


@dataclass(frozen=True)
class Shape:
    """How a table is read."""

    separator: str
    has_header: bool = False
    """Whether the first row is a header that ``header_columns`` does not know."""
    wide: Wide | None = None
    """None: a row is a fact."""


def shape_of(path: Path, separator: str, encoding: str | None = None) -> Shape:
    """The shape of a file whose ending promises ``separator``; just that where nothing else can be told."""
    rows = {}
    lines = _sample(path, encoding)
    for one in dict.fromkeys([separator, *SEPARATORS]):
        rows[one] = _parsed(lines, one, quoted=one != "\t" or separator != "\t")
        if _width(rows[one]) >= 3:
            break
    else:
        widths = {one: _width(found) for one, found in rows.items()}
        one = max(widths, key=lambda each: (widths[each], each == separator))
    return shape_of_rows(rows[one], one) if _width(rows[one]) > 1 else Shape(separator)


def _sample(path: Path, encoding: str | None) -> list[str]:
    """Lines at the start of a file, without comments; none of what cannot be read, which its reader says."""
    try:
        block = next(blocks(path, size=SAMPLE_BYTES, encoding=encoding, refuse=lambda error: None))
    except (BiqeError, StopIteration):
        return []
    lines = block.data.decode().splitlines(keepends=True)
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _parsed(lines: list[str], separator: str, *, quoted: bool) -> list[list[str]]:
    if not quoted:
        return [line.rstrip("\r\n").split(separator) for line in lines]
    rows: list[list[str]] = []
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return rows
        except csv.Error:
            continue


def _width(rows: list[list[str]]) -> int:
    """Columns of nearly all rows; 0 where they do not agree."""
    counts = Counter(map(len, rows))
    width, count = counts.most_common(1)[0] if counts else (0, 0)
    return width if count >= AGREEING * len(rows) else 0


def shape_of_rows(rows: list[list[str]], separator: str) -> Shape:
    """The shape of a table that begins with these rows."""
    width = _width(rows)
    first, *others = rows
    others = [row for row in others if len(row) == width]
    if len(first) != width or header_columns(first) is not None or not others:
        return Shape(separator)
    names = tuple(name.strip() or f"column {place}" for place, name in enumerate(first, 1))
    is_header = len(set(names)) == width and not any(_KINDS[2][0].fullmatch(name) for name in names)
    if width != 3:
        return Shape(separator, True, _wide(names, others)) if is_header else Shape(separator)
    values = [{row[place] for row in others} for place in range(3)]
    if not is_header or len(others) < FEWEST_ROWS or any(name in column for name in first for column in values):
        return Shape(separator)
    like_relations = sum(_RELATION.match(value) is not None for value in values[1]) >= AGREEING * len(values[1])
    if len(values[0]) == len(others) and (not like_relations or len(values[1]) > len(others) / 2):
        return Shape(separator, True, _wide(names, others))
    return Shape(separator, True)


def _wide(names: tuple[str, ...], rows: list[list[str]]) -> Wide:
    columns = list(zip(*rows, strict=True))
    key = 0
    if _kind(columns[0]) not in (None, _TEXT):  # a number: a column of names says more
        for place, name in enumerate(names):
            if name.casefold() in _KEYS and len(set(columns[place])) == len(rows) and _kind(columns[place]) is None:
                key = place
                break
    own = set(columns[key])
    literals, several = {}, {}
    for place, column in enumerate(columns):
        present = [cell.strip() for cell in column if cell.strip().casefold() not in MISSING]
        if place == key or not present:
            continue
        kind = _kind(present)
        if kind is None:
            mark = next((one for one in (";", "|") if sum(one in cell for cell in present) > len(present) / 20), None)
            if mark is not None:
                several[place] = mark
                present = [part.strip() for cell in present for part in cell.split(mark)]
            is_many = len(present) >= 4 * FEWEST_ROWS
            if is_many and len(set(present)) >= DIFFERENT * len(present) and not own & set(present):
                kind = _TEXT
        if kind is not None:
            literals[place] = kind
            several.pop(place, None)
    return Wide(names, key, literals, several)


def name_of(value: Any) -> str | None:
    """The name that a value stands for; None where it stands for none.

    >>> name_of("Rhine"), name_of(7), name_of(7.0), name_of(0.5), name_of(True), name_of(date(2026, 1, 2))
    ('Rhine', '7', '7', '0.5', 'true', '2026-01-02')
    >>> name_of(None), name_of(float("nan")), name_of(" ")
    (None, None, None)
    """
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return None
        # A column of whole numbers with a gap is one of floats: 7.0 in it was the number 7.
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == datetime.min.time() else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return name_of(value.decode())
    raise TypeError


def value_kind(text: str) -> str | None:
    """The type of a number or a date; None for a name.

    >>> value_kind("1979-05-25"), value_kind("Alien")
    ('http://www.w3.org/2001/XMLSchema#date', None)
    """
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(text)), None)


def _kind(cells: Sequence[str]) -> str | None:
    """The type of nearly all cells; None for names."""
    present = [cell.strip() for cell in cells if cell.strip().casefold() not in MISSING]
    for pattern, kind in _KINDS:
        if present and sum(pattern.fullmatch(cell) is not None for cell in present) >= DIFFERENT * len(present):
            return kind
    return None


def _literal(text: str, kind: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace('"', '\\"')
    return f'"{escaped}"^^<{kind}>'


def wrong_row(path: Path, line: int, row: Sequence[str], shape: Shape) -> BadLine | None:
    """The error for a row that does not fit a wide table; None where it does."""
    assert shape.wide is not None
    count = len(shape.wide.names)
    if len(row) != count:
        number = f"{len(row)} column{'s' * (len(row) != 1)}"
        begins = repr(row[0][:60]) if row else "''"
        hint = f"the header has {count} names; a value with {shape.separator!r} in it stands in quotation marks"
        return BadLine(path, line, f"{number} where {count} are expected, in the line that starts {begins}", hint=hint)
    if not row[shape.wide.key].strip():
        return BadLine(path, line, f"the column {shape.wide.names[shape.wide.key]!r}, which names the row, is empty")
    return None
