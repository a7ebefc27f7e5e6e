"""Public graphs and mined sets: checked against what is known of them, and made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from biqe import benchmarks
from biqe.benchmarks import public_graphs
from biqe.errors import BiqeError, InvalidOption, VocabularyMismatch
from biqe.graph.knowledge_graph import Splits
from biqe.mine.dataset import MineConfig


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
    monkeypatch.setitem(public_graphs.RECIPES, "wn18rr-cq", MineConfig(paths=50, dags=20, eval_paths=30, eval_dags=10))
    return tmp_path / "data"


def test_a_changed_public_graph_is_refused(small):
    with pytest.raises(VocabularyMismatch, match="WN18RR as published has 96d6a587748ac720"):
        benchmarks.open("wn18rr-cq", data=small)


def test_a_mined_benchmark_is_checked_and_kept(small, cache, monkeypatch):
    with pytest.raises(VocabularyMismatch) as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(public_graphs.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    with pytest.raises(BiqeError, match="the known set has 3dcb9a2aaeb4aad8") as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(public_graphs.DIGESTS, "wn18rr-cq", caught.value.message.split("digest ")[1][:16])
    opened = benchmarks.open("wn18rr-cq", data=small)
    assert opened.protocol == "cq" and set(opened.queries("valid").filters) == {"split", "complete"}
    assert len(opened.train_queries()) > 0 and opened.types is None and opened.candidates is None
    monkeypatch.setattr(public_graphs, "mine", lambda *_, **__: pytest.fail("mined again"))
    monkeypatch.setattr(public_graphs, "import_files", lambda *_, **__: pytest.fail("imported again"))
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
    monkeypatch.setitem(public_graphs.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    one, two = (benchmarks.open("wn18rr-cq", data=small, seed=seed) for seed in (1, 2))
    assert one.fingerprint != two.fingerprint


def test_a_damaged_graph_in_the_cache_is_imported_again(small, cache, monkeypatch):
    with pytest.raises(VocabularyMismatch) as caught:
        benchmarks.open("wn18rr-cq", data=small)
    monkeypatch.setitem(public_graphs.FINGERPRINTS, "WN18RR", caught.value.message.split()[4].rstrip(";"))
    place = next((cache / "graphs").iterdir())
    (place / "train.npy").write_bytes(b"short")
    assert len(public_graphs.public_graph("WN18RR", small).train) == 120
