"""The JSON API: each handler reads one question, calls the engine, and writes one answer.

Its shapes are in ``schemas``; OpenAPI describes them at /api/openapi.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute

from biqe.answer.terms import TermTable
from biqe.errors import BiqeError, RequestRefused, UnreadableFile
from biqe.query.scan import scan
from biqe.serve import description, draw, facts, federate, measure, requests, schemas, views
from biqe.serve.live.upload import MEDIA_TYPES, Upload
from biqe.serve.prologue import refuse_undeclared

if TYPE_CHECKING:
    from pathlib import Path

    from biqe.graph.knowledge_graph import Graph
    from biqe.graph.vocabulary import Vocabulary
    from biqe.serve.config import ServeConfig
    from biqe.serve.engine import Engine
    from biqe.serve.protocol import Protocol

FAULTS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.FaultOut, "description": "The request, or the query in it, cannot be answered as it is."},
    401: {"model": schemas.FaultOut, "description": "A token is needed."},
    403: {"model": schemas.FaultOut, "description": "Not allowed: for this token, from this page, or on this server."},
    408: {"model": schemas.FaultOut, "description": "The body did not come in time."},
    413: {"model": schemas.FaultOut, "description": "Larger than one request may be."},
    414: {"model": schemas.FaultOut, "description": "The address is too long."},
    431: {"model": schemas.FaultOut, "description": "The headers are too long."},
    500: {"model": schemas.FaultOut, "description": "A fault of the server; its log has more."},
    503: {"model": schemas.FaultOut, "description": "Busy, or not done in time; try again after Retry-After seconds."},
}
_UNREAD: dict[int | str, dict[str, Any]] = {415: {**FAULTS[400], "description": "A body of this type is not read."}}
_UPLOAD = {"required": True, "content": {name: {"schema": {"type": "string"}} for name in MEDIA_TYPES}}
JSON = "application/json"
UPLOADED = "the upload"
"""What errors call a file that a client sent."""


def router(engine: Engine, config: ServeConfig, protocol: Protocol) -> APIRouter:
    """The routes over one engine."""
    api = APIRouter(prefix="/api", responses=FAULTS, route_class=JsonRoute)
    limits = config.limits

    def graph() -> tuple[Graph, facts.Used | None]:
        # It may read what others have changed, so it is called in a thread.
        return description.current_graph(engine)

    def vocabulary() -> Vocabulary:
        return graph()[0].vocabulary

    def completed(text: str, kind: str, limit: int) -> list[schemas.Completion]:
        found, used = graph()
        return facts.completions(text, kind, limit, engine.kb.prefixes, found.vocabulary, used)

    def options(question: schemas.QuestionIn) -> dict[str, Any]:
        measure.refuse_oversized(question.query, limits)
        refuse_undeclared(scan(question.query), engine.kb.prefixes)
        found: dict[str, Any] = {"top": question.top, "min_probability": question.min_probability}
        if question.model is not None:
            found["model"] = question.model
        return {"mode": question.mode, **requests.refuse_options(found, config)}

    def tell(request: Request, question: schemas.QuestionIn, rows: int) -> None:
        request.state.about = {"mode": question.mode, "length": len(question.query), "rows": rows}

    @api.post("/ask", operation_id="ask", responses=_UNREAD)
    async def ask(question: schemas.AskIn, request: Request) -> schemas.AskOut:
        """Answers to a query: known rows first, then predicted ones, likely first."""
        wanted = options(question)
        requests.refuse_update_as_query(question.query)
        found: Any
        if federate.blocks(question.query):
            start = time.perf_counter()
            asked = requests.Asked(requests.QUERY, question.query)
            table = await protocol.found(asked, time.monotonic() + limits.seconds)
            known = ("known",) * len(table.rows)
            found = TermTable(
                question.query,
                table.variables,
                tuple(table.rows),  # type: ignore[arg-type]  # all are terms
                known,
                table.holds,
                table.complete,
                seconds=time.perf_counter() - start,
                note=table.note,
            )
        else:
            if question.mode != "known":
                measure.refuse_long_question(question.query)
            found = await engine.ask(question.query, deadline=limits.seconds, **wanted)
        tell(request, question, len(found))
        return await engine.run(lambda: views.answer(found, vocabulary(), question.limit, question.offset, limits.rows))

    @api.post("/explain", operation_id="explain", responses=_UNREAD)
    async def explain(question: schemas.ExplainIn, request: Request) -> schemas.ExplainOut:
        """Why one row is an answer: its witness, what the model looked at, and what would change it."""
        wanted = options(question)
        measure.refuse_long_question(question.query)
        found = await engine.explain(question.query, question.row, deadline=limits.seconds, **wanted)
        tell(request, question, 1)
        is_unasked = question.mode == "known" and engine.kb.model_folder is not None
        return await engine.run(lambda: views.explained(found, is_unasked=is_unasked))

    @api.post("/parse", operation_id="parse", responses=_UNREAD)
    async def parse(question: schemas.ParseIn) -> schemas.ParseOut:
        """The query drawn as a graph, or its errors with their places. It is not answered."""
        measure.refuse_oversized(question.query, limits)
        measure.refuse_long_question(question.query)
        return await engine.run(lambda: draw.parsed(question.query, engine.kb.prefixes, vocabulary()))

    @api.post("/load", operation_id="load", openapi_extra={"requestBody": _UPLOAD}, responses=_UNREAD)
    async def load(request: Request) -> schemas.ReceiptOut:
        """Take the triples of a file into the graph: all of them, or none."""
        protocol.refuse_changes(request)
        media_type = requests.media_type(request.headers)
        if media_type not in MEDIA_TYPES:
            raise RequestRefused(
                f"a file of this type is not read. Got {media_type[:60] or 'no Content-Type'!r}",
                hint=f"send one of {', '.join(MEDIA_TYPES)}",
                status=415,
            )
        try:
            receipt = await engine.update(Upload(await request.body(), media_type), deadline=limits.seconds)
        except UnreadableFile as error:
            if UPLOADED in error.message:
                raise RequestRefused(error.message, hint=error.hint) from None
            raise
        return schemas.ReceiptOut(**asdict(receipt))

    @api.get("/complete", operation_id="complete")
    async def complete(
        text: Annotated[str, Query(max_length=500, description="What is typed so far, with its prefix.")] = "",
        kind: Annotated[Literal["entity", "relation", "prefix"], Query(description="What it may become.")] = "entity",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> list[schemas.Completion]:
        """Ways to finish a word with the names and labels of this graph."""
        return await engine.run(completed, text, kind, limit)

    @api.get("/graph", operation_id="graph")
    async def graph_() -> schemas.GraphOut:
        """Counts, relations and prefixes of the graph, and queries to begin with."""
        return await engine.run(_graph, engine, config)

    @api.get("/models", operation_id="models")
    async def models() -> list[schemas.ModelOut]:
        """The models that predict here."""
        return await engine.run(_models, engine)

    return api


class JsonRoute(APIRoute):
    """A route that looks at the type of a JSON body before anything reads it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is not None:
                _refuse_other_types(request)
            return await handle(request)

        return checked


