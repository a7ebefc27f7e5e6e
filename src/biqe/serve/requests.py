"""What a request of the SPARQL 1.1 Protocol asks for: text, and how it is to be answered.

A query comes by GET, by POST as a form, or by POST as itself; an update by POST only. What the standard does not have,
such as ``mode``, is a parameter, or a header ``X-Biqe-Mode`` for clients that cannot add parameters.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from biqe.answer.config import AskConfig
from biqe.errors import RequestRefused
from biqe.query.scan import scan
from biqe.query.subset import syntax_error
from biqe.serve.config import MODES, ServeConfig
from biqe.serve.prologue import Prologue
from biqe.serve.results import EXTRA

QUERY, UPDATE, DESCRIBE = "query", "update", "describe"
FORM, QUERY_TYPE, UPDATE_TYPE = (
    "application/x-www-form-urlencoded",
    "application/sparql-query",
    "application/sparql-update",
)
DATASET = ("default-graph-uri", "named-graph-uri", "using-graph-uri", "using-named-graph-uri")
GRAPH = "urn:biqe:graph"
"""What the service description calls the one graph."""
DEFAULT_GRAPHS = ("", GRAPH, "urn:x-rdflib:default")
"""Values of ``default-graph-uri`` that mean the one graph; the last is rdflib's name of any store's default graph."""
CHANGES = frozenset("INSERT DELETE LOAD CLEAR DROP CREATE ADD MOVE COPY WITH".split())
"""Words that an update begins with."""
OWN = ("mode", "top", "min-probability", "model", "extra")
"""Parameters beyond the standard; each is also a header, X-Biqe-Mode and so on."""
MAX_FIELDS = 100


@dataclass(frozen=True)
class Asked:
    """A request, read."""

    kind: str
    """query, update, or describe: nothing was asked, so the service describes itself."""
    text: str = ""
    form: str | None = None
    """The parameter ``format``."""
    mode: str = "known"
    is_chosen: bool = False
    """Whether the client chose the mode; else it is the server's own."""
    extra: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``ask``: top, min_probability, model."""


def read(
    method: str, query_string: bytes, headers: Mapping[str, str], body: bytes, config: ServeConfig, is_update: bool
) -> Asked:
    """The request; RequestRefused where it is none of the standard's. ``is_update``: it came to /update."""
    fields = _fields(query_string)
    kind, text = "", ""
    if method == "POST":
        content_type = media_type(headers)
        if content_type == FORM:
            fields = _merge(fields, _fields(body))
        elif content_type in (QUERY_TYPE, UPDATE_TYPE):
            kind, text = QUERY if content_type == QUERY_TYPE else UPDATE, _decoded(body)
        else:
            raise RequestRefused(
                f"a body of this type is not read. Got {content_type[:60] or 'no Content-Type'!r}",
                hint=f"send {FORM}, {QUERY_TYPE} or {UPDATE_TYPE}",
                status=415,
            )
    given = [name for name in (QUERY, UPDATE) if name in fields]
    if len(given) + bool(kind) > 1:
        raise RequestRefused("a request has one query or one update; this one has more", hint="send them one by one")
    if given:
        kind, text = given[0], fields[given[0]]
    if kind == UPDATE and method != "POST":
        raise RequestRefused("an update is sent by POST", status=405, headers={"Allow": "POST"})
    if is_update and kind == QUERY:
        raise RequestRefused("queries are not answered here, only updates taken", hint="ask at /sparql")
    if not kind:
        if method == "POST" or is_update:
            missing = UPDATE if is_update else QUERY
            raise RequestRefused(f"the request has no {missing}", hint=f"send it as the field {missing!r} of a form")
        kind = DESCRIBE
    return _asked(kind, text, fields, headers, config)


def _asked(kind: str, text: str, fields: Mapping[str, str], headers: Mapping[str, str], config: ServeConfig) -> Asked:
    own = {name: fields.get(name, headers.get(f"x-biqe-{name}")) for name in OWN}
    mode = own["mode"] or config.mode
    if mode not in MODES:
        raise RequestRefused(f"'mode' must be one of {', '.join(MODES)}. Got {mode[:40]!r}")
    extra = tuple(dict.fromkeys(filter(None, (name.strip() for name in (own["extra"] or "").split(",")))))
    for name in extra:
        if name not in EXTRA:
            raise RequestRefused(f"'extra' must be some of {', '.join(EXTRA)}. Got {name[:40]!r}")
    options: dict[str, Any] = {}
    for name, kind_of, word in (("top", int, "a whole number"), ("min-probability", float, "a number")):
        value = own[name]
        if value is not None:
            try:
                options[name.replace("-", "_")] = kind_of(value)
            except ValueError:
                raise RequestRefused(f"{name!r} must be {word}. Got {value[:40]!r}") from None
    if own["model"]:
        options["model"] = own["model"]
    return Asked(kind, text, fields.get("format"), mode, bool(own["mode"]), extra, refuse_options(options, config))


def refuse_options(options: dict[str, Any], config: ServeConfig) -> dict[str, Any]:
    """The options themselves, if they make sense and are within the limits."""
    AskConfig(**{name: options[name] for name in ("mode", "top", "min_probability") if name in options})
    if options.get("top", 0) > config.limits.top:
        raise RequestRefused(f"'top' must be at most {config.limits.top:,}. Got {options['top']:,}")
    return options


def _fields(data: bytes) -> dict[str, str]:
    """Fields of a form or a query string, each at most once."""
    try:
        pairs = parse_qsl(_decoded(data), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:  # UnicodeDecodeError is one
        raise RequestRefused(f"the fields of the request cannot be read: {error}") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in DATASET and not (value in DEFAULT_GRAPHS and "named" not in name):
            raise RequestRefused(
                f"{name} is not taken: this endpoint holds one graph. Got {value[:60]!r}", hint=f"leave {name} out"
            )
        if name in fields and name in (QUERY, UPDATE, *OWN):
            raise RequestRefused(f"{name!r} is given more than once", hint="give it once")
        fields[name] = value
    return fields


def media_type(headers: Mapping[str, str]) -> str:
    """Media type of a body; RequestRefused (415) where it says that the body is not UTF-8."""
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


def refuse_update_as_query(text: str) -> None:
    """SparqlSyntax for an update that was sent as a query."""
    scanned = scan(text)
    for word in scanned.words[Prologue.of(scanned.words).end :][:1]:
        if word.kind == "keyword" and word.text.upper() in CHANGES:
            raise syntax_error(
                scanned,
                word.start,
                f"{word.text.upper()} is an update, not a query",
                hint="send it by POST to /update, as the field 'update' of a form",
            )


def _merge(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    for name in (QUERY, UPDATE, *OWN):
        if name in first and name in second:
            raise RequestRefused(f"{name!r} is given more than once", hint="give it once")
    return {**first, **second}


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(f"the request is not UTF-8 text: byte {error.start}", hint="write UTF-8") from None
