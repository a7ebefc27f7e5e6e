"""Fetching against a server on this machine that behaves badly in every way."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from biqe.benchmarks import describe, names
from biqe.benchmarks.download import FETCHED, Remote, fetch, fetch_files, remote_files
from biqe.errors import InvalidOption, RunFailed, UnknownName, UnreadableFile

CONTENT = bytes(range(256)) * 4_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """How the server answers, request after request; the last way stays."""

    ways: list[str] = field(default_factory=lambda: ["good"])
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch) -> Iterator[tuple[str, Behaviour]]:
    behaviour = Behaviour()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            way = behaviour.ways[min(len(behaviour.ranges), len(behaviour.ways) - 1)]
            behaviour.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            if way in ("404", "503", "429"):
                self.send_error(int(way))
                return
            if way == "416" or (start >= len(CONTENT) and way != "ignores range"):
                self.send_error(416)
                return
            if way == "ignores range":
                start = 0
            body = CONTENT[start:]
            if way == "wrong bytes":
                body = b"\0" * len(body)
            elif way == "too long":
                body += b"more"
            self.send_response(206 if start else 200)
            if start:
                shown = start + 7 if way == "another part" else start
                self.send_header("Content-Range", f"bytes {shown}-{len(CONTENT) - 1}/{len(CONTENT)}")
            if way != "short":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if way in ("breaks off", "short"):
                body = body[: len(body) // 2]
            if way == "silent":
                self.wfile.write(body[:1000])
                self.wfile.flush()
                time.sleep(1.0)
                return
            if way == "slow":
                for place in range(0, len(body), 200_000):
                    self.wfile.write(body[place : place + 200_000])
                    self.wfile.flush()
                    time.sleep(0.02)
                return
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True  # the client went away in the middle, as some tests want

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/file.bin", behaviour
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def remote(url: str) -> Remote:
    return Remote(url, "sub/file.bin", SHA256, len(CONTENT))


def get(url: str, folder: Path, **options: object) -> Path:
    options = {"pause": 0.0, "timeout": 0.5, **options}
    return fetch_files([remote(url)], folder, **options)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ways", "ranges"),
    [
        (["good"], [None]),
        (["slow"], [None]),
        (["breaks off", "good"], [None, f"bytes={len(CONTENT) // 2}-"]),
        (["short", "good"], [None, f"bytes={len(CONTENT) // 2}-"]),
        (["breaks off", "ignores range"], [None, f"bytes={len(CONTENT) // 2}-"]),
        (["breaks off", "another part", "good"], [None, f"bytes={len(CONTENT) // 2}-", None]),
        (["breaks off", "416", "good"], [None, f"bytes={len(CONTENT) // 2}-", None]),
        (["silent", "good"], [None, "bytes=1000-"]),
        (["503", "429", "good"], [None, None, None]),
        (["wrong bytes", "good"], [None, None]),
    ],
    ids=lambda value: "+".join(map(str, value)) if isinstance(value, list) else None,
)
def test_the_file_arrives_whole(ways, ranges, server, tmp_path):
    url, behaviour = server
    behaviour.ways = ways
    place = get(url, tmp_path)
    assert place == tmp_path / "sub" / "file.bin" and place.read_bytes() == CONTENT
    assert behaviour.ranges == ranges
    assert [path.name for path in place.parent.iterdir()] == ["file.bin"]


def test_a_partial_file_of_an_earlier_session_is_gone_on_with(server, tmp_path):
    url, behaviour = server
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin.part").write_bytes(CONTENT[:12_345])
    seen: list[tuple[str, int, int]] = []
    assert get(url, tmp_path, on_progress=lambda *args: seen.append(args)).read_bytes() == CONTENT
    assert behaviour.ranges == ["bytes=12345-"]
    assert seen[0][1] > 12_345 and seen[-1] == ("sub/file.bin", len(CONTENT), len(CONTENT))
    assert [held for _, held, _ in seen] == sorted(held for _, held, _ in seen)


def test_a_finished_partial_file_needs_no_server(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin.part").write_bytes(CONTENT)
    assert get("http://127.0.0.1:9/none", tmp_path).read_bytes() == CONTENT


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    url, behaviour = server
    get(url, tmp_path)
    get(url, tmp_path)
    assert len(behaviour.ranges) == 1


def test_a_wrong_beginning_is_thrown_away(server, tmp_path):
    url, behaviour = server
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin.part").write_bytes(b"\0" * 1000)
    assert get(url, tmp_path).read_bytes() == CONTENT
    assert behaviour.ranges == ["bytes=1000-", None]


@pytest.mark.parametrize(
    ("ways", "message", "requests"),
    [
        (["404"], "after 1 tries: the server answers 404", 1),
        (["503"], "after 3 tries: the server answers 503", 3),
        (["wrong bytes"], "after 2 tries: it came with checksum", 2),
        (["too long"], "after 3 tries: it broke off", 3),
    ],
)
def test_what_cannot_be_fetched_is_named_and_leaves_nothing(ways, message, requests, server, tmp_path):
    url, behaviour = server
    behaviour.ways = ways
    with pytest.raises(UnreadableFile, match=message) as caught:
        get(url, tmp_path, tries=3)
    assert url in str(caught.value) and "file.bin" in str(caught.value.hint)
    assert len(behaviour.ranges) == requests
    assert not (tmp_path / "sub" / "file.bin").exists()


def test_no_server_is_an_error_of_ours(tmp_path):
    with pytest.raises(UnreadableFile, match="after 2 tries: it broke off"):
        get("http://127.0.0.1:9/none", tmp_path, tries=2)


def test_the_environment_names_the_proxy(server, tmp_path, monkeypatch):
    url, behaviour = server
    # The server stands in as proxy for an address that does not exist.
    monkeypatch.setenv("http_proxy", url.removesuffix("/file.bin"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert get("http://nowhere.invalid/file.bin", tmp_path).read_bytes() == CONTENT
    assert len(behaviour.ranges) == 1


def test_a_place_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "sub").write_text("a file where the folder should be")
    with pytest.raises(RunFailed, match="cannot be made"):
        get(server[0], tmp_path)


@pytest.mark.parametrize("options", [{"tries": 0}, {"timeout": 0.0}])
def test_options_are_checked(options, tmp_path):
    with pytest.raises(InvalidOption):
        get("http://127.0.0.1:9/none", tmp_path, **options)


@pytest.mark.parametrize("name", FETCHED)
def test_pinned_files_are_pinned_by_state_and_checksum(name):
    found = remote_files(name)
    assert found and len({remote.place for remote in found}) == len(found)
    for one in found:
        assert one.url.startswith("https://") and len(one.sha256) == 64 and one.bytes > 0
        assert "/master/" not in one.url and "/main/" not in one.url
        assert "test_" not in one.place or name.startswith("wn18rr")


@pytest.mark.parametrize("name", sorted(set(names()) - set(FETCHED)))
def test_files_without_an_address_say_where_to_put_them(name, tmp_path):
    with pytest.raises(UnknownName) as caught:
        fetch(name, data=tmp_path)
    assert caught.value.hint == describe(name).how


def test_fetch_asks_for_what_is_missing_only(monkeypatch, tmp_path):
    asked: list[Remote] = []
    monkeypatch.setattr("biqe.benchmarks.download._fetch", lambda remote, *_: asked.append(remote))
    fetch("wn18rr-cq", data=tmp_path)
    pinned = remote_files("wn18rr-cq")
    assert asked == pinned
    there = tmp_path / asked[0].place
    there.parent.mkdir()
    there.write_bytes(b"\0" * asked[0].bytes)
    asked.clear()
    fetch("wn18rr-cq", data=tmp_path)
    assert asked == pinned, "as long as the file, but not the file"
    monkeypatch.setattr("biqe.benchmarks.download.sha256", lambda path: pinned[0].sha256)
    asked.clear()
    fetch("wn18rr-cq", data=tmp_path)
    assert asked == pinned[1:]


@pytest.mark.parametrize("own", [b"\0" * len(CONTENT), b"the user's own"], ids=["as long", "shorter"])
def test_another_file_in_its_place_is_moved_aside(own, server, tmp_path, caplog):
    url, behaviour = server
    place = tmp_path / "sub" / "file.bin"
    place.parent.mkdir()
    place.write_bytes(own)
    place.with_name("file.bin.bak").write_bytes(b"an earlier one")
    assert get(url, tmp_path).read_bytes() == CONTENT
    assert place.with_name("file.bin.bak2").read_bytes() == own
    assert place.with_name("file.bin.bak").read_bytes() == b"an earlier one"
    (said,) = caplog.messages
    assert "file.bin was another file" in said and said.endswith("kept as file.bin.bak2")
    get(url, tmp_path)
    assert len(behaviour.ranges) == 1


def test_a_file_stays_where_nothing_better_comes(server, tmp_path):
    url, behaviour = server
    behaviour.ways = ["wrong bytes"]
    place = tmp_path / "sub" / "file.bin"
    place.parent.mkdir()
    place.write_bytes(b"the user's own")
    with pytest.raises(UnreadableFile):
        get(url, tmp_path)
    assert [path.name for path in place.parent.iterdir()] == ["file.bin"] and place.read_bytes() == b"the user's own"


def test_files_at_hand_are_the_pinned_ones(benchmark_data):
    data = benchmark_data("q2b").parent
    for one in [*remote_files("wn18rr-cq"), *remote_files("nell995-q2b")[:4]]:
        if (data / one.place).is_file():
            content = (data / one.place).read_bytes()
            assert replace(one, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content)) == one
