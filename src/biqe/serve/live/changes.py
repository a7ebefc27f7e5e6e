"""Statements and changes of a live graph in the graph's own names, and as RDF terms of pyoxigraph."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from biqe.errors import InvalidOption, UnreadableFile
from biqe.exact.store import blank_name, iri_of, name_of, node_of
from biqe.graph.blocks import MAX_NAME_BYTES

if TYPE_CHECKING:
    import pyoxigraph

_STRING = "http://www.w3.org/2001/XMLSchema#string"


class Text(NamedTuple):
    """A literal."""

    value: str
    datatype: str | None = None
    """None for plain strings and for strings with a language."""
    language: str | None = None

    @classmethod
    def of(cls, literal: pyoxigraph.Literal) -> Text:
        """The text of a literal; ``literal`` leads back."""
        if literal.language is not None:
            return cls(literal.value, None, literal.language)
        datatype = literal.datatype.value
        return cls(literal.value, None if datatype == _STRING else datatype)

    @property
    def literal(self) -> pyoxigraph.Literal:
        """The literal of pyoxigraph; ValueError for an invalid language or datatype."""
        from pyoxigraph import Literal, NamedNode

        if self.language is not None:
            return Literal(self.value, language=self.language)
        return Literal(self.value, datatype=None if self.datatype is None else NamedNode(self.datatype))


class Statement(NamedTuple):
    """A triple in names; its object is the name of an entity, or a literal."""

    subject: str
    relation: str
    object: str | Text

    @property
    def quad(self) -> pyoxigraph.Quad:
        """The statement as the exact store holds it."""
        from pyoxigraph import Quad

        object_ = self.object.literal if isinstance(self.object, Text) else node_of(self.object)
        return Quad(node_of(self.subject), iri_of(self.relation), object_)


def name_of_node(node: Any) -> str:
    """The graph's name of an IRI or blank node."""
    from pyoxigraph import BlankNode

    return blank_name(node.value) if isinstance(node, BlankNode) else name_of(node.value)


@dataclass(frozen=True)
class Changes:
    """One step of an update: first all of ``deleted`` are removed, then all of ``inserted`` are added."""

    deleted: tuple[Statement, ...] = ()
    inserted: tuple[Statement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deleted or self.inserted)


@dataclass(frozen=True)
class Receipt:
    """What an update changed. The change is on disk when this is returned."""

    __pydantic_config__ = {"use_attribute_docstrings": True}
    """For OpenAPI, which describes it to clients."""
    version: int
    """Version of the graph with the update in it."""
    inserted: int
    """Number of new statements."""
    deleted: int
    """Number of removed statements."""
    unchanged: int
    """Statements of the update without effect: present already, or absent already."""
    new_entities: int = 0
    """Entities that were not in the graph before."""
    new_relations: int = 0
    literals: int = 0
    """Inserted statements with a literal as object: SPARQL sees them, models do not."""
    left_out: int = 0
    """Statements about statements in an uploaded file, which this graph cannot hold."""
    named_graph: int = 0
    """Statements of an uploaded file that were in a named graph; the name is dropped."""
    seconds: float = 0.0


def encode(changes: Changes, version: int, time: float) -> bytes:
    """The changes as a row of the log; InvalidOption for a name that is not valid Unicode."""
    try:
        return json.dumps(
            {"version": version, "time": round(time, 3), "-": changes.deleted, "+": changes.inserted},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
    except UnicodeEncodeError as error:
        raise InvalidOption("a name or text has half of a character (a surrogate)", hint="write UTF-8") from error


def decode(payload: bytes) -> tuple[int, Changes]:
    """Version and changes of a record; UnreadableFile if it is not one."""
    try:
        record = json.loads(payload)
        version = int(record["version"])
        return version, Changes(tuple(map(_statement, record["-"])), tuple(map(_statement, record["+"])))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"it is not a row of changes: {error!r}") from error


def _statement(row: list[Any]) -> Statement:
    subject, relation, object_ = row
    if isinstance(object_, list):
        object_ = Text(*object_)
    words = (subject, relation, *(object_ if isinstance(object_, Text) else (object_,)))
    if not all(isinstance(word, str) or (word is None and isinstance(object_, Text)) for word in words):
        raise UnreadableFile(f"it is not a row of changes: it has the statement {str(row)[:60]}")
    return Statement(subject, relation, object_)


def check_statements(statements: Iterable[Statement]) -> None:
    """InvalidOption for a name that is empty or too long, and for a literal that RDF does not allow."""
    for statement in statements:
        for name in statement:
            if isinstance(name, Text):
                try:
                    _ = name.literal
                except ValueError as error:
                    raise InvalidOption(f"{name.value[:60]!r} is not a valid literal: {error}") from error
            elif not name:
                raise InvalidOption("a name is empty", hint="every entity and every relation has a name")
            # A character takes at most four bytes, so most names need not be encoded to be measured.
            elif len(name) > MAX_NAME_BYTES // 4 and len(name.encode(errors="replace")) > MAX_NAME_BYTES:
                raise InvalidOption(f"the name {name[:60]!r}... is too long; a name may have {MAX_NAME_BYTES:,} bytes")
