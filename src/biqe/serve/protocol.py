"""The SPARQL 1.1 Protocol: /sparql answers queries, and both /sparql and /update take updates.

By default a plain endpoint: all of SPARQL 1.1 over stored triples. With ``mode`` both or predicted, a query of the
subset is also answered by the model. With predict blocks in the query, the two are mixed (``federate``). Without a
query or an update, the service describes itself, with the counts of its graph (VoID).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from biqe.answer.result import ResultTable
from biqe.errors import BiqeError, Busy, RequestRefused, SparqlSyntax, TookTooLong
from biqe.graph.words import visible
from biqe.query.scan import scan
from biqe.serve import federate, query_checks, requests
from biqe.serve.config import MODES, ServeConfig
from biqe.serve.guard import WRITE, denied
from biqe.serve.requests import BODY_TYPES, FORM, GRAPH, SparqlRequest, choose_format
from biqe.serve.results import EXTRA, ROWS, TRIPLES, Document, is_cut, table_of
from biqe.serve.schemas import ERRORS

if TYPE_CHECKING:
    from biqe.exact.store import Cut
    from biqe.serve.engine import Engine

SMALL = 50
"""Answers of more rows than this are written by the engine, so that the event loop goes on."""
GRAPH_FORMS = ("CONSTRUCT", "DESCRIBE")
Written = TypeVar("Written")


class Protocol:
    """The endpoint over one engine."""

    def __init__(self, engine: Engine, config: ServeConfig) -> None:
        self.engine = engine
        self.config = config

    async def respond(self, request: Request) -> Response:
        """Answer a query, make an update, or describe the service if neither is sent."""
        deadline = time.monotonic() + self.engine.config.seconds
        asked = requests.read_request(
            request.method,
            request.scope["query_string"],
            request.headers,
            await request.body(),
            self.config,
            is_update=request.scope["path"] == "/update",
        )
        request.state.about = {"kind": asked.kind, "mode": asked.mode, "length": len(asked.text)}
        if asked.kind == requests.DESCRIBE:
            form = choose_format(request.headers.get("accept"), TRIPLES, asked.form)
            endpoint = str(request.url.replace(query=""))
            body = await self.engine.run(describe, self.engine, self.config, endpoint, form)
            return Response(body, media_type=TRIPLES[form])
        if asked.kind == requests.UPDATE:
            self.refuse_changes(request)
            receipt = await self.engine.update(asked.text)
            return Response(orjson.dumps(asdict(receipt)), media_type="application/json")
        offered = TRIPLES if query_checks.form_of(asked.text) in GRAPH_FORMS else ROWS
        form = choose_format(request.headers.get("accept"), offered, asked.form)
        extra = () if offered is TRIPLES else asked.extra  # triples have no further columns
        document, note = await self._stored(asked, deadline, written=(form, extra))
        headers = {}
        if document is None:
            table = await self._predicted(asked, deadline)
            document = await self._write(table.rows, lambda: Document.of(table, form), deadline)
            note = table.note
            if table.probability is not None:
                headers["X-Biqe-Probability"] = repr(table.probability)
            if table.expected is not None:
                headers["X-Biqe-Expected"] = table.expected
        if note:
            headers["X-Biqe-Note"] = visible(note).encode("ascii", "backslashreplace").decode()
        request.state.about["rows"] = document.rows
        if not document.complete:
            headers["X-Biqe-Truncated"] = f"after {document.rows} rows"
        return Response(document.body, media_type=offered[form], headers=headers)

    async def rows(self, asked: SparqlRequest, deadline: float) -> ResultTable:
        """The rows of a query, at most as many as one answer may have."""
        stored, note = await self._stored(asked, deadline)
        if stored is None:
            return await self._predicted(asked, deadline)
        rows = () if isinstance(stored, bool) else stored.rows
        table = await self._write(rows, lambda: table_of(stored, asked.extra), deadline)
        return replace(table, note=note)

    async def _stored(self, asked: SparqlRequest, deadline: float, **options: Any) -> tuple[Any, str]:
        """The answer of the exact store and a note about it; (None, "") for a query that a model has to answer."""
        limits = self.config.limits
        query_checks.refuse_oversized(asked.text, limits)
        query_checks.refuse_update_as_query(asked.text)
        blocks = federate.blocks(asked.text)
        if asked.mode != "known":
            is_for_store = bool(blocks) or query_checks.form_of(asked.text) in GRAPH_FORMS  # no model reads these
            if not is_for_store or (asked.is_mode_given and not blocks):
                return None, ""
            if asked.is_mode_given:
                raise RequestRefused(
                    f"a query with predict blocks says itself what is predicted, so 'mode' must be known. "
                    f"Got {asked.mode!r}",
                    hint="leave out the mode, or the blocks",
                )
        query_checks.refuse_undeclared(scan(asked.text), self.engine.kb.prefixes)
        cuts: list[Cut] = []
        notes: dict[str, None] = {}
        for block in blocks:
            taken, note = await self._block(block, deadline)
            cuts += taken
            notes |= {note: None} if note else {}
        options |= {"cuts": cuts} if cuts else {}
        found = await self.engine.exact(asked.text, max_rows=limits.rows, seconds=_left(deadline), **options)
        return found, "; ".join(notes)

    async def _predicted(self, asked: SparqlRequest, deadline: float) -> ResultTable:
        """Known and predicted rows."""
        query_checks.refuse_long_question(asked.text)
        options = {"links": "missing" in asked.extra, **asked.options}  # no other column needs single links
        answers = await self.engine.ask(asked.text, mode=asked.mode, seconds=_left(deadline), **options)
        return await self._write(answers, lambda: table_of(answers, asked.extra, self.config.limits.rows), deadline)

    async def _block(self, block: federate.PredictBlock, deadline: float) -> tuple[list[Cut], str]:
        """The rows of a predict block as replacements in the text, and a note about them."""
        try:
            query_checks.refuse_long_question(block.question)
            options = requests.check_options(dict(block.options), self.config)
            answers = await self.engine.ask(block.question, seconds=_left(deadline), links=False, **options)
            if is_cut(answers) or len(answers) > self.config.limits.rows:
                raise RequestRefused(
                    f"a predict block has more than {self.config.limits.rows:,} rows, too many to join",
                    hint="add patterns to the block, or a sub-SELECT with LIMIT inside it",
                    status=413,
                )
            return await self._write(answers, lambda: block.cuts(answers), deadline), answers.note
        except (Busy, TookTooLong):
            raise
        except SparqlSyntax as error:
            if not block.is_silent:
                raise block.in_the_whole(error) from None
        except BiqeError:
            if not block.is_silent:
                raise
        return block.cuts(None), ""

    async def _write(self, rows: Sized, write: Callable[[], Written], deadline: float) -> Written:
        """The result of ``write``, computed in a turn of the engine's if there are many rows."""
        return write() if len(rows) <= SMALL else await self.engine.run(write, seconds=_left(deadline))

    def refuse_changes(self, request: Request) -> None:
        """RequestRefused if this client, or every client, must not change the graph."""
        if WRITE not in request.scope["state"]["allowed"]:
            raise denied(WRITE)
        if self.config.read_only or self.engine.live is None:
            raise RequestRefused("this server is read-only", status=403)


