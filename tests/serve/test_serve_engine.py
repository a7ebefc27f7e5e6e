"""The engine: limits that hold, callers that go away, and answers that are those of the knowledge base."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
import time
import weakref
from contextlib import asynccontextmanager

import pytest

import biqe
from biqe import atlas
from biqe.errors import Busy, InvalidOption, SparqlSyntax, TookTooLong
from biqe.exact.answers import checked_by, checkpoint
from biqe.serve.config import EngineConfig
from biqe.serve.engine import Engine
from biqe.serve.lanes import NeedsLonger, current_client
from biqe.serve.live.live_graph import LiveGraph

RIVERS = "SELECT ?r WHERE { ?r :flows_through :Germany }"
COUNTED = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?p ?b }"


@pytest.fixture(scope="module")
def kb():
    return biqe.open("atlas")


@asynccontextmanager
async def running(kb, **options):
    engine = Engine(kb, EngineConfig(**options))
    try:
        yield engine
    finally:
        await engine.stop()


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_known_exact_and_explained_answers_are_those_of_the_knowledge_base(kb):
    predicted = "SELECT ?c WHERE { ?c :located_on :Rhine }"

    async def run():
        async with running(kb) as engine:
            known = await engine.ask(RIVERS, mode="known")
            counted = await engine.exact(COUNTED)
            # Beyond the subset: the knowledge base turns to the exact store by itself.
            beyond = await engine.ask("SELECT (MAX(?r) AS ?m) WHERE { ?r :flows_through :Germany }", mode="known")
            last = len(kb.ask(predicted)) - 1
            explained = await engine.explain(predicted, last, top=20)
            with pytest.raises(InvalidOption, match="row"):
                await engine.explain(predicted, last + 1)
            with pytest.raises(SparqlSyntax):
                await engine.exact("SELECT ?x WHERE { ?x ?y }")
            return known, counted, beyond, explained, last

    known, counted, beyond, explained, last = asyncio.run(run())
    assert [row.ids for row in known] == [row.ids for row in kb.ask(RIVERS, mode="known")]
    assert counted == kb.store.query(COUNTED) and int(counted.rows[0][0].value) == len(kb.graph.triples)
    assert beyond.terms == kb.ask("SELECT (MAX(?r) AS ?m) WHERE { ?r :flows_through :Germany }", mode="known").terms
    assert str(explained) == str(kb.explain(kb.ask(predicted)[last]))


def test_an_error_of_the_exact_store_keeps_its_place(kb):
    text = "SELECT ?x WHERE {\n  ?x ?y ?z .\n  ?x ?y }"
    with pytest.raises(SparqlSyntax) as here:
        kb.store.query(text)

    async def run():
        async with running(kb) as engine:
            await engine.exact(text)

    with pytest.raises(SparqlSyntax) as there:
        asyncio.run(run())
    assert (there.value.line, there.value.column, str(there.value)) == (
        here.value.line,
        here.value.column,
        str(here.value),
    )


def test_whoever_comes_to_a_full_queue_is_turned_away_at_once(kb):
    gate = threading.Event()

    async def run():
        async with running(kb, queue=3) as engine:
            inside = [asyncio.create_task(engine.run(gate.wait)) for _ in range(6)]
            await until(lambda: engine.stats["light_waiting"] == 3)
            with pytest.raises(Busy) as refused:
                await engine.run(gate.wait)
            assert refused.value.retry_after >= 1 and refused.value.headers["Retry-After"]
            # The other lanes have room, and so has this one for another client: a place, and then room in the queue at
            # the cost of whoever has most of it.
            assert await engine.ask(RIVERS, mode="known")
            current_client.set("another")
            inside.append(asyncio.create_task(engine.run(gate.wait)))
            await until(lambda: engine.stats["light_running"] == 4)
            assert engine.stats["light_waiting"] == 3
            inside.append(asyncio.create_task(engine.run(gate.wait)))
            with pytest.raises(Busy):
                await inside.pop(5)
            gate.set()
            assert await asyncio.gather(*inside) == [True] * 7
            assert await engine.run(lambda: 7) == 7

    asyncio.run(run())


def test_a_question_out_of_time_stops_at_its_next_check_point(kb):
    stopped = threading.Event()

    def work():
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        finally:
            stopped.set()

    async def run():
        async with running(kb) as engine:
            with pytest.raises(TookTooLong, match="0.05 s"):
                await engine.run(work, seconds=0.05)
            await until(stopped.is_set)
            await until(lambda: engine.stats["running"] == 0)
            # The server's own limit holds whatever the caller wants.
        async with running(kb, seconds=0.05) as engine:
            stopped.clear()
            with pytest.raises(TookTooLong):
                await engine.run(work, seconds=60)
            await until(stopped.is_set)

    asyncio.run(run())


def test_what_nobody_waits_for_never_begins_or_stops(kb):
    gate, begun, stopped = threading.Event(), [], threading.Event()

    def first():
        gate.wait()

    def second():
        begun.append("second")

    def third():
        begun.append("third")
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        finally:
            stopped.set()

    async def run():
        async with running(kb) as engine:
            holds = asyncio.gather(*(engine.run(first) for _ in range(3)))
            await until(lambda: engine.stats["running"] == 3)
            waits = asyncio.create_task(engine.run(second))
            await until(lambda: engine.stats["light_waiting"] == 1)
            waits.cancel()
            await until(lambda: engine.stats["light_waiting"] == 0)
            gate.set()
            await holds
            going = asyncio.create_task(engine.run(third))
            await until(lambda: begun == ["third"])
            going.cancel()
            await until(stopped.is_set)
            with pytest.raises(asyncio.CancelledError):
                await going

    asyncio.run(run())
    assert begun == ["third"]


def test_a_cancelled_prediction_asks_the_model_no_more(tmp_path):
    # Without probabilities of links, rows are found by asking the model again and again.
    shutil.copytree(atlas.model_path(), tmp_path / "model", ignore=shutil.ignore_patterns("links.safetensors"))
    plain = biqe.open(tmp_path / "model", graph=atlas.path())

    async def run():
        async with running(plain) as engine:
            await engine.start()
            question = "SELECT ?a ?b ?c WHERE { ?a :near ?b . ?b :near ?c . ?c :near :Bonn }"
            going = asyncio.create_task(engine.ask(question, top=1_000, width=400, joint="beam"))
            await until(lambda: engine.stats["model_calls"] > 1)
            going.cancel()
            await until(lambda: engine.stats["running"] == 0)
            calls = engine.stats["model_calls"]
            await asyncio.sleep(0.1)
            assert engine.stats["model_calls"] == calls and engine.stats["model_waiting"] == 0
            assert await engine.ask(RIVERS)

    asyncio.run(run())


def test_exact_queries_wait_for_no_turn(kb):
    async def run():
        async with running(kb) as engine:
            engine._scheduler.lease = 60.0
            leave = threading.Event()

            def keep():
                with engine._scheduler.running():
                    leave.wait()

            thread = threading.Thread(target=keep)
            thread.start()
            await until(lambda: engine._scheduler._running == 1)
            try:
                assert await asyncio.wait_for(engine.exact("ASK { ?a ?b ?c }"), 20) is True
            finally:
                leave.set()
                thread.join()

    asyncio.run(run())


def test_a_stop_finishes_what_runs_and_refuses_what_comes(kb):
    gate = threading.Event()

    async def run():
        engine = Engine(kb)
        inside = [asyncio.create_task(engine.run(gate.wait)) for _ in range(5)]
        await until(lambda: engine.stats["running"] == 3 and engine.stats["waiting"] == 2)
        stopping = asyncio.create_task(engine.stop())
        await until(lambda: engine.stats["stopping"])
        for refused in (engine.run(gate.wait), engine.ask(RIVERS), engine.exact(COUNTED)):
            with pytest.raises(Busy, match="stopping"):
                await refused
        gate.set()
        await stopping
        assert [task.result() for task in inside] == [True] * 5

    asyncio.run(run())


def test_a_stop_waits_no_longer_than_it_says(kb):
    async def run():
        engine = Engine(kb, EngineConfig(stop_seconds=0.05))
        stopped = threading.Event()

        def work():
            try:
                while True:
                    checkpoint()
                    time.sleep(0.001)
            finally:
                stopped.set()

        going = asyncio.create_task(engine.run(work))
        await until(lambda: engine.stats["running"] == 1)
        await engine.stop()
        await until(stopped.is_set)
        with pytest.raises(Exception):  # noqa: B017  nobody is told any more
            await going

    asyncio.run(run())


def test_threads_that_are_lost_are_noticed(kb, monkeypatch):
    monkeypatch.setattr("biqe.serve.lanes.GRACE", 0.0)
    gate = threading.Event()

    async def run():
        async with running(kb) as engine:
            for number in range(2):
                assert not engine.is_stuck
                with pytest.raises(TookTooLong):
                    await engine.run(gate.wait, seconds=0.5)  # long enough to begin on a busy machine
                await until(lambda: engine.stats["stuck"] == number + 1)  # noqa: B023  awaited right here
            assert engine.is_stuck and engine.stats["stuck"] == 2
            gate.set()
            await until(lambda: not engine.is_stuck)

    asyncio.run(run())


PATHS = "SELECT (COUNT(*) AS ?n) WHERE { ?a (<x:a>|!<x:a>)+ ?b . ?c (<x:a>|!<x:a>)+ ?d }"


def test_queries_without_end_of_one_client_hold_up_nobody_else(kb):
    async def run():
        async with running(kb, seconds=600.0) as engine:
            current_client.set("hostile")
            hostile = [asyncio.create_task(engine.exact(PATHS)) for _ in range(12)]
            await until(lambda: engine.stats["long_running"] == 3 and engine.stats["long_waiting"] == 9)
            # They had their short time. One place is still free for anybody else who needs long.
            current_client.set("other")
            assert await engine.exact(COUNTED) == kb.store.query(COUNTED)
            assert await engine.ask(RIVERS, mode="known")
            other = asyncio.create_task(engine.exact(PATHS))
            await until(lambda: engine.stats["long_running"] == 4 and engine.stats["long_waiting"] == 9)
            for task in (*hostile, other):
                assert not task.done()
                task.cancel()
            await until(lambda: engine.stats["running"] == engine.stats["waiting"] == 0)

    asyncio.run(run())


def test_what_needs_longer_than_a_short_time_is_answered_as_well(kb, monkeypatch):
    beyond = "SELECT (MAX(?r) AS ?m) WHERE { ?r :flows_through :Germany }"

    async def run():
        async with running(kb) as engine:
            plain = engine._ask_process

            def never_short(text, deadline, **options):
                if not deadline.is_background:
                    raise NeedsLonger
                return plain(text, deadline, **options)

            monkeypatch.setattr(engine, "_ask_process", never_short)
            assert await engine.exact(COUNTED) == kb.store.query(COUNTED)
            assert (await engine.ask(beyond, mode="known")).terms == kb.ask(beyond, mode="known").terms
            assert engine.stats["long_done"] == 2

    asyncio.run(run())


def test_an_update_whose_where_takes_long_holds_up_no_other(kb, tmp_path, monkeypatch):
    """It is evaluated while others write, and once more if the graph has changed meanwhile."""
    short = "INSERT { :Loreley :sees ?c } WHERE { ?c :located_on :Rhine }"
    asked = []

    async def run():
        async with changing(kb, tmp_path / "live") as (engine, live):
            plain = engine._ask_process

            def counted(text, deadline, **options):
                asked.append(deadline.is_background)
                if not deadline.is_background:
                    raise NeedsLonger
                found = plain(text, deadline, **options)
                if len(asked) == 2:  # somebody writes before the result can be used
                    live.apply("INSERT DATA { :Lorch :located_on :Rhine }")
                return found

            monkeypatch.setattr(engine, "_ask_process", counted)
            receipt = await engine.update(short)
            assert await engine.update("INSERT DATA { :Bacharach :near :Lorch }")
            return receipt, live.snapshot().store.query("SELECT ?c { :Loreley :sees ?c }", prefixes=kb.prefixes)

    receipt, sees = asyncio.run(run())
    on_rhine = kb.store.query("SELECT ?c { ?c :located_on :Rhine }", prefixes=kb.prefixes)
    assert receipt.inserted == len(sees.rows) == len(on_rhine.rows) + 1, "with what was written meanwhile"
    assert asked == [False, True, False, True]


def test_an_update_that_is_always_overtaken_is_given_up(kb, tmp_path, monkeypatch):
    async def run():
        async with changing(kb, tmp_path / "live") as (engine, live):
            numbers = iter(range(10_000))

            def overtaken(text, deadline, **options):
                if not deadline.is_background:
                    raise NeedsLonger
                live.apply(f"INSERT DATA {{ :Bonn :near :place{next(numbers)} }}")
                return []

            monkeypatch.setattr(engine, "_ask_process", overtaken)
            with pytest.raises(TookTooLong):
                await engine.update("INSERT { ?c :near ?c } WHERE { ?c :located_on :Rhine }", seconds=2.0)

    asyncio.run(run())


@pytest.mark.parametrize(
    "options",
    [{"threads": 0}, {"exact_threads": 0}, {"long_threads": 0}, {"queue": -1}, {"seconds": 0.0}, {"stop_seconds": -1}],
)
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(InvalidOption, match=next(iter(options))):
        EngineConfig(**options)


def test_a_check_is_that_of_its_thread_and_block():
    seen = []
    checkpoint()
    with checked_by(lambda: seen.append("outer")):
        with checked_by(lambda: seen.append("inner")):
            checkpoint()
        checkpoint()
        with checked_by(None):
            checkpoint()
        other = threading.Thread(target=checkpoint)
        other.start()
        other.join()
    checkpoint()
    assert seen == ["inner", "outer"]


@asynccontextmanager
async def changing(kb, folder, **options):
    live = LiveGraph(folder, kb.splits, known=kb.known, prefixes=kb.prefixes)
    engine = Engine(kb, EngineConfig(**options), live)
    try:
        yield engine, live
    finally:
        await engine.stop()
        live.close()


MOVES = """INSERT { :Loreley :located_on ?r } WHERE { ?r :flows_through :Germany, :France } ;
DELETE { ?c :located_on :Rhine } INSERT { ?c :once_on :Rhine } WHERE { ?c :located_on :Rhine }"""


def test_versions_are_freed_as_soon_as_nobody_uses_them(kb, tmp_path):
    """Without the garbage collector, which is told to leave alone what there is when a server forks."""
    moments = []

    async def run():
        async with changing(kb, tmp_path / "live") as (engine, live):

            async def update(number):
                moments.append(weakref.ref(live._history.moment))
                await engine.update(f"INSERT DATA {{ :new{number} :located_on :Rhine }}")

            for number in range(6):
                for mode in ("known", "predicted"):
                    await engine.ask("SELECT ?c WHERE { ?c :located_on :Rhine }", mode=mode, top=3)
                await engine.exact(COUNTED)
                await update(number)
            assert sum(reference() is not None for reference in moments) <= 1
            for number in range(6, 12):
                await update(number)  # the version that was asked last keeps those after it
            assert sum(reference() is not None for reference in moments) > 5
            engine.tidy()
            assert not any(reference() for reference in moments)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_an_update_finds_in_another_process_what_it_finds_here(kb, tmp_path):
    """The second operation sees what the first one did, and not what was there before."""
    alone = LiveGraph(tmp_path / "alone", kb.splits, known=kb.known, prefixes=kb.prefixes)
    expected = alone.apply(MOVES)
    assert expected.inserted and expected.deleted

    async def run():
        async with changing(kb, tmp_path / "served") as (engine, live):
            receipt = await engine.update(MOVES)
            assert (receipt.inserted, receipt.deleted) == (expected.inserted, expected.deleted)
            return live.snapshot()

    served, here = asyncio.run(run()), alone.snapshot()
    everything = "SELECT ?a ?p ?b WHERE { ?a ?p ?b } ORDER BY ?a ?p ?b"
    assert served.store.query(everything) == here.store.query(everything)
    assert served.store.query("ASK { :Loreley :once_on :Rhine }", prefixes=kb.prefixes) is True


def test_an_update_without_end_is_ended_and_the_next_one_is_made(kb, tmp_path):
    endless = "INSERT { :Rhine :meets ?d } WHERE { ?a (<x:a>|!<x:a>)+ ?b . ?c (<x:a>|!<x:a>)+ ?d }"

    async def run():
        async with changing(kb, tmp_path / "live") as (engine, live):
            with pytest.raises(TookTooLong):
                await engine.update(endless, seconds=2.0)
            assert live.snapshot().version == 0
            receipt = await engine.update("INSERT DATA { :Loreley :located_on :Rhine }")
            assert receipt.inserted == 1
            assert await engine.exact("ASK { :Loreley :located_on :Rhine }") is True

    asyncio.run(run())
