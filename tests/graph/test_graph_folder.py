"""The graph folder: what is written is read, whole or not at all, and nothing else is ever overwritten."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from biqe.errors import InvalidOption, RunFailed, UnreadableFile
from biqe.graph import folder, whole_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.statistics import statistics
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary

ALIASES = ((0, "Rhein"), (1, "Cologne (DE)"))


@pytest.fixture
def splits() -> Splits:
    vocabulary = Vocabulary(["Rhine", "Köln", "Elbe"], ["r", "s"], {1: "Cologne"}, {1: "city"}, ALIASES)
    return Splits(vocabulary, as_triples([(0, 0, 1), (2, 1, 1)]), as_triples([(1, 0, 0)]))


def test_what_is_written_is_read(splits: Splits, tmp_path: Path) -> None:
    manifest = folder.save(splits, tmp_path / "deep" / "g", prefixes={"": "http://e/"}, extra={"known": "train"})
    again = folder.load(tmp_path / "deep" / "g")
    assert list(again.vocabulary.entities) == ["Rhine", "Köln", "Elbe"]
    assert list(again.vocabulary.relations) == ["r", "s"]
    assert (dict(again.vocabulary.labels), dict(again.vocabulary.descriptions)) == ({1: "Cologne"}, {1: "city"})
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(again[split].triples, splits[split].triples)
        assert again[split].triples.shape[1] == 3
    assert again.fingerprint == splits.fingerprint == manifest["fingerprint"]
    assert again.vocabulary.fingerprint == splits.vocabulary.fingerprint
    assert again.vocabulary.entities.find("Köln") == 1
    assert again.vocabulary.entities.find("Koeln") is None
    read = folder.load_manifest(tmp_path / "deep" / "g")
    assert (read["prefixes"], read["source"], read["triples"]["valid"]) == ({"": "http://e/"}, {"known": "train"}, 1)
    folder.load(tmp_path / "deep" / "g", verify=True)
    assert not [path for path in (tmp_path / "deep").iterdir() if path.name.startswith(".")]


def test_equal_graphs_make_equal_files(splits: Splits, tmp_path: Path) -> None:
    folder.save(splits, tmp_path / "a")
    folder.save(folder.load(tmp_path / "a"), tmp_path / "b")
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_an_existing_graph_is_replaced_only_by_force(splits: Splits, tmp_path: Path) -> None:
    place = tmp_path / "g"
    folder.save(splits, place)
    smaller = Splits(splits.vocabulary, splits.train)
    with pytest.raises(InvalidOption, match="already holds a graph") as caught:
        folder.save(smaller, place)
    assert "--force" in (caught.value.hint or "")
    assert folder.load(place).fingerprint == splits.fingerprint
    folder.save(smaller, place, force=True)
    assert folder.load(place).fingerprint == smaller.fingerprint
    # Arrays that were loaded before stay readable: the old files live on until nobody holds them.
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_a_graph_can_be_saved_over_itself(splits: Splits, tmp_path: Path) -> None:
    folder.save(splits, tmp_path / "g")
    loaded = folder.load(tmp_path / "g")
    folder.save(loaded, tmp_path / "g", force=True)
    assert loaded.train.tolist() == splits.train.tolist()
    folder.load(tmp_path / "g", verify=True)


@pytest.mark.parametrize("force", [False, True])
def test_nothing_else_is_ever_overwritten(splits: Splits, tmp_path: Path, force: bool) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"kind": "biqe run", "version": 1}')
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    for name in ("file", "full", "other", "link"):
        with pytest.raises(InvalidOption, match="is not a graph folder"):
            folder.save(splits, tmp_path / name, force=force)
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    folder.save(splits, tmp_path / "empty")
    folder.load(tmp_path / "empty", verify=True)


def test_a_failed_write_leaves_the_old_graph(splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.save(splits, tmp_path / "g")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def cut_off(*_: object, **__: object) -> None:
        raise OSError("9 requested and 5 written")

    for target, name in ((np, "save"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, full)
            with pytest.raises(RunFailed, match="No space left on device"):
                folder.save(Splits(splits.vocabulary, splits.valid), tmp_path / "g", force=True)
    with monkeypatch.context() as patch, pytest.raises(RunFailed, match="not all of it fitted"):
        patch.setattr(np, "save", cut_off)
        folder.save(Splits(splits.vocabulary, splits.valid), tmp_path / "g", force=True)
    # Where the file system cannot let two folders change places, the old one is moved aside, and back.
    monkeypatch.setattr(whole_folder, "_exchange", lambda *_: False)
    real = Path.rename

    def rename_once(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            full()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename_once)
    with pytest.raises(RunFailed):
        folder.save(Splits(splits.vocabulary, splits.valid), tmp_path / "g", force=True)
    folder.load(tmp_path / "g", verify=True)
    assert folder.load(tmp_path / "g").fingerprint == splits.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    monkeypatch.setattr(Path, "rename", real)
    folder.save(Splits(splits.vocabulary, splits.valid), tmp_path / "g", force=True)
    folder.load(tmp_path / "g", verify=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_two_graphs_change_places_at_one_stroke(
    splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    # Asked of the system itself: were it asked of the function, a broken one would be skipped.
    swap, paths = (
        getattr(ctypes.CDLL(None), "renameat2", None),
        [os.fsencode(tmp_path / name) for name in ("one", "other")],
    )
    if swap is None or swap(-100, paths[0], -100, paths[1], 2) != 0:
        pytest.skip("this system or its file system cannot exchange folders")
    assert whole_folder._exchange(tmp_path / "one", tmp_path / "other")
    folder.save(splits, tmp_path / "g")

    def refuse(*_: object) -> None:
        raise AssertionError("between two renames there is no graph in its place")

    monkeypatch.setattr(Path, "rename", refuse)
    smaller = Splits(splits.vocabulary, splits.valid)
    folder.save(smaller, tmp_path / "g", force=True)
    assert folder.load(tmp_path / "g").fingerprint == smaller.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "one", "other"]


def test_a_link_leads_to_the_place(splits: Splits, tmp_path: Path) -> None:
    (tmp_path / "disk" / "g").mkdir(parents=True)
    (tmp_path / "kg").symlink_to(tmp_path / "disk" / "g")
    folder.save(splits, tmp_path / "kg")
    smaller = Splits(splits.vocabulary, splits.valid)
    folder.save(smaller, tmp_path / "kg", force=True)
    assert (tmp_path / "kg").is_symlink()
    assert folder.load(tmp_path / "disk" / "g").fingerprint == smaller.fingerprint
    assert sorted(path.name for path in (*tmp_path.iterdir(), *(tmp_path / "disk").iterdir())) == ["disk", "g", "kg"]


def test_a_graph_that_somebody_else_wrote_meanwhile_stays(splits: Splits, tmp_path: Path) -> None:
    place = tmp_path / "g"

    def write(temporary: Path) -> None:
        (temporary / "mine.txt").write_text("mine")
        folder.save(splits, place)

    with pytest.raises(InvalidOption, match="written by somebody else meanwhile"):
        whole_folder.write_folder(place, write, replace=False)
    folder.load(place, verify=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_what_a_killed_writer_left_goes_with_the_next_one(splits: Splits, tmp_path: Path) -> None:
    place = tmp_path / "g"
    program = f"""
