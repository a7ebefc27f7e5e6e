"""Every exception that a user of biqe can meet.

    BiqeError                   what a caller catches
    ├── InvalidOption           an option or a configuration value that is not allowed
    ├── UnreadableFile          a file that is missing, malformed, truncated or of another version
    │   └── BadLine             one line of it, with file and line number
    ├── UnknownName             an entity, relation or folder name that does not exist
    ├── AmbiguousName           a name that fits several entities
    ├── SparqlSyntax            query text outside the language, or outside the supported subset
    ├── TooManyPaths            a query whose root-to-leaf paths exceed the cap
    ├── UnsupportedQuery        a query that a model cannot answer, with its reason
    │   ├── RefusedByModel      in the model's own words
    │   └── NotPredictableYet   because it names what is newer than the model
    ├── VocabularyMismatch      a model, a query set or a run used with another graph
    ├── EmptyResult             nothing left to work on (no triple, no query, no split)
    ├── RunFailed               training or writing could not go on (disk full, run folder in use)
    │   └── RanksFailed         the processes of one run cannot work together, or lost each other
    └── RequestRefused          a request that a server refuses, with its HTTP status
        ├── Busy                the queue of requests is full; come back later
        └── TookTooLong         not done within its time

A message has two parts: what is wrong, with the value and what is allowed; and a hint where we can guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BiqeError(Exception):
    """Base of all errors of biqe. ``str(error)`` is one paragraph; ``error.hint`` may add a second.

    >>> try:
    ...     raise InvalidOption("top must be 0 or more. Got -1", hint="leave it out for 20 rows")
    ... except BiqeError as error:
    ...     print(error)
    top must be 0 or more. Got -1
    hint: leave it out for 20 rows
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class InvalidOption(BiqeError):
    """An option or a configuration value that is not allowed."""


class UnreadableFile(BiqeError):
    """A file that is missing, malformed, truncated, or of another version."""


class BadLine(UnreadableFile):
    """One line of a file that cannot be read; the message names file and line number."""

    def __init__(self, path: object, line: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}, line {line:,}: {message}", hint=hint)
        self.path = path
        self.line = line


class UnknownName(BiqeError):
    """An entity, relation, prefix or folder name that does not exist."""


class AmbiguousName(BiqeError):
    """A name that fits several entities."""


class SparqlSyntax(BiqeError):
    """Query text outside SPARQL, or outside the subset that biqe supports.

    ``line`` and ``column`` count from 1 and are None where the parser gave no place.
    """

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, hint: str | None = None
    ) -> None:
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(place + message, hint=hint)
        self.line = line
        self.column = column


class TooManyPaths(BiqeError):
    """A query whose root-to-leaf paths exceed the cap."""


class UnsupportedQuery(BiqeError):
    """A query that a model cannot answer; the message is the model's own reason."""


class RefusedByModel(UnsupportedQuery):
    """A query that a model cannot read; ``reason`` is in the model's own words."""

    def __init__(self, model: str, reason: str, hint: str) -> None:
        super().__init__(f"{model} cannot predict this query: {reason}", hint=hint)
        self.reason = reason


class NotPredictableYet(UnsupportedQuery):
    """A query that names an entity or a relation which came to the graph after the model was trained."""


class VocabularyMismatch(BiqeError):
    """A model, a query set or a run used with a graph that it was not built from."""


class EmptyResult(BiqeError):
    """Nothing is left to work on: no triple, no query, an empty split."""


class RunFailed(BiqeError):
    """Training or writing could not go on; what was written before is kept."""


class RanksFailed(RunFailed):
    """The processes of one run cannot find each other, see different things, or lost each other."""


class RequestRefused(BiqeError):
    """A request that a server refuses: malformed, too large, not allowed, or at a bad time.

    ``status`` and ``headers`` are those of the HTTP response.
    """

    status = 400

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = type(self).status if status is None else status
        self.headers = dict(headers or {})


class Busy(RequestRefused):
    """The queue of requests is full; ``retry_after`` estimates in how many seconds there will be room."""

    status = 503

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int = 1) -> None:
        super().__init__(message, hint=hint, headers={"Retry-After": str(retry_after)})
        self.retry_after = retry_after


class TookTooLong(RequestRefused):
    """A request that was not done within its time; what had begun was stopped."""

    status = 503


def from_fields(name: str, fields: Mapping[str, Any]) -> BiqeError:
    """The error of this class with these fields, as another process told of it: ``type(error).__name__``,
    ``vars(error)``."""
    named = globals().get(name)
    kind = named if isinstance(named, type) and issubclass(named, BiqeError) else BiqeError
    error = kind.__new__(kind, fields["message"])
    vars(error).update(fields)
    return error
