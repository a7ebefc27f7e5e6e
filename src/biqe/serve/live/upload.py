"""Uploaded files, read by the readers of ``biqe import``; their statements are inserted into the live graph.

There are two differences to ``biqe import``. Literals are kept, for SPARQL. And a blank node is a new node in every
upload, whatever its label: in RDF a label identifies a node within one document.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biqe.errors import BiqeError, EmptyResult, InvalidOption
from biqe.exact.store import name_of
from biqe.graph.collect import Collector
from biqe.graph.files import RDF_FORMATS, Source, check_format
from biqe.serve.live.changes import Changes, Statement, Text

MEDIA_TYPES = {
    "application/n-triples": "ntriples",
    "application/n-quads": "nquads",
    "text/turtle": "turtle",
    "application/trig": "trig",
    "application/rdf+xml": "rdfxml",
    "text/tab-separated-values": "tsv",
    "text/csv": "csv",
}
"""Media types of uploads, with their format in ``biqe.graph.files``."""
MAX_STATEMENTS = 100_000
"""Most statements of one upload or update: it is made at once, which takes seconds, and others wait meanwhile."""
UPLOADED = "the upload"
"""What errors call an uploaded file."""


class BlankNames:
    """Names for the new blank nodes of one update: ``_:v12n1`` is the first one of version 12."""

    def __init__(self, version: int, is_taken: Callable[[str], bool]) -> None:
        self._version = version
        self._is_taken = is_taken
        self._given: dict[str, str] = {}

    def of(self, label: str) -> str:
        """The name of the blank node with this label."""
        if label not in self._given:
            name = f"_:v{self._version}n{len(self._given) + 1}"
            while self._is_taken(name):  # an imported file has such labels
                name += "x"
            self._given[label] = name
        return self._given[label]

    def gave(self, name: str) -> bool:
        """Whether it is the name of a blank node of this update."""
        return name in self._given.values()


@dataclass(frozen=True)
class UploadedStatements:
    """The statements of an uploaded file."""

    statements: tuple[Statement, ...]
    is_rdf: bool
    counts: dict[str, int]
    """Counts for the receipt."""

    def steps(self, version: int, is_taken: Callable[[str], bool]) -> list[Changes]:
        """The statements with new names for their blank nodes, as one step of an update."""
        if not self.is_rdf:
            return [Changes(inserted=self.statements)]
        blank = BlankNames(version, is_taken)

        def named(name: str | Text) -> Any:
            if isinstance(name, Text):
                return name
            return blank.of(name) if name.startswith("_:") else name_of(name)

        return [Changes(inserted=tuple(Statement(*map(named, statement)) for statement in self.statements))]


@dataclass(frozen=True)
class Upload:
    """A file's content and its format."""

    data: bytes | Path
    """The content, or a file with it; may be compressed with gzip."""
    format: str
    """A format such as turtle or ttl, or a media type."""

    def __post_init__(self) -> None:
        kind = self.format.partition(";")[0].strip().lower()
        try:
            found = check_format(MEDIA_TYPES.get(kind, kind))
        except InvalidOption:
            found = None
        if found not in MEDIA_TYPES.values():
            raise InvalidOption(
                f"uploads are read as {', '.join(MEDIA_TYPES.values())}. Got {self.format[:80]!r}",
                hint=f"as media types: {', '.join(MEDIA_TYPES)}",
            )
        object.__setattr__(self, "format", found)

    def read(self) -> UploadedStatements:
        """The statements; BadLine with the number of a line that cannot be read."""
        if isinstance(self.data, Path):
            return self._read(self.data)
        # A file in memory, since some formats are read twice; nothing of it is left behind by a kill.
        with open(os.memfd_create(UPLOADED), "wb") as file:
            file.write(self.data)
            file.flush()
            path = Path(f"/proc/self/fd/{file.fileno()}")
            try:
                return self._read(path)
            except BiqeError as error:
                error.message = error.message.replace(str(path), UPLOADED)
                error.args = (error.message,)
                raise

    def _read(self, path: Path) -> UploadedStatements:
        from biqe.graph.read_rdf import read_rdf
        from biqe.graph.read_table import read_csv, read_tsv

        into = Collector(advance=lambda _: check())  # while it is read: a small packed file may hold very many
        counts = into.counts

        def check() -> None:
            if counts.triples + counts.literals > MAX_STATEMENTS:
                raise InvalidOption(
                    f"{UPLOADED} has more than {MAX_STATEMENTS:,} statements, the most that are allowed",
                    hint="send it in parts, or import it: biqe import FILE --out FOLDER",
                )

        source = Source(path, self.format, "train")
        is_rdf = self.format in RDF_FORMATS
        if is_rdf:
            read_rdf(source, into)
        else:
            (read_tsv if self.format == "tsv" else read_csv)(source, into)
        if counts.triples + counts.literals + counts.nested == 0:
            raise EmptyResult(f"{UPLOADED} holds no triple", hint=f"it was read as {self.format}")
        check()
        for_receipt = {"left_out": counts.nested, "named_graph": counts.named_graph}
        return UploadedStatements(tuple(_statements(into)), is_rdf, for_receipt)


def _statements(into: Collector) -> Iterator[Statement]:
    entities, relations = list(into.entities.names()), list(into.relations.names())
    for part in into.parts["train"]:
        for subject, relation, object_ in part.tolist():
            yield Statement(entities[subject], relations[relation], entities[object_])
    for name, relation, literal in into.literals.statements():
        yield Statement(name, relation, Text.of(literal))