import os, signal
from pathlib import Path
from biqe.graph.whole_folder import write_folder
def write(temporary):
    (temporary / "half.npy").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
write_folder(Path({str(place)!r}), write)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".new")
    (tmp_path / ".other.12345678.new").mkdir()
    folder.save(splits, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.12345678.new", "g"]


def test_what_somebody_still_writes_stays(splits: Splits, tmp_path: Path) -> None:
    def write(temporary: Path) -> None:
        folder.save(splits, tmp_path / "g")  # another writer of the same place
        assert temporary.is_dir()
        (temporary / "whole.txt").write_text("whole")

    whole_folder.write_folder(tmp_path / "g", write)
    assert (tmp_path / "g" / "whole.txt").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_what_may_not_be_read_is_not_called_damaged(
    splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save(splits, tmp_path / "g")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # The tests may run as a user whom nothing is forbidden, so the system's answer is played.
    for target, name in ((os, "open"), (Path, "stat"), (np, "load")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, refuse)
            with pytest.raises(UnreadableFile, match="cannot be read: Permission denied") as caught:
                folder.load(tmp_path / "g")
        assert "allowed" in (caught.value.hint or "")


def test_damage_is_noticed(splits: Splits, tmp_path: Path) -> None:
    whole = tmp_path / "g"
    folder.save(splits, whole)

    def broken(name: str, change) -> Path:
        place = tmp_path / "broken"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        change(place / name)
        return place

    for name in ("train.npy", "entities.blob.npy", "labels.ids.npy"):
        with pytest.raises(UnreadableFile, match="is missing"):
            folder.load(broken(name, Path.unlink))
        with pytest.raises(UnreadableFile, match="is damaged"):
            folder.load(broken(name, lambda path: path.write_bytes(path.read_bytes()[:-1])))
        place = broken(name, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"))
        with pytest.raises(UnreadableFile, match="checksum"):
            folder.load(place, verify=True)

    def manifest(change) -> Path:
        def rewrite(path: Path) -> None:
            content = json.loads(path.read_text())
            change(content)
            path.write_text(json.dumps(content))

        return broken("manifest.json", rewrite)

    with pytest.raises(UnreadableFile, match="version 2; this program reads version 1"):
        folder.load(manifest(lambda content: content.update(version=2)))
    with pytest.raises(UnreadableFile, match="kind 'biqe run'"):
        folder.load(manifest(lambda content: content.update(kind="biqe run")))
    with pytest.raises(UnreadableFile, match="its arrays hold"):
        folder.load(manifest(lambda content: content.update(entities=7)))
    with pytest.raises(UnreadableFile, match="fingerprint"):
        folder.load(manifest(lambda content: content.update(fingerprint="0" * 16)), verify=True)
    for key in ("files", "fingerprint", "triples"):
        with pytest.raises(UnreadableFile, match="is damaged"):
            folder.load(manifest(lambda content, key=key: content.pop(key)))
        for value in (None, [], -1, 1.5, True, {"train": "many", "../../etc/passwd": {"bytes": 1, "sha256": ""}}):
            with pytest.raises(UnreadableFile, match="is damaged"):
                folder.load(manifest(lambda content, key=key, value=value: content.update({key: value})))
    for prefixes in ([], {"": 5}, {"x": None}):
        with pytest.raises(UnreadableFile, match="is damaged"):
            folder.load(manifest(lambda content, prefixes=prefixes: content.update(prefixes=prefixes)))
    for text in ("{", "[" * 100_000, '{"kind": "biqe graph", "version": 1, "files": ' + "[" * 100_000):
        with pytest.raises(UnreadableFile, match="is damaged"):
            folder.load(broken("manifest.json", lambda path, text=text: path.write_text(text)))
    with pytest.raises(UnreadableFile, match="is not a graph folder"):
        folder.load(broken("manifest.json", lambda path: path.write_text("[]")))
    with pytest.raises(UnreadableFile, match=r"it has no manifest\.json"):
        folder.load(broken("manifest.json", Path.unlink))
    with pytest.raises(UnreadableFile, match="does not exist"):
        folder.load(tmp_path / "nowhere")


def test_pipes_and_devices_are_refused_at_once(splits: Splits, tmp_path: Path) -> None:
    place = tmp_path / "g"
    folder.save(splits, place)
    size = (place / "train.npy").stat().st_size
    for name in ("manifest.json", "train.npy"):
        whole = (place / name).read_bytes()
        for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
            (place / name).unlink()
            make(place / name)
            with pytest.raises(UnreadableFile):
                folder.load(place)
            with pytest.raises(UnreadableFile, match="not a regular file"):
                whole_folder.read_regular(place / name, size)
            (place / name).rmdir() if (place / name).is_dir() else (place / name).unlink()
            (place / name).write_bytes(whole)
    with pytest.raises(UnreadableFile, match="the most that is read"):
        whole_folder.read_regular(place / "train.npy", size - 1)
    assert len(whole_folder.read_regular(place / "train.npy", size)) == size


KILLED = """
import os, signal, sys, tempfile
from biqe.graph.whole_folder import temporary_folder
tempfile.tempdir = sys.argv[1]
with temporary_folder("biqe-exact-") as folder:
    (folder / "socket").touch()
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert Path(killed.stdout.strip()).is_dir()
    others = ["biqe-exact-mine", "biqe-mine", "other-12345678"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "biqe-log-12345678").symlink_to(tmp_path / "other-12345678")
    others.append("biqe-log-12345678")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with whole_folder.temporary_folder("biqe-log-") as mine, whole_folder.temporary_folder("biqe-exact-") as second:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, mine.name, second.name])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


@pytest.mark.parametrize("value", [2_000_000_000, -1, 3])
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (1, 2)])
def test_ids_beyond_the_vocabulary_are_noticed(splits: Splits, tmp_path: Path, place: tuple, value: int) -> None:
    folder.save(splits, tmp_path / "g")
    rows = np.load(tmp_path / "g" / "train.npy")
    rows[place] = value
    np.save(tmp_path / "g" / "train.npy", rows)
    with pytest.raises(UnreadableFile, match=f"a triple has the (subject|relation|object) {value}; ids go") as caught:
        folder.load(tmp_path / "g")
    assert "biqe doctor" in (caught.value.hint or "")


@pytest.mark.parametrize("row", [0, 1023, 1024, 4999, 5119, 5120, 5199])
def test_ids_are_checked_in_every_row_of_a_long_array(tmp_path: Path, row: int) -> None:
    rows = as_triples([(i % 50, i % 4, i // 50) for i in range(5200)])
    assert len(rows) == 5200
    folder.save(Splits(Vocabulary(map(str, range(104)), "rstu"), rows), tmp_path / "g")
    assert len(folder.load(tmp_path / "g").train) == 5200
    rows[row, 1] = 4
    np.save(tmp_path / "g" / "train.npy", rows)
    with pytest.raises(UnreadableFile, match="the relation 4; ids go from 0 to 3"):
        folder.load(tmp_path / "g")


def test_any_flipped_byte_is_noticed_or_harmless(splits: Splits, tmp_path: Path) -> None:
    place = tmp_path / "g"
    folder.save(splits, place)
    for path in sorted(place.glob("*.npy")):
        whole = path.read_bytes()
        # Of the header, which is mostly blanks, a part.
        for byte in (*range(0, 128, 13), *range(128, len(whole))):
            path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 0x90]) + whole[byte + 1 :])
            with contextlib.suppress(UnreadableFile):
                loaded = folder.load(place)
                statistics(loaded)
                vocabulary = loaded.vocabulary
                assert len([*vocabulary.entities, *vocabulary.labels.items(), *vocabulary.aliases]) == 6
                assert all(vocabulary.entities.find(name) in (None, id_) for id_, name in enumerate(("Rhine", "Köln")))
        path.write_bytes(whole)


def test_aliases_are_kept_and_folders_without_are_read(splits: Splits, tmp_path: Path) -> None:
    assert list(splits.vocabulary.aliases) == [(0, "Rhein"), (1, "Cologne (DE)")]
    folder.save(splits, tmp_path / "g")
    loaded = folder.load(tmp_path / "g")
    assert list(loaded.vocabulary.aliases) == list(splits.vocabulary.aliases)
    assert loaded.fingerprint == splits.fingerprint
    plain = Splits(Vocabulary(["Rhine", "Köln", "Elbe"], ["r", "s"]), splits.train)
    folder.save(plain, tmp_path / "old")
    assert not list((tmp_path / "old").glob("aliases*"))
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    del manifest["aliases"]  # as folders were written before
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    assert list(folder.load(tmp_path / "old").vocabulary.aliases) == []


def test_heads_of_arrays_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They are Python to numpy, and CPython 3.11 has a SystemError for threads that parse at once.
    np.save(tmp_path / "a.npy", np.arange(3))
    load, inside, most = np.load, 0, 0

    def slow(*arguments: object, **options: object) -> object:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return load(*arguments, **options)

    monkeypatch.setattr(np, "load", slow)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: whole_folder.read_array(tmp_path / "a.npy", damaged=""), range(8)))
    assert most == 1 and all(array.tolist() == [0, 1, 2] for array in found)
