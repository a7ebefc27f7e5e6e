"""Parquet: three columns of names, one triple a row; or a row for each entity, told as in CSV.

The columns of triples are found by name (see ``header_columns`` of ``biqe.graph.table_shape``); a file with exactly
three columns is otherwise read in their order. Names may be strings in any of Arrow's forms, UTF-8 bytes, or integers.
Literals are told from names, and labels kept, as in TSV. A file packed with gzip is unpacked to a temporary one first,
since Parquet is not read from start to end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.blocks import GZIP, MAX_NAME_BYTES, Input
from biqe.graph.collect import Collector
from biqe.graph.files import Source
from biqe.graph.read_table import read_wide, take_literal
from biqe.graph.table_shape import Shape, header_columns, name_of, shape_of_rows

_BATCH_ROWS = 1 << 18
_SAMPLE_ROWS = 1 << 12
"""Rows by which a file is judged."""
_IS_TEXT = [
    # Older versions of pyarrow lack the last two.
    getattr(pa.types, f"is_{kind}")
    for kind in ("string", "large_string", "binary", "large_binary", "string_view", "binary_view")
    if hasattr(pa.types, f"is_{kind}")
]


def read_parquet(source: Source, into: Collector) -> None:
    """All triples of a Parquet file."""
    path = source.path
    try:
        if path.stat().st_size == 0:
            raise UnreadableFile(f"{path} is empty", hint="was it written, or fetched, to its end?")
        with ExitStack() as stack:
            file = stack.enter_context(pq.ParquetFile(_unpacked(path, stack)))
            shape = _wide_shape(path, file)
            if shape is not None:
                if not into.values and shape.wide is not None:
                    shape = replace(shape, wide=shape.wide.without_values())
                read_wide(source, _rows_of_text(path, file), into, shape)
                if into.advance is not None:
                    into.advance(path.stat().st_size)
                return
            names = _columns(path, file.schema_arrow.names)
            into.counts.ignored_columns += [name for name in file.schema_arrow.names if name not in names]
            first_row = 1
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
                texts = [_texts(path, batch.column(name), name, first_row) for name in names]
                texts = _without_literals(path, texts, first_row, into)
                columns = [_names(path, column, name) for column, name in zip(texts, names, strict=True)]
                into.add_rows(source.split, _rows(into, *columns))
                first_row += len(batch)
        if into.advance is not None:
            into.advance(path.stat().st_size)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(
            f"{path} is not a readable Parquet file: {error}", hint="is it whole, and is it Parquet? See --format"
        ) from error


def _unpacked(path: Path, stack: ExitStack) -> Path | IO[bytes]:
    """The file itself, or what gzip packed in it; that lives as long as ``stack``."""
    with path.open("rb") as stream:
        if stream.read(len(GZIP)) != GZIP:
            return path
    unpacked = stack.enter_context(tempfile.TemporaryFile())
    with Input(path) as packed:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    unpacked.seek(0)
    return unpacked


def _wide_shape(path: Path, file: pq.ParquetFile) -> Shape | None:
    """How the file is read if a row of it is an entity; None if a row is a fact."""
    names = file.schema_arrow.names
    if header_columns(names) is not None or len(names) < 2:
        return None
    sample = [row for _, row in islice(_rows_of_text(path, file), _SAMPLE_ROWS)]
    shape = shape_of_rows([names, *sample], ",")
    return shape if shape.wide is not None else None


def _rows_of_text(path: Path, file: pq.ParquetFile) -> Iterator[tuple[int, list[str]]]:
    """Rows as a CSV file would have them, numbered from 1; what is missing is empty."""
    number = 0
    for batch in file.iter_batches(_SAMPLE_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            cells: list[str] = []
            for name, value in zip(batch.schema.names, row, strict=True):
                try:
                    cells.append(name_of(value) or "")
                except (TypeError, UnicodeDecodeError):
                    raise UnreadableFile(
                        f"{path}, row {number:,}: column {name!r} holds a {type(value).__name__}; "
                        "values are texts, numbers or dates",
                        hint="leave that column out, or write its values as text",
                    ) from None
            yield number, cells


def _columns(path: Path, present: list[str]) -> tuple[str, str, str]:
    """Names of the columns that hold subject, relation and object."""
    found = header_columns(present)
    if found is not None:
        return present[found.subject], present[found.relation], present[found.object]
    if len(present) == 3 and len(set(present)) == 3:
        return present[0], present[1], present[2]
    raise UnreadableFile(
        f"{path} has the columns {', '.join(present)}; which are subject, relation and object cannot be told",
        hint="call them head, relation, tail",
    )


def _texts(path: Path, column: Any, name: str, first_row: int) -> Any:
    """The column as strings; refused are nulls, empty names and other types."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.dictionary_decode()
    if not (pa.types.is_integer(kind) or any(is_text(kind) for is_text in _IS_TEXT)):
        raise UnreadableFile(
            f"{path}: column {name!r} is of type {kind}; names are strings or integers",
            hint="cast the column to string when the file is written",
        )
    try:
        column = column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnreadableFile(
            f"{path}: column {name!r} of type {kind} cannot be read as text: {error}",
            hint="names are UTF-8; cast the column to string when the file is written",
        ) from error
    missing = pc.or_kleene(pc.is_null(column), pc.equal(pc.coalesce(column, ""), ""))
    if pc.any(missing).as_py():
        row = first_row + pc.index(missing, True).as_py()
        raise UnreadableFile(
            f"{path}, row {row:,}: column {name!r} is empty", hint="leave out the rows in which a name is missing"
        )
    return column


