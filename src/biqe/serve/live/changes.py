"""What an update says: statements that come and statements that go, in the graph's own names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from biqe.errors import InvalidOption, UnreadableFile
from biqe.graph.blocks import MAX_NAME_BYTES
from biqe.graph.collect import LABEL

__all__ = ["LABEL", "Changes", "Receipt", "Statement", "Text", "decode", "encode"]


class Text(NamedTuple):
    """A literal."""

    value: str
    datatype: str | None = None
    """None for plain text and for text in a language."""
    language: str | None = None


class Statement(NamedTuple):
    """A triple in names; its object is an entity's name, or a literal."""

    subject: str
    relation: str
    object: str | Text


@dataclass(frozen=True)
class Changes:
    """One step of an update: first all of ``deleted`` go, then all of ``inserted`` come."""

    deleted: tuple[Statement, ...] = ()
    inserted: tuple[Statement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deleted or self.inserted)


@dataclass(frozen=True)
class Receipt:
    """What an update did. It is on disk when this is handed out."""

    version: int
    """Of the graph with the update in it."""
    inserted: int
    """Statements that are new."""
    deleted: int
    """Statements that are gone."""
    unchanged: int
    """Statements of the update that changed nothing: they were there already, or were not there to be deleted."""
    new_entities: int = 0
    """Entities that the graph had not known."""
    new_relations: int = 0
    literals: int = 0
    """Of the inserted statements, those with a literal as object: SPARQL sees them, a model does not."""
    left_out: int = 0
    """Statements of an uploaded file that have no place in this graph: statements about statements."""
    named_graph: int = 0
    """Statements of an uploaded file that stood in a named graph; they were taken, its name was not."""
    seconds: float = 0.0


def encode(changes: Changes, version: int, time: float) -> bytes:
    """The changes as a record of the journal; InvalidOption for a name that no graph may have."""
    try:
        return json.dumps(
            {"version": version, "time": round(time, 3), "-": changes.deleted, "+": changes.inserted},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
    except UnicodeEncodeError as error:
        raise InvalidOption("a name or text has half of a character (a surrogate)", hint="write UTF-8") from error


def decode(payload: bytes) -> tuple[int, Changes]:
    """Version and changes of a record; UnreadableFile where it is none."""
    try:
        record = json.loads(payload)
        version = int(record["version"])
        return version, Changes(tuple(map(_statement, record["-"])), tuple(map(_statement, record["+"])))
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"it is no record of changes: {error!r}") from error


def _statement(row: list[Any]) -> Statement:
    subject, relation, object_ = row
    return Statement(subject, relation, Text(*object_) if isinstance(object_, list) else object_)


def check_names(statements: Iterable[Statement]) -> None:
    """InvalidOption for a name that is empty or longer than a graph's names may be."""
    for statement in statements:
        names = (name for name in statement if isinstance(name, str))
        for name in names:
            if not name:
                raise InvalidOption("a name is empty", hint="every entity and every relation has a name")
            # A character takes at most four bytes: most names need not be encoded to be measured.
            if len(name) > MAX_NAME_BYTES // 4 and len(name.encode(errors="replace")) > MAX_NAME_BYTES:
                raise InvalidOption(f"the name {name[:60]!r}... is too long; a name may have {MAX_NAME_BYTES:,} bytes")
