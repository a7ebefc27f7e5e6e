"""Rejected links: remembered by whoever reads the file, whatever happened to it."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from biqe.errors import BiqeError, RunFailed
from biqe.graph.vocabulary import Vocabulary
from biqe.suggest.rejections import Rejections

LINK = ("Köln", "on\t", 'a "b"\n')


def test_verdicts_are_seen_by_every_reader(tmp_path):
    one, other = (Rejections(tmp_path / "rejected.jsonl") for _ in range(2))
    assert one.names == frozenset()
    one.add(LINK)
    other.add(("a", "r", "b"))
    assert one.names == other.names == {LINK, ("a", "r", "b")}
    other.add(LINK, rejected=False)
    assert one.names == Rejections(one.path).names == {("a", "r", "b")}
    assert one.ids(Vocabulary(["b", "a"], ["r"])) == {(1, 0, 0)} and one.ids(Vocabulary(["a"], ["r"])) == set()


def test_a_damaged_file_loses_only_its_damaged_lines(tmp_path):
    rejections = Rejections(tmp_path / "rejected.jsonl")
    rejections.add(LINK)
    with rejections.path.open("ab") as file:
        file.write(b'["cut sh')  # a crash
    rejections.add(("a", "r", "b"))
    with rejections.path.open("ab") as file:
        file.write(b'\xff\xfe\n[1, 2, 3, "rejected"]\n{}\n["a"]\n' + b"[" * 100_000 + b"\n")
    rejections.add(("c", "r", "d"))
    assert rejections.names == Rejections(rejections.path).names == {LINK, ("a", "r", "b"), ("c", "r", "d")}
    rejections.path.write_bytes(b"")
    assert rejections.names == frozenset()


def test_a_verdict_that_cannot_be_kept_is_an_error(tmp_path):
    rejections = Rejections(tmp_path / "rejected.jsonl")
    rejections.add(LINK)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (rejections.path.stat().st_size + 5, before[1]))  # as a full disk does
    try:
        with pytest.raises(RunFailed, match="could not be written"):
            rejections.add(("a", "r", "b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert Rejections(rejections.path).names == {LINK}
    rejections.path.unlink()
    os.mkfifo(rejections.path)
    with pytest.raises(BiqeError):
        rejections.add(LINK)
