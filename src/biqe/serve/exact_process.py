"""The exact store in processes of its own, which can be killed.

pyoxigraph answers all of SPARQL 1.1, and nothing stops a query once it runs: no time limit, no way to cancel. A query
over paths can take hours and all memory. So each query runs in a child process under a time and a memory limit that the
kernel keeps, and that is killed when its caller has gone.

    service   a process that loads the store once, listens on a private socket, and forks a child for each connection;
              children share the store's memory. All workers of a server use one service.
    child     answers one query after the other on its connection, a few of them
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.errors import BiqeError, Busy, RequestRefused, RunFailed, UnsupportedQuery
from biqe.exact.store import ExactStore
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.serve.exact_messages import read_answer, read_question, write_answer, write_error, write_fault, write_question
from biqe.serve.lanes import Request
from biqe.serve.results import Document, table_of

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.live.changes import Changes
    from biqe.serve.live.live_graph import LiveGraph

MEMORY = 1 << 30
"""Bytes that one query may take beyond the store itself."""
LATE = 2.0
"""Seconds beyond its time after which the kernel ends a query whose caller did not."""
NOTHING = "ASK { <urn:biqe:none> ?p ?o }"
"""Makes a store load what it loads on first use, and a live one catch up, so that children share it."""
STOP = 5.0
"""Seconds that the service gets to end by itself."""
QUERIES = 10
"""Queries after which a child is let go: whatever it reads, it gets a copy of its own of the store's memory. Another is
forked in a few milliseconds."""
LOOK = 0.05
"""Seconds between looks at whether the caller is still there."""
IDLE = 3.0
"""Seconds after which a child that nobody asks is let go, with its copies."""


GRAPH, LIVE = "graph", "live"
"""What lies in the folder that a service answers from."""


class LiveStore:
    """The exact store of a live graph: every query sees what was acknowledged before it."""

    def __init__(self, folder: Path) -> None:
        from biqe.serve.live.live_graph import LiveGraph

        self._live = LiveGraph(folder)

    def query(self, text: str, *, after: Sequence[Changes] | None = None, **options: Any) -> Any:
        """As ``ExactStore.query``; with ``after``, the triples of a CONSTRUCT once those changes were made."""
        view = self._live.snapshot()
        if after is None:
            return view.store.query(text, **options)
        try:
            return view.ask_after(after, text)
        except (SyntaxError, RuntimeError, ValueError, OSError) as error:
            raise UnsupportedQuery(f"what WHERE stands for cannot be found: {error}") from error


def service_of(kb: KnowledgeBase, live: LiveGraph | None, memory: int = MEMORY) -> ExactService:
    """The service for the exact store of a knowledge base, or for that of its live graph."""
    return ExactService(kb.graph if live is None else live.folder, memory=memory)


class ExactService:
    """Starts the service and keeps it alive; ``address`` is where children are to be had."""

    def __init__(self, source: Graph | Path, *, memory: int = MEMORY) -> None:
        """Of a graph, or of the live graph in a folder."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._place = Path(tempfile.mkdtemp(prefix="biqe-exact-"))  # for our user alone
        self.address = str(self._place / "socket")
        if isinstance(source, Path):
            self._source = [LIVE, str(source)]
        else:
            # From the memory of one process to that of another, whatever it came from and has become.
            nothing = source.triples[:0]
            graph_folder.save(Splits(source.vocabulary, source.triples, nothing, nothing), self._place / GRAPH)
            self._source = [GRAPH, str(self._place / GRAPH)]
        self._memory = memory

    def start(self) -> None:
        """Start it, or start it again if it has died; returns once it answers."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._close()
            Path(self.address).unlink(missing_ok=True)
            # A group of its own, so that it can end all its children, but no session: Linux shares the processors out
            # among sessions first (autogroup), and children beside busy workers hardly got any of them.
            process = subprocess.Popen(
                [sys.executable, "-m", "biqe.serve.exact_process", self.address, *self._source, str(self._memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,
            )
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            # Its standard input stays open: when this process ends, the service reads its end and follows.
            if process.stdout.readline() != b"ready\n":
                process.wait()
                raise RunFailed("the process for exact queries could not start", hint="see what it wrote on stderr")

    @property
    def is_alive(self) -> bool:
        """Whether the service runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the service and its children."""
        self._close()
        shutil.rmtree(self._place, ignore_errors=True)

    def _close(self) -> None:
        """Close what leads to the process: without it, it ends."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            try:
                process.wait(STOP)
            except subprocess.TimeoutExpired:  # somebody else holds its standard input
                process.kill()
                process.wait()


