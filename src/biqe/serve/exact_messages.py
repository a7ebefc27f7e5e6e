"""Messages between the server and the processes of the exact store: one line of JSON, then bytes.

    question    {"kind", "seconds", ...}: query (then its text) or upload (then its content)
    answer      {"kind", ...}: rows, truth, document, triples, statements, error or fault

Messages are data, not pickled objects: a process that ran a hostile query cannot make the server run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from biqe import errors
from biqe.errors import BiqeError, RequestRefused
from biqe.exact.store import Cut, Solutions, Term
from biqe.serve.live.changes import Changes, decode, encode
from biqe.serve.live.upload import Upload, UploadedStatements
from biqe.serve.results import Document


def write_question(asked: str | Upload, options: Mapping[str, Any], seconds: float) -> bytes:
    """A query or an upload, options of a query (see ``ExactClient.ask``), and a time limit."""
    if isinstance(asked, Upload):
        assert isinstance(asked.data, bytes)
        return _message(kind="upload", format=asked.format, seconds=seconds, body=asked.data)
    plain = dict(options)
    if plain.get("after") is not None:
        plain["after"] = [encode(changes, 0, 0.0).decode() for changes in plain["after"]]
    return _message(kind="query", options=plain, seconds=seconds, body=asked.encode("utf-8", "surrogatepass"))


def read_question(message: bytes) -> tuple[str | Upload, dict[str, Any], float]:
    """What ``write_question`` wrote."""
    head, _, body = message.partition(b"\n")
    asked = json.loads(head)
    if asked["kind"] == "upload":
        return Upload(body, asked["format"]), {}, asked["seconds"]
    options = asked["options"]
    if options.get("after") is not None:
        options["after"] = [decode(record.encode())[1] for record in options["after"]]
    if "cuts" in options:
        options["cuts"] = [Cut(*cut) for cut in options["cuts"]]
    return body.decode("utf-8", "surrogatepass"), options, asked["seconds"]


def write_answer(found: Any) -> bytes:
    """The result: Solutions, a truth value, a Document, triples of the store, or statements of an upload."""
    if isinstance(found, Document):
        return _message(kind="document", rows=found.rows, complete=found.complete, body=found.body)
    if isinstance(found, bool):
        return _message(kind="truth", truth=found)
    if isinstance(found, UploadedStatements):
        body = encode(Changes(inserted=found.statements), 0, 0.0)
        return _message(kind="statements", is_rdf=found.is_rdf, counts=found.counts, body=body)
    if isinstance(found, Solutions):
        # Each distinct term is sent once; cells refer to it by number.
        numbers: dict[Term | None, int] = {}
        cells = [numbers.setdefault(term, len(numbers)) for row in found.rows for term in row]
        return _message(
            kind="rows",
            variables=found.variables,
            terms=list(numbers),
            cells=cells,
            count=len(found.rows),
            complete=found.complete,
        )
    from pyoxigraph import RdfFormat, serialize

    return _message(kind="triples", body=serialize(found, format=RdfFormat.N_TRIPLES) or b"")


def write_error(error: BiqeError) -> bytes:
    """An error of biqe with all its fields."""
    return _message(kind="error", name=type(error).__name__, says=vars(error))


def write_fault(trace: str) -> bytes:
    """The traceback of any other error."""
    return _message(kind="fault", trace=trace)


def read_answer(message: bytes) -> Any:
    """The result of a query; raises its error if it has one."""
    head, _, body = message.partition(b"\n")
    answer = json.loads(head)
    match answer.pop("kind"):
        case "document":
            return Document(body, answer["rows"], answer["complete"])
        case "truth":
            return answer["truth"]
        case "rows":
            return _solutions(**answer)
        case "statements":
            return UploadedStatements(decode(body)[1].inserted, answer["is_rdf"], answer["counts"])
        case "triples":
            from pyoxigraph import RdfFormat, parse

            return [quad.triple for quad in parse(body, format=RdfFormat.N_TRIPLES)]
        case "error":
            raise errors.from_fields(answer["name"], answer["says"])
        case _:
            raise RequestRefused(f"a process of the exact store failed: {answer['trace']}", status=500)


def _message(*, body: bytes = b"", **head: Any) -> bytes:
    # The JSON has no line break, so the body begins after the first one.
    return json.dumps(head, default=str).encode() + b"\n" + body


def _solutions(variables: list[str], terms: list[Any], cells: list[int], count: int, complete: bool) -> Solutions:
    known = [None if term is None else Term(*term) for term in terms]
    values = iter([known[number] for number in cells])
    rows = tuple(zip(*[values] * len(variables), strict=True)) if variables else ((),) * count
    return Solutions(tuple(variables), rows, complete)
