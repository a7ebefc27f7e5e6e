"""Exact queries run in processes that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import biqe
from biqe.errors import BiqeError, RequestRefused, TookTooLong
from biqe.serve.config import EngineConfig
from biqe.serve.engine import Engine
from biqe.serve.error_response import document
from biqe.serve.exact_messages import read_answer
from biqe.serve.exact_process import answered
from biqe.serve.live.live_graph import LiveGraph
from biqe.serve.live.upload import Upload

COUNTED = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?p ?b }"
ENDLESS = "SELECT (COUNT(*) AS ?n) WHERE { ?a (<x:a>|!<x:a>)+ ?b . ?c (<x:a>|!<x:a>)+ ?d }"
HUGE = "SELECT ?a ?b ?c ?d WHERE { ?a ?p ?b . ?c ?q ?d } ORDER BY ?d ?b"


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


def test_a_query_that_takes_too_much_memory_ends_alone(kb):
    async def run():
        async with running(kb, memory=64 << 20) as engine:
            with pytest.raises(BiqeError, match="memory"):
                await engine.exact(HUGE)
            assert await engine.exact("ASK { ?a ?b ?c }") is True

    asyncio.run(run())


def test_an_upload_that_takes_all_time_or_memory_ends_alone(kb, tmp_path):
    live = LiveGraph(tmp_path / "live", kb.splits)
    lines = b"".join(b"a%d\tr\t%s\n" % (number, b"b" * 1000) for number in range(1000))
    bomb = Upload(gzip.compress(lines * 400, 1), "tsv")

    async def run():
        engine = Engine(kb, EngineConfig(memory=128 << 20), live)
        try:
            assert await engine.exact("ASK { ?a ?b ?c }") is True
            reading = asyncio.create_task(engine.update(bomb, seconds=20.0))
            await until(lambda: engine.stats["running"] == 1)
            # Other writes do not wait for it.
            assert (await engine.update("INSERT DATA { :Nowhere :located_on :Rhine }")).inserted == 1
            assert not reading.done()
            with pytest.raises(RequestRefused) as refused:
                await reading
            assert refused.value.hint and "fault" not in str(refused.value)
            assert (await engine.update(Upload(b"Bonn\tnear\tMainz\n", "tsv"))).inserted == 1
            assert live.version == 2
        finally:
            await engine.stop()

    asyncio.run(run())


def test_an_upload_of_more_than_the_server_wants_to_hold_is_refused(monkeypatch):
    upload = Upload(b"".join(b"Bonn\tnear\tplace%d\n" % number for number in range(1000)), "tsv")
    assert len(read_answer(answered(upload, {}, None)).statements) == 1000
    monkeypatch.setattr("biqe.serve.exact_process.STATEMENTS", 1000)
    with pytest.raises(RequestRefused, match="statements") as refused:
        read_answer(answered(upload, {}, None))
    assert refused.value.status == 413


def test_a_process_of_the_exact_store_is_replaced_after_some_queries(kb, monkeypatch):
    monkeypatch.setattr("biqe.serve.exact_process.QUERIES", 3)
    processes = []

    async def run():
        async with running(kb) as engine:
            for _ in range(7):
                assert await engine.exact("ASK { ?a ?b ?c }") is True
                processes.append([child.process for child in engine._client._idle])
            assert engine.stats["killed_queries"] == 0

    asyncio.run(run())
    assert [len(idle) for idle in processes] == [1, 1, 0, 1, 1, 0, 1]


def test_a_process_of_the_exact_store_that_nobody_asks_is_let_go(kb, monkeypatch):
    async def run():
        async with running(kb) as engine:
            await asyncio.gather(*(engine.exact("ASK { ?a ?b ?c }") for _ in range(8)))
            service = engine._service._process.pid
            engine.tidy()
            assert children_of(service), "what was used just now stays"
            monkeypatch.setattr("biqe.serve.exact_process.IDLE", 0.0)
            engine.tidy()
            await asyncio.wait_for(until(lambda: not children_of(service)), 20)
            assert await engine.exact("ASK { ?a ?b ?c }") is True
            assert engine.stats["killed_queries"] == 0

    asyncio.run(run())


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_exact_store_shares_the_processors_with_whoever_started_it(kb):
    async def run():
        async with running(kb) as engine:
            await engine.exact(COUNTED)
            service = engine._service._process.pid
            # A session gets its own share of the processors, whatever the others need.
            assert os.getsid(service) == os.getsid(0)
            # A group makes it possible to end the service with all its children, and nobody else.
            assert os.getpgid(service) == service
            child = int(children_of(service)[0])
            assert (os.getsid(child), os.getpgid(child)) == (os.getsid(0), service)

    asyncio.run(run())


def test_the_processor_time_of_ended_processes_of_the_exact_store_is_counted(kb, monkeypatch):
    def ended():
        line = Path(f"/proc/{service}/stat").read_text().rpartition(")")[2].split()
        return int(line[13]) + int(line[14])

    monkeypatch.setattr("biqe.serve.exact_process.IDLE", 0.0)

    async def run():
        nonlocal service
        async with running(kb) as engine:
            await engine.exact("SELECT * WHERE { ?a ?p ?b . ?b ?q ?c }", max_rows=10_000)
            service = engine._service._process.pid
            engine.tidy()
            await asyncio.wait_for(until(lambda: not children_of(service)), 20)
            await asyncio.wait_for(until(lambda: ended() > 0), 20)

    service = 0
    asyncio.run(run())


def test_a_fault_in_a_process_of_the_exact_store_is_not_taken_for_a_lack_of_memory(kb):
    async def run():
        async with running(kb) as engine:
            with pytest.raises(RequestRefused, match="no such form") as failed:
                await engine.exact("ASK { ?a ?b ?c }", written=("no such form", ()))
            assert failed.value.status == 500
            assert document(failed.value, "id")["error"]["type"] == "InternalError", "and not for a damaged file"
            assert await engine.exact("ASK { ?a ?b ?c }") is True
            assert engine.stats["killed_queries"] == 0

    asyncio.run(run())


def test_an_exact_store_that_died_is_started_again(kb):
    async def run():
        async with running(kb) as engine:
            assert await engine.exact("ASK { ?a ?b ?c }") is True
            os.killpg(engine._service._process.pid, signal.SIGKILL)
            engine._service._process.wait()
            with contextlib.suppress(BiqeError):  # the child that it had was killed as well
                await engine.exact("ASK { ?a ?b ?c }")
            assert await engine.exact("ASK { ?a ?b ?c }") is True

    asyncio.run(run())


def test_an_endless_query_is_killed_and_others_go_on_meanwhile(kb):
    async def run():
        async with running(kb, exact_threads=2) as engine:
            await engine.exact(COUNTED)
            endless = asyncio.create_task(engine.exact(ENDLESS, seconds=1.0))
            await until(lambda: engine.stats["running"] == 1)
            assert await engine.exact("ASK { ?a ?b ?c }") is True
            assert not endless.done()
            with pytest.raises(TookTooLong):
                await endless
            await until(lambda: engine.stats["killed_queries"] == 1 and engine.stats["running"] == 0)
            # One whose caller goes away is killed, too.
            left = asyncio.create_task(engine.exact(ENDLESS))
            await until(lambda: engine.stats["running"] == 1)
            left.cancel()
            await until(lambda: engine.stats["killed_queries"] == 2 and engine.stats["running"] == 0)
            assert await engine.exact("ASK { ?a ?b ?c }") is True

    asyncio.run(run())
