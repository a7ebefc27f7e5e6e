"""The exact store in processes of its own, which can be killed.

pyoxigraph answers all of SPARQL 1.1, but a query cannot be stopped once it runs, and a query over paths can take hours
and all memory; so can a small file that is uploaded. So each query, and each upload, is read in a child process with a
time and a memory limit that the kernel enforces, and the child is killed when its caller goes away.

    service   loads the store once, listens on a private socket, and forks a child for each connection. Children share
              the store's memory. All workers of a server use one service.
    child     answers up to QUERIES queries on its connection, one after the other
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
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.errors import BiqeError, Busy, RequestRefused, RunFailed, UnsupportedQuery
from biqe.exact.store import ExactStore
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.whole_folder import temporary_folder
from biqe.serve.exact_messages import read_answer, read_question, write_answer, write_error, write_fault, write_question
from biqe.serve.lanes import Deadline, Kept, NeedsLonger
from biqe.serve.live.upload import Upload
from biqe.serve.results import Document, table_of

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.live.changes import Changes
    from biqe.serve.live.live_graph import LiveGraph

LATE = 2.0
"""Seconds beyond its time limit after which the kernel ends a query, should its caller not have done so."""
WARM_UP = "ASK { <urn:biqe:none> ?p ?o }"
"""Makes a store load what it loads on first use, and a live one catch up, before children are forked from it."""
STOP = 5.0
"""Seconds that the service gets to end by itself."""
QUERIES = 10
"""Questions of one child. A child copies each page of the store's memory that it touches, so it is replaced at times;
forking takes a few milliseconds."""
POLL = 0.05
"""Seconds between checks whether the caller is still there."""
IDLE = 3.0
"""Seconds after which an unused child is closed, to free the memory that it copied."""
STATEMENTS = 128 << 20
"""Bytes of the statements of an upload, as they are sent to the server: a small compressed file may hold many."""
BACKGROUND = 15
"""Niceness of children that work in the background."""

GRAPH, LIVE = "graph", "live"
"""Kinds of folders that a service can serve."""


class LiveStore:
    """The exact store of a live graph: a query sees every update that was acknowledged before it."""

    def __init__(self, folder: Path) -> None:
        from biqe.serve.live.live_graph import LiveGraph

        self._live = LiveGraph(folder)

    def query(self, text: str, *, after: Sequence[Changes] | None = None, **options: Any) -> Any:
        """As ``ExactStore.query``; with ``after``, the triples that a CONSTRUCT would find after those changes."""
        view = self._live.snapshot()
        if after is None:
            return view.store.query(text, **options)
        try:
            return view.ask_after(after, text)
        except (SyntaxError, RuntimeError, ValueError, OSError) as error:
            raise UnsupportedQuery(f"the WHERE part of the update cannot be evaluated: {error}") from error


def service_of(kb: KnowledgeBase, live: LiveGraph | None, memory: int) -> ExactService:
    """The service for the exact store of a knowledge base, or for that of its live graph."""
    return ExactService(kb.graph if live is None else live.folder, memory=memory)


class ExactService:
    """Starts the service and restarts it; clients connect to ``address``."""

    def __init__(self, source: Graph | Path, *, memory: int) -> None:
        """``source`` is a graph, or the folder of a live graph; ``memory`` is as in EngineConfig."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = contextlib.ExitStack()
        self._place = self._folder.enter_context(temporary_folder("biqe-exact-"))
        self.address = str(self._place / "socket")
        self._source = source
        self._memory = memory

    def start(self) -> None:
        """Start the service unless it runs; returns once it answers."""
        with self._lock:
            if self.is_alive:
                return
            self._close()
            Path(self.address).unlink(missing_ok=True)
            kind, folder = LIVE, self._source
            if isinstance(folder, Graph):
                # The graph goes to the other process through a folder, whatever it was loaded from.
                graph, kind, folder = folder, GRAPH, self._place / GRAPH
                nothing = graph.triples[:0]
                if not folder.exists():
                    splits = Splits(graph.vocabulary, graph.triples, nothing, nothing, graph.literals)
                    graph_folder.save(splits, folder)
            # A process group of its own, so that it can kill all its children, but no session of its own: Linux divides
            # processor time among sessions first (autogroup), and children beside busy workers got hardly any.
            process = subprocess.Popen(
                [sys.executable, "-m", "biqe.serve.exact_process", self.address, kind, folder, str(self._memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,
            )
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            # Its standard input stays open: the service ends when it is closed, so it ends with this process.
            if process.stdout.readline() != b"ready\n":
                process.wait()
                raise RunFailed("the process for exact queries did not start", hint="standard error says why")

    @property
    def is_alive(self) -> bool:
        """Whether the service runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the service and its children."""
        self._close()
        self._folder.close()

    def _close(self) -> None:
        """Close the standard input of the service, which ends it."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            try:
                process.wait(STOP)
            except subprocess.TimeoutExpired:  # another process inherited its standard input
                process.kill()
                process.wait()


class ExactClient:
    """Asks children of a service; keeps idle ones for the next query."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._idle: list[Child] = []
        self._lock = threading.Lock()
        self.killed = 0
        """Number of children that were killed during a query."""

    def ask(self, asked: str | Upload, deadline: Deadline, **options: Any) -> Any:
        """What the store's ``query``, or ``Upload.read``, returns or raises.

        With ``written=(form, extra columns)`` the child also writes the result as a Document, so that a long one delays
        nobody here. If the short time of the deadline ends, the child works on and is kept for a second attempt.
        """
        kept = deadline.take_kept()
        if kept is not None and kept.question == (asked, options):
            child = kept.child
        else:
            if kept is not None:
                kept.drop()
            child = self._child(asked, deadline, options)
        if deadline.is_background:
            child.yield_processor()
        connection = child.connection
        try:
            while not connection.poll(POLL):
                deadline.check()
            answer = connection.recv_bytes()
        except (EOFError, ConnectionError) as error:
            self._kill(child)
            if deadline.left <= POLL:
                raise deadline.too_long() from error
            what, hint = "query", "a LIMIT, fewer variables, no paths of any length between two unknowns"
            if isinstance(asked, Upload):
                what, hint = "upload", "the file in parts, without deep nesting"
            raise RequestRefused(
                f"the {what} was stopped: it needed more memory than one {what} may use",
                hint=f"ask for less at a time: {hint}",
                status=413,
            ) from error
        except NeedsLonger:
            deadline.keep(Kept((asked, options), child, partial(self._kill, child)))
            raise
        except BaseException:
            self._kill(child)
            raise
        child.answered += 1
        if child.answered < QUERIES and not child.is_slow:
            child.since = time.monotonic()
            with self._lock:
                self._idle.append(child)
        else:
            child.close()
        return read_answer(answer)

    def tidy(self) -> None:
        """Close children that were idle for a while. The most recently used is asked first, so that children which a
        burst of queries needed stay unused afterwards."""
        self._close_idle(time.monotonic() - IDLE)

    def close(self) -> None:
        """Close all idle children."""
        self._close_idle(float("inf"))

    def _close_idle(self, before: float) -> None:
        with self._lock:
            idle = [child for child in self._idle if child.since < before]
            self._idle = [child for child in self._idle if child.since >= before]
        for child in idle:
            child.close()

    def _child(self, asked: str | Upload, deadline: Deadline, options: dict[str, Any]) -> Child:
        """A child that the question was sent to."""
        question = write_question(asked, options, max(deadline.left, 0.01))
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                break
            try:
                child.connection.send_bytes(question)
                return child
            except OSError:  # it died while it was idle
                child.close()
        try:
            connection: Connection = Client(self._address, "AF_UNIX")  # type: ignore[assignment]
            number = int(connection.recv_bytes())
            child = Child(connection, number, os.pidfd_open(number))
            connection.send_bytes(question)
        except (OSError, EOFError) as error:
            raise Busy("the exact store is being restarted", hint="try again in a moment") from error
        return child

    def _kill(self, child: Child) -> None:
        self.killed += 1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.process, signal.SIGKILL)
        child.close()


@dataclass
class Child:
    """A connection to a child process."""

    connection: Connection
    number: int
    """Process id."""
    process: int
    """File descriptor of the process (pidfd); its process id could belong to another process by the time of a kill."""
    answered: int = 0
    """Number of queries so far."""
    since: float = 0.0
    """When the last of them was answered."""
    is_slow: bool = False
    """Whether it leaves the processor to others."""

    def yield_processor(self) -> None:
        """From now on, run while nothing else wants the processor. This cannot be taken back."""
        if not self.is_slow:
            self.is_slow = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, self.number, BACKGROUND)

    def close(self) -> None:
        """Close the connection; the child then ends by itself."""
        self.connection.close()
        os.close(self.process)


