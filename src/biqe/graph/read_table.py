"""TSV and CSV: one triple a line, three columns.

Rules, the same for both:

- the columns are subject, relation, object, unless the first line names them (see HEADERS; any case, any order); named
  columns beside these three are ignored and counted;
- blank lines are skipped; a line that starts with ``#`` is a comment as a whole, and ``#`` elsewhere is part of
  a name;
- names are taken as they stand, spaces included; an empty name is refused;
- an object such as ``"Rhein"@de`` or ``"42"^^<http://...#integer>`` is a literal, as in N-Triples: it is left out and
  counted, and with the relation ``rdfs:label`` it is a label of the subject.

TSV knows no quoting, so ``"Rhine"``, without anything behind it, is a name with two quotation marks: whether a literal
or a quoted name was meant cannot be told. CSV is quoted by ``"`` as in RFC 4180, and a literal in it is quoted once
more. A quoted field may run over line ends where it is no name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from biqe.errors import BadLine
from biqe.graph.blocks import MAX_LINE_BYTES, MAX_NAME_BYTES, Block, blocks
from biqe.graph.collect import LABEL, Collector, Counts
from biqe.graph.files import Source

HEADERS = tuple(
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
"""Names that a header may give to the columns of subject, relation and object: all three from one row here."""
_CHUNK_ROWS = 1 << 16
_LITERAL = re.compile(
    r'"(.*)"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^(?:<[^<>\x00-\x20]*>|[A-Za-z][\w.-]*:[\w.-]+))', re.DOTALL
)
_LABEL_NAMES = (LABEL, f"<{LABEL}>", "rdfs:label")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


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
    """The columns that ``row`` names, or None if it is a row of data.

    >>> header_columns(["Tail", "Head", "Relation", "source"]).ignored
    ('source',)
    """
    names = [name.strip().lower() for name in row]
    for header in HEADERS:
        if all(names.count(name) == 1 for name in header):
            places = [names.index(name) for name in header]
            ignored = tuple(name for place, name in enumerate(row) if place not in places)
            return Columns(places[0], places[1], places[2], len(row), ignored)
    return None


def read_tsv(source: Source, into: Collector) -> None:
    """All triples of a TSV file."""
    _read_rows(source, _tsv_rows(source.path, into), into, "tab")


def read_csv(source: Source, into: Collector) -> None:
    """All triples of a CSV file."""
    _read_rows(source, _csv_rows(source.path, into), into, "comma")


def is_blank(line: str) -> bool:
    """Whether a line holds nothing but spaces."""
    return not line.strip(" \r\n")


def _read_rows(source: Source, rows: Iterator[tuple[int, list[str]]], into: Collector, separator: str) -> None:
    columns: Columns | None = None
    subjects: list[str] = []
    relations: list[str] = []
    objects: list[str] = []
    for line, row in rows:
        if columns is None:
            header = header_columns(row)
            columns = header or Columns()
            if header is not None:
                into.counts.ignored_columns.extend(header.ignored)
                continue
        if len(row) != columns.count:
            raise wrong_columns(source.path, line, row, columns.count, separator)
        subject, relation, object_ = row[columns.subject], row[columns.relation], row[columns.object]
        if object_.startswith('"') and take_literal(source.path, line, subject, relation, object_, into):
            continue
        # One test for the common case; what exactly is wrong is found out only when something is.
        names = subject, relation, object_
        if not all(names) or max(map(len, names)) > MAX_NAME_BYTES // 4 or any("\n" in n or "\r" in n for n in names):
            check_names(source.path, line, names)
        subjects.append(subject)
        relations.append(relation)
        objects.append(object_)
        if len(subjects) == _CHUNK_ROWS:
            into.add(source.split, subjects, relations, objects)
            subjects, relations, objects = [], [], []
    into.add(source.split, subjects, relations, objects)


def _tsv_rows(path: Path, into: Collector) -> Iterator[tuple[int, list[str]]]:
    for block in blocks(path, advance=into.advance):
        for line, row in data_rows(block, into.counts):
            _check_returns(path, line, row)
            yield line, row


def data_rows(block: Block, counts: Counts | None) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and columns of the TSV lines that are neither blank nor comments; comments are counted."""
    for line, text in enumerate(block.data.decode().split("\n"), block.first_line):
        if is_blank(text):
            continue
        if text.startswith("#"):
            if counts is not None:
                counts.comments += 1
            continue
        yield line, text.removesuffix("\r").split("\t")


