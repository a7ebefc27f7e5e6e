"""The journal of a live graph: what was acknowledged is there, whatever happened; and damage is never passed over."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from biqe.errors import RunFailed, UnreadableFile
from biqe.exact.store import Term
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live import Changes, LiveConfig, LiveGraph, Statement, Text, View
from biqe.serve.live.changes import encode
from biqe.serve.live.journal import HEADER_BYTES, framed

XSD = "http://www.w3.org/2001/XMLSchema#"
BASE = {("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")}
VALID = {("c", "r", "d")}


def toy() -> Splits:
    vocabulary = Vocabulary("abcd", "rs", {0: "Alpha"})

    def ids(rows: set[tuple[str, str, str]]) -> list[tuple[int, int, int]]:
        return [(vocabulary.entity_id(s), vocabulary.relation_id(r), vocabulary.entity_id(o)) for s, r, o in rows]

    return Splits(vocabulary, as_triples(ids(BASE)), as_triples(ids(VALID)))


def statements(view: View) -> set[Statement]:
    """What a version holds, by two roads: the sorted triples, and the store, which must agree."""
    names, relations = view.vocabulary.entities, view.vocabulary.relations
    triples = {Statement(names[s], relations[r], names[o]) for s, r, o in view.graph.triples.tolist()}
    found = view.store.query("SELECT ?s ?p ?o WHERE { ?s ?p ?o }", max_rows=10_000)
    rows = [Statement(s.value, p.value, text_of(o) if o.kind == "literal" else o.value) for s, p, o in found.rows]
    assert {row for row in rows if isinstance(row.object, str)} == triples
    assert len(rows) == len(set(rows))
    return set(rows)


def text_of(term: Term) -> Text:
    plain = term.language is not None or term.datatype == f"{XSD}string"
    return Text(term.value, None if plain else term.datatype, term.language)


def inserting(*rows: tuple[str, str, str | Text]) -> Changes:
    return Changes(inserted=tuple(Statement(*row) for row in rows))


def deleting(*rows: tuple[str, str, str | Text]) -> Changes:
    return Changes(deleted=tuple(Statement(*row) for row in rows))


names = st.sampled_from(["a", "b", "c", "e1", "e 2", "http://x.org/é", "_:n1"])
statement = st.builds(
    Statement,
    names,
    st.sampled_from(["r", "s", "t", "http://x.org/p"]),
    names | st.sampled_from([Text("one"), Text("two\n"), Text("one", None, "en"), Text("1", f"{XSD}integer")]),
)
step = st.builds(Changes, st.lists(statement, max_size=4).map(tuple), st.lists(statement, max_size=4).map(tuple))


class LiveAgainstSet(RuleBasedStateMachine):
    """A live graph behaves as a plain set of statements, across reopening, new bases, torn ends and two openers."""

    @initialize(known=st.sampled_from(["complete", "train"]))
    def begin(self, known: str) -> None:
        # In memory where there is such a place: what is tested here is not the disk.
        self.place = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.folder = Path(self.place.name) / "live"
        self.live = LiveGraph(self.folder, toy(), known=known)
        self.other = LiveGraph(self.folder)
        self.model = {Statement(*row) for row in (BASE | VALID if known == "complete" else BASE)}
        self.version = 0
        self.kept: list[tuple[View, set[Statement]]] = []

    @rule(steps=st.lists(step, min_size=1, max_size=3), by_other=st.booleans())
    def change(self, steps: list[Changes], by_other: bool) -> None:
        wanted = set(self.model)
        for changes in steps:
            wanted = (wanted - set(changes.deleted)) | set(changes.inserted)
        receipt = (self.other if by_other else self.live).apply(steps)
        assert receipt.inserted == len(wanted - self.model)
        assert receipt.deleted == len(self.model - wanted)
        self.version += wanted != self.model
        self.model = wanted
        assert receipt.version == self.version

    @rule()
    def reopen(self) -> None:
        self.live.close()
        self.live = LiveGraph(self.folder)

    @rule()
    def compact(self) -> None:
        self.other.compact()

    @rule(count=st.integers(1, HEADER_BYTES + 30))
    def tear(self, count: int) -> None:
        """A writer is killed in the middle of a record."""
        journal = next(self.folder.glob("0*/journal"))
        acknowledged = int.from_bytes((journal.parent / "committed").read_bytes()[:8], "little")
        record = framed(self.version + 1, encode(inserting(("torn", "r", "a")), self.version + 1, 0.0))
        with journal.open("r+b") as file:
            file.truncate(acknowledged)
            file.seek(acknowledged)
            file.write(record[: min(count, len(record) - 1)])

    @rule()
    def keep(self) -> None:
        self.kept = [*self.kept[-1:], (self.live.snapshot(), set(self.model))]

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "live"):
            return
        for live in (self.live, self.other):
            view = live.snapshot()
            assert view.version == self.version
            assert statements(view) == self.model
        for view, held in self.kept:
            assert statements(view) == held

    def teardown(self) -> None:
        if hasattr(self, "live"):
            self.live.close()
            self.other.close()
            self.place.cleanup()


LiveAgainstSet.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLiveAgainstSet = LiveAgainstSet.TestCase


def journal_of(folder: Path) -> Path:
    (found,) = folder.glob("0*/journal")
    return found


def written(folder: Path, count: int = 3) -> list[int]:
    """A live graph with some updates; where each of their records ends."""
    live = LiveGraph(folder, toy())
    ends = []
    for number in range(count):
        live.apply(inserting((f"new{number}", "r", "a")))
        ends.append(journal_of(folder).stat().st_size)
    live.close()
    return ends


def test_a_torn_last_record_is_dropped_and_nothing_else(tmp_path):
    ends = written(tmp_path / "live")
    journal = journal_of(tmp_path / "live")
    whole = journal.read_bytes()
    for cut in (ends[1] + 1, ends[1] + HEADER_BYTES, ends[2] - 1):
        journal.write_bytes(whole[:cut])
        (journal.parent / "committed").unlink()  # as after a power cut
        live = LiveGraph(tmp_path / "live")
        assert live.version == 2
        assert live.apply(inserting(("again", "r", "a"))).version == 3
        assert live.snapshot().vocabulary.entities.find("again") is not None
        assert live.snapshot().vocabulary.entities.find("new2") is None
        live.close()


def test_blank_bytes_behind_the_last_record_are_dropped(tmp_path):
    written(tmp_path / "live")
    with journal_of(tmp_path / "live").open("ab") as file:
        file.write(bytes(5000))
    live = LiveGraph(tmp_path / "live")
    assert live.apply(inserting(("again", "r", "a"))).version == 4
    assert LiveGraph(tmp_path / "live").version == 4


def test_damage_anywhere_gives_all_acknowledged_updates_or_an_error(tmp_path, monkeypatch):
    """A bit of every byte of the journal and its companions is flipped; each file is cut, or zeroed to its end, too."""
    monkeypatch.setattr("biqe.serve.live.journal._LOOKS", 1)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm")) if os.path.isdir("/dev/shm") else tmp_path
    monkeypatch.setattr(os, "fsync", lambda file: None)  # what is tested here is not the disk
    try:
        written(folder / "live", count=2)
        place = journal_of(folder / "live").parent
        for path in (place / "journal", place / "committed", place / "literals", folder / "live" / "current"):
            whole = path.read_bytes()
            for at in range(len(whole)):
                flipped = whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
                cut = (whole[:at], whole[:at] + bytes(len(whole) - at))[at // 2 % 2 :][:1] if at % 2 else ()
                for damaged in (flipped, *cut):
                    path.write_bytes(damaged)
                    for read_only in (True, False):
                        try:
                            live = LiveGraph(folder / "live", read_only=read_only)
                        except UnreadableFile as error:
                            assert path.name in error.message or str(folder) in error.message
                        else:
                            assert live.version == 2, (path, at, read_only)
                            live.close()
            path.write_bytes(whole)
        assert LiveGraph(folder / "live").version == 2
    finally:
        if folder != tmp_path:
            shutil.rmtree(folder)


def test_a_record_that_was_not_written_by_an_update_is_an_error(tmp_path):
    for payload in (
        b"[]",
        b"[" * 100_000,
        b'{"version": 3, "-": 5, "+": []}',
        b'{"version": 3, "-": [], "+": [["a", "r", 5]]}',
        b'{"version": 3, "-": [], "+": [["a", ["r"], "b"]]}',
        b'{"version": 3, "-": [["a", "r", ["text that is not there"]]], "+": []}',
    ):
        folder = tmp_path / str(len(payload))
        written(folder, count=2)
        journal = journal_of(folder)
        journal.write_bytes(journal.read_bytes() + framed(3, payload))
        (journal.parent / "committed").unlink()
        with pytest.raises(UnreadableFile, match="is damaged: the record of version 3"):
            LiveGraph(folder)


@pytest.mark.parametrize("name", ["journal", "committed", "current", "copies", "literals", "manifest.json"])
def test_a_pipe_in_place_of_a_file_is_an_error_and_not_waited_for(tmp_path, name):
    written(tmp_path / "live")
    path = next(iter((tmp_path / "live").rglob(name)), tmp_path / "live" / name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(UnreadableFile):
        LiveGraph(tmp_path / "live").is_of("0" * 16)


def test_a_record_out_of_its_order_is_an_error(tmp_path):
    ends = written(tmp_path / "live")
    journal = journal_of(tmp_path / "live")
    whole = journal.read_bytes()
    journal.write_bytes(whole[: ends[0]] + whole[ends[1] :])
    with pytest.raises(UnreadableFile, match="has version 3 instead of 2"):
        LiveGraph(tmp_path / "live")


@pytest.mark.parametrize("name", ["current", "manifest.json", "literals", "graph/train.npy", "graph/manifest.json"])
def test_any_damaged_file_is_a_clear_error(tmp_path, name):
    written(tmp_path / "live")
    folder = tmp_path / "live"
    path = folder / name if (folder / name).exists() else journal_of(folder).parent / name
    path.write_bytes(path.read_bytes()[:-3] if name != "current" else b"../../etc\n")
    with pytest.raises(UnreadableFile):
        LiveGraph(folder)


def test_an_unfinished_new_base_is_cleared_away(tmp_path):
    written(tmp_path / "live")
    folder = tmp_path / "live"
    (folder / ".000000000003.abcd.new").mkdir()
    (folder / "000000000003").mkdir()  # moved into place, but its writer died before it counted
    live = LiveGraph(folder)
    assert live.version == 3
    live.compact()
    assert sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) == ["000000000003"]
    assert LiveGraph(folder).version == 3


def test_the_journal_becomes_a_new_base_by_itself(tmp_path):
    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=4))
    follower = LiveGraph(tmp_path / "live")
    for number in range(10):
        live.apply(inserting((f"new{number}", "r", "a"), (f"new{number}", "s", Text(f"text {number}"))))
        assert statements(follower.snapshot()) == statements(live.snapshot())
    assert [path.parent.name for path in (tmp_path / "live").glob("0*/journal")] == ["000000000008"]
    assert statements(LiveGraph(tmp_path / "live").snapshot()) == statements(live.snapshot())


FULL = """
import resource, signal, sys
from biqe.errors import RunFailed
from biqe.serve.live import Changes, LiveGraph, Statement
live = LiveGraph(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
done = 0
try:
    while True:
        live.apply(Changes(inserted=(Statement(f"full{done}", "r", "x" * 300),)))
        done += 1
except RunFailed as error:
    assert "could not be written" in error.message and error.hint, error
assert live.version == done, (live.version, done)
assert live.snapshot().vocabulary.entities.find(f"full{done}") is None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_refuses_the_update_and_keeps_what_was_acknowledged(tmp_path):
    LiveGraph(tmp_path / "live", toy()).close()
    code = FULL.replace(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))",
    )
    code += 'live.apply(Changes(inserted=(Statement("room", "r", "again"),)))\nprint(done)\n'
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "live")], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    done = int(ended.stdout)
    view = LiveGraph(tmp_path / "live").snapshot()
    assert done > 2 and view.version == done + 1
    assert all(view.vocabulary.entities.find(f"full{number}") is not None for number in range(done))
    assert view.vocabulary.entities.find("room") is not None