def _without_literals(path: Path, texts: list[Any], first_row: int, into: Collector) -> list[Any]:
    """The columns without the rows whose object is a literal; these are counted, and labels among them kept."""
    objects = texts[2]
    likely = np.flatnonzero(pc.starts_with(objects, '"').to_numpy(zero_copy_only=False))
    if not len(likely):
        return texts
    keep = np.ones(len(objects), bool)
    rows = zip(likely.tolist(), *(column.take(pa.array(likely)).to_pylist() for column in texts), strict=True)
    for row, subject, relation, object_ in rows:
        keep[row] = not take_literal(path, first_row + row, subject, relation, object_, into)
    return [column.filter(pa.array(keep)) for column in texts]


def _names(path: Path, column: Any, name: str) -> Any:
    """The column as a dictionary array; refused are names that are too long or hold what no name may."""
    encoded = column.dictionary_encode()
    longest = pc.max(pc.binary_length(encoded.dictionary)).as_py() or 0
    if longest > MAX_NAME_BYTES:
        raise UnreadableFile(
            f"{path}: a name in column {name!r} has {longest:,} bytes; a name may have {MAX_NAME_BYTES:,}",
            hint="a name identifies something; leave long texts out, or give them as descriptions (--labels)",
        )
    for mark in ("\n", "\r", "\t", "\0"):
        if pc.any(pc.match_substring(encoded.dictionary, mark)).as_py():
            raise UnreadableFile(
                f"{path}: a name in column {name!r} holds {mark!r}, which no name may", hint="write a space for it"
            )
    return encoded


def _rows(into: Collector, subjects: Any, relations: Any, objects: Any) -> NDArray[np.int32]:
    """Each distinct name of a batch is interned once; ids follow the order of first appearance in the rows."""
    subject_names, object_names = subjects.dictionary.to_pylist(), objects.dictionary.to_pylist()
    subject_codes, object_codes = (np.asarray(column.indices) for column in (subjects, objects))
    # A name new in this batch appears first where its code first does; the earlier of both columns decides.
    places = np.concatenate([2 * _first(subject_codes), 2 * _first(object_codes) + 1])
    order = np.argsort(places, kind="stable")
    names = [*subject_names, *object_names]
    into.entities.ids([names[place] for place in order.tolist()])
    rows = np.empty((len(subjects), 3), np.int32)
    rows[:, 0] = into.entities.ids(subject_names)[subject_codes]
    rows[:, 1] = into.relations.ids(relations.dictionary.to_pylist())[np.asarray(relations.indices)]
    rows[:, 2] = into.entities.ids(object_names)[object_codes]
    return rows


def _first(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Row of the first occurrence of each code; codes are 0..n-1, numbered by first occurrence."""
    return np.unique(codes, return_index=True)[1].astype(np.int64)
