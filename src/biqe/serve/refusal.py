"""An error as an answer: one JSON document and an HTTP status, never a stack trace."""

from __future__ import annotations

import re
from typing import Any

import orjson
from starlette.responses import Response

from biqe.errors import (
    AmbiguousName,
    BadLine,
    BiqeError,
    InvalidOption,
    RequestRefused,
    RunFailed,
    UnknownName,
    UnreadableFile,
    VocabularyMismatch,
)

STATUS: dict[type[BiqeError], int] = {
    RunFailed: 503,  # a write that the disk did not take
    UnreadableFile: 500,  # one of the server's own
    BadLine: 400,  # of an upload
    VocabularyMismatch: 500,
    UnknownName: 400,
    AmbiguousName: 400,
    InvalidOption: 400,
}
"""HTTP statuses by kind of error; what is not here, and nothing above it is, is 400: the request was at fault."""
_OPTIONS = (
    (re.compile(r"mode 'known' \(--mode known\)"), "mode=known"),
    (re.compile(r"--min-probability \(min_probability= in Python\)"), "min-probability"),
    (re.compile(r"--(mode|model) (\w+)"), r"\1=\2"),
    (re.compile(r"(; )?name another format with --format\b"), r"\1send it as another Content-Type"),
)
FAULT = "a fault of biqe, not of your request; the server's log has more under this request id"


def status_of(error: BiqeError) -> int:
    """The HTTP status that says what kind of error this is."""
    if isinstance(error, RequestRefused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 400)


def over_http(text: str | None) -> str | None:
    """What an error says, with a request's parameters for options of the command line.

    >>> over_http("use --mode known")
    'use mode=known'
    """
    for option, parameter in _OPTIONS:
        text = text and option.sub(parameter, text)
    return text


def document(error: BiqeError | None, request_id: str) -> dict[str, Any]:
    """The error in the API's own form; None for a fault of the program, of which nothing is told."""
    if error is None or status_of(error) == 500:
        # A file that the server cannot read is its own business: its path is not for clients.
        told = {"type": "InternalError", "message": FAULT, "hint": None}
    else:
        told = {"type": type(error).__name__, "message": over_http(error.message), "hint": over_http(error.hint)}
        for name in ("line", "column"):
            if isinstance(getattr(error, name, None), int):
                told[name] = getattr(error, name)
    return {"error": {**told, "request_id": request_id}}


def refusal(error: BiqeError | None, request_id: str) -> Response:
    """The error as a response."""
    headers = dict(error.headers) if isinstance(error, RequestRefused) else {}
    status = 500 if error is None else status_of(error)
    body = orjson.dumps(document(error, request_id), default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers, media_type="application/json")