def answered(asked: str | Upload, options: dict[str, Any], store: ExactStore | LiveStore) -> bytes:
    """The message with the answer to a question, or with the error. Ends the process if memory is used up."""
    form, extra = options.pop("written", (None, ()))
    try:
        found: Any = asked.read() if isinstance(asked, Upload) else store.query(asked, **options)
        answer = write_answer(found if form is None else Document.of(table_of(found, extra), form))
        if isinstance(asked, Upload) and len(answer) > STATEMENTS:
            raise RequestRefused(
                f"the upload holds more than {STATEMENTS:,} bytes of statements",
                hint="send it in parts, or import it: biqe import FILE --out FOLDER",
                status=413,
            )
        return answer
    except MemoryError:
        os._exit(1)
    except BiqeError as error:
        return write_error(error)
    except Exception as error:
        return write_fault("".join(traceback.format_exception(error)))


def _serve(connection: Connection, store: ExactStore | LiveStore, memory: int) -> None:
    """Answer queries on the connection until it is closed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + memory, in_use + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(str(os.getpid()).encode())
    while True:
        asked, options, seconds = read_question(connection.recv_bytes())
        signal.setitimer(signal.ITIMER_REAL, seconds + LATE)
        answer = answered(asked, options, store)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(answer)


def _reap(*_: Any) -> None:
    """Collect children that have ended. (With SIGCHLD ignored, their processor time would not be counted.)"""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(address: str, kind: str, folder: str, memory: str) -> None:
    """The service: one child for each connection, until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # so that a background process group may write to the terminal
    signal.signal(signal.SIGCHLD, _reap)
    from biqe.graph import read_rdf, read_table  # noqa: F401 - what uploads need, once for all children

    stdin = sys.stdin.buffer
    try:
        store = LiveStore(Path(folder)) if kind == LIVE else ExactStore(graph_folder.load(folder)["train"])
        store.query(WARM_UP)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
    except (BiqeError, OSError):
        # The server was stopped while it started: nobody listens any more, or the folder is deleted.
        is_alone = stdin in select.select([stdin], [], [], 0)[0]
        if not is_alone and Path(address).parent.exists():
            raise
        shutil.rmtree(Path(address).parent, ignore_errors=True)
        os._exit(0)
    while True:
        readable, _, _ = select.select([listening, stdin], [], [])
        if stdin in readable:
            shutil.rmtree(Path(address).parent, ignore_errors=True)  # the server may have been killed
            os.killpg(0, signal.SIGKILL)
        accepted, _ = listening.accept()
        with contextlib.suppress(BiqeError):
            store.query(WARM_UP)
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
