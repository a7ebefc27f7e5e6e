"""Worker processes behind one listening socket, and the supervisor that keeps them running.

The supervisor loads graph and model once and then forks, so that workers share that memory. All workers accept from one
socket and share connections evenly (http_protocol). The supervisor has no threads and answers no requests:

    a worker ends                it is replaced at once, unless workers keep ending as soon as they start
    SIGTERM, SIGINT, SIGHUP      workers finish their requests and stop; those that do not are killed
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
from biqe.serve.http_protocol import AWAY, Connections, FairSocket, HttpProtocol

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.live.live_graph import LiveGraph

BACKLOG = 2_048
"""Connections that wait in the kernel until a worker accepts them."""
STABLE = 10.0
"""Seconds after which the end of a worker does not count as a failed start."""
ATTEMPTS = 5
"""Failed starts in a row after which the supervisor gives up."""
WATCH = 1.0
"""Seconds between calls of ``Supervisor.watch``."""
TIDY = 50
"""Ticks of a worker, ten per second, between calls of its ``tidy``."""
SWITCH = 0.001
"""Seconds after which a thread of a worker passes Python's lock on, so that the event loop, which wants it often and
briefly, does not wait long for threads that compute."""
PR_SET_PDEATHSIG = 1
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3

SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass
class Supervisor:
    """Keeps ``count`` workers running."""

    work: Callable[[int], None]
    """What a worker does until SIGTERM; it gets its number."""
    count: int = 1
    """Number of workers."""
    stop_seconds: float = 30.0
    """Time that workers get to finish their requests."""
    watch: Callable[[], None] = lambda: None
    """Called every second; must not block for long."""
    tell: Callable[..., None] = lambda event, **facts: None
    """Called for each event, with details as keywords."""
    workers: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Number and time of start of each worker, by process id."""
    signals: set[signal.Signals] = field(default_factory=lambda: set(SIGNALS))
    """Signals that it waits for."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidOption(f"'workers' must be at least 1. Got {self.count}")

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP (a closed terminal). RunFailed if workers do not stay alive."""
        gc.collect()
        gc.freeze()  # the garbage collector then leaves what is loaded alone, so its pages stay shared
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup; sigtimedwait would not ignore it
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
            came = signal.sigtimedwait(self.signals, WATCH)
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
            self.watch()

    def _ended(self) -> list[tuple[int, int]]:
        """Workers that have ended, with their status. Other child processes are not waited for."""
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
            _end_with(parent)
            # In effect before and after the web server has handlers of its own.
            signal.signal(signal.SIGTERM, _leave)
            signal.signal(signal.SIGINT, _leave)
            # A closed terminal signals all of its processes; the supervisor stops the workers in order.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self.work(number)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            # Exit without the supervisor's own exit handlers.
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
"""Whether this worker got a stop signal while it was not serving."""
_supervisor: int | None = None
"""In a worker, the process id of its supervisor."""


def _leave(*_: Any) -> None:
    """Handle a stop signal to a worker that is not serving. Python swallows the exception in some places (during
    imports, for example), so the signal is also noted, and a worker that goes on to serve stops at once."""
    global _leaving
    _leaving = True
    sys.exit(0)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _end_with(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends; a serving worker also checks by itself."""
    global _supervisor
    _supervisor = parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def listen(host: str, port: int) -> socket.socket:
    """The listening socket that workers share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then. Without it the end of a response waits until the
    # client has acknowledged its beginning, which clients delay by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except (OSError, TypeError, UnicodeError) as error:  # the last two: a name that no address has
        listening.close()
        if not isinstance(error, OSError) or isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            hint = "--host is an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
        elif error.errno == errno.EACCES:
            hint = "choose a --port above 1023: those below need special rights"
        else:
            hint = "choose another --port; 0 takes a free one"
        reason = getattr(error, "strerror", None) or error
        raise RunFailed(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error
    listening.set_inheritable(True)
    return listening


def preload(kb: KnowledgeBase, live: LiveGraph | None = None) -> None:
    """Load what all workers need before they are forked. Leaves no thread behind."""
    warm(kb, live)
    if kb.model_folder is not None and (kb.model_folder / "manifest.json").is_file():
        import torch

        # The threads of a pool do not survive a fork, and a child would wait for them.
        torch.set_num_threads(1)
        _ = kb.predictor


def warm(kb: KnowledgeBase, live: LiveGraph | None = None) -> None:
    """Make what every question needs beside the model: the neighbours of each entity."""
    from biqe.exact.adjacency import adjacency

    adjacency(kb.graph if live is None else live.snapshot().graph)


def share_machine(workers: int) -> None:
    """In a worker: use no more than its share of the cores, and limit the memory that the C library keeps.

    The C library keeps a heap for every thread that allocates, and each grows to the size of its largest question; two
    are enough for threads that take turns. Large arrays are allocated so that freeing them returns their memory.
    """
    import torch

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))
    sys.setswitchinterval(SWITCH)
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(M_ARENA_MAX, 2)
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)


def give_back() -> None:
    """Return free memory to the system, which takes a few milliseconds.

    The C library keeps freed memory between pieces that are in use. Arrays of many sizes come and go here, and within
    minutes the gaps grow to half of what is in use.
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
    is_proxy: Callable[[str], bool] = lambda address: False,
    **options: Any,
) -> None:
    """Serve ``app`` on the socket until SIGTERM. ``options`` are those of uvicorn.Config.

    ``connections`` counts those of all workers, of which this is number ``worker``. When ``is_stuck()`` is true the
    worker stops, so that the supervisor replaces it. ``tidy`` is called in a thread from time to time. Addresses for
    which ``is_proxy`` is true may have any number of connections.
    """
    import uvicorn

    if connections is not None:
        listening = FairSocket(listening, connections, worker)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            # asyncio accepts as many connections at once as its backlog, so that one worker would take them all. It
            # gets a backlog of 1, and the kernel the real one afterwards.
            for each in sockets or ():
                each.listen(BACKLOG)
            if connections is not None:
                connections[worker] = 0

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if connections is not None:
                connections[worker] = AWAY
            await super().shutdown(sockets)

        async def on_tick(self, counter: int) -> bool:
            # Called ten times a second.
            is_alone = counter % 10 == 0 and _supervisor is not None and os.getppid() != _supervisor
            self.should_exit = self.should_exit or _leaving or is_alone
            if connections is not None:
                connections[worker] = AWAY if self.should_exit else len(self.server_state.connections)
            if counter % 10 == 0 and is_stuck is not None and is_stuck():
                self.should_exit = True
            if counter % TIDY == 0 and tidy is not None:
                asyncio.get_running_loop().run_in_executor(None, tidy)
            return await super().on_tick(counter)

    class Protocol(HttpProtocol):
        pass

    Protocol.is_proxy = staticmethod(is_proxy)
    settings = {"backlog": 1, "log_config": None, "access_log": False, "http": Protocol, "ws": "none", **options}
    config = uvicorn.Config(app, **settings)  # type: ignore[arg-type]
    Server(config).run(sockets=[listening])
