"""Start a server: one socket, one exact store, and the workers.

What workers share is loaded once, before they are forked (``workers``). Each worker then builds its own engine and
application.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.errors import InvalidOption, RunFailed, VocabularyMismatch
from biqe.graph.whole_folder import temporary_folder
from biqe.serve.config import SHARED_METRICS, ServeConfig

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.http_protocol import Connections
    from biqe.serve.live import LiveGraph

FILES = 16_384
"""Files and connections that a worker may have open."""
NEEDS = ("fastapi", "orjson", "prometheus_client", "structlog", "uvicorn")


def refuse_without_extra() -> None:
    """InvalidOption that names the extra to install, if a package is missing."""
    from importlib.util import find_spec

    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise InvalidOption(
            f"serving needs packages that are not installed: {', '.join(missing)}", hint="pip install 'biqe[serve]'"
        )


def open_live(kb: KnowledgeBase, folder: Path | None, *, read_only: bool) -> LiveGraph | None:
    """The live graph in ``folder``, or in the default folder of this graph; None if changes are neither kept nor taken.

    With ``read_only`` nothing is written to the folder, which must exist.
    """
    from biqe.serve.live import LiveGraph

    place = _live_folder(kb, folder, read_only)
    if place is None:
        return None
    live = LiveGraph(place, kb.splits, known=kb.known, prefixes=kb.prefixes, read_only=read_only)
    if not live.is_of(kb.splits.fingerprint):
        raise VocabularyMismatch(
            f"{place} keeps changes of another graph than {kb.name} (fingerprints {live.origin} and "
            f"{kb.splits.fingerprint})",
            hint="give another folder with --live",
        )
    return live


def check_live(kb: KnowledgeBase, folder: Path | None, *, read_only: bool) -> None:
    """Raise what ``open_live`` would raise, and write nothing."""
    from biqe.serve.live import is_live_folder
    from biqe.serve.live.generations import refuse_taken

    place = _live_folder(kb, folder, read_only)
    if place is None:
        return
    if is_live_folder(place):
        open_live(kb, place, read_only=True)
        return
    refuse_taken(place)
    parent = next(above for above in place.absolute().parents if above.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise RunFailed(
            f"{place} cannot be made: {parent} is not writable",
            hint="choose another place with --live, or --read-only to keep no changes",
        )


def _live_folder(kb: KnowledgeBase, folder: Path | None, read_only: bool) -> Path | None:
    """Where changes are kept; None if there are none."""
    from biqe.serve.live import is_live_folder

    if folder is None:
        return None if read_only else default_folder(kb)
    if read_only and not is_live_folder(folder):
        raise InvalidOption(f"{folder} is not a live graph, and --read-only makes none", hint="leave --live out")
    return folder


def default_folder(kb: KnowledgeBase) -> Path:
    """Default folder for changes of this graph, in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "biqe" / f"{Path(kb.name).name}-{kb.splits.fingerprint}"


def allow_many_files() -> None:
    """Raise the limit on open files, connections included, which is 1,024 on many systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve(
    kb: KnowledgeBase,
    config: ServeConfig,
    open_changes: Callable[[], LiveGraph | None] = lambda: None,
    *,
    announce: Callable[[str, LiveGraph | None], None] = lambda address, live: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; then finish running requests.

    ``open_changes`` opens the live graph; it is called once the port is bound, so that a port in use makes no folder.
    ``announce`` gets the address for a browser on this machine once the socket listens.
    """
    from biqe.serve.exact_process import service_of
    from biqe.serve.http_protocol import AWAY, Connections
    from biqe.serve.workers import Supervisor, listen, preload

    allow_many_files()
    with listen(config.host, config.port) as socket, _exit_on_sigterm(), _shared_metrics(config.workers):
        # Imported only now: prometheus_client reads the folder of shared metrics when it is imported.
        from biqe.serve.metrics_and_logs import new_log

        log = new_log()
        live = open_changes()
        preload(kb, live)
        connections = Connections(config.workers)
        service = service_of(kb, live, config.engine.memory)

        def keep_exact_store() -> None:
            if not service.is_alive:
                log.warning("exact store ended", restarted=True)
                service.start()

        def tell(event: str, **facts: Any) -> None:
            log.info(event, **facts)
            if event == "worker ended":
                connections[facts["worker"]] = AWAY
                if os.environ.get(SHARED_METRICS):
                    from prometheus_client import multiprocess

                    multiprocess.mark_process_dead(facts["process"])  # type: ignore[no-untyped-call]

        supervisor = Supervisor(
            work=lambda number: _work(kb, config, live, service.address, socket, connections, number),
            count=config.workers,
            stop_seconds=config.engine.stop_seconds + 5,
            watch=keep_exact_store,
            tell=tell,
        )
        try:
            service.start()
            announce(_address(config.host, socket.getsockname()[1]), live)
            supervisor.run()
        finally:
            service.stop()


def _address(host: str, port: int) -> str:
    """What to type into a browser on this machine."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _work(
    kb: KnowledgeBase,
    config: ServeConfig,
    live: LiveGraph | None,
    exact: str,
    socket: Any,
    connections: Connections,
    number: int,
) -> None:
    """Run one worker until it is told to stop."""
    from biqe.serve import page_files
    from biqe.serve.app import build
    from biqe.serve.engine import Engine
    from biqe.serve.metrics_and_logs import forward, new_log
    from biqe.serve.workers import give_back, serve_socket, share_machine

    log = new_log()
    if kb.model_folder is not None:
        share_machine(config.workers)
    forward(log)
    engine = Engine(kb, config.engine, live, exact=exact)

    def tidy() -> None:
        engine.tidy()
        give_back()

    app = build(engine, config, page=page_files.routes(), log=log)
    serve_socket(
        app,
        socket,
        connections=connections,
        worker=number,
        is_stuck=lambda: engine.is_stuck,
        tidy=tidy,
        # Above our own limit, so that headers a little too long get our error rather than the web server's.
        h11_max_incomplete_event_size=4 * config.limits.header,
        timeout_graceful_shutdown=int(config.engine.stop_seconds),
        server_header=False,
        is_proxy=config.is_proxy,
        proxy_headers=bool(config.proxies),
        forwarded_allow_ips=list(config.proxies),
        lifespan="on",
    )


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM an exception while the server starts, so that temporary folders are removed."""

    def leave(*_: Any) -> None:
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _shared_metrics(workers: int) -> Iterator[None]:
    """A temporary folder in which several workers add up their metrics."""
    if workers == 1 or os.environ.get(SHARED_METRICS):
        yield
        return
    with temporary_folder("biqe-metrics-") as folder:
        os.environ[SHARED_METRICS] = str(folder)
        try:
            yield
        finally:
            os.environ.pop(SHARED_METRICS, None)
