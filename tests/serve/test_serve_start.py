"""What is checked before a server starts, and what a start leaves on disk."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from biqe.cli import main
from biqe.errors import InvalidOption
from biqe.serve.start import open_live


def test_a_check_finds_what_is_wrong_with_the_folder_of_changes(tmp_path, capsys):
    def checked(*options):
        code = main(["serve", "atlas", "--check", *map(str, options)])
        told = capsys.readouterr()
        return code, told.out, " ".join(told.err.split())  # lines are as wide as the screen

    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    for options, wrong in (
        (["--live", tmp_path / "file"], "--live"),
        (["--live", tmp_path / "full"], "--live"),
        (["--live", tmp_path / "file" / "below"], "cannot be made"),
        (["--live", tmp_path / "none", "--read-only"], "--read-only"),
        (["--open-to-all", "--host", "a b"], "--host"),
        (["--open-to-all", "--host", "\udcff"], "--host"),
        (["--open-to-all", "--host", "é" * 70], "--host"),
        (["--workers", "1000000000"], "'workers' must be in 1.."),
    ):
        code, _, told = checked(*options)
        assert code == 2 and wrong in told and "--out" not in told, options
    code, told, _ = checked("--live", tmp_path / "new")
    assert code == 0 and "nothing is wrong" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"], "it made nothing"


def test_a_port_that_is_taken_makes_no_folder(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "atlas", "--port", str(port), "--live", str(tmp_path / "new")]) == 2
    assert "cannot listen" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_place_that_is_taken_is_left_as_it_is(tmp_path, atlas_kb):

    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidOption) as refused:
        open_live(atlas_kb, tmp_path / "file", read_only=False)
    assert "--live" in refused.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_check_writes_nothing_even_where_an_update_was_interrupted(tmp_path, atlas_kb, capsys):
    live = open_live(atlas_kb, tmp_path / "first", read_only=False)
    live.apply("INSERT DATA { :Newtown :located_on :Rhine }")
    shutil.copytree(tmp_path / "first", tmp_path / "live")  # as a kill leaves it
    live.close()
    assert (tmp_path / "live" / "updates.sqlite-wal").stat().st_size > 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for options in ([], ["--read-only"]):
        assert main(["serve", "atlas", "--check", "--live", str(tmp_path / "live"), *options]) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    capsys.readouterr()


def test_a_server_that_is_stopped_while_it_starts_says_nothing_about_it(tmp_path, odd_kb):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for wait in (0.0, 0.3):
        server = subprocess.Popen(
            [sys.executable, "-m", "biqe", "serve", odd_kb.name, "--port", "0", "--read-only"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        stops = time.monotonic() + 60
        while not list(tmp_path.glob("biqe-exact-*/graph")) and time.monotonic() < stops:
            time.sleep(0.01)
        time.sleep(wait)  # the process of the exact store loads the graph meanwhile
        server.terminate()
        told = server.communicate(timeout=60)[1]  # until the process of the exact store has ended, too
        assert "Traceback" not in told and "BrokenPipe" not in told
        stops = time.monotonic() + 20
        while list(tmp_path.glob("biqe-exact-*")) and time.monotonic() < stops:
            time.sleep(0.01)
        assert not list(tmp_path.glob("biqe-exact-*")), "its folder is gone"
