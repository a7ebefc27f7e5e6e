"""TSV and CSV: one triple a line, three columns.

Rules, the same for both:

- the columns are subject, relation, object, unless the first line names them (see ``header_columns``); named columns
  beside these three are ignored and counted;
- blank lines are skipped; a line that starts with ``#`` is a comment as a whole, and ``#`` elsewhere is part of
  a name;
- names are taken as they stand, spaces included; an empty name is refused;
- an object such as ``"Rhein"@de`` or ``"42"^^<http://...#integer>`` is a literal, as in N-Triples; with the relation
  ``rdfs:label`` it is a label of the subject, too.

TSV knows no quoting, so ``"Rhine"``, without anything behind it, is a name with two quotation marks: whether a literal
or a quoted name was meant cannot be told. CSV is quoted by ``"`` as in RFC 4180, and a literal in it is quoted once
more. A quoted field may run over line ends where it is no name.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from biqe.errors import BadLine
from biqe.graph.blocks import MAX_LINE_BYTES, MAX_NAME_BYTES, Block, blocks
from biqe.graph.collect import LABEL, XSD, Collector, LabelBook
from biqe.graph.files import Source
from biqe.graph.table_shape import Columns, Shape, header_columns, wrong_row

SEPARATOR_WORDS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar"}
USUAL_SEPARATORS = {"csv": ",", "tsv": "\t"}

MAX_TAKEN_BACK = 10_000_000
"""Lines that are read once more, behind quotation marks that are never closed; beyond that, the file is refused."""

_LITERAL = re.compile(
    r'"(.*)"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^(?:<([^<>\x00-\x20]*)>|([A-Za-z][\w.-]*:[\w.-]+)))', re.DOTALL
)
_LABEL_NAMES = (LABEL, f"<{LABEL}>", "rdfs:label")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


def read_tsv(source: Source, into: Collector) -> None:
    """All triples of a TSV file."""
    rows = (row for block in _blocks(source.path, into) for row in data_rows(source.path, block, into))
    into.add_triples(source.split, _triples(source, rows, into, "tab"))


def read_csv(source: Source, into: Collector) -> None:
    """All triples of a CSV file."""
    into.add_triples(source.split, _triples(source, _csv_rows(source.path, into), into, "comma"))


def read_shaped(source: Source, into: Collector, shape: Shape) -> None:
    """All triples of a table with another separator, an unusual header, or one row an entity."""
    rows: Iterator[tuple[int, list[str]]]
    if source.format == "tsv" and shape.separator == "\t":
        every = _blocks(source.path, into)
        rows = (row for block in every for row in data_rows(source.path, block, into))
    else:
        rows = _csv_rows(source.path, into, shape.separator)
    if shape.has_header:
        _, header = next(rows)
        into.counts.headers.append(f"{source.path.name}: {', '.join(header)}")
    word = SEPARATOR_WORDS[shape.separator]
    if shape.separator != USUAL_SEPARATORS[source.format]:
        into.counts.tables.append(f"{source.path.name}: columns are separated by {word}s")
    if shape.wide is not None:
        return read_wide(source, rows, into, shape)
    columns = Columns() if shape.has_header else None
    into.add_triples(source.split, _triples(source, rows, into, word, columns))


def read_wide(source: Source, rows: Iterator[tuple[int, list[str]]], into: Collector, shape: Shape) -> None:
    """All triples of numbered rows, each of which is an entity."""
    into.counts.tables.append(f"{source.path.name}: {shape.wide}")
    facts = _unfolded(source.path, rows, into, shape)
    into.add_triples(source.split, _triples(source, facts, into, "", Columns()))


def _unfolded(
    path: Path, rows: Iterator[tuple[int, list[str]]], into: Collector, shape: Shape
) -> Iterator[tuple[int, list[str]]]:
    """The facts of the rows of a wide table, each with the line of its row."""
    assert shape.wide is not None
    for line, row in rows:
        error = wrong_row(path, line, row, shape)
        if error is not None:
            into.refuse(error)
            continue
        for fact in shape.wide.facts(row):
            yield line, list(fact)


def _blocks(path: Path, into: Collector) -> Iterator[Block]:
    return blocks(path, advance=into.advance, refuse=into.refuse, encoding=into.encoding, decoded=into.decoded)


def read_labels(path: Path, into: LabelBook) -> None:
    """A labels file: ``name TAB label``, or ``name TAB label TAB description``, one entity a line.

    Blank lines and lines that start with ``#`` are skipped; an empty label stands for none. A file may be empty.
    """
    if path.stat().st_size == 0 and not path.is_fifo():
        return
    for block in blocks(path):
        for line, row in data_rows(path, block, Collector()):
            if len(row) not in (2, 3) or not row[0]:
                raise BadLine(
                    path,
                    line,
                    f"a label line has 2 or 3 columns and a name in the first. Got {len(row)} columns: "
                    f"{chr(9).join(row)[:60]!r}",
                    hint="write: name TAB label [TAB description]; or choose another file with --labels",
                )
            into.set(row[0], row[1].strip(), row[2].strip() if len(row) == 3 else "")


def _triples(
    source: Source,
    rows: Iterator[tuple[int, list[str]]],
    into: Collector,
    separator: str,
    columns: Columns | None = None,
) -> Iterator[tuple[str, str, str]]:
    """The triples among numbered rows. Where ``columns`` are not given, the first row may be a header."""
    for line, row in rows:
        if columns is None:
            header = header_columns(row)
            columns = header or Columns()
            if header is not None:
                note_header(source.path, row, header, into)
                continue
        try:
            if len(row) != columns.count:
                raise _wrong_columns(source.path, line, row, columns.count, separator)
            triple = row[columns.subject], row[columns.relation], row[columns.object]
            if triple[2].startswith('"') and take_literal(source.path, line, *triple, into):
                continue
            # One test for the common case; what exactly is wrong is found out only when something is.
            if (
                not all(triple)
                or max(map(len, triple)) > MAX_NAME_BYTES // 4
                or "\n" in (joined := "".join(triple))
                or "\r" in joined
            ):
                check_names(source.path, line, triple)
        except BadLine as error:
            into.refuse(error)
            continue
        yield triple


def note_header(path: Path, row: Sequence[str], columns: Columns, into: Collector) -> None:
    """Keep for the report that a header was recognised, and which of its columns are ignored."""
    into.counts.headers.append(f"{path.name}: {', '.join(row)}")
    into.counts.ignored_columns.extend(columns.ignored)


def data_rows(path: Path, block: Block, into: Collector) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and columns of the TSV lines that are neither blank nor comments; comments are counted."""
    for line, text in enumerate(block.data.decode().split("\n"), block.first_line):
        text = text.removesuffix("\r")
        if not text.strip(" \r"):
            continue
        if text.startswith("#"):
            into.counts.comments += 1
        elif "\r" in text:
            into.refuse(BadLine(path, line, "a carriage return inside the line", hint="end lines with LF or CRLF"))
        else:
            yield line, text.split("\t")


