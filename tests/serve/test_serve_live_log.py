"""The log of a live graph: what was acknowledged is there, whatever happened; and damage is never passed over."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from biqe.errors import BiqeError, RunFailed, UnreadableFile
from biqe.exact.store import Term
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.serve.live import Changes, LiveConfig, LiveGraph, Statement, Text, View, generations
from biqe.serve.live.changes import encode
from biqe.serve.live.log import NAME, Log, connect

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

    @rule()
    def fork(self) -> None:
        """Another process takes an open graph over and changes it."""
        before = len(self.model)
        self.model.add(Statement("forked", "r", str(self.version)))
        self.version += len(self.model) > before
        changes = inserting(("forked", "r", str(self.version - 1)))
        child = os.fork()
        if not child:
            code = 1
            try:
                code = int(self.live.apply(changes).version != self.version)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

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


def written(folder: Path, count: int = 3) -> None:
    """A live graph with some updates."""
    live = LiveGraph(folder, toy())
    for number in range(count):
        live.apply(inserting((f"new{number}", "r", "a"), (f"new{number}", "r", Text("text"))))
    live.close()


@pytest.fixture
def small(request, monkeypatch):
    """The files of a live graph with a base and two updates, in memory: closed, or as a kill leaves it, with a WAL."""
    connecting = sqlite3.connect

    def connect_small(*arguments, **options):
        found = connecting(*arguments, **options)
        found.execute("PRAGMA page_size=512")  # so that there are not too many places to damage
        return found

    monkeypatch.setattr(sqlite3, "connect", connect_small)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        live = LiveGraph(Path(place) / "first", toy())
        live.apply(inserting(("old", "r", "a"), ("old", "r", Text("text"))))
        live.compact()
        live.apply(inserting(("new", "r", "a")))
        if request.param == "closed":
            live.close()
            live = LiveGraph(Path(place) / "first")
        live.apply(deleting(("old", "r", "a")))
        if request.param == "closed":
            live.close()
        shutil.copytree(Path(place) / "first", Path(place) / request.param)
        live.close()
        yield Path(place) / request.param


def damages(whole: bytes) -> Iterator[tuple[int, bytes]]:
    """At every offset: one bit flipped, the file cut, and zeros from there to the end."""
    for at in range(len(whole)):
        yield at, whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        yield at, whole[:at]
        if any(whole[at:]):
            yield at, whole[:at] + bytes(len(whole) - at)


@pytest.mark.parametrize("small, part", [("closed", "base"), ("closed", "log"), ("killed", "log")], indirect=["small"])
def test_damage_anywhere_gives_all_acknowledged_updates_or_an_error(small, part, monkeypatch):
    """Every offset of every file; ``-shm`` is only an index, which SQLite makes anew."""
    files = [path for path in sorted(small.rglob("*")) if path.is_file() and not path.name.endswith("-shm")]
    files = [path for path in files if (path.parent == small) == (part == "log")]
    assert ("updates.sqlite-wal" in [path.name for path in files]) == (small.name == "killed")
    if part == "log":
        # The base is not damaged, so it need not be read for each of them.
        monkeypatch.setattr("biqe.serve.live.generations.base_in", cache(generations.base_in))
    contents = {path: path.read_bytes() for path in files}
    whole = held(LiveGraph(small, read_only=True))
    tried = refused = 0
    for path in files:
        for at, damaged in damages(contents[path]):
            path.write_bytes(damaged)
            tried += 1
            try:
                live = LiveGraph(small)
                assert held(live) == whole, (path, at)
                live.close()
            except BiqeError as error:
                refused += 1
                assert str(small) in error.message and error.hint, error
            if part == "log":  # SQLite may have moved a WAL into the database
                for left in small.glob("updates.sqlite*"):
                    if left not in contents:
                        left.unlink()
                for other in files:
                    other.write_bytes(contents[other])
        path.write_bytes(contents[path])
    print(f"{tried:,} damaged folders, {refused:,} refused")  # pytest -s shows it
    assert refused > tried / 3
    assert held(LiveGraph(small)) == whole


def held(live: LiveGraph) -> tuple[object, ...]:
    """All that a live graph holds."""
    view, base = live.snapshot(), live.base
    names = list(view.vocabulary.entities), list(view.vocabulary.relations), dict(view.vocabulary.labels)
    return live.version, view.graph.triples.tolist(), *names, base.literals, base.known, base.origin, base.prefixes


def rewritten(folder: Path, statement: str, *values: object) -> None:
    """Change a log from outside."""
    with contextlib.closing(connect(folder / NAME)) as connection:
        connection.execute(statement, values)


def test_a_row_that_was_not_written_by_an_update_is_an_error(tmp_path):
    written(tmp_path / "live")
    for payload in (
        b"[]",
        b"[" * 100_000,
        b'{"version": 3, "-": 5, "+": []}',
        b'{"version": 3, "-": [], "+": [["a", "r", 5]]}',
        b'{"version": 3, "-": [], "+": [["a", ["r"], "b"]]}',
        b'{"version": 3, "-": [["a", "r", ["text that is not there"]]], "+": []}',
        encode(inserting(("new2", "r", "a")), 4, 0.0),
    ):
        checksum = "UPDATE updates SET changes = ?, checksum = ? WHERE version = 3"
        rewritten(tmp_path / "live", checksum, payload, crc32(payload))
        with pytest.raises(UnreadableFile, match="updates.sqlite is damaged: update 3"):
            LiveGraph(tmp_path / "live")
    rewritten(tmp_path / "live", "UPDATE updates SET changes = 'x' WHERE version = 2")
    with pytest.raises(UnreadableFile, match="checksum of update 2 does not match"):
        LiveGraph(tmp_path / "live")
    rewritten(tmp_path / "live", "DELETE FROM updates WHERE version = 2")
    with pytest.raises(UnreadableFile, match="update 2 is missing"):
        LiveGraph(tmp_path / "live")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (x)",
        "ALTER TABLE updates RENAME TO other",
        "CREATE TRIGGER t AFTER INSERT ON updates BEGIN DELETE FROM updates; END",
        "DELETE FROM state",
        "UPDATE state SET document = '{}'",
        "PRAGMA journal_mode=DELETE",
    ],
)
def test_a_database_with_other_tables_is_an_error(tmp_path, statement):
    written(tmp_path / "live")
    rewritten(tmp_path / "live", statement)
    with pytest.raises(UnreadableFile, match="updates.sqlite is damaged"):
        LiveGraph(tmp_path / "live")


@pytest.mark.parametrize(
    "name",
    ["updates.sqlite", "updates.sqlite-wal", "updates.sqlite-shm", "acknowledged", "literals", "manifest.json"],
)
def test_a_pipe_in_place_of_a_file_is_an_error_and_not_waited_for(tmp_path, name):
    written(tmp_path / "live")
    path = next(iter((tmp_path / "live").rglob(name)), tmp_path / "live" / name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for read_only in (True, False):
        with pytest.raises(UnreadableFile):
            LiveGraph(tmp_path / "live", read_only=read_only)


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_acknowledged_updates_that_are_gone_are_an_error(tmp_path, gone):
    written(tmp_path / "live")
    rewritten(tmp_path / "live", "DELETE FROM updates WHERE version > ?", 3 - gone)
    before = contents(tmp_path / "live")
    with pytest.raises(UnreadableFile, match=f"update {4 - gone} is missing; 3 updates were acknowledged"):
        LiveGraph(tmp_path / "live", read_only=True)
    assert contents(tmp_path / "live") == before
    with pytest.raises(UnreadableFile, match=f"update {4 - gone} is missing"):
        LiveGraph(tmp_path / "live")


def test_an_update_whose_writer_was_killed_before_its_acknowledgement_counts(tmp_path):
    written(tmp_path / "live")
    log = Log(tmp_path / "live")
    log.acknowledge(2)
    log.close()
    live = LiveGraph(tmp_path / "live")
    assert live.version == 3
    assert live.apply(inserting(("again", "r", "a"))).version == 4
    assert LiveGraph(tmp_path / "live").version == 4


def test_a_folder_that_is_replaced_while_it_is_used_is_an_error(tmp_path):
    written(tmp_path / "live")
    live = LiveGraph(tmp_path / "live")
    shutil.copytree(tmp_path / "live", tmp_path / "copy")
    (tmp_path / "live").rename(tmp_path / "old")
    (tmp_path / "copy").rename(tmp_path / "live")
    with pytest.raises(UnreadableFile, match="was replaced while it was in use"):
        live.apply(inserting(("again", "r", "a")))


def test_an_unfinished_new_base_is_cleared_away(tmp_path):
    written(tmp_path / "live")
    folder = tmp_path / "live"
    (folder / ".000000000003.abcd1234.new").mkdir()
    (folder / "000000000003").mkdir()  # moved into place, but its writer died before it counted
    live = LiveGraph(folder)
    assert live.version == 3
    live.compact()
    assert sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) == ["000000000003"]
    assert LiveGraph(folder).version == 3


def test_the_log_becomes_a_new_base_by_itself(tmp_path):
    live = LiveGraph(tmp_path / "live", toy(), config=LiveConfig(compact_records=4))
    follower = LiveGraph(tmp_path / "live")
    for number in range(10):
        live.apply(inserting((f"new{number}", "r", "a"), (f"new{number}", "s", Text(f"text {number}"))))
        assert statements(follower.snapshot()) == statements(live.snapshot())
    assert [path.parent.name for path in (tmp_path / "live").glob("0*/graph")] == ["000000000008"]
    assert statements(LiveGraph(tmp_path / "live").snapshot()) == statements(live.snapshot())
    with contextlib.closing(connect(tmp_path / "live" / NAME)) as connection:
        assert connection.execute("SELECT min(version), max(version) FROM updates").fetchone() == (5, 10)


FULL = """
import resource, signal, sys
from biqe.errors import RunFailed
from biqe.serve.live import Changes, LiveGraph, Statement
live = LiveGraph(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))  # the index of a WAL takes 32 KB
done = 0
try:
    while True:
        live.apply(Changes(inserted=(Statement(f"full{done}", "r", "x" * 3000),)))
        done += 1
