"""Back-ups of a live graph, and folders that are restored, repaired or written in the present format."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from pathlib import Path
from zlib import crc32

import pytest

from biqe.cli import main
from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live import Changes, LiveConfig, LiveGraph, Statement, Text
from biqe.serve.live.changes import encode
from biqe.serve.live.copying import copy
from biqe.suggest.rejections import Rejections


def toy() -> Splits:
    return Splits(Vocabulary("abcd", "rs", {0: "Alpha"}), as_triples([(0, 0, 1), (1, 0, 2)]), as_triples([(2, 0, 3)]))


def inserting(*rows: tuple[str, str, str | Text]) -> Changes:
    return Changes(inserted=tuple(Statement(*row) for row in rows))


def held(live: LiveGraph) -> set[tuple[str, ...]]:
    """All that a live graph says, by SPARQL, and what its names are called."""
    view = live.snapshot()
    rows = view.store.query("SELECT ?s ?p ?o WHERE { ?s ?p ?o }", max_rows=100_000).rows
    return {tuple(str(term) for term in row) for row in rows} | {
        ("label", str(entity), label) for entity, label in view.vocabulary.labels.items()
    }


@pytest.fixture
def live(tmp_path):
    found = LiveGraph(tmp_path / "live", toy(), known="train", prefixes={"": "", "x": "http://x/"})
    found.apply(inserting(("old", "r", "a"), ("old", "http://www.w3.org/2000/01/rdf-schema#label", Text("Old"))))
    found.compact()
    found.copied("0123456789abcdef")
    for number in range(4):
        found.apply(inserting((f"n{number}", "s", "b"), (f"n{number}", "r", Text(f"text {number}"))))
    yield found
    found.close()


def test_a_copy_is_the_same_graph(live, tmp_path):
    rejections = Rejections(live.folder / "rejected.jsonl")
    rejections.add(("a", "r", "b"))
    done = copy(live.folder, tmp_path / "copy")
    assert Rejections(tmp_path / "copy" / "rejected.jsonl").names == rejections.names
    again = LiveGraph(tmp_path / "copy")
    assert held(again) == held(live)
    assert (again.version, again.known, again.origin) == (5, "train", live.origin)
    assert dict(again.prefixes) == dict(live.prefixes) and again.is_of("0123456789abcdef")
    assert (done.version, done.literals, done.given_up) == (5, 5, ())
    assert (again.snapshot().splits.valid == live.snapshot().splits.valid).all()
    assert list(again.snapshot().vocabulary.entities) == list(live.snapshot().vocabulary.entities), "ids stay"
    assert again.apply(inserting(("more", "r", "a"))).version == 6


def test_a_copy_under_load_has_what_was_acknowledged_before_it(tmp_path):
    writer = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=6))
    stop, failures, acknowledged = threading.Event(), [], [0]

    def write() -> None:
        try:
            while not stop.is_set():
                writer.apply(inserting((f"n{acknowledged[0] + 1}", "r", "a")))
                acknowledged[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(4):
            before = acknowledged[0]
            version = copy(tmp_path / "live", tmp_path / f"copy{number}").version
            assert version >= before
            restored = LiveGraph(tmp_path / f"copy{number}")
            entities = restored.snapshot().vocabulary.entities
            assert all(entities.find(f"n{number}") is not None for number in range(1, version + 1))
            assert entities.find(f"n{version + 1}") is None
            restored.close()
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    writer.close()
    assert copy(tmp_path / "copy0", tmp_path / "live", force=True).version == LiveGraph(tmp_path / "copy0").version


def test_a_folder_in_use_is_not_replaced(live, tmp_path):
    copy(live.folder, tmp_path / "copy")
    with pytest.raises(InvalidOption, match="already holds a live graph"):
        copy(tmp_path / "copy", live.folder)
    with pytest.raises(RunFailed, match="is in use"):
        copy(tmp_path / "copy", live.folder, force=True)
    live.close()
    copy(tmp_path / "copy", live.folder, force=True)
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "mine.txt").write_text("not to be replaced")
    with pytest.raises(InvalidOption, match="is not a live graph"):
        copy(tmp_path / "copy", tmp_path / "graph", force=True)


def damage(path: Path, needle: bytes) -> None:
    data = path.read_bytes()
    at = data.rindex(needle)
    path.write_bytes(data[:at] + b"\x00" + data[at + 1 :])


def test_a_damaged_update_is_given_up_by_name_and_the_others_are_kept(live, tmp_path, capsys):
    whole = held(live)
    live.close()
    damage(live.folder / "updates.sqlite", b'"n1"')
    with pytest.raises(UnreadableFile, match="checksum of update 3 does not match") as refused:
        copy(live.folder, tmp_path / "copy")
    assert "--repair" in refused.value.hint
    before = {path: path.read_bytes() for path in live.folder.rglob("*") if path.is_file()}
    assert main(["restore", str(live.folder), "--out", str(tmp_path / "copy"), "--repair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["given_up"] == ["update 3: the checksum of update 3 does not match"]
    assert {path: path.read_bytes() for path in live.folder.rglob("*") if path.is_file()} == before
    repaired = LiveGraph(tmp_path / "copy")
    assert held(repaired) == {row for row in whole if not any("n1" in word for word in row)}
    assert repaired.version == 5, "the names of blank nodes of later updates stay new"


@pytest.mark.parametrize("kind", ["cut", "gone", "wal cut"])
def test_a_log_that_cannot_be_read_is_given_up_update_by_update(live, tmp_path, kind):
    if kind == "wal cut":
        import shutil

        shutil.copytree(live.folder, tmp_path / "killed")  # with what SQLite has not yet moved out of its WAL
        folder = tmp_path / "killed"
        (folder / "updates.sqlite-wal").write_bytes(b"")
    else:
        live.close()
        folder = live.folder
    log = folder / "updates.sqlite"
    if kind == "cut":
        log.write_bytes(log.read_bytes()[:4096])
    elif kind == "gone":
        log.unlink()
    with pytest.raises(UnreadableFile):
        LiveGraph(folder)
    done = copy(folder, tmp_path / "copy", repair=True)
    found = LiveGraph(tmp_path / "copy")
    assert done.version == 5 and found.snapshot().vocabulary.entities.find("old") is not None
    lost = [line for line in done.given_up if line.startswith("update ")]
    names = [found.snapshot().vocabulary.entities.find(f"n{number}") for number in range(4)]
    assert len(lost) == names.count(None) == 4


@pytest.mark.parametrize("name", ["literals", "train.npy", "labels.blob.npy"])
def test_a_damaged_base_is_taken_as_it_is_where_it_can_be_read(live, tmp_path, name):
    live.close()
    path = next(live.folder.rglob(name))
    data = path.read_bytes()
    path.write_bytes(data[:-4] + (b"\1\0\0\0" if name == "train.npy" else b"l" * 4))
    with pytest.raises(UnreadableFile):
        LiveGraph(live.folder)
    done = copy(live.folder, tmp_path / "copy", repair=True)
    assert any(name in line for line in done.given_up)
    entities = LiveGraph(tmp_path / "copy").snapshot().vocabulary.entities
    assert all(entities.find(name) is not None for name in ("old", "n0", "n3"))


def test_what_holds_no_base_cannot_be_repaired(live, tmp_path):
    live.close()
    next(live.folder.rglob("entities.offsets.npy")).write_bytes(b"")
    with pytest.raises(UnreadableFile, match="cannot be repaired"):
        copy(live.folder, tmp_path / "copy", repair=True)
    assert not (tmp_path / "copy").exists()


def written_by_version_1(folder: Path) -> None:
    """A live graph as biqe wrote it before its log was SQLite."""

    def record(version: int, payload: bytes) -> bytes:
        facts = struct.pack("<4sIQI", b"BQJ1", len(payload), version, crc32(payload))
        return facts + struct.pack("<I", crc32(facts)) + payload

    place = folder / "000000000007"
    splits = toy()
    graph_folder.save(splits, place / "graph", prefixes={"": "", "x": "http://x/"})
    (place / "literals").write_bytes(record(7, encode(inserting(("a", "r", Text("base"))), 7, 0.0)))
    journal = b""
    for version, changes in ((8, inserting(("new", "r", "a"))), (9, Changes((Statement("a", "r", Text("base")),)))):
        journal += record(version, encode(changes, version, 0.0))
    (place / "journal").write_bytes(journal + b"BQJ1 the beginning of one that was not acknowledged")
    mark = struct.pack("<Q", len(journal))
    (place / "committed").write_bytes(mark + struct.pack("<I", crc32(mark)))
    (folder / "current").write_text("000000000007\n")
    (folder / "copies").write_text("0123456789abcdef")
    (folder / ".lock").touch()
    about = {"kind": "biqe live graph", "version": 1, "known": "complete", "base": splits.fingerprint}
    (folder / "manifest.json").write_text(json.dumps(about))


def test_a_folder_of_an_older_version_is_written_anew(tmp_path):
    written_by_version_1(tmp_path / "old")
    with pytest.raises(UnreadableFile, match="of version 1; this program reads version 2") as refused:
        LiveGraph(tmp_path / "old")
    assert "biqe restore" in refused.value.hint
    assert copy(tmp_path / "old", tmp_path / "new").version == 9
    live = LiveGraph(tmp_path / "new")
    assert live.snapshot().vocabulary.entities.find("new") == 4
    assert live.base.literals == () and live.is_of(toy().fingerprint) and live.is_of("0123456789abcdef")


@pytest.mark.parametrize("name", ["journal", "committed", "current", "literals"])
def test_a_damaged_folder_of_an_older_version_is_an_error(tmp_path, name):
    written_by_version_1(tmp_path / "old")
    path = next((tmp_path / "old").rglob(name))
    whole = path.read_bytes()
    length = len(whole) - (51 if name == "journal" else 0)
    for at in range(length):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        try:
            assert copy(tmp_path / "old", tmp_path / f"new{at}").version == 9
        except UnreadableFile:
            assert not (tmp_path / f"new{at}").exists()


def test_a_live_graph_is_marked_as_in_use_while_it_is_open(live):
    handle = os.open(live.folder, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        live.close()
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(handle)
