"""Errors as HTTP responses: one JSON document and a status, never a stack trace."""

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
"""HTTP statuses by class of error, subclasses included; 400 for all others."""
_OPTIONS = (
    (re.compile(r"mode 'known' \(--mode known\)"), "mode=known"),
    (re.compile(r"--min-probability \(min_probability= in Python\)"), "min-probability"),
    (re.compile(r"--(mode|model) (\w+)"), r"\1=\2"),
    (re.compile(r"(; )?name another format with --format\b"), r"\1send it as another Content-Type"),
)
DAMAGED = "a file of this server cannot be used; the server's log names it under this request id"
FAULT = "internal error of biqe; the server's log has details under this request id"


def status_of(error: BiqeError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 400)


def over_http(text: str | None) -> str | None:
    """A message with request parameters instead of command-line options.

    >>> over_http("use --mode known")
    'use mode=known'
    """
    for option, parameter in _OPTIONS:
        text = text and option.sub(parameter, text)
    return text


def document(error: BiqeError | None, request_id: str) -> dict[str, Any]:
    """The error as JSON; None stands for an internal error."""
    if error is None or status_of(error) == 500:
        # Clients get no details: a message may name files of the server.
        is_fault = error is None or isinstance(error, RequestRefused)  # of this process, or of one that it asked
        kind, message = ("InternalError", FAULT) if is_fault else (type(error).__name__, DAMAGED)
        told = {"type": kind, "message": message, "hint": None}
    else:
        told = {"type": type(error).__name__, "message": over_http(error.message), "hint": over_http(error.hint)}
        for name in ("line", "column"):
            if isinstance(getattr(error, name, None), int):
                told[name] = getattr(error, name)
    return {"error": {**told, "request_id": request_id}}


def error_response(error: BiqeError | None, request_id: str) -> Response:
    """The error as a response; None stands for an internal error."""
    headers = dict(error.headers) if isinstance(error, RequestRefused) else {}
    status = 500 if error is None else status_of(error)
    body = orjson.dumps(document(error, request_id), default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers, media_type="application/json")
