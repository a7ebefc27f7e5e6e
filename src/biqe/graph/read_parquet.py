"""Parquet: three columns of names, one triple a row.

The columns are found by name (see HEADERS of ``biqe.graph.read_table``, and the short forms ``h r t`` and ``s p o``);
a file with exactly three columns is read in their order whatever they are called. Names may be strings or integers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from biqe.errors import UnreadableFile
from biqe.graph.blocks import MAX_NAME_BYTES
from biqe.graph.collect import Collector
from biqe.graph.files import Source
from biqe.graph.read_table import HEADERS

_HEADERS = (*HEADERS, ("h", "r", "t"), ("s", "p", "o"))
_BATCH_ROWS = 1 << 18


def read_parquet(source: Source, into: Collector) -> None:
    """All triples of a Parquet file."""
    path = source.path
    try:
        if path.stat().st_size == 0:
            raise UnreadableFile(f"{path} is empty")
        with pq.ParquetFile(path) as file:
            names = _columns(path, file.schema_arrow.names)
            into.counts.ignored_columns += [name for name in file.schema_arrow.names if name not in names]
            first_row = 1
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
                texts = [_texts(path, batch.column(name), name, first_row) for name in names]
                into.add_rows(source.split, _rows(into, *texts))
                first_row += len(batch)
        if into.advance is not None:
            into.advance(path.stat().st_size)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} is not a readable Parquet file: {error}") from error


def _columns(path: Path, present: list[str]) -> tuple[str, str, str]:
    """Names of the columns that hold subject, relation and object."""
    lowered = [name.strip().lower() for name in present]
    for header in _HEADERS:
        if all(lowered.count(name) == 1 for name in header):
            subject, relation, object_ = (present[lowered.index(name)] for name in header)
            return subject, relation, object_
    if len(present) == 3 and len(set(present)) == 3:
        return present[0], present[1], present[2]
    raise UnreadableFile(
        f"{path} has the columns {', '.join(present)}; which are subject, relation and object cannot be told",
        hint="call them head, relation, tail",
    )


def _texts(path: Path, column: Any, name: str, first_row: int) -> Any:
    """The column as a dictionary array of strings; refused are nulls, empty names and other types."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise UnreadableFile(f"{path}: column {name!r} is of type {kind}; names are strings or integers")
    column = column.cast(pa.string())
    missing = pc.or_kleene(pc.is_null(column), pc.equal(pc.coalesce(column, ""), ""))
    if pc.any(missing).as_py():
        row = first_row + pc.index(missing, True).as_py()
        raise UnreadableFile(f"{path}, row {row:,}: column {name!r} is empty")
    encoded = column.dictionary_encode()
    longest = pc.max(pc.binary_length(encoded.dictionary)).as_py() or 0
    if longest > MAX_NAME_BYTES:
        raise UnreadableFile(
            f"{path}: a name in column {name!r} has {longest:,} bytes; a name may have {MAX_NAME_BYTES:,}"
        )
    for mark in ("\n", "\r", "\t", "\0"):
        if pc.any(pc.match_substring(encoded.dictionary, mark)).as_py():
            raise UnreadableFile(f"{path}: a name in column {name!r} holds {mark!r}, which no name may")
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