class ExactProcesses:
    """Children of a service, as many as are used at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._idle: list[Child] = []
        self._lock = threading.Lock()
        self.killed = 0
        """Children that were ended in the middle of a query."""

    def query(self, text: str, request: Request, **options: Any) -> Any:
        """What the store's ``query`` returns or raises; with ``written``, a form and extra columns, as a Document: ten
        thousand rows are then made, and written, where they hold nobody up."""
        child = self._child(text, request, options)
        connection = child.connection
        try:
            while not connection.poll(LOOK):
                request.check()
            answer = connection.recv_bytes()
        except (EOFError, ConnectionError) as error:
            self._end(child)
            if request.left <= LOOK:
                raise request.too_long() from error
            raise RequestRefused(
                "the query was ended: it needed more memory than one query may take",
                hint="ask for less at a time: a LIMIT, fewer variables, no paths of any length between two unknowns",
                status=413,
            ) from error
        except BaseException:
            self._end(child)
            raise
        child.answered += 1
        if child.answered < QUERIES:
            child.since = time.monotonic()
            with self._lock:
                self._idle.append(child)
        else:
            child.let_go()
        return read_answer(answer)

    def tidy(self) -> None:
        """Let those children go that nobody has asked for a while: the last to be idle is asked first, so what came for
        many queries at once stays unused afterwards."""
        self._let_go(time.monotonic() - IDLE)

    def close(self) -> None:
        """Let all idle children go."""
        self._let_go(float("inf"))

    def _let_go(self, before: float) -> None:
        with self._lock:
            idle = [child for child in self._idle if child.since < before]
            self._idle = [child for child in self._idle if child.since >= before]
        for child in idle:
            child.let_go()

    def _child(self, text: str, request: Request, options: dict[str, Any]) -> Child:
        """A child that has been given the query."""
        asked = write_question(text, options, max(request.left, 0.01))
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                break
            try:
                child.connection.send_bytes(asked)
                return child
            except OSError:  # it died while it was idle
                child.let_go()
        try:
            connection: Connection = Client(self._address, "AF_UNIX")  # type: ignore[assignment]
            child = Child(connection, os.pidfd_open(int(connection.recv_bytes())))
            connection.send_bytes(asked)
        except (OSError, EOFError) as error:
            raise Busy("the exact store is being started again", hint="ask again in a moment") from error
        return child

    def _end(self, child: Child) -> None:
        self.killed += 1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.process, signal.SIGKILL)
        child.let_go()


@dataclass
class Child:
    """A connection to a child, and the child itself: a number could be another process's by the time it is killed."""

    connection: Connection
    process: int
    """File descriptor of the process."""
    answered: int = 0
    """Queries so far."""
    since: float = 0.0
    """When the last of them was answered."""

    def let_go(self) -> None:
        """It ends by itself when its connection does."""
        self.connection.close()
        os.close(self.process)


def _serve(connection: Connection, store: ExactStore | LiveStore, memory: int) -> None:
    """Answer queries on the connection until it is closed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + memory, in_use + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(str(os.getpid()).encode())
    while True:
        text, options, seconds = read_question(connection.recv_bytes())
        signal.setitimer(signal.ITIMER_REAL, seconds + LATE)
        form, extra = options.pop("written", (None, ()))
        try:
            found = store.query(text, **options)
            answer = write_answer(found if form is None else Document.of(table_of(found, extra), form))
        except MemoryError:
            os._exit(1)
        except BiqeError as error:
            answer = write_error(error)
        except Exception as error:
            answer = write_fault("".join(traceback.format_exception(error)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(answer)


def _reap(*_: Any) -> None:
    """Take note of children that have ended; were they ignored, nobody would add up their processor time."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(address: str, kind: str, folder: str, memory: str) -> None:
    """The service: one child for each connection, until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # its group is not the terminal's, which may want to know
    signal.signal(signal.SIGCHLD, _reap)
    stdin = sys.stdin.buffer
    store = LiveStore(Path(folder)) if kind == LIVE else ExactStore(graph_folder.load(folder)["train"])
    store.query(NOTHING)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        readable, _, _ = select.select([listening, stdin], [], [])
        if stdin in readable:
            shutil.rmtree(Path(address).parent, ignore_errors=True)  # whoever started us may not be able to
            os.killpg(0, signal.SIGKILL)
        accepted, _ = listening.accept()
        with contextlib.suppress(BiqeError):
            store.query(NOTHING)
        if os.fork():
            accepted.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        with contextlib.suppress(EOFError, ConnectionError):
            _serve(Connection(accepted.detach()), store, int(memory))
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