def take_literal(path: Path, line: int, subject: str, relation: str, object_: str, into: Collector) -> bool:
    """Whether ``object_`` is a literal with a language or a type; if so, it is kept as one."""
    found = _LITERAL.fullmatch(object_)
    if found is None:
        return False
    from pyoxigraph import Literal, NamedNode

    check_names(path, line, (subject, relation, "literal"))
    text, language, datatype, prefixed = found.groups()
    try:
        text = _ESCAPE.sub(_unescaped, text)
        if language:
            literal = Literal(text, language=language)
        else:
            literal = Literal(text, datatype=NamedNode(datatype or re.sub("^xsd:", XSD, prefixed)))
    except ValueError as error:
        raise BadLine(
            path, line, f"{object_[:60]!r} is no literal: {error}", hint='write "text"@en or "1"^^<type>'
        ) from (error)
    into.add_literal(subject, LABEL if relation in _LABEL_NAMES else relation, literal)
    return True


def _unescaped(escape: re.Match[str]) -> str:
    """The character that an escape of N-Triples stands for; the escape itself where it stands for none."""
    code = int(escape[1] or escape[2] or "0", 16)
    if code:
        return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else escape[0]
    return {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}.get(escape[3] or "", escape[3] or escape[0])


def _csv_rows(path: Path, into: Collector, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    # A field longer than a name may be gets the message of check_names, or is no name and is ignored.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    lines, line = _TakenBack(_csv_lines(path, into)), 0
    while True:
        # Where no line may be skipped, the first error ends the reading, and no line has to be remembered.
        reader = csv.reader(lines if into.skip_bad else lines.lines, delimiter=separator, strict=True)
        before = line
        while True:
            line = before + reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                into.refuse(
                    BadLine(
                        path,
                        line,
                        f"not valid CSV: {error}",
                        hint='a quoted name ends with "; a " inside it is written ""',
                    )
                )
                break
            lines.of_row.clear()
            if row and (len(row) > 1 or row[0].strip(" \r\n")):
                yield line, row
        # A quotation mark that is never closed took lines with it that may be good.
        if lines.take_back() > MAX_TAKEN_BACK:
            raise BadLine(path, line, "not valid CSV: many quotation marks are never closed")


class _TakenBack:
    """Lines, of which those behind the first of a broken row can be read once more."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines = lines
        self.of_row: list[str] = []
        """Lines of the row that is being read."""
        self._again: deque[str] = deque()
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self.lines)
        self.of_row.append(line)
        return line

    def take_back(self) -> int:
        """Take back all lines of the row but the first; how many were taken back so far."""
        self._again.extendleft(reversed(self.of_row[1:]))
        self._count += len(self.of_row) - 1
        self.of_row.clear()
        return self._count


def _csv_lines(path: Path, into: Collector) -> Iterator[str]:
    """Lines for the csv module; comments become blank lines, so that its line numbers stay true."""
    for block in _blocks(path, into):
        for line in block.data.decode().removesuffix("\n").split("\n"):
            if line.startswith("#"):
                into.counts.comments += 1
                yield "\n"
            else:
                yield line + "\n"


def _wrong_columns(path: Path, line: int, row: Sequence[str], count: int, separator: str) -> BadLine:
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