def test_a_new_base_that_does_not_fit_loses_nothing(tmp_path):
    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, before[1]))
    try:
        receipts = [live.apply(inserting((f"n{number}", "r", "a"))) for number in range(4)]
        with pytest.raises(RunFailed, match="nothing is lost"):
            live.compact()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert receipts[-1].version == 4 and live.compaction_error is not None
    assert LiveGraph(tmp_path / "live").version == 4
    live.apply(inserting(("n4", "r", "a")))
    assert live.compaction_error is None
    assert statements(LiveGraph(tmp_path / "live").snapshot()) == statements(live.snapshot())


def test_only_reading_is_allowed_where_only_reading_is(tmp_path):
    written(tmp_path / "live")
    if os.geteuid() == 0:
        pytest.skip("everything is allowed to this user")
    folder = tmp_path / "live"
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    live = LiveGraph(folder)
    assert live.version == 3
    with pytest.raises(RunFailed):
        live.apply(inserting(("x", "r", "y")))


@pytest.mark.parametrize("tail", ["cut", "zeroed"])
def test_acknowledged_updates_that_are_gone_are_an_error(tmp_path, tail):
    ends = written(tmp_path / "live")
    journal = journal_of(tmp_path / "live")
    whole = journal.read_bytes()
    for end in (0, ends[0], ends[1], ends[1] + 1, ends[1] + HEADER_BYTES):
        journal.write_bytes(whole[:end] + (bytes(len(whole) - end) if tail == "zeroed" else b""))
        before = contents(tmp_path / "live")
        for read_only in (True, False):
            with pytest.raises(UnreadableFile, match="is damaged"):
                LiveGraph(tmp_path / "live", read_only=read_only)
        assert contents(tmp_path / "live") == before
    journal.write_bytes(whole[: ends[1]])
    (journal.parent / "committed").unlink()
    assert LiveGraph(tmp_path / "live").version == 2, "as the hint says"