def read_tsv_lines(source: Source, block: Block, into: Collector) -> None:
    """Some TSV lines that follow the header, if there is one."""
    for line, row in data_rows(block, into.counts):
        _check_returns(source.path, line, row)
        if len(row) != 3:
            raise wrong_columns(source.path, line, row, 3, "tab")
        if not take_literal(source.path, line, row[0], row[1], row[2], into):
            check_names(source.path, line, row)
            into.add(source.split, row[:1], row[1:2], row[2:])


def take_literal(path: Path, line: int, subject: str, relation: str, object_: str, into: Collector) -> bool:
    """Whether ``object_`` is a literal with a language or a type; if so, it is counted, and a label is kept."""
    literal = _LITERAL.fullmatch(object_)
    if literal is None:
        return False
    check_names(path, line, (subject, relation, "literal"))
    into.counts.literals += 1
    if relation in _LABEL_NAMES:
        into.labels.add(subject, " ".join(_ESCAPE.sub(_unescaped, literal[1]).split()), literal[2])
    return True


def _unescaped(escape: re.Match[str]) -> str:
    """The character that an escape of N-Triples stands for; the escape itself where it stands for none."""
    code = int(escape[1] or escape[2] or "0", 16)
    if code:
        return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else escape[0]
    return {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}.get(escape[3] or "", escape[3] or escape[0])


def _check_returns(path: Path, line: int, row: Sequence[str]) -> None:
    if any("\r" in name for name in row):
        raise BadLine(path, line, "a carriage return inside the line", hint="end lines with LF or CRLF")


def _csv_rows(path: Path, into: Collector) -> Iterator[tuple[int, list[str]]]:
    # A field longer than a name may be gets the message of check_names, or is no name and is ignored.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    reader = csv.reader(_csv_lines(path, into), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadLine(
                path, line, f"not valid CSV: {error}", hint='a quoted name ends with "; a " inside it is written ""'
            ) from error
        if not row or (len(row) == 1 and is_blank(row[0])):
            continue
        yield line, row


def _csv_lines(path: Path, into: Collector) -> Iterator[str]:
    """Lines for the csv module; comments become blank lines, so that its line numbers stay true."""
    for block in blocks(path, advance=into.advance):
        for line in block.data.decode().removesuffix("\n").split("\n"):
            if line.startswith("#"):
                into.counts.comments += 1
                yield "\n"
            else:
                yield line + "\n"


def wrong_columns(path: Path, line: int, row: Sequence[str], count: int, separator: str) -> BadLine:
    """The error for a row with another number of columns than ``count``."""
    hint = f"columns are separated by one {separator}; name another format with --format"
    if len(row) > count == 3:
        hint = "name the columns in a header line (head, relation, tail) to ignore the others, or cut them off"
    shown = repr(row[0][:60]) if row else "''"
    number = f"{len(row)} column{'s' * (len(row) != 1)}"
    return BadLine(path, line, f"{number} where {count} are expected, in the line that starts {shown}", hint=hint)


def check_names(path: Path, line: int, names: Sequence[str]) -> None:
    """BadLine if one of the three names is empty, too long, or runs over a line end."""
    for kind, name in zip(("subject", "relation", "object"), names, strict=True):
        if not name:
            raise BadLine(
                path, line, f"the {kind} is empty", hint="every triple has a subject, a relation and an object"
            )
        if "\n" in name or "\r" in name:
            raise BadLine(
                path,
                line,
                f"the {kind} runs over the end of the line; a name stands on one line",
                hint='is a closing " missing? If the line break is meant, write a space for it',
            )
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            raise BadLine(
                path,
                line,
                f"the {kind} has {size:,} bytes; a name may have {MAX_NAME_BYTES:,}",
                hint="a name identifies something; leave long texts out, or give them as descriptions (--labels)",
            )
