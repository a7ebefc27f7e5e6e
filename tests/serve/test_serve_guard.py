"""Who may ask, how much, and from where: tokens, limits, other sites, and what never gets out."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.cli import main
from biqe.errors import InvalidOption, UnreadableFile
from biqe.serve.config import Limits, ServeConfig
from biqe.serve.guard import Tokens, is_world_readable

READER, WRITER = "reader-0123456789abcdef", "writer-0123456789abcdef"
QUERY = {"query": "SELECT ?x { ?x :knows ?y }"}


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"# who may ask\nread {READER}\n\nwrite {WRITER}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def closed(serve, odd_kb, token_file):
    with serve(odd_kb, ServeConfig(token_file=token_file, cors=("https://friend.example",))) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Tokens


@pytest.mark.parametrize("path", ["/sparql", "/api/graph", "/api/models", "/metrics", "/api/openapi.json", "/api/none"])
def test_reading_needs_a_token(closed, path):
    response = closed.get(path)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    for wrong in (READER[:-1], READER + "x", WRITER.upper(), "ü" * 20):
        refused = closed.get(path, headers={"Authorization": f"Bearer {wrong}".encode()})
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"] == 'Bearer realm="biqe", error="invalid_token"'
    other_scheme = closed.get(path, headers={"Authorization": f"Basic {READER}"})
    assert (other_scheme.status_code, other_scheme.headers["WWW-Authenticate"]) == (401, 'Bearer realm="biqe"')
    for right in (READER, WRITER):
        assert closed.get(path, headers=bearer(right)).status_code == (404 if path.endswith("none") else 200)


def test_writing_needs_a_token_that_may_write(closed):
    update = {"update": "INSERT DATA { :a :b :c }"}
    for path in ("/update", "/sparql"):
        unknown = closed.post(path, data=update)
        assert unknown.status_code == 401 and "read" not in unknown.json()["error"]["message"]
        refused = closed.post(path, data=update, headers=bearer(READER))
        assert refused.status_code == 403 and "may not write" in refused.json()["error"]["message"]
        assert 'error="insufficient_scope"' in refused.headers["WWW-Authenticate"]
        read_only = closed.post(path, data=update, headers=bearer(WRITER))
        assert read_only.status_code == 403 and "read-only" in read_only.json()["error"]["message"]
    upload = {"Content-Type": "text/turtle", **bearer(READER)}
    assert closed.post("/api/load", content=b"<a:a> <a:b> <a:c> .", headers=upload).status_code == 403


def test_health_needs_no_token_and_tells_nothing(closed):
    assert closed.get("/health").json() == {"status": "alive"}
    assert closed.get("/ready").json() == {"status": "ready"}


def test_no_token_comes_back_in_any_answer(closed, capfd):
    for token in (READER, WRITER, "wrong-" + READER):
        for path in ("/sparql", "/none", "/api/complete?limit=x"):
            response = closed.get(path, headers=bearer(token))
            assert token not in response.text and token not in str(response.headers)
    assert READER not in "".join(capfd.readouterr())


@given(st.text(max_size=40), st.sampled_from([READER, WRITER, ""]))
def test_only_the_tokens_themselves_open(text, token):
    import hashlib

    tokens = Tokens(read=(hashlib.sha256(READER.encode()).digest(),), write=(hashlib.sha256(WRITER.encode()).digest(),))
    expected = {READER: {"read"}, WRITER: {"read", "write"}}
    for candidate in (text, token + text, token):
        assert tokens.allows(candidate) == expected.get(candidate, set())


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "read\n", "read short\n", "admin 0123456789abcdef\n", "read a b c\n", "read " + "ü" * 20],
)
def test_a_token_file_that_says_nothing_is_refused_without_telling_it(text, tmp_path):
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFile) as error:
        Tokens.of_file(path)
    assert "0123456789abcdef" not in str(error.value)


def test_a_token_file_must_be_there(tmp_path):
    with pytest.raises(UnreadableFile):
        Tokens.of_file(tmp_path / "none")


def test_a_token_file_that_all_can_read_is_noticed(token_file, tmp_path):
    assert not is_world_readable(token_file)
    other = tmp_path / "open"
    other.write_text("read 0123456789abcdef\n")
    os.chmod(other, stat.S_IRUSR | stat.S_IROTH)
    assert is_world_readable(other)


# Where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_listening_beyond_loopback_needs_tokens_or_force(host, token_file):
    with pytest.raises(InvalidOption, match="needs tokens"):
        ServeConfig(host=host)
    ServeConfig(host=host, token_file=token_file)
    ServeConfig(host=host, open_to_all=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_none(host):
    assert ServeConfig(host=host).is_loopback


def test_the_command_refuses_before_anything_is_opened(capsys):
    assert main(["serve", "no-such-folder", "--host", "0.0.0.0"]) == 2
    assert "--token-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"port": 70_000},
        {"workers": 0},
        {"mode": "maybe"},
        {"cors": ("example.org",)},
        {"cors": ("https://example.org/page",)},
    ],
)
def test_settings_are_checked(settings):
    with pytest.raises(InvalidOption):
        ServeConfig(**settings)


def test_limits_are_checked():
    with pytest.raises(InvalidOption):
        Limits(rows=0)


# Other sites


def test_other_hosts_and_other_pages_are_refused(odd):
    assert odd.get("/sparql", params=QUERY, headers={"Host": "evil.example"}).status_code == 403
    assert odd.get("/sparql", params=QUERY, headers={"Host": "localhost"}).status_code == 200
    for path in ("/sparql", "/update", "/api/ask"):
        refused = odd.post(path, data=QUERY, headers={"Origin": "https://evil.example"})
        assert refused.status_code == 403 and "other sites" in refused.json()["error"]["message"]
    own = str(odd.base_url).rstrip("/")
    assert odd.post("/sparql", data=QUERY, headers={"Origin": own}).status_code == 200
    assert odd.post("/sparql", data=QUERY, headers={"Origin": "null"}).status_code == 403


def test_a_browser_that_sends_no_origin_tells_of_other_sites_too(odd, closed):
    own = str(odd.base_url).rstrip("/")
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": own}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ):
        assert odd.post("/sparql", data=QUERY, headers=headers).status_code == status, headers
    assert odd.get("/sparql", params=QUERY, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    named = {"Sec-Fetch-Site": "cross-site", "Origin": "https://friend.example", **bearer(READER)}
    assert closed.post("/sparql", data=QUERY, headers=named).status_code == 200


def test_two_origins_are_refused(odd):
    own = str(odd.base_url).rstrip("/")
    for origins in ((own, own), (own, "https://evil.example"), ("https://evil.example", own)):
        headers = [("Origin", origin) for origin in origins]
        refused = odd.post("/sparql", data=QUERY, headers=headers)
        assert refused.status_code == 400 and "Origin" in refused.json()["error"]["message"]


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "version, lengths",
    [(b"1.1", b"Content-Length: 5\r\n" + CHUNKED), (b"1.1", CHUNKED + b"Content-Length: 5\r\n"), (b"1.0", CHUNKED)],
)
def test_a_request_whose_end_may_be_read_in_two_ways_is_refused(odd, exchange, version, lengths):
    smuggled = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = exchange(
        odd,
        b"POST /sparql HTTP/%s\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n" % version
        + lengths
        + b"\r\n0\r\n\r\n"
        + smuggled,
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400" and b"connection: close" in head.lower()
    assert "Transfer-Encoding" in json.loads(body)["error"]["message"], "one answer, and none to what follows"


@pytest.mark.parametrize(
    "host", ["[::1", "[::1]]", "a b", "<x>", "localhost:port", "[v1.x]", 'a"b', "127.0.0.1/x", "a@b"]
)
def test_a_host_that_is_none_is_a_bad_request(odd, closed, host):
    for client in (odd, closed):
        for path in ("/sparql", "/health", "/"):
            response = client.get(path, headers={"Host": host, **bearer(READER)})
            assert response.status_code == 400, (path, response.text)
            assert "Host" in response.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:", "[::1]", "[::1]:80"])
def test_names_and_addresses_of_this_machine_are_answered(odd, host):
    assert odd.get("/sparql", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[x]/"])
def test_an_origin_that_is_none_is_another_site(odd, origin):
    assert odd.post("/sparql", data=QUERY, headers={"Origin": origin}).status_code == 403


def test_http_1_0_does_without_a_host(odd, exchange):
    for path in (b"/health", b"/sparql"):
        assert exchange(odd, b"GET " + path + b" HTTP/1.0\r\n\r\n").split()[1] == b"200"
    assert exchange(odd, b"GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n").split()[1] == b"403"


@pytest.mark.parametrize("version", ["9.9", "0.9", "4.0"])
def test_a_version_of_http_that_there_is_not_is_refused(odd, version, exchange):
    answer = exchange(odd, f"GET / HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 505", b"HTTP/1.1 400")) and b"hint" in answer


def test_no_page_of_another_site_reads_an_answer_by_default(odd):
    response = odd.get("/sparql", params=QUERY, headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["cross-origin-resource-policy"] == "same-origin"


def test_cors_is_for_those_who_are_named(closed):
    friend, stranger = {"Origin": "https://friend.example"}, {"Origin": "https://evil.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = closed.options("/sparql", headers=friend | asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://friend.example"
    assert closed.options("/sparql", headers=stranger | asked).status_code == 400
    answer = closed.post("/sparql", data=QUERY, headers=friend | bearer(READER))
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://friend.example")
    assert closed.post("/sparql", data=QUERY, headers=stranger | bearer(READER)).status_code == 403


def test_every_answer_has_its_security_headers(odd):
    for path in ("/sparql", "/none", "/api/graph", "/health", "/sparql?query=nonsense"):
        headers = odd.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


# Sizes


@pytest.fixture(scope="module")
def small(serve, odd_kb):
    limits = Limits(query_length=300, patterns=4, paths=1, rows=3, body=2000, upload=4000, header=2500, top=5)
    with serve(odd_kb, ServeConfig(limits=limits), seconds=1.5) as client:
        yield client


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"method": "GET", "params": {"query": "SELECT * { ?s ?p ?o }" + " " * 300}}, 413),
        ({"method": "GET", "params": {"query": "SELECT * { " + "?s ?p ?o . " * 5 + "}"}}, 413),
        ({"method": "GET", "params": {"query": "SELECT * { ?s :a/:b/:c/:d/:e ?o }"}}, 413),
        ({"method": "GET", "params": {"query": "SELECT * { ?s :a+ ?o . ?o :b* ?x }"}}, 413),
        ({"method": "GET", "params": {"query": "x" * 4000}}, 414),
        ({"method": "GET", "headers": {"X-Long": "x" * 4000}}, 431),
        ({"method": "POST", "data": {"query": "x" * 3000}}, 413),
        ({"method": "GET", "params": {"query": "SELECT * { ?s ?p ?o . ?o :a+ ?x }"}}, 200),
    ],
    ids=range(8),
)
def test_what_is_too_large_is_refused_with_its_number(small, request_, status):
    response = small.request(url="/sparql", **request_)
    assert response.status_code == status, response.text


def test_a_body_without_a_length_is_cut_off_too(small):
    def endless():
        for _ in range(1000):
            yield b"query=" + b"x" * 1000

    response = small.post("/sparql", content=endless(), headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert response.status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for_for_ever(small):
    with socket.create_connection((small.base_url.host, small.base_url.port), timeout=30) as raw:
        raw.sendall(
            b"POST /sparql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
            b"Content-Type: application/sparql-query\r\n\r\nSELECT"
        )
        assert b" 408 " in raw.recv(200)


def test_a_client_that_goes_away_takes_its_work_with_it(serve, atlas_kb):
    slow = (
        "SELECT (COUNT(*) AS ?n) { ?a :near ?b . ?b :near ?c . ?c :near ?d . ?d :near ?e . ?e :near ?f . ?f :near ?g }"
    )
    with serve(atlas_kb, seconds=60.0) as client:
        with pytest.raises(httpx2.TimeoutException):
            client.get("/sparql", params={"query": slow}, timeout=0.5)
        patience = time.monotonic() + 15
        while client.engine.stats["running"] and time.monotonic() < patience:
            time.sleep(0.05)
        assert client.engine.stats["running"] == 0
        assert client.get("/sparql", params={"query": "ASK { ?s ?p ?o }"}).json()["boolean"] is True


def test_a_slow_query_is_stopped_and_others_go_on(small):
    product = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?a != ?l) }"
    cubed = product.replace("?l FILTER", "?l OPTIONAL { ?m ?n2 ?o OPTIONAL { ?p ?q ?r } } FILTER")
    response = small.get("/sparql", params={"query": cubed})
    assert response.status_code in (200, 413, 503)
    assert small.get("/sparql", params=QUERY).status_code == 200


def test_a_pipe_or_a_device_is_no_token_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UnreadableFile, match="not a regular file"):
            Tokens.of_file(path)
