"""The recipes in deploy/ for nginx and Caddy, run by the real servers over loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from biqe.errors import InvalidOption
from biqe.serve.config import Limits, ServeConfig
from biqe.serve.lanes import current_client

KINDS = ("nginx", "caddy")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAME = "kg.example.org"
FETCHED = Path(__file__).parents[2] / "build" / "proxies" / "usr"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:{FETCHED}/sbin:{FETCHED}/bin"
"""Where the servers are looked for: installed, or fetched by make."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """A certificate for the name of the recipes, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    files = folder / "certificate.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """The recipe with other values; each of them must be there."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx_command(recipe: str, folder: Path, files, backend: str, port: int) -> list[str]:
    recipe = replaced(
        recipe,
        ("server 127.0.0.1:7878", f"server {backend}"),
        ("listen 80;", f"listen 127.0.0.1:{free_port()};"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/certs/kg.example.org.pem", str(files[0])),
        ("/etc/ssl/private/kg.example.org.key", str(files[1])),
    )
    (folder / "biqe.conf").write_text(recipe)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {paths} include {folder}/biqe.conf; }}\n"
    )
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy_command(recipe: str, folder: Path, files, backend: str, port: int) -> list[str]:
    recipe = replaced(
        recipe,
        ("127.0.0.1:7878", backend),
        (
            "\n{\n",
            f"\n{{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n\thttps_port {port}\n",
        ),
        (f"\n{NAME} {{\n", f"\n{NAME} {{\n\ttls {files[0]} {files[1]}\n"),
    )
    (folder / "Caddyfile").write_text(recipe)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


