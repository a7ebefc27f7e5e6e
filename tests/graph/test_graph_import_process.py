"""Imports in a child process: the same as in this one, and nothing that a file does to the child reaches the parent."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import numpy as np
import pytest

from biqe.errors import BadLine, RunFailed, UnreadableFile
from biqe.graph import import_process
from biqe.graph.import_process import import_in_child
from biqe.graph.importer import import_files

LINES = "".join(f"s{n % 97}\tr{n % 5}\to{n % 89}\n" for n in range(2_000))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in" / "facts.tsv"
    path.parent.mkdir()
    path.write_text(LINES)
    return path


def test_a_child_makes_what_this_process_makes(table, tmp_path):
    read = []
    here = import_files([table], tmp_path / "here", shares=(0.2, 0.1), seed=3)
    there = import_in_child([table], tmp_path / "there", shares=(0.2, 0.1), seed=3, advance=read.append)
    assert here.how_split == there.how_split == "random"
    assert here.manifest["fingerprint"] == there.manifest["fingerprint"]
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(here.splits[name].triples, there.splits[name].triples)
    assert sum(read) == table.stat().st_size


def test_errors_come_with_their_fields(table, tmp_path):
    table.write_text(LINES + "only one column\n")
    with pytest.raises(BadLine) as here:
        import_files([table], tmp_path / "here")
    with pytest.raises(BadLine) as there:
        import_in_child([table], tmp_path / "there")
    assert str(there.value) == str(here.value) and there.value.hint == here.value.hint
    assert list(tmp_path.iterdir()) == [table.parent], "nothing is left behind"


def test_what_takes_too_much_memory_is_told(table, tmp_path):
    with pytest.raises(UnreadableFile, match="more memory than is free"):
        import_in_child([table], tmp_path / "out", memory=1 << 20)
    assert list(tmp_path.iterdir()) == [table.parent]


def test_a_fault_of_the_child_is_told_as_one(table, tmp_path):
    with pytest.raises(RunFailed, match="TypeError"):
        import_in_child([table], tmp_path / "out", no_such_option=True)


def test_a_child_that_hangs_ends_with_the_command(table, tmp_path, monkeypatch):
    """A pipe whose writer never closes it: the command is interrupted while the child waits for more."""
    monkeypatch.setattr(import_process, "STOP", 0.2)
    pipe = tmp_path / "endless.tsv"
    os.mkfifo(pipe)
    done = threading.Event()

    def feed():
        with suppress(BrokenPipeError), open(pipe, "w") as file:  # the child may be gone before all is written
            file.write(LINES * 200)
            file.flush()
            done.wait(60)

    feeder = threading.Thread(target=feed)
    feeder.start()

    def interrupt(_):
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            import_in_child([pipe], tmp_path / "out", format="tsv", advance=interrupt)
    finally:
        done.set()
        with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb"):
            feeder.join(10)
    assert not (tmp_path / "out").exists()
