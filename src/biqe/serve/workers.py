"""Several processes that answer, behind one listening socket, and one that looks after them.

The supervisor loads graph and model once and then forks, so that workers share that memory: it is copied only where it
is written to, and nobody writes to weights or triples. All workers accept from one socket, and leave
connections to those that have fewer. The supervisor has no threads and answers nothing, so little can go wrong with it:

    a worker ends                another is forked in its place, at once; not if it keeps ending as soon as it starts
    SIGTERM, SIGINT, SIGHUP      workers are told to stop, finish what they are at, and are killed only when they do not
    the supervisor is killed     the kernel tells the workers to stop
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from biqe.errors import InvalidOption, RunFailed
from biqe.serve.connections import AWAY, Connections, FairSocket

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.live.live_graph import LiveGraph

BACKLOG = 2_048
"""Connections that wait in the kernel until a worker takes them."""
STABLE = 10.0
"""Seconds that a worker must have lived for its end to count as an accident."""
ATTEMPTS = 5
"""Workers that may end sooner, one after the other, before the supervisor gives up."""
LOOK = 1.0
"""Seconds between looks at what no signal tells of."""
TIDY = 50
"""Ticks of a worker, ten of them a second, after which it gives back what it does not use."""
PR_SET_PDEATHSIG = 1
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3

SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass
class Supervisor:
    """Keeps ``count`` workers running."""

    work: Callable[[int], None]
    """What a worker does until SIGTERM; it is given its number."""
    count: int = 1
    """Workers."""
    stop_seconds: float = 30.0
    """Time that workers get to finish what they are at."""
    look: Callable[[], None] = lambda: None
    """Called every second, to look after other things: it must not block for long."""
    tell: Callable[..., None] = lambda event, **facts: None
    """Told of what happens: an event and its facts."""
    workers: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Number and time of start of each worker, by process id."""
    signals: set[signal.Signals] = field(default_factory=lambda: set(SIGNALS))
    """What it waits for."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidOption(f"'workers' must be at least 1. Got {self.count}")

    def run(self) -> None:
        """Until SIGTERM, SIGINT, or SIGHUP when its terminal is closed. RunFailed where workers do not stay alive."""
        gc.collect()
        gc.freeze()  # what is loaded now is never looked at again, so its pages stay shared
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: a signal that is waited for is not ignored
            self.signals = SIGNALS - {signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
        try:
            for number in range(self.count):
                self._fork(number)
            self._watch()
        finally:
            self._stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _watch(self) -> None:
        failures = 0
        while True:
            came = signal.sigtimedwait(self.signals, LOOK)
            if came is not None and came.si_signo != signal.SIGCHLD:
                self.tell("stopping", signal=signal.Signals(came.si_signo).name)
                return
            for pid, status in self._ended():
                number, start = self.workers.pop(pid)
                failures = failures + 1 if time.monotonic() - start < STABLE else 0
                self.tell("worker ended", worker=number, process=pid, code=os.waitstatus_to_exitcode(status))
                if failures >= ATTEMPTS:
                    raise RunFailed(
                        f"{failures} workers in a row ended within {STABLE:g} s of their start", hint="the log says why"
                    )
                # The first is replaced at once, later ones more and more slowly.
                time.sleep(0.2 * max(0, failures - 1) ** 2)
                self._fork(number)
            self.look()

    def _ended(self) -> list[tuple[int, int]]:
        """Workers that have ended, each with its status. Only they are waited for: others have children here too."""
        ended = []
        for pid in list(self.workers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended.append((found, status))
        return ended

    def _fork(self, number: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.workers[pid] = (number, time.monotonic())
            self.tell("worker started", worker=number, process=pid)
            return
        code = 1
        try:
            _follow(parent)
            # Until the worker has handlers of its own; and after it has stopped, when these are taken back.
            signal.signal(signal.SIGTERM, _leave)
            signal.signal(signal.SIGINT, _leave)
            # A terminal that is closed tells all of its processes; the supervisor ends its workers in good order.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self.work(number)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            # Nothing that the supervisor registered for its own end may run here.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _stop(self) -> None:
        for pid in self.workers:
            _signal(pid, signal.SIGTERM)
        stops = time.monotonic() + self.stop_seconds
        while self.workers:
            for pid, _ in self._ended():
                self.workers.pop(pid)
            if self.workers and time.monotonic() > stops:
                for pid in self.workers:
                    self.tell("worker killed", process=pid)
                    _signal(pid, signal.SIGKILL)
                stops = float("inf")
            if self.workers:
                signal.sigtimedwait(self.signals, 0.1)


_leaving = False
"""Whether this worker was told to stop while it had no handlers of its own."""
_supervisor: int | None = None
"""In a worker, the process that it was started by."""


def _leave(*_: Any) -> None:
    """A signal to a worker that does not serve. Python ignores what is raised in some places, while modules are being
    imported for one; so it is noted, too, and a worker that goes on to serve stops at once."""
    global _leaving
    _leaving = True
    sys.exit(0)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _follow(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends, however it does; one that serves looks, too."""
    global _supervisor
    _supervisor = parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def listen(host: str, port: int) -> socket.socket:
    """The socket that workers share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its name: asyncio sends small pieces at once only where a socket says that it is TCP. Else the end of an answer
    # waits until the client has acknowledged its beginning, which clients put off for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            hint = "--host is an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
        elif error.errno == errno.EACCES:
            hint = "choose a --port above 1023: those below need special rights"
        else:
            hint = "choose another --port; 0 takes a free one"
        raise RunFailed(f"cannot listen on {host}:{port}: {error.strerror or error}", hint=hint) from error
    listening.set_inheritable(True)
    return listening


def preload(kb: KnowledgeBase, live: LiveGraph | None = None) -> None:
    """Load what all workers need, before they are forked. Leaves no thread behind."""
    warm(kb, live)
    if kb.model_folder is not None and (kb.model_folder / "manifest.json").is_file():
        import torch

        # A pool of threads would be lost in the fork, and waited for.
        torch.set_num_threads(1)
        _ = kb.predictor


def warm(kb: KnowledgeBase, live: LiveGraph | None = None) -> None:
    """Make what every question needs beside the model: the neighbours of each entity."""
    from biqe.exact.adjacency import adjacency

    adjacency(kb.graph if live is None else live.snapshot().graph)


def share_machine(workers: int) -> None:
    """In a worker: use no more than its share of the cores, and give memory back.

    The C library keeps a heap for every thread that allocates, and each of them grows to what its largest question
    took; two are enough for threads that take turns. Tables of scores go back to the system when they are done with;
    what is smaller is given back by ``give_back``.
    """
    import torch

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(M_ARENA_MAX, 2)
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)


def give_back() -> None:
    """Give free memory back to the system.

    The C library keeps what is freed between pieces that are in use. Tables of many sizes come and go here, so the gaps
    grow for minutes, to half as much again as is in use. It takes a few milliseconds.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)