class Through:
    """A client that reaches a server through a proxy with TLS."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.context = ssl.create_default_context(cafile=str(certificate))

    def ask(self, method, path, body=None, headers=None, address="127.0.0.1"):
        """Status, headers and body."""
        connection = HTTPSConnection(NAME, self.port, context=self.context, timeout=60)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(address, 0))
        connection.sock = self.context.wrap_socket(raw, server_hostname=NAME)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def query(self, text, **options):
        return self.ask("POST", "/sparql", urlencode({"query": text}), **{"headers": FORM, **options})


@contextmanager
def proxied(kind: str, root: Path, folder: Path, files, client):
    """The real proxy with our recipe in front of a server."""
    program = shutil.which(kind, path=PATH)
    if program is None:
        pytest.skip(f"{kind} is not installed; 'make proxies' fetches it")
    backend, port = f"{client.base_url.host}:{client.base_url.port}", free_port()
    recipe = (root / "deploy" / ("nginx.conf" if kind == "nginx" else "Caddyfile")).read_text("utf-8")
    command = (nginx_command if kind == "nginx" else caddy_command)(recipe, folder, files, backend, port)
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            [program, *command[1:]], stdout=output, stderr=output, env={"PATH": PATH, "HOME": str(folder)}
        )
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "output").read_text("utf-8")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield Through(port, files[0])
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def server(serve, odd_kb):
    """A server that believes a proxy on this machine, and whom its exact queries came from."""
    config = ServeConfig(proxies=("127.0.0.1",), open_to_all=True, read_only=True, limits=Limits(body=200_000))
    with serve(odd_kb, config) as client:
        plain, client.seen = client.engine.exact, []

        async def noted(*arguments, **options):
            client.seen.append(current_client.get())
            return await plain(*arguments, **options)

        client.engine.exact = noted
        yield client


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_brings_tls_limits_and_the_addresses_of_clients(kind, root, tmp_path, certificate, server):
    with proxied(kind, root, tmp_path, certificate, server) as through:
        status, headers, body = through.query("ASK { ?a ?b ?c }")
        assert (status, json.loads(body)["boolean"]) == (200, True)
        assert headers["Strict-Transport-Security"] and headers["X-Request-Id"]

        # Whoever asks is told apart by address, whatever a client says of itself.
        server.seen.clear()
        for address in ("127.0.0.2", "127.0.0.3"):
            for claimed in ({}, {"X-Forwarded-For": "10.1.2.3"}, {"Forwarded": "for=10.1.2.3"}):
                assert through.query("ASK { ?a ?b ?c }", headers=FORM | claimed, address=address)[0] == 200
        assert server.seen == ["127.0.0.2"] * 3 + ["127.0.0.3"] * 3

        # The server knows its name and that it is reached by TLS.
        status, _, body = through.ask("GET", "/sparql", headers={"Accept": "application/n-triples"})
        assert status == 200 and f"<https://{NAME}:{through.port}/sparql>".encode() in body
        # Its page may send requests; those of other sites may not.
        for origin, expected in ((f"https://{NAME}:{through.port}", 200), ("https://evil.example", 403)):
            assert through.query("ASK { ?a ?b ?c }", headers=FORM | {"Origin": origin})[0] == expected

        # Long answers, compressed on request; long addresses; bodies up to the server's limit and beyond it.
        everything = "SELECT ?a ?b ?c ?d WHERE { ?a ?p ?b . ?c ?q ?d }"
        status, _, body = through.query(everything)
        assert status == 200 and len(json.loads(body)["results"]["bindings"]) == len(
            server.post("/sparql", data={"query": everything}).json()["results"]["bindings"]
        )
        status, headers, squeezed = through.query(everything, headers=FORM | {"Accept-Encoding": "gzip"})
        assert status == 200 and headers["Content-Encoding"] == "gzip" and len(squeezed) < len(body) / 4
        long = urlencode({"query": "ASK { ?a ?b ?c } #" + "x" * 9_000})
        assert through.ask("GET", f"/sparql?{long}")[0] == 200
        assert through.ask("GET", f"/sparql?{'x' * 30_000}")[0] in (414, 431)
        status, _, body = through.ask("POST", "/sparql", b"q" * 300_000, FORM)
        assert status == 413 and b"200,000" in body, "the server's own answer"
        if kind == "nginx":  # refuses by its own limit, before the body is sent
            assert through.ask("POST", "/sparql", b"q", FORM | {"Content-Length": str(65 << 20)})[0] == 413
        assert through.ask("GET", "/metrics")[0] == 404 and through.ask("GET", "/ready")[0] == 200

        # A framing that two servers could read differently is not read as two requests.
        raw = socket.create_connection(("127.0.0.1", through.port), timeout=30)
        with through.context.wrap_socket(raw, server_hostname=NAME) as secure:
            secure.sendall(
                f"POST /sparql HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"
                "Connection: close\r\n\r\n0\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: secure.recv(65_536), b""))
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 4")


def test_only_a_proxy_is_believed(serve, odd_kb, tmp_path):
    log = tmp_path / "log"
    from biqe.serve.metrics_and_logs import new_log

    for proxies, expected in ((("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.0/8",), "192.0.2.7")):
        with (
            open(log, "w+") as stream,
            serve(odd_kb, ServeConfig(proxies=proxies), log=new_log(stream)) as client,
        ):
            # The last address that is not a proxy's is the client's; what stands before it anybody may have written.
            sent = {"X-Forwarded-For": "1.2.3.4, 192.0.2.7"}
            assert client.get("/sparql?query=ASK{}", headers=sent).status_code == 200
            stream.flush()
            stream.seek(0)
            assert [json.loads(line)["client"] for line in stream if '"request"' in line] == [expected]


def test_what_is_no_address_is_no_proxy():
    with pytest.raises(InvalidOption, match="proxy"):
        ServeConfig(proxies=("nginx",))
    config = ServeConfig(proxies=("10.0.0.0/8", "::1"))
    found = [config.is_proxy(address) for address in ("10.1.2.3", "::1", "127.0.0.1", "unix", "")]
    assert found == [True, True, False, False, False]
