"""Threads take turns: the oldest work first, the model's thread last, nobody blocks the others."""

from __future__ import annotations

import threading
import time

import pytest

from biqe.serve.gil_scheduler import GilScheduler, Ticket


def test_light_work_has_every_second_turn_and_the_models_thread_runs_last():
    scheduler, order = GilScheduler(lease=60), []
    entered, release = threading.Event(), threading.Event()

    def hold():
        with scheduler.running():
            entered.set()
            release.wait()

    def take(name, is_light=False):
        with scheduler.running(is_light=is_light):
            order.append(name)

    def waiting():
        return len(scheduler._queue) + len(scheduler._light) + (scheduler._last is not None)

    def last():
        scheduler.acquire_last(lambda: False)
        order.append("model")
        scheduler.release()

    threads = [threading.Thread(target=hold)]
    threads[0].start()
    entered.wait()
    comers = [(last, ()), *((take, (name,)) for name in ("first", "second", "third"))]
    comers += [(take, (name, True)) for name in ("light", "lighter")]
    for target, arguments in comers:
        thread = threading.Thread(target=target, args=arguments)
        before = waiting()
        thread.start()
        threads.append(thread)
        while waiting() == before:
            time.sleep(0.001)
    release.set()
    for thread in threads:
        thread.join()
    assert order == ["light", "first", "lighter", "second", "third", "model"]
    assert not Ticket(spent=1.0, is_light=True).is_light, "what takes long is not light"


def test_the_oldest_work_runs_first():
    scheduler, order = GilScheduler(lease=60), []
    apart, back = threading.Event(), threading.Event()

    def old():
        with scheduler.running():
            with scheduler.paused():
                apart.set()
                back.wait()
            order.append("old")

    def young():
        with scheduler.running():
            order.append("young")

    threads = [threading.Thread(target=old), threading.Thread(target=young)]
    threads[0].start()
    apart.wait()
    with scheduler.running():
        threads[1].start()
        while len(scheduler._queue) < 1:
            time.sleep(0.001)
        back.set()
        while len(scheduler._queue) < 2:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == ["old", "young"]


def test_work_that_has_run_for_long_comes_after_work_that_has_not():
    orders = [Ticket(since, spent).order for since, spent in [(3, 0.01), (1, 0.0), (2, 9.0), (0, 1.0), (4, 9.1)]]
    assert sorted(range(5), key=orders.__getitem__) == [1, 0, 3, 2, 4]


def test_a_thread_past_its_lease_gives_its_turn_to_whoever_waits():
    scheduler, order = GilScheduler(lease=60), []

    def young():
        with scheduler.running():
            order.append("young")

    thread = threading.Thread(target=young)
    with scheduler.running():
        thread.start()
        while not scheduler._queue:
            time.sleep(0.001)
        scheduler.share()
        order.append("within the lease")
        scheduler._here.turn -= 100  # its lease is over
        scheduler.share()
        order.append("old")
        thread.join()
    scheduler.share()  # outside of a turn nothing is given up
    assert order == ["within the lease", "young", "old"] and scheduler._running == 0


def test_a_thread_that_exceeds_its_lease_does_not_block_others():
    scheduler, passed = GilScheduler(lease=0.01), threading.Event()
    with scheduler.running():
        threading.Thread(target=lambda: scheduler.running().__enter__() or passed.set()).start()
        assert passed.wait(10)


def test_a_place_in_the_queue_is_given_up():
    class Gone(Exception):
        pass

    def gone():
        raise Gone

    scheduler = GilScheduler(lease=0.01)
    holder = threading.Event()

    def keep():
        with scheduler.running():
            holder.wait()

    scheduler.lease = 60
    thread = threading.Thread(target=keep)
    thread.start()
    scheduler.lease = 0.01
    while not scheduler._running:
        time.sleep(0.001)
    scheduler._since = time.monotonic() + 3600  # so that nobody goes on beside it
    with pytest.raises(Gone), scheduler.running(gone):
        raise AssertionError
    holder.set()
    thread.join()
    scheduler._since = 0.0
    with scheduler.running():
        assert scheduler._running == 1
