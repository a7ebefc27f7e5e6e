"""A file that somebody uploads, read by the graph's own readers: its statements come into the live graph.

Names are what ``biqe import`` makes of them, with two exceptions. Literals are kept, for SPARQL. And a blank node is a
new one in every upload, whatever its label: in RDF a label means one node within one document.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from biqe.errors import BiqeError, EmptyResult, InvalidOption
from biqe.exact.store import name_of
from biqe.graph.collect import Collector
from biqe.graph.files import RDF_FORMATS, Source, check_format
from biqe.serve.live.changes import Changes, Statement, Text
from biqe.serve.live.rdf import text_of

FORMATS = ("ntriples", "turtle", "nquads", "trig", "rdfxml", "tsv", "csv")
"""Formats of uploads. What names they go by is known to ``biqe.graph.files``."""
MEDIA_TYPES = {
    "application/n-triples": "ntriples",
    "application/n-quads": "nquads",
    "text/turtle": "turtle",
    "application/trig": "trig",
    "application/rdf+xml": "rdfxml",
    "text/tab-separated-values": "tsv",
    "text/csv": "csv",
}
MAX_STATEMENTS = 2_000_000
"""Statements of one upload or update at most: they have to be held in memory, and written in one piece."""


class BlankNames:
    """Names for the new blank nodes of one update: ``_:v12n1`` is the first one of version 12."""

    def __init__(self, version: int, is_taken: Callable[[str], bool]) -> None:
        self._version = version
        self._is_taken = is_taken
        self._given: dict[str, str] = {}

    def of(self, label: str) -> str:
        """The name of the node that this update calls ``label``."""
        if label not in self._given:
            number = len(self._given) + 1
            name = f"_:v{self._version}n{number}"
            while self._is_taken(name):  # a file was imported that has such labels
                name += "x"
            self._given[label] = name
        return self._given[label]

    def gave(self, name: str) -> bool:
        """Whether a node of this update has that name."""
        return name in self._given.values()


@dataclass(frozen=True)
class Uploaded:
    """What an uploaded file says."""

    statements: tuple[Statement, ...]
    is_rdf: bool
    facts: dict[str, int]
    """Counts for the receipt."""

    def steps(self, version: int, is_taken: Callable[[str], bool]) -> list[Changes]:
        """The statements with names for their blank nodes, as one step of an update."""
        if not self.is_rdf:
            return [Changes(inserted=self.statements)]
        blank = BlankNames(version, is_taken)

        def named(name: str) -> str:
            return blank.of(name) if name.startswith("_:") else name_of(name)

        return [
            Changes(
                inserted=tuple(
                    Statement(
                        named(st.subject),
                        named(st.relation),
                        st.object if isinstance(st.object, Text) else named(st.object),
                    )
                    for st in self.statements
                )
            )
        ]


@dataclass(frozen=True)
class Upload:
    """A file's content and its format."""

    data: bytes | Path
    """The content, or a file that has it; gzip is looked through."""
    format: str
    """One of FORMATS, a short name such as nt or ttl, or a media type."""

    def __post_init__(self) -> None:
        kind = self.format.partition(";")[0].strip().lower()
        try:
            found = check_format(MEDIA_TYPES.get(kind, kind))
        except InvalidOption:
            found = None
        if found not in FORMATS:
            raise InvalidOption(
                f"uploads are read as {', '.join(FORMATS)}. Got {self.format[:80]!r}",
                hint=f"as media types: {', '.join(MEDIA_TYPES)}",
            )
        object.__setattr__(self, "format", found)

    def read(self) -> Uploaded:
        """The statements; BadLine with its number where there is one that cannot be read."""
        with _OnDisk(self.data) as path:
            try:
                return self._read(path)
            except BiqeError as error:
                # Where it lay on the server is nobody's business.
                error.message = error.message.replace(str(path), "the upload")
                error.args = (error.message,)
                raise

    def _read(self, path: Path) -> Uploaded:
        from biqe.graph.read_rdf import read_rdf
        from biqe.graph.read_table import read_csv, read_tsv

        into = Collector(literals=[])
        source = Source(path, self.format, "train")
        is_rdf = self.format in RDF_FORMATS
        if is_rdf:
            read_rdf(source, into)
        else:
            (read_tsv if self.format == "tsv" else read_csv)(source, into)
        counts = into.counts
        if counts.triples + counts.literals + counts.nested == 0:
            raise EmptyResult("the upload holds no triple", hint=f"it was read as {self.format}")
        if counts.triples + counts.literals > MAX_STATEMENTS:
            raise InvalidOption(
                f"the upload has {counts.triples + counts.literals:,} statements; at most {MAX_STATEMENTS:,} are taken",
                hint="send it in parts, or import it: biqe import FILE --out FOLDER",
            )
        facts = {"left_out": counts.nested, "named_graph": counts.named_graph}
        return Uploaded(tuple(_statements(into)), is_rdf, facts)


def _statements(into: Collector) -> Iterator[Statement]:
    entities, relations = list(into.entities.names()), list(into.relations.names())
    for part in into.parts["train"]:
        for subject, relation, object_ in part.tolist():
            yield Statement(entities[subject], relations[relation], entities[object_])
    for name, relation, literal in into.literals or ():
        yield Statement(name, relation, text_of(literal))


class _OnDisk:
    """The data as a file, for readers that want one; gone afterwards if it was not one before."""

    def __init__(self, data: bytes | Path) -> None:
        self._data = data
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Path:
        if isinstance(self._data, Path):
            return self._data
        self._folder = tempfile.TemporaryDirectory(prefix="biqe-upload-")
        path = Path(self._folder.name) / "upload"
        path.write_bytes(self._data)
        return path

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()
