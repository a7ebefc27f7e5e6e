"""Which form of an answer a client wants: the Accept header with its weights, and the parameter ``format``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from biqe.errors import RequestRefused

ALSO = {
    "application/json": "json",
    "text/json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
    "text/plain": "nt",
    "application/x-turtle": "turtle",
}
"""Media types that clients say and mean one of ours by, tried after the exact ones."""
_WEIGHT = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


def choose(accept: str | None, offered: Mapping[str, str], asked: str | None = None) -> str:
    """The short name of the form to answer in, of those in ``offered`` (short name to media type, best first).

    ``asked`` is the parameter ``format``: a name that is offered wins; any other leaves it to the header. Without
    either, the first one is taken; where the header excludes all, RequestRefused with 406.

    >>> forms = {"json": "application/sparql-results+json", "csv": "text/csv"}
    >>> choose("text/csv;q=0.5, application/*;q=0.4", forms), choose("*/*", forms), choose("text/*", forms)
    ('csv', 'json', 'csv')
    """
    if asked in offered:
        return str(asked)
    if accept is None or not accept.strip():
        return next(iter(offered))
    ranges = _ranges(accept)
    best = max(offered, key=lambda name: _weight(ranges, name, offered[name]))
    if _weight(ranges, best, offered[best]) <= 0:
        raise RequestRefused(
            f"none of the forms that the Accept header takes is offered here. Got {accept[:100]!r}",
            hint=f"offered are {', '.join(offered.values())}",
            status=406,
        )
    return best


def _ranges(accept: str) -> dict[str, float]:
    """Weight of each media range; an unreadable weight is 1, as if it were not there."""
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q" and _WEIGHT.fullmatch(value.strip()):
                weight = float(value)
        if name:
            found[name] = max(weight, found.get(name, 0.0))
    return found


def _weight(ranges: Mapping[str, float], name: str, media_type: str) -> float:
    """The most specific range decides: the type itself, a name that means it, ``text/*``, ``*/*``."""
    if media_type in ranges:
        return ranges[media_type]
    also = [ranges[other] for other, means in ALSO.items() if means == name and other in ranges]
    if also:
        return max(also)
    return ranges.get(f"{media_type.partition('/')[0]}/*", ranges.get("*/*", 0.0))