def serve_socket(
    app: Any,
    listening: socket.socket,
    *,
    connections: Connections | None = None,
    worker: int = 0,
    is_stuck: Callable[[], bool] | None = None,
    tidy: Callable[[], None] | None = None,
    **options: Any,
) -> None:
    """Answer on the socket until SIGTERM: what a worker does. ``options`` are those of uvicorn.Config.

    ``connections`` are those of all workers, of whom this is number ``worker``. A worker that ``is_stuck`` stops, so
    that another takes its place. ``tidy`` is called in a thread now and then.
    """
    import uvicorn

    from biqe.serve.wire import Wire

    if connections is not None:
        listening = FairSocket(listening, connections, worker)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            # asyncio takes as many connections at a time as its backlog, so one worker would take them all. It is
            # told 1, and the kernel is told the real number afterwards.
            for each in sockets or ():
                each.listen(BACKLOG)
            if connections is not None:
                connections[worker] = 0

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if connections is not None:
                connections[worker] = AWAY
            await super().shutdown(sockets)

        async def on_tick(self, counter: int) -> bool:
            # Ten times a second.
            is_alone = counter % 10 == 0 and _supervisor is not None and os.getppid() != _supervisor
            self.should_exit = self.should_exit or _leaving or is_alone
            if connections is not None:
                connections[worker] = AWAY if self.should_exit else len(self.server_state.connections)
            if counter % 10 == 0 and is_stuck is not None and is_stuck():
                self.should_exit = True
            if counter % TIDY == 0 and tidy is not None:
                asyncio.get_running_loop().run_in_executor(None, tidy)
            return await super().on_tick(counter)

    settings = {"backlog": 1, "log_config": None, "access_log": False, "http": Wire, "ws": "none", **options}
    config = uvicorn.Config(app, **settings)  # type: ignore[arg-type]
    Server(config).run(sockets=[listening])
