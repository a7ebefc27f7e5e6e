"""RDF through pyoxigraph: N-Triples, N-Quads, Turtle, TriG and RDF/XML, strictly as their standards say.

Statements with a literal as object are kept apart from links (``rdfs:label`` is a label, too). Statements about
statements are left out and counted. Names of graphs (N-Quads, TriG) are dropped and counted.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote
from xml.parsers import expat

import pyoxigraph
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, RdfFormat

from biqe.errors import BadLine, UnreadableFile
from biqe.graph import PLAIN
from biqe.graph.blocks import MAX_LINE_BYTES, MAX_NAME_BYTES, Input, blocks
from biqe.graph.collect import Collector
from biqe.graph.files import Source

_FORMATS = {
    "ntriples": RdfFormat.N_TRIPLES,
    "nquads": RdfFormat.N_QUADS,
    "turtle": RdfFormat.TURTLE,
    "trig": RdfFormat.TRIG,
    "rdfxml": RdfFormat.RDF_XML,
}
MAX_DEPTH = 256
"""Elements of RDF/XML that are nested deeper are refused: the RDF parser takes longer for each, the deeper it is."""
_ANONYMOUS = re.compile(r"[a-f][0-9a-f]{15,31}")
"""What the parser calls a node that has no label in the file: a random number, different at every reading."""


def read_rdf(source: Source, into: Collector, *, scope: int = 0) -> None:
    """All statements of an RDF file. ``scope`` numbers the space of blank node labels that the file belongs to."""
    if source.format in ("ntriples", "nquads"):
        for block in blocks(source.path, advance=into.advance, refuse=into.refuse):
            read_lines(source, block.data, into, scope=scope, line_of=(block.first_line - 1).__add__)
        return
    early_end = _check_xml(source.path) if source.format == "rdfxml" else None
    with Input(source.path, into.advance) as stream:
        data = io.BufferedReader(stream, 1 << 20)
        triples = _triples(source, data, into, scope, lambda line: line)
        into.add_triples(source.split, triples, partial(_check_sizes, source.path))
    if early_end is not None:
        # The RDF parser takes a document whose last tags are missing.
        raise BadLine(
            source.path,
            early_end,
            "the document ends before its last element is closed",
            hint="fetch or write it again: its end is missing",
        )


def read_lines(source: Source, data: bytes, into: Collector, *, scope: int, line_of: Callable[[int], int]) -> None:
    """Lines of N-Triples or N-Quads. ``line_of`` turns a line number of ``data`` into one of the file."""
    read = _good_triples if into.skip_bad else _triples
    into.add_triples(source.split, read(source, data, into, scope, line_of), partial(_check_sizes, source.path))


def _good_triples(
    source: Source, data: bytes, into: Collector, scope: int, line_of: Callable[[int], int]
) -> Iterator[tuple[str, str, str]]:
    """As ``_triples``, line by line, so that a line that cannot be read leaves the others as they are."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        place = line_of(number) if line.strip() else 0
        try:
            triples = list(_triples(source, line, into, scope, lambda _, place=place: place))  # type: ignore[misc]
            _check_sizes(source.path, (name for triple in triples for name in triple))
        except UnreadableFile as error:
            into.refuse(error)
        else:
            yield from triples


def _triples(
    source: Source, data: bytes | io.BufferedReader[Any], into: Collector, scope: int, line_of: Callable[[int], int]
) -> Iterator[tuple[str, str, str]]:
    """The triples between entities in ``data``; literals are handed to ``into``, other statements counted."""
    name_of = _namer(into, scope, rename=source.format not in ("ntriples", "nquads"))
    counts = into.counts
    try:
        parser = pyoxigraph.parse(data, _FORMATS[source.format])
        for quad in parser:
            object_ = quad.object
            counts.named_graph += type(quad.graph_name) is not DefaultGraph
            if type(object_) is Literal:
                into.add_literal(name_of(quad.subject), name_of(quad.predicate), object_)
                continue
            if type(object_) is not NamedNode and type(object_) is not BlankNode:
                counts.nested += 1
                continue
            yield name_of(quad.subject), name_of(quad.predicate), name_of(object_)
        into.prefixes |= {prefix: iri for prefix, iri in parser.prefixes.items() if prefix not in into.prefixes}
    except SyntaxError as error:
        if isinstance(data, bytes) and error.lineno is not None:
            error.lineno = _true_line(data, error.lineno, _FORMATS[source.format])
        raise _bad_line(source, error, line_of) from error
    except MemoryError as error:
        if "buffer maximal size" not in str(error):
            raise
        raise UnreadableFile(
            f"{source.path} is not valid {source.format}: it has a name or text of more than {MAX_LINE_BYTES:,} bytes",
            hint="is a quotation mark or a > missing? If the file is of another format, name it with --format",
        ) from error
    except (ValueError, OSError) as error:
        raise UnreadableFile(
            f"{source.path} cannot be read as {source.format}: {error}", hint="is it of another format? See --format"
        ) from error


def _namer(into: Collector, scope: int, *, rename: bool) -> Callable[[NamedNode | BlankNode], str]:
    """What to call a node: see the rule for blank nodes in ``biqe.graph.read``."""
    prefix = blank_prefix(scope)

    def name_of(node: NamedNode | BlankNode) -> str:
        if type(node) is NamedNode:
            # What biqe wrote for a name that is no IRI is read as that name.
            plain = node.value.removeprefix(PLAIN)
            return unquote(plain) if 0 < len(plain) < len(node.value) else node.value
        if rename and _ANONYMOUS.fullmatch(node.value):
            return into.anonymous.setdefault((scope, node.value), f"_:-{len(into.anonymous) + 1}")
        return prefix + node.value

    return name_of


