"""Benchmarks by name: places, errors, the cache, and opening without reading twice."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from biqe import benchmarks
from biqe.benchmarks import _cache, mined, places, query2box
from biqe.benchmarks._shaped_columns import LAYOUTS, from_columns, join_shapes, lay_out, rows_of, to_columns
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import BiqeError, InvalidOption, UnknownName, UnreadableFile, VocabularyMismatch
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig
from biqe.query.queryset import AnswerSets
from biqe.query.shapes import shape_of


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownName) as caught:
        benchmarks.open("fb15k237-qb2")
    assert "there are fb15k237-q2b" in caught.value.message and "did you mean 'fb15k237-q2b'?" in str(caught.value)


def test_the_data_folder_is_the_given_one_then_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("BIQE_DATA", str(tmp_path / "named"))
    assert places.data_folder(tmp_path) == tmp_path
    assert places.data_folder() == tmp_path / "named"
    monkeypatch.delenv("BIQE_DATA")
    assert places.data_folder().name == "data"


@pytest.mark.parametrize("name", benchmarks.names())
def test_without_files_every_benchmark_says_what_is_missing_and_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not benchmarks.describe(name, data=tmp_path).at_hand
    with pytest.raises(UnreadableFile, match=f"the files of {name} are not at hand") as caught:
        benchmarks.open(name, data=tmp_path)
    assert caught.value.hint
    with pytest.raises(InvalidOption, match="seed"):
        benchmarks.open(name, data=tmp_path, seed=-1)


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    assert _cache.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("BIQE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _cache.cache_folder() == tmp_path / "xdg" / "biqe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _cache.cache_folder() == Path.home() / ".cache" / "biqe"


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
        found = _cache.cached_columns("x", "key", make)
        assert set(found) == {"a", "b"} and found["b"].shape == (0, 3)
        np.testing.assert_array_equal(found["a"], COLUMNS["a"])
    assert made == [1]
    damage(cache / "columns" / "x-key")
    np.testing.assert_array_equal(_cache.cached_columns("x", "key", make)["a"], COLUMNS["a"])
    assert made == [1, 1]
    assert [path.name for path in (cache / "columns").iterdir()] == ["x-key"]


def test_keys_follow_bytes_and_options(tmp_path):
    path = tmp_path / "a.pkl"
    path.write_bytes(b"1")
    first = _cache.key_of("x", 1, files=[path])
    path.write_bytes(b"2")
    assert (
        len({first, _cache.key_of("x", 1, files=[path]), _cache.key_of("x", 2, files=[path]), _cache.key_of("x")}) == 4
    )
    with pytest.raises(UnreadableFile, match="cannot be read"):
        _cache.key_of(files=[tmp_path / "none"])


@pytest.mark.parametrize("shape", LAYOUTS)
def test_layouts_are_of_their_shape(shape):
    layout = LAYOUTS[shape]
    queries = lay_out(shape, np.arange(2 * layout.anchors).reshape(2, -1), np.ones((2, len(layout.edges)), np.int64))
    assert {shape_of(query) for query in queries} == {shape}
    with pytest.raises(InvalidOption, match=f"{shape} has"):
        lay_out(shape, np.zeros((2, 5), np.int64), np.zeros((2, 1), np.int64))


def questions() -> ShapedQueries:
    parts = []
    for shape, anchors, relations in (("2i", [[1, 2], [3, 4]], [[0, 1], [1, 2]]), ("up", [[1, 2]], [[0, 1, 3]])):
        rows, owner = rows_of(shape, np.array(anchors), np.array(relations))
        count = len(anchors)
        sets = AnswerSets(np.arange(count + 1), np.arange(count, dtype=np.int32))
        parts.append(ShapedQueries(rows, owner, (shape,), np.zeros(count, np.int8), sets, hard=sets))
    return join_shapes(parts)


def test_questions_survive_their_columns():
    before = questions()
    after = from_columns(to_columns(before), entity_count=5, relation_count=2)
    assert after.shapes == before.shapes == ("2i", "up") and after.owner.tolist() == [0, 1, 2, 2]
    assert [list(query.edges) for query in after.of_shape("up").rows] == [
        [(0, 0, 1), (1, 3, 2)],
        [(0, 1, 1), (1, 3, 2)],
    ]
    assert after.negatives is None and after.answers.values.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("entities", "relations"), [(4, 2), (5, 1)])
def test_kept_questions_of_another_graph_are_refused(entities, relations):
    with pytest.raises(UnreadableFile, match="not of this graph"):
        from_columns(to_columns(questions()), entity_count=entities, relation_count=relations)


def test_columns_that_do_not_fit_are_refused():
    columns = to_columns(questions())
    for broken in ({**columns, "owner": columns["owner"][:1]}, {k: v for k, v in columns.items() if k != "shape"}):
        with pytest.raises(UnreadableFile, match="damaged"):
            from_columns(broken, entity_count=5, relation_count=2)


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """A public graph of a few triples, taken for the pinned one."""
    folder = tmp_path / "data" / "WN18RR"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = np.unique(np.stack([rng.integers(0, 30, 300), rng.integers(0, 3, 300), rng.integers(0, 30, 300)], 1), axis=0)
    rows = rng.permutation(rows)
    # Every name in the training file, so that it alone fixes the vocabulary.
    rows = np.concatenate([[(e, 0, (e + 1) % 30) for e in range(30)], rows[~(rows[:, 1] == 0)]])
    for name, part in (("train", rows[:120]), ("valid", rows[120:150]), ("test", rows[150:180])):
        (folder / f"{name}.txt").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in part.tolist()))
    monkeypatch.setitem(mined.RECIPES, "wn18rr-cq", MineConfig(paths=50, dags=20, eval_paths=30, eval_dags=10))
    return tmp_path / "data"


def test_a_changed_public_graph_is_refused(small):
    with pytest.raises(VocabularyMismatch, match="WN18RR as published has 96d6a587748ac720"):
        benchmarks.open("wn18rr-cq", data=small)


def test_a_mined_benchmark_is_checked_and_kept(small, cache, monkeypatch):
    with pytest.raises(VocabularyMismatch) as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(places.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    with pytest.raises(BiqeError, match="the known set has 5ceb89ed55c3a50f") as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(mined.DIGESTS, "wn18rr-cq", caught.value.message.split("digest ")[1][:16])
    opened = benchmarks.open("wn18rr-cq", data=small)
    assert opened.protocol == "cq" and set(opened.queries("valid").filters) == {"split", "complete"}
    assert len(opened.train_queries()) > 0 and opened.types is None and opened.candidates is None
    monkeypatch.setattr(mined, "mine", lambda *_, **__: pytest.fail("mined again"))
    monkeypatch.setattr(places, "import_files", lambda *_, **__: pytest.fail("imported again"))
    assert benchmarks.open("wn18rr-cq", data=small).fingerprint == opened.fingerprint
    # Its own splits may be given, and no others.
    assert benchmarks.open("wn18rr-cq", data=small, splits=opened.splits).fingerprint == opened.fingerprint
    other = Splits(opened.splits.vocabulary, opened.splits.valid)
    with pytest.raises(VocabularyMismatch):
        benchmarks.open("wn18rr-cq", data=small, splits=other)
    with pytest.raises(InvalidOption, match="split must be one of valid, test"):
        opened.queries("train")


def test_other_seeds_are_other_sets(small, cache, monkeypatch):
    with pytest.raises(VocabularyMismatch) as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(places.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    one, two = (benchmarks.open("wn18rr-cq", data=small, seed=seed) for seed in (1, 2))
    assert one.fingerprint != two.fingerprint


def test_a_damaged_graph_in_the_cache_is_imported_again(small, cache, monkeypatch):
    with pytest.raises(VocabularyMismatch) as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(places.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    place = next((cache / "graphs").iterdir())
    (place / "train.npy").write_bytes(b"short")
    assert len(places.text_graph("WN18RR", small).train) == 120


def test_questions_are_bound_to_the_graph_that_is_given(tmp_path):
    """Another order of names is another graph of ids; the same questions come out of it."""
    folder = tmp_path / "q2b" / "FB15k-237"
    folder.mkdir(parents=True)
    values = {
        "ind2ent": {0: "a", 1: "b"},
        "ind2rel": {0: "r", 1: "r_reverse"},
        "valid_triples_1c": [((0, (0,), 0), "1-chain")],
        "train_triples_1c": [((1, (1,), 0), "1-chain")],
        "train_triples_2i": [((1, (1,)), (1, (1,)), 0, "2-inter")],
        "train_triples_3i": [((1, (1,)), (1, (1,)), (1, (1,)), 0, "3-inter")],
    }
    for name, value in values.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(value))
    for names in ("ab", "ba"):
        ids = {name: id_ for id_, name in enumerate(names)}
        new = as_triples([(ids["a"], 0, ids["b"])])
        splits = Splits(Vocabulary(names, "r"), as_triples([(ids["b"], 0, ids["a"])]), new)
        opened = benchmarks.open("fb15k237-q2b", data=tmp_path, splits=splits)
        valid = opened.queries("valid")
        assert valid.rows.nodes.tolist() == [ids["a"], -1] and valid.hard.values.tolist() == [ids["b"]]
        assert opened.train_queries().rows.edges[0].tolist() == [0, 1, 1]
        assert opened.candidates.tolist() == [0, 1] and opened.splits is splits
    assert query2box.shapes_of(folder, "valid") == ("1p",)