def _left(deadline: float) -> float:
    """Seconds until the deadline, at least one millisecond."""
    return max(deadline - time.monotonic(), 0.001)


# Routes

_TEXT = {"schema": {"type": "string"}}
_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("mode", {"type": "string", "enum": list(MODES)}, "Rows to return. Default: known."),
    ("top", {"type": "integer", "minimum": 0, "maximum": 1000}, "Maximum number of predicted rows."),
    ("min-probability", {"type": "number", "minimum": 0, "maximum": 1}, "Least probability of predicted rows."),
    ("model", {"type": "string"}, "Name of one of several models; auto chooses the best one."),
    ("extra", {"type": "string", "example": ",".join(EXTRA)}, "Extra variables, separated by commas."),
    (
        "format",
        {"type": "string", "example": "json"},
        f"Format of the answer: {', '.join((*ROWS, *TRIPLES))}. Takes precedence over Accept; ignored if it does not "
        "fit the kind of query.",
    ),
]


def add_routes(app: FastAPI, protocol: Protocol) -> None:
    """Add /sparql and /update to the application, with their OpenAPI descriptions."""
    answers: dict[str, Any] = {
        media_type: {"schema": {}} if media_type.endswith("json") else _TEXT
        for media_type in (*ROWS.values(), *TRIPLES.values())
    }
    errors: dict[int | str, dict[str, Any]] = {
        **ERRORS,
        405: {**ERRORS[400], "description": "An update is sent by POST."},
        406: {**ERRORS[400], "description": "Accept allows none of the available formats."},
        415: {**ERRORS[400], "description": "A body of this type is not read."},
    }
    found: dict[int | str, Any] = {
        200: {"description": "The answer, or the service description.", "content": answers},
        **errors,
    }
    receipt = {"application/json": {"schema": {"type": "object"}}}
    changed: dict[int | str, Any] = {200: {"description": "What changed.", "content": receipt}, **errors}
    options = [_parameter(*option) for option in _OPTIONS]
    query = _parameter("query", {"type": "string"}, "SPARQL text")

    def add(path: str, method: str, name: str, about: str, responses: dict[int | str, Any], **extra: Any) -> None:
        app.add_api_route(
            path,
            protocol.respond,
            methods=[method],
            operation_id=name,
            name=name,
            description=about,
            response_class=Response,
            responses=responses,
            openapi_extra=extra,
        )

    about_get = "Answer a query; without one, describe the service."
    add("/sparql", "GET", "sparql_get", about_get, found, parameters=[query, *options])
    both = {"parameters": options, "requestBody": _body("query", "update")}
    add("/sparql", "POST", "sparql_post", "Answer a query, or make an update.", found, **both)
    add("/update", "POST", "update", "Make an update.", changed, requestBody=_body("update"))
    app.add_api_route("/sparql", protocol.respond, methods=["HEAD"], include_in_schema=False)