def blank_prefix(scope: int) -> str:
    """What stands before the label of a blank node.

    >>> blank_prefix(0), blank_prefix(2)
    ('_:', '_:-2-')
    """
    return f"_:-{scope}-" if scope else "_:"


def _check_sizes(path: Path, names: Iterable[str]) -> None:
    for name in names:
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            raise UnreadableFile(
                f"{path}: the name {name[:60]!r}... has {size:,} bytes; a name may have {MAX_NAME_BYTES:,}",
                hint="shorten the IRI; a long text, or data: IRI, belongs in a literal",
            )


def _bad_line(source: Source, error: SyntaxError, line_of: Callable[[int], int]) -> UnreadableFile:
    # Its place is that within a part of the file, and is told as that within the file. What it quotes may run over
    # lines; an error is one paragraph.
    message = " ".join(re.sub(r"^Parser error (?:at|between) [^:]*: ", "", error.msg or str(error)).split())
    line = error.lineno
    if line is None and source.format == "rdfxml":
        line = _rdfxml_error_line(source.path)
    hint = f"a checker for {source.format} shows more; if the file is of another format, name it with --format"
    if "No scheme found" in message:
        hint = "IRIs must be absolute; in Turtle and RDF/XML a base (@base, xml:base) makes relative ones so"
    if "UTF-8" in message:
        hint = "save the file as UTF-8, and let its first line say so, or nothing about an encoding"
    if line is None:
        return UnreadableFile(f"{source.path} is not valid {source.format}: {message}", hint=hint)
    return BadLine(source.path, line_of(line), f"not valid {source.format}: {message}", hint=hint)


def _true_line(data: bytes, line: int, format: RdfFormat) -> int:
    """Line of an error in N-Triples or N-Quads, counted by line feeds as editors do.

    The parser counts a carriage return alone as a line end, too, and places a missing full stop on the next line.
    """
    ends = re.finditer(rb"\r\n|\r|\n", data)
    start = next(itertools.islice((end.end() for end in ends), line - 2, None), len(data)) if line > 1 else 0
    found = data.count(b"\n", 0, start) + 1
    before = data[:start].split(b"\n")[: found - 1]
    while before:
        text = before.pop()
        try:
            if not text.strip() or not list(pyoxigraph.parse(text, format)):
                continue
        except SyntaxError:
            return len(before) + 1
        break
    return found


def _rdfxml_error_line(path: Path) -> int | None:
    """Line of the first error in RDF/XML, which the parser does not tell: the last one that it was given."""
    with Input(path) as stream:
        lines = _OneByOne(io.BufferedReader(stream, 1 << 20))
        try:
            for _ in pyoxigraph.parse(cast("IO[bytes]", lines), RdfFormat.RDF_XML):
                pass
        except SyntaxError:
            return lines.given
    return None


class _OneByOne(io.RawIOBase):
    """The bytes of a stream, never more than one line at a time."""

    def __init__(self, stream: io.BufferedReader) -> None:
        super().__init__()
        self._stream = stream
        self._left = b""
        self._ended = True
        self.given = 0
        """Number of the line that was read from last, from 1."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            begins = self._ended
            self._left = self._stream.readline(1 << 20)
            self._ended = self._left.endswith(b"\n")
            self.given += begins and bool(self._left)
        end = len(self._left) if size < 0 else size
        data, self._left = self._left[:end], self._left[end:]
        return data


def _check_xml(path: Path) -> int | None:
    """Line at which an XML document ends before its last element is closed; None if it does not.

    BadLine for what takes the RDF parser, which has no limits, all time or memory: a DOCTYPE, whose entities can expand
    a file of some hundred bytes to more than fits into memory; elements that are nested deeply; a tag or text without
    end.
    """

    def on_doctype(*_: object) -> None:
        raise BadLine(
            path,
            parser.CurrentLineNumber,
            "a DOCTYPE is not read, because its entities can expand without end",
            hint="write the entities out and drop it: xmllint --noent --dropdtd FILE",
        )

    depth = tags = 0

    def on_start(*_: object) -> None:
        nonlocal depth, tags
        depth += 1
        tags += 1
        if depth > MAX_DEPTH:
            raise BadLine(
                path,
                parser.CurrentLineNumber,
                f"elements are nested more than {MAX_DEPTH:,} deep",
                hint="describe each node by itself, and refer to it by rdf:resource or rdf:nodeID",
            )

    def on_end(*_: object) -> None:
        nonlocal depth, tags
        depth -= 1
        tags += 1

    parser = expat.ParserCreate("UTF-8")  # the only encoding that the RDF parser reads
    parser.StartDoctypeDeclHandler = on_doctype
    parser.StartElementHandler, parser.EndElementHandler = on_start, on_end
    try:
        with Input(path) as stream:
            before, without = 0, 0
            while data := stream.read(1 << 20):
                parser.Parse(data, False)
                without = 0 if tags > before else without + len(data)
                before = tags
                if without > MAX_LINE_BYTES:
                    raise BadLine(
                        path,
                        parser.CurrentLineNumber,
                        f"no element begins or ends in more than {MAX_LINE_BYTES:,} bytes",
                        hint="is a quotation mark, a > or the end of a comment missing?",
                    )
    except expat.ExpatError as error:
        # The RDF parser would read on in some such documents, past what is refused here.
        raise BadLine(
            path,
            error.lineno,
            f"not valid rdfxml: {expat.ErrorString(error.code)}",
            hint="is it UTF-8? A checker for XML shows more; if the file is of another format, name it with --format",
        ) from error
    try:
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        return error.lineno
    return None