def _refuse_other_types(request: Request) -> None:
    """RequestRefused (415) for a body that is not JSON."""
    media_type = requests.media_type(request.headers)
    if media_type != JSON and not (media_type.startswith("application/") and media_type.endswith("+json")):
        raise RequestRefused(
            f"a body of this type is not read. Got {media_type[:60] or 'no Content-Type'!r}",
            hint=f"send {JSON}",
            status=415,
        )


def _graph(engine: Engine, config: ServeConfig) -> schemas.GraphOut:
    kb = engine.kb
    view = None if engine.live is None else engine.live.snapshot()
    if view is None:
        return facts.graph_facts(kb.graph, kb.name, kb.prefixes, None, False)
    return facts.graph_facts(view.graph, kb.name, kb.prefixes, view.version, not config.read_only, view.used)


def _models(engine: Engine) -> list[schemas.ModelOut]:
    kb = engine.kb
    return [_model(name, folder, folder == kb.model_folder) for name, folder in kb.models.items()]


def _model(name: str, folder: Path, is_default: bool) -> schemas.ModelOut:
    from biqe.predict import calibration

    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = {}
    trained = manifest.get("trained") or {}
    metrics = {key: float(trained[key]) for key in ("mrr", "hits@1", "hits@3", "hits@10") if key in trained}
    try:
        is_calibrated = calibration.load(folder) is not None
    except BiqeError:
        is_calibrated = False
    said = ", ".join(f"{trained[key]}" for key in ("budget",) if key in trained) or None
    return schemas.ModelOut(
        name=name,
        kind=str(manifest.get("model", "model")),
        trained=said,
        metrics=metrics,
        calibrated=is_calibrated,
        default=is_default,
    )
