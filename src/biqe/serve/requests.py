"""Requests of the SPARQL 1.1 Protocol: the query or update, its options, and the format of the answer.

A query comes by GET, by POST as a form, or by POST as the body itself; an update by POST only. Parameters beyond the
standard, such as ``mode``, may also be sent as headers (``X-Biqe-Mode``) by clients that cannot add parameters.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from biqe.errors import RequestRefused
from biqe.predict.config import AskConfig
from biqe.serve.config import MODES, ServeConfig
from biqe.serve.results import EXTRA

QUERY, UPDATE, DESCRIBE = "query", "update", "describe"
FORM = "application/x-www-form-urlencoded"
BODY_TYPES = {"application/sparql-query": QUERY, "application/sparql-update": UPDATE}
DATASET = ("default-graph-uri", "named-graph-uri", "using-graph-uri", "using-named-graph-uri")
GRAPH = "urn:biqe:graph"
"""Name of the one graph in the service description."""
DEFAULT_GRAPHS = ("", GRAPH, "urn:x-rdflib:default")
"""Values of ``default-graph-uri`` that mean the one graph; the last is what rdflib sends."""
OWN = ("mode", "top", "min-probability", "model", "extra")
"""Parameters beyond the standard; each is also a header, X-Biqe-Mode and so on."""
MAX_FIELDS = 100
ALIASES = {
    "application/json": "json",
    "text/json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
    "text/plain": "nt",
    "application/x-turtle": "turtle",
}
"""Media types that clients use for one of our formats; considered after the exact ones."""
_WEIGHT = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


@dataclass(frozen=True)
class SparqlRequest:
    """A request of the protocol, parsed."""

    kind: str
    """query, update, or describe: neither was sent, so the service describes itself."""
    text: str = ""
    form: str | None = None
    """The parameter ``format``."""
    mode: str = "known"
    is_mode_given: bool = False
    """Whether the client chose the mode; otherwise it is the server's default."""
    extra: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``ask``: top, min_probability, model."""


def read_request(
    method: str, query_string: bytes, headers: Mapping[str, str], body: bytes, config: ServeConfig, is_update: bool
) -> SparqlRequest:
    """Parse a request; RequestRefused if it is not one of the standard. ``is_update``: it was sent to /update."""
    fields = _fields(query_string)
    kind, text = "", ""
    if method == "POST":
        content_type = media_type(headers)
        if content_type == FORM:
            fields = _fields(body, fields)
        elif content_type in BODY_TYPES:
            kind, text = BODY_TYPES[content_type], _decoded(body)
        else:
            raise unreadable_type(content_type, (FORM, *BODY_TYPES))
    given = [name for name in (QUERY, UPDATE) if name in fields]
    if len(given) + bool(kind) > 1:
        raise RequestRefused("a request has one query or one update; this one has more", hint="send them one by one")
    if given:
        kind, text = given[0], fields[given[0]]
    if kind == UPDATE and method != "POST":
        raise RequestRefused("an update is sent by POST", status=405, headers={"Allow": "POST"})
    if is_update and kind == QUERY:
        raise RequestRefused("this address takes updates only, not queries", hint="ask at /sparql")
    if not kind:
        if method == "POST" or is_update:
            missing = UPDATE if is_update else QUERY
            raise RequestRefused(f"the request has no {missing}", hint=f"send it as the field {missing!r} of a form")
        kind = DESCRIBE
    own = {name: fields.get(name, headers.get(f"x-biqe-{name}")) for name in OWN}
    mode = own["mode"] or config.mode
    if mode not in MODES:
        raise RequestRefused(f"'mode' must be one of {', '.join(MODES)}. Got {mode[:40]!r}")
    extra = tuple(dict.fromkeys(filter(None, (name.strip() for name in (own["extra"] or "").split(",")))))
    for name in extra:
        if name not in EXTRA:
            raise RequestRefused(f"'extra' must be some of {', '.join(EXTRA)}. Got {name[:40]!r}")
    return SparqlRequest(kind, text, fields.get("format"), mode, bool(own["mode"]), extra, _options(own, config))


def _options(own: Mapping[str, str | None], config: ServeConfig) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, number, word in (("top", int, "a whole number"), ("min-probability", float, "a number")):
        value = own[name]
        if value is not None:
            try:
                options[name.replace("-", "_")] = number(value)
            except ValueError:
                raise RequestRefused(f"{name!r} must be {word}. Got {value[:40]!r}") from None
    if own["model"]:
        options["model"] = own["model"]
    return check_options(options, config)


def check_options(options: dict[str, Any], config: ServeConfig) -> dict[str, Any]:
    """The options of ``ask`` unchanged; raises if they are invalid or beyond the limits."""
    AskConfig(**{name: options[name] for name in ("mode", "top", "min_probability") if name in options})
    if options.get("top", 0) > config.limits.top:
        raise RequestRefused(f"'top' must be at most {config.limits.top:,}. Got {options['top']:,}")
    return options


def _fields(data: bytes, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Fields of a form or a query string, added to those ``before``. Those with a meaning here may come only once."""
    try:
        pairs = parse_qsl(_decoded(data), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:  # includes UnicodeDecodeError
        raise RequestRefused(f"the fields of the request cannot be read: {error}") from None
    fields = dict(before or {})
    for name, value in pairs:
        if name in DATASET and not (value in DEFAULT_GRAPHS and "named" not in name):
            raise RequestRefused(
                f"{name} is not supported: this endpoint has one graph. Got {value[:60]!r}", hint=f"leave {name} out"
            )
        if name in fields and name in (QUERY, UPDATE, *OWN):
            raise RequestRefused(f"{name!r} is given more than once", hint="give it once")
        fields[name] = value
    return fields


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(f"the request is not UTF-8 text: byte {error.start}", hint="write UTF-8") from None


def media_type(headers: Mapping[str, str]) -> str:
    """Media type of a body; RequestRefused (415) if its charset is not UTF-8."""
    found, *parameters = (part.strip() for part in headers.get("content-type", "").split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and not _is_utf8(value.strip().strip('"')):
            raise RequestRefused(
                f"bodies are read as UTF-8 only. Got charset {value[:40]!r}", hint="write UTF-8", status=415
            )
    return found.lower()


def _is_utf8(charset: str) -> bool:
    try:
        return codecs.lookup(charset).name in ("utf-8", "ascii")
    except (LookupError, ValueError):
        return False


def unreadable_type(content_type: str, readable: tuple[str, ...]) -> RequestRefused:
    """The refusal (415) of a body whose type is not among ``readable``."""
    return RequestRefused(
        f"a body of this type is not read. Got {content_type[:60] or 'no Content-Type'!r}",
        hint=f"send {', '.join(readable[:-1])} or {readable[-1]}" if len(readable) > 1 else f"send {readable[0]}",
        status=415,
    )


# The format of the answer


def choose_format(accept: str | None, offered: Mapping[str, str], wanted: str | None = None) -> str:
    """The short name of the format to answer in, of those in ``offered`` (short name to media type, best first).

    ``wanted`` is the parameter ``format``; it wins if it is offered, and is ignored otherwise. Without it and without
    an Accept header, the first format is taken. RequestRefused (406) if the header excludes all.

    >>> forms = {"json": "application/sparql-results+json", "csv": "text/csv"}
    >>> [choose_format(accept, forms) for accept in ("text/csv;q=0.5, application/*;q=0.4", "*/*", "text/*")]
    ['csv', 'json', 'csv']
    """
    if wanted in offered:
        return str(wanted)
    if accept is None or not accept.strip():
        return next(iter(offered))
    ranges = _ranges(accept)
    best = max(offered, key=lambda name: _weight(ranges, name, offered[name]))
    if _weight(ranges, best, offered[best]) <= 0:
        raise RequestRefused(
            f"the Accept header allows none of the available formats. Got {accept[:100]!r}",
            hint=f"available are {', '.join(offered.values())}",
            status=406,
        )
    return best


def _ranges(accept: str) -> dict[str, float]:
    """Weight of each media range; an unreadable weight counts as 1."""
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
    """The most specific range decides: the type itself, an alias, ``text/*``, ``*/*``."""
    if media_type in ranges:
        return ranges[media_type]
    aliases = [ranges[other] for other, meant in ALIASES.items() if meant == name and other in ranges]
    if aliases:
        return max(aliases)
    return ranges.get(f"{media_type.partition('/')[0]}/*", ranges.get("*/*", 0.0))
