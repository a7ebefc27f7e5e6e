"""Settings of a server: where it listens, who may ask, and how much."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from biqe.errors import InvalidOption

PORT = 7878
SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which several workers add up their metrics."""
MODES = ("known", "both", "predicted")
MAX_WORKERS = 256
KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for. Anything beyond is refused, or cut with a note that says so."""

    query_length: int = 20_000
    """Characters of a query."""
    patterns: int = 64
    """Triple patterns of a query, in all its groups."""
    paths: int = 8
    """Property paths with * or + in a query; each may walk the whole graph."""
    rows: int = 10_000
    """Rows of an answer. A longer answer is cut, and a header says so."""
    top: int = 1_000
    """Predicted rows that one request may ask for."""
    body: int = 1 * MIB
    """Bytes of a request's body."""
    upload: int = 64 * MIB
    """Bytes of an uploaded file."""
    header: int = 16 * KIB
    """Bytes of the request line and all headers together."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise InvalidOption(f"{name!r} must be above 0. Got {value}")


@dataclass(frozen=True)
class EngineConfig:
    """How much is answered at a time, and for how long."""

    threads: int = 16
    """Questions with predictions that run at a time. Here and below, one client has three quarters of them at most."""
    exact_threads: int = 4
    """Questions without predictions that run at a time, for a fraction of a second each."""
    long_threads: int = 4
    """Those of them that need longer, and run at a time."""
    queue: int = 128
    """Questions of each kind that may wait; further ones are refused at once, of the client that has most."""
    seconds: float = 30.0
    """Time limit of one request, its waiting included."""
    stop_seconds: float = 20.0
    """Time that running questions get when the server stops."""
    memory: int = 512 * MIB
    """Bytes that one query of the exact store, or one upload, may use beyond the graph itself."""
    batching: bool = True
    """Whether questions that arrive together share calls of the model."""

    def __post_init__(self) -> None:
        for name in ("threads", "exact_threads", "long_threads", "memory"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} must be at least 1. Got {getattr(self, name)}")
        if self.queue < 0:
            raise InvalidOption(f"'queue' must not be negative. Got {self.queue}")
        for name in ("seconds", "stop_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidOption(f"{name!r} must be more than 0. Got {getattr(self, name)}")


@dataclass(frozen=True)
class ServeConfig:
    """How a knowledge base is served."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but loopback needs ``token_file`` or ``open_to_all``."""
    port: int = PORT
    """Port to listen on; 0 takes a free one."""
    workers: int = 1
    """Number of worker processes."""
    token_file: Path | None = None
    """File with lines ``read TOKEN`` and ``write TOKEN``; None lets everyone read and write."""
    open_to_all: bool = False
    """Listen beyond loopback, or answer to other names than loopback's behind a proxy, without tokens. Everyone who
    reaches the server may then read, and write unless ``read_only``."""
    read_only: bool = False
    """Refuse every change of the graph."""
    cors: tuple[str, ...] = ()
    """Origins of other sites whose pages may send requests, such as https://example.org; ``*`` for all."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies. From these, X-Forwarded-For and X-Forwarded-Proto are believed."""
    mode: str = "known"
    """Rows that /sparql returns if the client does not choose: with known it is a plain SPARQL 1.1 endpoint."""
    limits: Limits = field(default_factory=Limits)
    engine: EngineConfig = field(default_factory=EngineConfig)
    telemetry: bool = False
    """Send traces by OpenTelemetry; needs the extra ``telemetry``."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidOption(f"'port' must be in 0..65535. Got {self.port}")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise InvalidOption(f"'workers' must be in 1..{MAX_WORKERS}. Got {self.workers}")
        if self.mode not in MODES:
            raise InvalidOption(f"'mode' must be one of {', '.join(MODES)}. Got {self.mode!r}")
        for origin in self.cors:
            if origin != "*" and ("://" not in origin or origin.count("/") > 2):
                raise InvalidOption(f"'cors' must be origins such as https://example.org, or *. Got {origin!r}")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise InvalidOption(
                    f"'proxy' must be an address or a network such as 127.0.0.1 or 10.0.0.0/8. Got {proxy!r}"
                ) from None
        if not self.is_loopback and self.token_file is None and not self.open_to_all:
            raise InvalidOption(
                f"listening on {self.host} lets other machines ask, so it needs tokens",
                hint="give --token-file FILE with lines 'read TOKEN' and 'write TOKEN', or --open-to-all to go without",
            )

    def is_proxy(self, address: str) -> bool:
        """Whether this is the address of one of the proxies."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in ipaddress.ip_network(proxy) for proxy in self.proxies)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:  # a name that may resolve to any address
            return False