except RunFailed as error:
    assert "could not be written" in error.message and error.hint, error
assert live.version == done, (live.version, done)
assert live.snapshot().vocabulary.entities.find(f"full{done}") is None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_refuses_the_update_and_keeps_what_was_acknowledged(tmp_path):
    LiveGraph(tmp_path / "live", toy()).close()
    code = FULL + 'live.apply(Changes(inserted=(Statement("room", "r", "again"),)))\nprint(done)\n'
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "live")], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    done = int(ended.stdout)
    view = LiveGraph(tmp_path / "live").snapshot()
    assert done > 2 and view.version == done + 1
    assert all(view.vocabulary.entities.find(f"full{number}") is not None for number in range(done))
    assert view.vocabulary.entities.find("room") is not None


def test_a_new_base_that_does_not_fit_loses_nothing(tmp_path):
    names = [f"{number} {'x' * 1000}" for number in range(300)]
    splits = Splits(Vocabulary([*"abcd", *names], "rs"), as_triples([(0, 0, 1)]))
    live = LiveGraph(tmp_path / "live", splits, config=LiveConfig(compact_records=2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
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


def test_reading_only_writes_nothing(tmp_path):
    written(tmp_path / "first")
    writer = LiveGraph(tmp_path / "first")
    writer.apply(inserting(("new3", "r", "a")))
    shutil.copytree(tmp_path / "first", tmp_path / "live")  # as a kill leaves it
    before = contents(tmp_path / "live")
    assert (tmp_path / "live" / f"{NAME}-wal").stat().st_size > 0
    live = LiveGraph(tmp_path / "live", read_only=True)
    assert live.version == 4
    with pytest.raises(RunFailed, match="reading only"):
        live.apply(inserting(("again", "r", "a")))
    with pytest.raises(RunFailed, match="reading only"):
        live.apply("INSERT DATA { :again :r :a }")
    live.close()
    assert contents(tmp_path / "live") == before
    with pytest.raises(UnreadableFile, match="not a live graph"):
        LiveGraph(tmp_path / "none", read_only=True)


def test_a_reader_that_touches_nothing_follows_a_writer(tmp_path):
    written(tmp_path / "live")
    writer, reader = LiveGraph(tmp_path / "live"), LiveGraph(tmp_path / "live", read_only=True)
    for number in range(3):
        writer.apply(inserting((f"more{number}", "r", "a")))
        assert statements(reader.snapshot()) == statements(writer.snapshot())
        writer.compact()


def contents(folder):
    """What lies in a folder: the bytes and the time of change of each file."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
