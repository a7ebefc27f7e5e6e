"""Clients take turns: order and shares, without a clock."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import Busy
from biqe.serve.lanes import Deadline, FairQueue, Job, Kept, Lane, NeedsLonger, current_client, in_turns


def jobs_of(*clients):
    return [Job(client) for client in clients]


def drained(queue):
    """The clients in the order in which they are served, each job ending before the next begins."""
    order = []
    while (job := queue.take()) is not None:
        order.append(job.client)
        queue.leave(job)
    return order


def test_a_client_with_one_request_waits_for_one_turn_and_not_for_all_of_another():
    queue = FairQueue(1)
    for job in jobs_of(*"aaaaa", "b", "c", "c"):
        queue.add(job)
    assert drained(queue) == list("abcacaaa")


def test_one_client_never_has_all_places():
    queue = FairQueue(4)
    for job in jobs_of(*"a" * 9):
        queue.add(job)
    running = [queue.take() for _ in range(3)]
    assert all(running) and queue.take() is None and not queue.has_room("a")
    assert queue.has_room("b")
    queue.add(Job("b"))
    assert queue.take().client == "b"
    assert queue.take() is None, "all places are taken"
    queue.leave(running[0])
    queue.add(Job("b"))
    assert queue.take().client == "b", "it has fewer places"


def test_the_client_with_most_waiting_requests_makes_room():
    queue = FairQueue(1)
    several = jobs_of(*"aaa", "b")
    for job in several:
        queue.add(job)
    assert queue.excess("c") is several[2]
    assert queue.excess("b") is several[2], "three and one become two and two"
    assert queue.excess("a") is None
    queue.leave(several[2])
    assert queue.excess("b") is None, "two and two would become one and three"


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60),
)
def test_every_request_is_served_once_in_the_order_of_its_client(places, steps):
    queue, added, running, begun = FairQueue(places), [], [], []

    def fill():
        while (job := queue.take()) is not None:
            running.append(job)
            begun.append(job)
        has = Counter(job.client for job in running)
        assert len(running) <= places and max(has.values(), default=0) <= queue.each
        if len(running) < places:
            assert {job.client for job in added} - {job.client for job in begun} == set(), "a place is free"

    for client, ends in steps:
        added.append(Job(client))
        queue.add(added[-1])
        fill()
        if ends and running:
            queue.leave(running.pop(0))
            fill()
    while running:
        queue.leave(running.pop())
        fill()
    assert sorted(map(id, begun)) == sorted(map(id, added)) and queue.waiting == 0
    for client in "abcd":
        assert [job for job in begun if job.client == client] == [job for job in added if job.client == client]


@given(st.integers(1, 6), st.integers(2, 40))
def test_light_requests_beside_a_flood_wait_for_one_free_place_at_most(places, flood):
    """However long the queue of the flood is, a client that comes later is the next to be served."""
    queue = FairQueue(places)
    for _ in range(flood):
        queue.add(Job("flood"))
    running = []
    while (job := queue.take()) is not None:
        running.append(job)
    for _ in range(5):
        light = Job("light")
        queue.add(light)
        found = queue.take()
        if found is None:  # one place in all
            queue.leave(running.pop())
            found = queue.take()
        assert found is light
        queue.leave(light)
        while (job := queue.take()) is not None:
            running.append(job)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=20))
def test_turns_hold_everything_once_and_the_first_of_each_client_first(items):
    found = in_turns(items, lambda item: item[0])
    assert Counter(found) == Counter(items)
    clients = {client for client, _ in items}
    assert {client for client, _ in found[: len(clients)]} == clients
    for client in clients:
        assert [item for item in found if item[0] == client] == [item for item in items if item[0] == client]


def test_a_lane_that_closes_ends_what_runs_and_tells_those_who_wait():
    gate = threading.Event()

    async def run():
        lane = Lane("test", 1, 10)
        tasks = [asyncio.create_task(lane.do(lambda _: gate.wait(), Deadline(60))) for _ in range(2)]
        while lane.running + lane.waiting < 2:
            await asyncio.sleep(0)
        assert lane.close(0.0) is False
        with pytest.raises(Busy, match="stopping"):
            await tasks[1]
        gate.set()
        assert await tasks[0] is True

    asyncio.run(run())


class Answer:
    pass


def test_an_answer_is_freed_as_soon_as_nobody_has_it():
    """Without the garbage collector: an answer may keep a version of a graph, and with it all changes since."""
    made = []

    def work(deadline):
        answer = Answer()
        made.append(weakref.ref(answer))
        return answer

    async def run():
        lane = Lane("test", 1, 10)
        assert isinstance(await lane.do(work, Deadline(60)), Answer)
        assert isinstance(await lane.do(work, Deadline(60)), Answer)
        lane.close(1.0)

    gc.disable()
    try:
        asyncio.run(run())
        assert [reference() for reference in made] == [None, None]
    finally:
        gc.enable()


def test_a_lane_serves_the_client_of_the_request():
    order, gate = [], threading.Event()

    async def ask(lane, client):
        current_client.set(client)
        await lane.do(lambda _: (gate.wait(), order.append(client)), Deadline(60))

    async def run():
        lane = Lane("test", 1, 10)
        async with asyncio.TaskGroup() as group:
            for client in "aaab":
                group.create_task(ask(lane, client))
            while lane.running + lane.waiting < 4:
                await asyncio.sleep(0)
            gate.set()
        lane.close(1.0)

    asyncio.run(run())
    assert order == list("abaa")


def test_work_in_its_short_time_asks_for_more():
    deadline = Deadline(60, short=0.0)
    deadline.check()  # it has not begun
    deadline.begin()
    with pytest.raises(NeedsLonger):
        deadline.check()


def test_what_is_kept_for_a_second_attempt_is_dropped_if_there_is_none():
    dropped = []
    kept = Kept("question", None, lambda: dropped.append("dropped"))
    deadline = Deadline(60)
    deadline.keep(kept)
    assert deadline.take_kept() is kept and deadline.take_kept() is None
    deadline.cancel()
    assert not dropped
    deadline.keep(kept)  # too late
    assert dropped == ["dropped"]
    another = Deadline(60)
    another.keep(kept)
    another.cancel()
    assert len(dropped) == 2 and another.take_kept() is None
