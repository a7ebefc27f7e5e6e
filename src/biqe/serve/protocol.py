"""The SPARQL 1.1 Protocol: /sparql answers queries, and both /sparql and /update take updates.

By default an endpoint like any other: all of SPARQL 1.1, stored triples only. With ``mode`` both or predicted, a query
of the subset is answered by the model too; with a predict block in the text, the two mix (``federate``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from biqe.answer.result import ResultTable
from biqe.errors import BiqeError, Busy, RequestRefused, SparqlSyntax, TookTooLong
from biqe.explain.words import visible
from biqe.query.scan import scan
from biqe.serve import description, federate, measure, requests
from biqe.serve.config import ServeConfig
from biqe.serve.guard import denied
from biqe.serve.negotiate import choose
from biqe.serve.prologue import refuse_undeclared
from biqe.serve.results import ROWS, TRIPLES, Document, is_cut, table_of
from biqe.serve.tokens import WRITE

if TYPE_CHECKING:
    from biqe.exact.store import Cut
    from biqe.serve.engine import Engine

SMALL = 50
"""Rows that are written where they are; more of them are written in a thread, so that others need not wait."""
GRAPH_FORMS = ("CONSTRUCT", "DESCRIBE")
Written = TypeVar("Written")


class Protocol:
    """The endpoint over one engine."""

    def __init__(self, engine: Engine, config: ServeConfig) -> None:
        self.engine = engine
        self.config = config

    async def sparql(self, request: Request) -> Response:
        """A query, an update, or the description of the service where neither is sent."""
        return await self._answer(request, is_update=False)

    async def update(self, request: Request) -> Response:
        """An update."""
        return await self._answer(request, is_update=True)

    async def _answer(self, request: Request, *, is_update: bool) -> Response:
        deadline = time.monotonic() + self.config.limits.seconds
        asked = requests.read(
            request.method, request.scope["query_string"], request.headers, await request.body(), self.config, is_update
        )
        request.state.about = {"kind": asked.kind, "mode": asked.mode, "length": len(asked.text)}
        if asked.kind == requests.DESCRIBE:
            form = choose(request.headers.get("accept"), TRIPLES, asked.form)
            endpoint = str(request.url.replace(query=""))
            written = await self.engine.run(description.describe, self.engine, self.config, endpoint, form)
            return Response(written, media_type=TRIPLES[form])
        if asked.kind == requests.UPDATE:
            return await self._changed(request, asked.text)
        offered = TRIPLES if form_of(asked.text) in GRAPH_FORMS else ROWS
        form = choose(request.headers.get("accept"), offered, asked.form)
        extra = () if offered is TRIPLES else asked.extra  # a triple has no place for more
        document, note = await self._stored(asked, deadline, written=(form, extra))
        headers = {}
        if document is None:
            table = await self._predicted(asked, deadline)
            document, note = await _apart(table.rows, lambda: Document.of(table, form)), table.note
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

    async def found(self, asked: requests.Asked, deadline: float) -> ResultTable:
        """The rows that a query asks for, at most as many as one answer may have."""
        stored, note = await self._stored(asked, deadline)
        if stored is None:
            return await self._predicted(asked, deadline)
        table = await _apart(() if isinstance(stored, bool) else stored.rows, lambda: table_of(stored, asked.extra))
        return replace(table, note=note)

    async def _stored(self, asked: requests.Asked, deadline: float, **options: Any) -> tuple[Any, str]:
        """What the exact store answers, and what there is to say about it; None where the query is one for a model."""
        limits = self.config.limits
        measure.refuse_oversized(asked.text, limits)
        requests.refuse_update_as_query(asked.text)
        blocks = federate.blocks(asked.text)
        # What no model reads is answered from the graph, unless the client itself chose otherwise.
        is_known = not asked.is_chosen and (bool(blocks) or form_of(asked.text) in GRAPH_FORMS)
        if asked.mode != "known" and not blocks and not is_known:
            return None, ""
        if asked.mode != "known" and not is_known:
            raise RequestRefused(
                f"a query with predict blocks says itself what is predicted, so 'mode' must be known. "
                f"Got {asked.mode!r}",
                hint="leave the mode out, or the blocks",
            )
        refuse_undeclared(scan(asked.text), self.engine.kb.prefixes)
        cuts: list[Cut] = []
        notes: dict[str, None] = {}
        for block in blocks:
            taken, note = await self._asked_apart(block, deadline)
            cuts += taken
            notes |= {note: None} if note else {}
        options |= {"cuts": cuts} if cuts else {}
        found = await self.engine.exact(asked.text, max_rows=limits.rows, deadline=_left(deadline), **options)
        return found, "; ".join(notes)

    async def _predicted(self, asked: requests.Asked, deadline: float) -> ResultTable:
        """What a model answers, with what is known."""
        measure.refuse_long_question(asked.text)
        # Of the columns that a client may want, one alone tells what rows lack.
        options = {"links": "missing" in asked.extra, **asked.options}
        answers = await self.engine.ask(asked.text, mode=asked.mode, deadline=_left(deadline), **options)
        return await _apart(answers, lambda: table_of(answers, asked.extra).cut(self.config.limits.rows))

    async def _asked_apart(self, block: federate.Block, deadline: float) -> tuple[list[Cut], str]:
        """The rows of a predict block, as text that stands in its place; and what there is to say about them."""
        try:
            measure.refuse_long_question(block.question)
            options = requests.refuse_options(dict(block.options), self.config)
            answers = await self.engine.ask(block.question, deadline=_left(deadline), links=False, **options)
            if is_cut(answers) or len(answers) > self.config.limits.rows:
                raise RequestRefused(
                    f"a predict block has more rows than can be joined, {self.config.limits.rows:,}",
                    hint="add patterns to the block, or a sub-SELECT with LIMIT inside it",
                    status=413,
                )
            return await _apart(answers, lambda: block.cuts(answers)), answers.note
        except (Busy, TookTooLong):
            raise
        except SparqlSyntax as error:
            if not block.is_silent:
                raise block.in_the_whole(error) from None
        except BiqeError:
            if not block.is_silent:
                raise
        return block.cuts(None), ""

    async def _changed(self, request: Request, text: str) -> Response:
        self.refuse_changes(request)
        receipt = await self.engine.update(text, deadline=self.config.limits.seconds)
        return Response(orjson.dumps(asdict(receipt)), media_type="application/json")

    def refuse_changes(self, request: Request) -> None:
        """RequestRefused where this client, or nobody, may change the graph."""
        if WRITE not in request.scope["state"]["allowed"]:
            raise denied(WRITE)
        if self.config.read_only or self.engine.live is None:
            raise RequestRefused("this server takes no changes: it is read-only", status=403)


def form_of(text: str) -> str | None:
    """SELECT, ASK, CONSTRUCT or DESCRIBE: the first word of a query after its prefixes; None where there is none."""
    for word in scan(text).words:
        if word.kind == "keyword" and word.text.upper() in federate.FORMS:
            return word.text.upper()
    return None


def _left(deadline: float) -> float:
    """Seconds that are left; never so few that the engine would take it for no limit."""
    return max(deadline - time.monotonic(), 0.001)


async def _apart(sized: Sized, write: Callable[[], Written]) -> Written:
    return write() if len(sized) <= SMALL else await asyncio.to_thread(write)
