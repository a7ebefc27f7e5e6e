"""Benchmarks by name: what is missing, and what is opened."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from biqe import benchmarks
from biqe.benchmarks import query2box
from biqe.errors import InvalidOption, UnknownName, UnreadableFile
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownName) as caught:
        benchmarks.open("fb15k237-qb2")
    assert "there are fb15k237-q2b" in caught.value.message and "did you mean 'fb15k237-q2b'?" in str(caught.value)


@pytest.mark.parametrize("name", benchmarks.names())
def test_without_files_every_benchmark_says_what_is_missing_and_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not benchmarks.describe(name, data=tmp_path).at_hand
    with pytest.raises(UnreadableFile, match=f"the files of {name} are not at hand") as caught:
        benchmarks.open(name, data=tmp_path)
    assert caught.value.hint
    with pytest.raises(InvalidOption, match="seed"):
        benchmarks.open(name, data=tmp_path, seed=-1)


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
