"""Where files lie, and a cache that is made again when it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from biqe.benchmarks import storage
from biqe.errors import UnreadableFile


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_data_folder_is_the_given_one_then_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("BIQE_DATA", str(tmp_path / "named"))
    assert storage.data_folder(tmp_path) == tmp_path
    assert storage.data_folder() == tmp_path / "named"
    monkeypatch.delenv("BIQE_DATA")
    assert storage.data_folder().name == "data"


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    assert storage.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("BIQE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert storage.cache_folder() == tmp_path / "xdg" / "biqe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert storage.cache_folder() == Path.home() / ".cache" / "biqe"


COLUMNS = {"a": np.arange(5, dtype=np.int32), "b": np.zeros((0, 3), np.int8)}


def damage_size(place: Path) -> None:
    (place / "a.npy").write_bytes(b"short")


def damage_manifest(place: Path) -> None:
    (place / "manifest.json").write_text("{")


def damage_version(place: Path) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))


def damage_array(place: Path) -> None:
    path = place / "a.npy"
    path.write_bytes(b"\0" * path.stat().st_size)


def damage_missing(place: Path) -> None:
    (place / "b.npy").unlink()


@pytest.mark.parametrize("damage", [damage_size, damage_manifest, damage_version, damage_array, damage_missing])
def test_columns_are_made_once_and_again_when_damaged(damage, cache):
    made = []

    def make():
        made.append(1)
        return COLUMNS

    for _ in range(2):
        found = storage.cached_columns("x", "key", make)
        assert set(found) == {"a", "b"} and found["b"].shape == (0, 3)
        np.testing.assert_array_equal(found["a"], COLUMNS["a"])
    assert made == [1]
    damage(cache / "columns" / "x-key")
    np.testing.assert_array_equal(storage.cached_columns("x", "key", make)["a"], COLUMNS["a"])
    assert made == [1, 1]
    assert [path.name for path in (cache / "columns").iterdir()] == ["x-key"]


def test_keys_follow_bytes_and_options(tmp_path):
    path = tmp_path / "a.pkl"
    path.write_bytes(b"1")
    first = storage.key_of("x", 1, files=[path])
    path.write_bytes(b"2")
    assert (
        len({first, storage.key_of("x", 1, files=[path]), storage.key_of("x", 2, files=[path]), storage.key_of("x")})
        == 4
    )
    with pytest.raises(UnreadableFile, match="cannot be read"):
        storage.key_of(files=[tmp_path / "none"])
