"""Bytes of files: packed, damaged, of any other kind."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from biqe.errors import BadLine, BiqeError, UnreadableFile
from biqe.graph.blocks import blocks
from biqe.graph.read import read_graph

File = Callable[[str, str | bytes], Path]


def test_over_long_line(file: File) -> None:
    path = file("g.tsv", b"a\tr\tb\n" + b"x" * (17 << 20))
    with pytest.raises(BadLine, match="line 2: the line is longer than 16,777,216 bytes"):
        read_graph([path])


@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.nt", "g.ttl", "g.nq", "g.rdf", "g.parquet"])
@pytest.mark.parametrize("content", [b"", b"\n\n", bytes(range(256)) * 4, b"PK\x03\x04zip", b"\x1f\x8b\x08broken"])
def test_garbage_of_any_kind_is_refused(file: File, name: str, content: bytes) -> None:
    with pytest.raises(BiqeError):
        read_graph([file(name, content)])


def test_gzip_is_looked_through_and_truncation_noticed(file: File) -> None:
    packed = gzip.compress("".join(f"e{i}\tr\te{i * 7 % 1000}\n" for i in range(5000)).encode())
    for name in ("g.tsv.gz", "g.TSV.GZ", "g.tsv"):
        assert len(read_graph([file(name, packed)]).splits.train) == 5000
    with pytest.raises(UnreadableFile, match="damaged or truncated gzip"):
        read_graph([file("cut.tsv.gz", packed[: len(packed) // 2])])
    with pytest.raises(UnreadableFile, match="not a gzip file"):
        read_graph([file("plain.tsv.gz", "a\tr\tb\n")])


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("biqe.graph.blocks.FREE_BYTES", 1 << 20)
    path = tmp_path / "g.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tr\tb\n" * 1_000_000))
    with pytest.raises(UnreadableFile, match="more than 200 times its size") as caught:
        sum(len(block.data) for block in blocks(path))
    assert "gunzip" in caught.value.hint
    lines = b"".join(b"%d\tr\tb\n" % number for number in range(200_000))
    path.write_bytes(gzip.compress(lines))
    assert sum(len(block.data) for block in blocks(path)) == len(lines)