def _parameter(name: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": about}


def _body(*fields: str) -> dict[str, Any]:
    form = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
    bodies = {media_type: _TEXT for media_type, kind in BODY_TYPES.items() if kind in fields}
    return {"required": True, "content": {FORM: {"schema": form}, **bodies}}


# The service description

SD = "http://www.w3.org/ns/sparql-service-description#"
VOID = "http://rdfs.org/ns/void#"
FORMATS = "http://www.w3.org/ns/formats/"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
RESULT_FORMATS = (
    *(f"SPARQL_Results_{name}" for name in ("JSON", "XML", "CSV", "TSV")),
    *("Turtle", "N-Triples", "RDF_XML", "JSON-LD"),
)
_RDF = {"turtle": "TURTLE", "nt": "N_TRIPLES", "rdf": "RDF_XML", "jsonld": "JSON_LD"}


def describe(engine: Engine, config: ServeConfig, endpoint: str, form: str) -> bytes:
    """The description of the service at ``endpoint``, in one of the formats TRIPLES of ``results``."""
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple, serialize

    service, dataset, graph = BlankNode("service"), BlankNode("dataset"), NamedNode(GRAPH)
    triples: list[Any] = []

    def add(subject: Any, predicate: str, value: Any) -> None:
        triples.append(Triple(subject, NamedNode(predicate), value))

    add(service, RDF_TYPE, NamedNode(SD + "Service"))
    add(service, SD + "endpoint", NamedNode(endpoint))
    add(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Query"))
    if not config.read_only and engine.live is not None:
        add(service, SD + "supportedLanguage", NamedNode(SD + "SPARQL11Update"))
    for name in RESULT_FORMATS:
        add(service, SD + "resultFormat", NamedNode(FORMATS + name))
    if engine.kb.model_folder is not None:
        add(service, SD + "feature", NamedNode(federate.PREDICT))
    add(service, SD + "defaultDataset", dataset)
    add(dataset, RDF_TYPE, NamedNode(SD + "Dataset"))
    add(dataset, SD + "defaultGraph", graph)
    add(graph, RDF_TYPE, NamedNode(SD + "Graph"))
    now, used, _ = engine.graph
    entities, relations = (now.entity_count, now.relation_count) if used is None else (int(part.sum()) for part in used)
    for name, count in (("triples", len(now.triples)), ("entities", entities), ("properties", relations)):
        add(graph, VOID + name, Literal(count))
    chosen = getattr(RdfFormat, _RDF[form])
    return serialize(triples, format=chosen, prefixes={"sd": SD, "void": VOID, "format": FORMATS}) or b""
