"""A graph from a SPARQL endpoint: all its triples, page by page, into a file of N-Triples that can be continued.

    .NAME.pages/
    ├── facts.nt      the pages so far
    └── pages.json    whose they are, how many rows and bytes of the file count, rows that a page asks for

A page is asked for by ORDER BY, LIMIT and OFFSET. Servers cap pages as they please, so only an empty page is the end.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pyoxigraph
from pyoxigraph import BlankNode, Literal, NamedNode, QueryResultsFormat, QuerySolutions

from biqe.errors import InvalidOption, UnreadableFile

PAGE, SMALLEST_PAGE = 10_000, 100
"""Rows that a page asks for: at first, and where a server does not manage as many, at last."""
SECONDS = 60.0
"""Seconds without an answer after which a request is given up."""
MAX_PAGE_BYTES = 256 << 20
MOST = 500_000_000
"""Triples of one endpoint; more of them are taken for a server that never ends."""
ALL = "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
_FORMATS = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "application/xml": QueryResultsFormat.XML,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}
_ACCEPT = "application/sparql-results+json, application/sparql-results+xml;q=0.8, text/tab-separated-values;q=0.5"
_LATE = (408, 413, 429, 500, 502, 503, 504)
"""Status codes of servers that are overloaded, or that refuse a query as too expensive; a smaller page is asked for."""

Told = Callable[[int, int | None], None]
"""Called with the number of triples so far, and with that of all where the server tells it."""
Row = tuple[Any, Any, Any]


@dataclass
class _State:
    endpoint: str
    rows: int = 0
    bytes: int = 0
    page: int = PAGE


class _TooMuch(Exception):
    """The server did not manage a page; the message says how it said so."""


def pages_of(out: str | Path) -> Path:
    """Folder of the pages of an import to ``out``."""
    place = Path(os.path.realpath(out))
    return place.parent / f".{place.name}.pages"


def fetch(endpoint: str, folder: Path, *, seconds: float = SECONDS, told: Told | None = None) -> Path:
    """The file of all triples of an endpoint. What an earlier call left in ``folder`` is continued."""
    if not urlsplit(endpoint).hostname:
        raise InvalidOption(f"{endpoint} names no host", hint="for example: biqe import http://localhost:7878/sparql")
    folder.mkdir(parents=True, exist_ok=True)
    path, state = folder / "facts.nt", _state(folder, endpoint)
    total = _count(endpoint, seconds)
    if told is not None:
        told(state.rows, total)
    with path.open("ab") as stream:
        # What came after the last noted page may be cut short.
        stream.truncate(state.bytes)
        stream.seek(state.bytes)
        for rows, page in _pages(endpoint, state, seconds):
            stream.write("".join(f"{s} {p} {o} .\n" for s, p, o in rows).encode())
            stream.flush()
            state = _State(endpoint, state.rows + len(rows), stream.tell(), page)
            _note(folder, state)
            if told is not None:
                told(state.rows, total)
            if state.rows > MOST or (total is not None and state.rows > 2 * total + PAGE):
                said = f"it said {total:,} triples" if total is not None else f"at most {MOST:,} are taken"
                raise UnreadableFile(
                    f"{endpoint} does not end: {state.rows:,} rows came, and {said}",
                    hint="its answers to LIMIT and OFFSET cannot be right; import a file that it offers",
                )
    if state.rows == 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise UnreadableFile(
            f"{endpoint} holds no triple in its default graph",
            hint="is it the right address? Some servers take ?default-graph-uri=... at its end",
        )
    return path


def _state(folder: Path, endpoint: str) -> _State:
    try:
        found = _State(**json.loads((folder / "pages.json").read_text(encoding="utf-8")))
        size = (folder / "facts.nt").stat().st_size
        if found.endpoint == endpoint and 0 <= found.bytes <= size and found.rows >= 0 and 1 <= found.page <= PAGE:
            return found
    except FileNotFoundError:
        return _State(endpoint)
    except (OSError, ValueError, TypeError):
        raise _other_pages(folder, "cannot be read") from None
    raise _other_pages(folder, f"are of {found.endpoint}" if found.endpoint != endpoint else "are damaged")


def _other_pages(folder: Path, what: str) -> InvalidOption:
    return InvalidOption(f"the pages of an earlier import in {folder} {what}", hint=f"delete them: rm -r {folder}")


def _note(folder: Path, state: _State) -> None:
    following = folder / "pages.json.new"
    following.write_text(json.dumps(asdict(state)), encoding="utf-8")
    os.replace(following, folder / "pages.json")


def _count(endpoint: str, seconds: float) -> int | None:
    """How many triples the server says it has; None where it does not manage to."""
    with suppress(_TooMuch, ValueError):
        rows = list(_asked(endpoint, COUNT, ("n",), seconds))
        if len(rows) == 1 and isinstance(rows[0][0], Literal):
            return int(rows[0][0].value)
    return None


def _pages(endpoint: str, state: _State, seconds: float) -> Iterator[tuple[list[Row], int]]:
    """Pages from where ``state`` ends, each with the number of rows that the next one asks for."""
    start, size = state.rows, state.page
    firsts: set[tuple[str, ...]] = set()
    checked_blanks = False
    while True:
        try:
            rows = _page(endpoint, start, size, seconds)
        except _TooMuch as error:
            if size <= SMALLEST_PAGE:
                raise UnreadableFile(
                    f"{endpoint}: {error}, even to a page of {size} rows after {start:,}",
                    hint="what came so far is kept; the same command goes on from there",
                ) from error
            size = max(SMALLEST_PAGE, size // 4)
            continue
        if not rows:
            return
        if len(rows) > size:
            raise UnreadableFile(
                f"{endpoint} ignores LIMIT: {len(rows):,} rows came where {size:,} were asked for",
                hint="its pages cannot be trusted; import a file that it offers",
            )
        if tuple(map(str, rows[0])) in firsts:
            raise UnreadableFile(
                f"{endpoint} ignores OFFSET: the page from row {start:,} on begins as an earlier one did",
                hint="its pages cannot be trusted; import a file that it offers",
            )
        firsts.add(tuple(map(str, rows[0])))
        if not checked_blanks and any(isinstance(term, BlankNode) for row in rows for term in row):
            checked_blanks = True
            if _page(endpoint, start, size, seconds) != rows:
                raise UnreadableFile(
                    f"{endpoint} gives its blank nodes new labels in every answer, so that pages cannot be joined",
                    hint="import a file that it offers, or let it answer a CONSTRUCT into one",
                )
        start += len(rows)
        yield rows, size


def _page(endpoint: str, start: int, size: int, seconds: float) -> list[Row]:
    text = f"{ALL} ORDER BY ?s ?p ?o LIMIT {size} OFFSET {start}"
    rows: list[Row] = []
    for subject, relation, object_ in _asked(endpoint, text, ("s", "p", "o"), seconds):
        if isinstance(subject, Literal) or not isinstance(relation, NamedNode) or object_ is None:
            raise UnreadableFile(
                f"{endpoint} answers what is no triple: {subject} {relation} {object_}"[:300],
                hint="is it a SPARQL endpoint that is in order?",
            )
        rows.append((subject, relation, object_))
    return rows


def _asked(endpoint: str, text: str, names: tuple[str, ...], seconds: float) -> Iterator[Row]:
    """Rows of a query, a term for each of ``names``."""
    body, kind = _fetched(endpoint, text, seconds)
    if kind not in _FORMATS:
        start = " ".join(body[:80].decode(errors="replace").split())
        raise UnreadableFile(
            f"{endpoint} answers {kind or 'without a type'} instead of query results; it begins {start!r}",
            hint="is it the address of the endpoint itself, which often ends in /sparql or /query? "
            "A file of triples is downloaded first, and imported as a file",
        )
    try:
        found = pyoxigraph.parse_query_results(body, _FORMATS[kind])
        if isinstance(found, QuerySolutions) and {each.value for each in found.variables} >= set(names):
            yield from (tuple(row[name] for name in names) for row in found)  # type: ignore[misc]
            return
        reason = f"it has not the variables {', '.join(names)}"
    except (SyntaxError, ValueError, KeyError) as error:
        reason = str(error)
    raise UnreadableFile(f"{endpoint} answers what are no query results: {reason}", hint="was the answer cut short?")


def _fetched(endpoint: str, text: str, seconds: float) -> tuple[bytes, str]:
    """The answer to a query, and its media type."""
    joint = "&" if urlsplit(endpoint).query else "?"
    request = urllib.request.Request(
        f"{endpoint}{joint}{urlencode({'query': text})}", headers={"Accept": _ACCEPT, "User-Agent": "biqe"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            body = answer.read(MAX_PAGE_BYTES + 1)
            kind = answer.headers.get_content_type()
            length = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(200).decode(errors="replace").split())
        if error.code in _LATE:
            raise _TooMuch(f"it answers {error.code} {error.reason}") from error
        raise UnreadableFile(
            f"{endpoint} refuses the query: {error.code} {error.reason}".strip() + (f" ({said[:120]})" if said else ""),
            hint="is it the address of a SPARQL endpoint, and may you ask it?",
        ) from error
    except TimeoutError as error:
        raise _TooMuch(f"it was silent for {seconds:g} s") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _TooMuch(f"it was silent for {seconds:g} s") from error
        raise UnreadableFile(
            f"{endpoint} cannot be asked: {reason}",
            hint="is the server up? What came so far is kept; the same command goes on from there",
        ) from error
    if len(body) > MAX_PAGE_BYTES:
        raise _TooMuch(f"it answers more than {MAX_PAGE_BYTES:,} bytes")
    if length is not None and length.isdecimal() and len(body) != int(length):
        raise _TooMuch("its answer was cut short")
    return body, kind
