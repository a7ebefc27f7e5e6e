"""Servers for the tests of this folder: real ones, over loopback, on free ports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from biqe.knowledge_base import KnowledgeBase
from biqe.knowledge_base import open as open_knowledge_base


@contextmanager
def running(app, **options) -> Iterator[str]:
    """The address of a server that runs the application in a thread of this process; options of uvicorn."""
    import uvicorn

    from biqe.serve.http_protocol import HttpProtocol

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    options = {"proxy_headers": False, "access_log": False, "http": HttpProtocol, "ws": "none", **options}
    config = uvicorn.Config(app, log_level="critical", lifespan="on", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def serving(kb: KnowledgeBase, config=None, *, log=None, live=None, **engine_options) -> Iterator[httpx2.Client]:
    """A client of a server over a knowledge base."""
    from biqe.serve import page_files
    from biqe.serve.app import build
    from biqe.serve.config import EngineConfig, ServeConfig
    from biqe.serve.engine import Engine
    from biqe.serve.metrics_and_logs import new_log

    with open("/dev/null", "w") as nowhere:
        config = replace(config or ServeConfig(), engine=EngineConfig(**engine_options))
        engine = Engine(kb, config.engine, live)
        app = build(engine, config, page=page_files.routes(), log=log or new_log(nowhere))
        forwarded = {"proxy_headers": bool(config.proxies), "forwarded_allow_ips": list(config.proxies)}
        with running(app, **forwarded) as address, httpx2.Client(base_url=address, timeout=60) as client:
            client.engine = engine  # for tests that compare with it
            yield client


@pytest.fixture(scope="session")
def serve() -> Callable[..., object]:
    """``with serve(kb, config) as client``."""
    return serving


@pytest.fixture(scope="session")
def atlas_kb() -> KnowledgeBase:
    return open_knowledge_base("atlas")


@pytest.fixture(scope="session")
def atlas(atlas_kb) -> Iterator[httpx2.Client]:
    """A server over the atlas with its model, as it is by default; shared, so nothing may change it."""
    with serving(atlas_kb) as client:
        yield client


ODD = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def odd_kb(tmp_path_factory) -> KnowledgeBase:
    """A graph without a model whose names are not what one expects of names."""
    from biqe.cli import main

    folder: Path = tmp_path_factory.mktemp("odd")
    names = [ODD, "a b", 'say "hi"', "50%", "http://ex.org/a", "tab\\u0009", "ünï", "-", "a.b", "&amp;", "_:b0"]
    lines = [f"{name}\tknows\t{other}\n" for name, other in zip(names, names[1:] + names[:1], strict=True)]
    lines += [f"{name}\tis a\tthing\n" for name in names]
    (folder / "odd.tsv").write_text("".join(lines), encoding="utf-8")
    assert main(["import", str(folder / "odd.tsv"), "--out", str(folder / "g")]) == 0
    return open_knowledge_base(folder / "g")


@pytest.fixture(scope="session")
def odd(odd_kb) -> Iterator[httpx2.Client]:
    with serving(odd_kb) as client:
        yield client


@pytest.fixture(scope="session")
def exchange() -> Callable[[httpx2.Client, bytes], bytes]:
    """What comes back for these bytes, until the server closes the connection."""

    def exchanged(client: httpx2.Client, request: bytes) -> bytes:
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
            raw.sendall(request)
            parts = []
            while part := raw.recv(65536):
                parts.append(part)
        return b"".join(parts)

    return exchanged
