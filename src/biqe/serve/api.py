"""The JSON API: each handler reads one question, calls the engine, and returns one answer.

Its types are in ``schemas``; OpenAPI describes them at /api/openapi.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute

from biqe.answer.terms import TermTable
from biqe.errors import RequestRefused, UnreadableFile
from biqe.graph.whole_folder import MANIFEST, MAX_MANIFEST_BYTES, read_regular
from biqe.knowledge_base.locate import LINK_PROBABILITIES
from biqe.query.scan import scan
from biqe.serve import entity_card, example_questions, federate, page_metadata, query_checks, requests, schemas, views
from biqe.serve.live.changes import Receipt
from biqe.serve.live.upload import MEDIA_TYPES, UPLOADED, Upload
from biqe.serve.review import Review

if TYPE_CHECKING:
    from pathlib import Path

    from biqe.graph.vocabulary import Vocabulary
    from biqe.links.probability import LinkProbability
    from biqe.serve.config import ServeConfig
    from biqe.serve.engine import Engine
    from biqe.serve.protocol import Protocol

_BODY_ERRORS: dict[int | str, dict[str, Any]] = {
    415: {**schemas.ERRORS[400], "description": "A body of this type is not read."}
}
_UPLOAD = {"required": True, "content": {name: {"schema": {"type": "string"}} for name in MEDIA_TYPES}}
JSON = "application/json"


def router(engine: Engine, config: ServeConfig, protocol: Protocol) -> APIRouter:
    """The routes over one engine."""
    api = APIRouter(prefix="/api", responses=schemas.ERRORS, route_class=JsonRoute)
    limits, kb = config.limits, engine.kb
    examples: dict[int | str | None, list[schemas.Example]] = {}  # of the version of the graph that was asked for last

    prefixes = kb.prefixes or {"": ""}
    review = Review(engine, prefixes)

    def is_writable() -> bool:
        return engine.live is not None and not config.read_only

    # Called in threads, because ``engine.graph`` may read files.

    def vocabulary() -> Vocabulary:
        return engine.graph[0].vocabulary

    def completed(text: str, kind: str, limit: int, after: str, before: str) -> list[schemas.Completion]:
        graph, used, _ = engine.graph
        return page_metadata.completions(text, kind, limit, prefixes, graph, used, after, before)

    def described() -> schemas.GraphOut:
        graph, used, version = engine.graph
        if version not in examples:
            examples.clear()
            examples[version] = example_questions.examples(graph, prefixes, engine.links)
        return page_metadata.graph_metadata(
            graph, kb.name, prefixes, version, is_writable(), used, examples.get(version, [])
        )

    def shown(found: Any, question: schemas.AskIn) -> schemas.AskOut:
        page = question.limit, question.offset, limits.rows
        return views.answer(found, vocabulary(), *page, facts=question.facts)

    def options(question: schemas.QuestionIn) -> dict[str, Any]:
        query_checks.refuse_oversized(question.query, limits)
        query_checks.refuse_undeclared(scan(question.query), kb.prefixes)
        found: dict[str, Any] = {"top": question.top, "min_probability": question.min_probability}
        if question.model is not None:
            found["model"] = question.model
        return {"mode": question.mode, **requests.check_options(found, config)}

    def note(request: Request, question: schemas.QuestionIn, rows: int) -> None:
        request.state.about = {"mode": question.mode, "length": len(question.query), "rows": rows}

    async def with_blocks(query: str) -> TermTable:
        """The answer to a query with predict blocks."""
        start = time.perf_counter()
        asked = requests.SparqlRequest(requests.QUERY, query)
        table = await protocol.rows(asked, time.monotonic() + engine.config.seconds)
        return TermTable(
            query,
            table.variables,
            tuple(table.rows),  # type: ignore[arg-type]  # all are terms
            ("known",) * len(table.rows),
            table.holds,
            table.complete,
            seconds=time.perf_counter() - start,
            note=table.note,
        )

    @api.post("/ask", operation_id="ask", responses=_BODY_ERRORS)
    async def ask(question: schemas.AskIn, request: Request) -> schemas.AskOut:
        """Answers to a query: known rows first, then predicted ones by falling probability."""
        wanted = options(question)
        query_checks.refuse_update_as_query(question.query)
        found: Any
        if federate.blocks(question.query):
            found = await with_blocks(question.query)
        else:
            if question.mode != "known":
                query_checks.refuse_long_question(question.query)
            found = await engine.ask(question.query, **wanted)
        note(request, question, len(found))
        return await engine.run(lambda: shown(found, question))

    @api.post("/explain", operation_id="explain", responses=_BODY_ERRORS)
    async def explain(question: schemas.ExplainIn, request: Request) -> schemas.ExplainOut:
        """Why one row is an answer: a sentence, its facts, and reasons; attention and counterfactuals on request."""
        wanted = options(question)
        query_checks.refuse_long_question(question.query)
        found = await engine.explain(question.query, question.row, views=question.views, **wanted)
        note(request, question, 1)
        is_unasked = question.mode == "known" and kb.model_folder is not None
        return await engine.run(lambda: views.explained(found, is_unasked=is_unasked, svg=question.svg))

    @api.post("/parse", operation_id="parse", responses=_BODY_ERRORS)
    async def parse(question: schemas.ParseIn) -> schemas.ParseOut:
        """The query as a graph, or its errors with line and column. The query is not answered."""
        query_checks.refuse_oversized(question.query, limits)
        query_checks.refuse_long_question(question.query)
        return await engine.run(
            lambda: page_metadata.parsed(question.query, kb.prefixes, vocabulary(), kb.leads_to_literals)
        )

    @api.post("/load", operation_id="load", openapi_extra={"requestBody": _UPLOAD}, responses=_BODY_ERRORS)
    async def load(request: Request) -> Receipt:
        """Insert the triples of a file into the graph: all of them, or none."""
        protocol.refuse_changes(request)
        media_type = requests.media_type(request.headers)
        if media_type not in MEDIA_TYPES:
            raise requests.unreadable_type(media_type, tuple(MEDIA_TYPES))
        try:
            return await engine.update(Upload(await request.body(), media_type))
        except UnreadableFile as error:
            if UPLOADED in error.message:  # the client's file, not one of the server's
                raise RequestRefused(error.message, hint=error.hint) from None
            raise

    @api.get("/complete", operation_id="complete")
    async def complete(
        text: Annotated[str, Query(max_length=500, description="The word so far, with its prefix.")] = "",
        kind: Annotated[Literal["entity", "relation", "prefix"], Query(description="Kind of the word.")] = "entity",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
        after: Annotated[str, Query(max_length=500, description="The relation, or the subject, that it follows.")] = "",
        before: Annotated[str, Query(max_length=500, description="The relation that follows it.")] = "",
    ) -> list[schemas.Completion]:
        """Completions of a word with names and labels of this graph; those that fit its neighbours come first."""
        return await engine.run(completed, text, kind, limit, after, before)

    @api.get("/graph", operation_id="graph")
    async def graph() -> schemas.GraphOut:
        """Counts, relations and prefixes of the graph, and example queries."""
        return await engine.run(described)

    @api.get("/entity", operation_id="entity")
    async def entity(
        name: Annotated[str, Query(min_length=1, max_length=2_000, description="Name in the graph, or label.")],
        relation: Annotated[str | None, Query(max_length=2_000, description="Only facts with this relation.")] = None,
        limit: Annotated[int | None, Query(ge=1, le=1_000, description="Facts of each relation; 12.")] = None,
    ) -> schemas.EntityOut:
        """An entity: its classes, its facts by relation, and questions about it."""
        found = await engine.run(lambda: entity_card.card(engine.graph[0], name, prefixes, relation, limit))
        if found.value.iri is None:  # a blank node, which no query can name
            return found
        text = f"SELECT ?p ?o {{ <{found.value.iri}> ?p ?o FILTER(isLiteral(?o)) }} LIMIT {entity_card.MOST_VALUES}"
        values = await engine.ask(text, mode="known")
        assert isinstance(values, TermTable)
        return entity_card.with_values(found, values, prefixes, relation, limit)

    @api.get("/suggest", operation_id="suggest")
    async def suggest(
        relation: Annotated[str | None, Query(max_length=2_000, description="Only links with this relation.")] = None,
        entity: Annotated[str | None, Query(max_length=2_000, description="Only links of this entity.")] = None,
        top: Annotated[int, Query(ge=1, le=200, description="Number of links.")] = 20,
        skip: Annotated[int, Query(ge=0, le=10_000, description="Number of links before these.")] = 0,
    ) -> schemas.SuggestOut:
        """The likeliest missing links, with the reason that speaks most for each; rejected ones are left out."""
        return await engine.run(review.suggest, relation, entity, top, skip, is_writable())

    @api.post("/review", operation_id="review", responses=_BODY_ERRORS)
    async def decide(verdict: schemas.ReviewIn, request: Request) -> schemas.ReviewOut:
        """Accept a suggested link into the graph, reject it, or undo that."""
        protocol.refuse_changes(request)
        return await review.decide(verdict)

    @api.get("/models", operation_id="models")
    async def models() -> list[schemas.ModelOut]:
        """The models, with their validation results."""
        return await engine.run(lambda: [_model(*entry, kb.model_folder, engine.links) for entry in kb.models.items()])

    return api


class JsonRoute(APIRoute):
    """A route that refuses bodies that are not JSON (415) before they are read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the check."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is not None:
                found = requests.media_type(request.headers)
                if found != JSON and not (found.startswith("application/") and found.endswith("+json")):
                    raise requests.unreadable_type(found, (JSON,))
            return await handle(request)

        return checked


def _model(name: str, folder: Path, main: Path | None, links: LinkProbability | None) -> schemas.ModelOut:
    """A model and what its manifest says of it; of a manifest that cannot be read, nothing."""
    try:
        manifest = json.loads(read_regular(folder / MANIFEST, MAX_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError, UnreadableFile):
        manifest = {}
    trained = manifest.get("trained") if isinstance(manifest, dict) else None
    trained = trained if isinstance(trained, dict) else {}
    if folder == main and links is not None:
        is_calibrated = links.knowledge.record.calibrated
    else:
        is_calibrated = (folder / LINK_PROBABILITIES).is_file()
    metrics = {key: trained.get(key) for key in ("mrr", "hits@1", "hits@3", "hits@10")}
    return schemas.ModelOut(
        name=name,
        kind=str(manifest.get("model", "model"))[:80] if isinstance(manifest, dict) else "model",
        trained=str(trained["budget"])[:80] if "budget" in trained else None,
        metrics={key: float(value) for key, value in metrics.items() if isinstance(value, int | float)},
        calibrated=is_calibrated,
        default=folder == main,
    )
