"""The OpenAPI document: the protocol's routes beside the API's, and errors in our own form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi

from biqe.errors import RequestRefused
from biqe.serve import requests
from biqe.serve.api import FAULTS
from biqe.serve.config import MODES
from biqe.serve.results import EXTRA, ROWS, TRIPLES

if TYPE_CHECKING:
    from biqe.serve.protocol import Protocol

_TEXT = {"schema": {"type": "string"}}
_OPTIONS = [
    ("mode", {"type": "string", "enum": list(MODES)}, "Rows wanted; known where it is left out."),
    ("top", {"type": "integer", "minimum": 0, "maximum": 1000}, "Predicted rows, at most."),
    ("min-probability", {"type": "number", "minimum": 0, "maximum": 1}, "Leave out predicted rows below this."),
    ("model", {"type": "string"}, "One of several models; auto for the best one."),
    ("extra", {"type": "string", "example": ",".join(EXTRA)}, "Extra variables, parted by commas."),
    (
        "format",
        {"type": "string", "example": "json"},
        f"Form of the answer, of {', '.join((*ROWS, *TRIPLES))}; "
        "wins over Accept, and does nothing where it names no form of this answer.",
    ),
]
_ANSWERS: dict[str, Any] = {
    media_type: {"schema": {}} if media_type.endswith("json") else _TEXT
    for media_type in (*ROWS.values(), *TRIPLES.values())
}


def add_protocol(app: FastAPI, protocol: Protocol) -> None:
    """The routes of the SPARQL 1.1 Protocol."""
    more: dict[int | str, dict[str, Any]] = {
        **FAULTS,
        405: {**FAULTS[400], "description": "An update is sent by POST."},
        406: {**FAULTS[400], "description": "None of the forms that Accept takes is offered."},
        415: {**FAULTS[400], "description": "A body of this type is not read."},
    }
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": "The answer, or the service description.", "content": _ANSWERS}
    }
    receipt = {"application/json": {"schema": {"type": "object"}}}
    changed: dict[int | str, dict[str, Any]] = {200: {"description": "What changed.", "content": receipt}}

    @app.get(
        "/sparql",
        operation_id="sparql_get",
        response_class=Response,
        responses=found | more,
        openapi_extra={"parameters": _parameters("query")},
    )
    async def sparql_get(request: Request) -> Response:
        """Answer a query; without one, describe the service."""
        return await protocol.sparql(request)

    @app.post(
        "/sparql",
        operation_id="sparql_post",
        response_class=Response,
        responses=found | more,
        openapi_extra={"parameters": _parameters(), "requestBody": _body("query", "update")},
    )
    async def sparql_post(request: Request) -> Response:
        """Answer a query, or take an update."""
        return await protocol.sparql(request)

    @app.post(
        "/update",
        operation_id="update",
        response_class=Response,
        responses=changed | more,
        openapi_extra={"requestBody": _body("update")},
    )
    async def update(request: Request) -> Response:
        """Take an update."""
        return await protocol.update(request)

    @app.head("/sparql", include_in_schema=False)
    async def sparql_head(request: Request) -> Response:
        return await protocol.sparql(request)


def _parameters(*first: str) -> list[dict[str, Any]]:
    named = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": "SPARQL text"} for name in first
    ]
    return named + [
        {"name": name, "in": "query", "schema": schema, "description": about} for name, schema, about in _OPTIONS
    ]


def _body(*fields: str) -> dict[str, Any]:
    form = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
    types = {"query": requests.QUERY_TYPE, "update": requests.UPDATE_TYPE}
    return {"required": True, "content": {requests.FORM: {"schema": form}, **{types[name]: _TEXT for name in fields}}}


def document(app: FastAPI) -> None:
    """Let the application write its document without FastAPI's own errors, which it never sends."""

    def written() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for path in found["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                found["components"]["schemas"].pop(name, None)
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{}, {"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = written  # type: ignore[method-assign]


def refused_shape(error: RequestValidationError) -> RequestRefused:
    """What is wrong with the first field that is wrong; the value itself may be long, so it is not repeated."""
    first = error.errors()[0]
    place, *within = first.get("loc", ()) or ("body",)
    what = str(first.get("msg", "not as described"))
    if first.get("type") == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        message = f"the body is not JSON: {reason} at character {within[0] if within else 0}"
    elif not within and first.get("type") == "missing":
        message = f"the {place} is missing"
    elif not within:
        message = f"the {place} must be a JSON object"
    else:
        name = ".".join(map(str, within))
        message = (
            f"{name!r} is missing" if first.get("type") == "missing" else f"{name!r}: {what[:1].lower()}{what[1:]}"
        )
    return RequestRefused(message, hint="/api/openapi.json describes what is taken")