def test_a_damaged_note_of_what_is_acknowledged_is_an_error(tmp_path):
    written(tmp_path / "live")
    committed = journal_of(tmp_path / "live").parent / "committed"
    whole = committed.read_bytes()
    for bit in (0, 40, 90):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        committed.write_bytes(damaged)
        with pytest.raises(UnreadableFile, match="committed is damaged"):
            LiveGraph(tmp_path / "live")
    committed.unlink()
    assert LiveGraph(tmp_path / "live").version == 3, "as the hint says"


def test_reading_only_writes_nothing(tmp_path):
    ends = written(tmp_path / "live")
    journal = journal_of(tmp_path / "live")
    (journal.parent / "committed").unlink()  # as after a power cut, with a record that was not written to its end
    with journal.open("ab") as file:
        file.write(b"BQJ1 and no more")
    before = contents(tmp_path / "live")
    live = LiveGraph(tmp_path / "live", read_only=True)
    assert live.version == 3 and journal.stat().st_size > ends[-1]
    with pytest.raises(RunFailed, match="reading only"):
        live.apply(inserting(("again", "r", "a")))
    live.close()
    assert contents(tmp_path / "live") == before
    with pytest.raises(UnreadableFile, match="not a live graph"):
        LiveGraph(tmp_path / "none", read_only=True)


def contents(folder):
    """What lies in a folder: the bytes and the time of change of each file."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
