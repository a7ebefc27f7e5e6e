"""``biqe serve``: a knowledge base as a SPARQL endpoint, a JSON API and a page."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biqe.cli._options import Device, GraphFolder, Known, Target

if TYPE_CHECKING:
    from biqe.knowledge_base import KnowledgeBase
    from biqe.serve.config import ServeConfig
    from biqe.serve.live import LiveGraph

HOST, PORT = "127.0.0.1", 7878


def serve(
    target: Target,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine with --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 7878,
    workers: Annotated[int, typer.Option(help="Number of processes; they share model and graph.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(help="Lines of 'read TOKEN' and 'write TOKEN'.", show_default=False)
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Listen beyond this machine without tokens.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse updates of the graph.")] = False,
    live: Annotated[
        Path | None, typer.Option(help="Folder that keeps updates. Default: one for this graph.", show_default=False)
    ] = None,
    mode: Annotated[str, typer.Option(help="Rows of /sparql if the client does not choose.")] = "known",
    cors: Annotated[
        list[str] | None, typer.Option(help="Another site whose pages may ask; * for all.", show_default=False)
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address of a reverse proxy that tells its clients' addresses.", show_default=False),
    ] = None,
    graph: GraphFolder = None,
    device: Device = "cpu",
    known: Known = None,
    seconds: Annotated[float, typer.Option(help="Time limit of one request.")] = 30.0,
    max_rows: Annotated[int, typer.Option(help="Maximum number of rows of one answer.")] = 10_000,
    queue: Annotated[int, typer.Option(help="Requests that may wait; further ones get 503.")] = 128,
    telemetry: Annotated[bool, typer.Option("--telemetry", help="Send traces by OpenTelemetry.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Open everything, print what would be served, write nothing, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --check: one JSON document.")] = False,
) -> None:
    """Serve a graph and its model: a SPARQL endpoint, a JSON API and a page.

    Existing SPARQL clients get stored answers at /sparql, and predicted ones beside them where they ask for them. The
    page is at the address that is printed. Only this machine can reach the server unless --host says otherwise.

        biqe serve atlas

        curl -H 'Accept: text/csv' http://127.0.0.1:7878/sparql \\
          --data-urlencode query='SELECT ?c { ?c :located_on :Rhine }'

        biqe serve runs/mine --host 0.0.0.0 --token-file tokens --workers 2

        biqe serve kg/mine --read-only --port 8000

    Predictions in standard SPARQL: add mode=both to the request, or write
    SERVICE <urn:biqe:predict> { ... } in the query; see docs/serve/endpoint.md.
    """
    from biqe.errors import InvalidOption
    from biqe.serve.config import EngineConfig, Limits, ServeConfig
    from biqe.serve.start import refuse_without_extra

    if as_json and not check:
        raise InvalidOption("--json goes with --check: a server that runs has no document to print")
    config = ServeConfig(
        host=host,
        port=port,
        workers=workers,
        token_file=token_file,
        open_to_all=open_to_all,
        read_only=read_only,
        cors=tuple(cors or ()),
        proxies=tuple(proxy or ()),
        mode=mode,
        limits=Limits(rows=max_rows),
        engine=EngineConfig(queue=queue, seconds=seconds),
        telemetry=telemetry,
    )
    refuse_without_extra()
    if workers > 1 and device != "cpu":
        raise InvalidOption(
            f"several processes share a model in main memory only. Got --workers {workers}, --device {device}",
            hint="serve with one of the two",
        )
    _start(target, graph, known, device, live, config, check, as_json)


def _start(
    target: str,
    graph: Path | None,
    known: str | None,
    device: str,
    live: Path | None,
    config: ServeConfig,
    check: bool,
    as_json: bool,
) -> None:
    from biqe.knowledge_base import open as open_knowledge_base
    from biqe.serve.guard import Tokens, is_world_readable
    from biqe.serve.start import check_live
    from biqe.serve.workers import listen

    if config.token_file is not None:
        Tokens.of_file(config.token_file)
        if is_world_readable(config.token_file):
            print(f"warning: every user of this machine can read {config.token_file}", file=sys.stderr)
    kb = open_knowledge_base(target, graph=graph, known=known, device=device)
    if check:
        if kb.model_folder is not None:
            _ = kb.predictor  # raises if the model cannot be loaded
        listen(config.host, 0).close()  # any port: a server may be running on this one
        check_live(kb, live, read_only=config.read_only)
        _print_check(kb, config, as_json)
        return
    _serve(kb, config, live)


def _serve(kb: KnowledgeBase, config: ServeConfig, live: Path | None) -> None:
    from biqe.serve.start import open_live
    from biqe.serve.start import serve as serve_now

    serve_now(
        kb,
        config,
        lambda: open_live(kb, live, read_only=config.read_only),
        announce=lambda address, changes: _announce(kb, config, address, changes),
    )


def serve_here(kb: KnowledgeBase, port: int | None) -> None:
    """Serve the page on this machine until Ctrl-C: on the given port, else on the usual one, or a free one."""
    from biqe.errors import RunFailed
    from biqe.serve.config import ServeConfig
    from biqe.serve.workers import listen

    if port is None:
        port = PORT
        try:
            listen(HOST, port).close()
        except RunFailed:
            port = 0
    _serve(kb, ServeConfig(host=HOST, port=port), None)


def _print_check(kb: KnowledgeBase, config: ServeConfig, as_json: bool) -> None:
    if not as_json:
        print(f"{_headline(kb)}\nwould listen on {config.host}, port {config.port}; nothing is wrong with it")
        return
    document = {
        "name": kb.name,
        "entities": kb.graph.entity_count,
        "relations": kb.graph.relation_count,
        "triples": len(kb.graph.triples),
        "models": list(kb.models),
        "settings": asdict(config),
    }
    print(json.dumps(document, indent=2, default=str))


def _headline(kb: KnowledgeBase) -> str:
    models = ", ".join(kb.models) or "none, so stored answers only"
    return f"{kb.name}: {len(kb.graph.triples):,} triples, {kb.graph.entity_count:,} entities; model {models}"


def _announce(kb: KnowledgeBase, config: ServeConfig, address: str, changes: LiveGraph | None) -> None:
    """Print the addresses on standard output; the log goes to standard error."""
    kept = "refused (--read-only)" if config.read_only or changes is None else f"kept in {changes.folder}"
    lines = [
        _headline(kb),
        f"  page      {address}/",
        f"  SPARQL    {address}/sparql",
        f"  API       {address}/api/openapi.json",
        f"  tokens    {'needed' if config.token_file else 'none: everyone who reaches the port may ask'}",
        f"  changes   {kept}",
        "Ctrl-C stops the server after running requests are finished.",
    ]
    print("\n".join(lines), flush=True)
