"""Facts held out for validation: which, how many, kept with the run, and checked when they are read again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe import knowledge_base
from biqe.cli import main
from biqe.errors import UnreadableFile
from biqe.graph import folder as graphs
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples, contains, difference, union
from biqe.graph.vocabulary import Vocabulary
from biqe.training import held_out as file
from biqe.training import session
from biqe.training.held_out import held_out, moved
from biqe.training.run import Run

from .conftest import town


def splits_of(triples, valid=()) -> Splits:
    entities = 1 + max((max(row[0], row[2]) for row in [*triples, *valid]), default=0)
    relations = 1 + max((row[1] for row in [*triples, *valid]), default=0)
    vocabulary = Vocabulary([f"e{n}" for n in range(entities)], [f"r{n}" for n in range(relations)])
    return Splits(vocabulary, as_triples(list(triples)), as_triples(list(valid)))


def dense(count: int) -> Splits:
    """``count`` triples over so few entities that any 5 % of them can be spared."""
    side = int(count**0.5) + 1
    return splits_of([(n // side, n % 2, n % side) for n in range(count)])


triples = st.sets(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 30)), max_size=300)


@given(triples, triples, st.integers(0, 2**40))
def test_every_entity_and_relation_keeps_a_training_triple(rows, valid, seed):
    before = splits_of(rows, valid - rows)
    after = held_out(before, seed)
    taken = moved(before, after)
    assert np.array_equal(union(after.train, taken), before.train) and not contains(after.train, taken).any()
    assert np.array_equal(after.valid, union(before.valid, taken)) and np.array_equal(after.test, before.test)
    assert set(before.train[:, [0, 2]].ravel()) == set(after.train[:, [0, 2]].ravel())
    assert set(before.train[:, 1]) == set(after.train[:, 1])
    assert len(taken) <= max(1, round(0.05 * len(before.train)))
    if len(before.valid) >= 20 or len(before.train) < 40:
        assert len(taken) == 0


@given(triples, st.integers(0, 100))
def test_it_depends_on_graph_and_seed_alone(rows, seed):
    first, again = held_out(splits_of(rows), seed), held_out(splits_of(sorted(rows, reverse=True)), seed)
    assert first.fingerprint == again.fingerprint


@pytest.mark.parametrize(
    ("triples", "count"), [(39, 0), (40, 2), (499, 25), (500, 50), (1_000, 50), (2_000, 100), (120_000, 5_000)]
)
def test_how_many(triples, count):
    splits = dense(triples)
    assert len(splits.train) == triples
    taken = moved(splits, held_out(splits, 0))
    assert len(taken) == count
    if count:
        assert not np.array_equal(taken, moved(splits, held_out(splits, 1)))


@pytest.mark.parametrize(("valid", "is_changed"), [(0, True), (19, True), (20, False)])
def test_a_graph_with_enough_validation_triples_keeps_its_split(valid, is_changed):
    splits = dense(400)
    splits = Splits(splits.vocabulary, splits.train[valid:], splits.train[:valid])
    assert (len(held_out(splits, 0).train) < len(splits.train)) == is_changed


@given(triples, st.integers(0, 9))
def test_what_is_saved_is_read_again(tmp_path_factory, rows, seed):
    folder, before = tmp_path_factory.mktemp("run"), splits_of(rows)
    after = held_out(before, seed)
    taken = moved(before, after)
    file.save(folder, taken)
    assert file.load(folder, before, len(taken)).fingerprint == after.fingerprint
    assert [path.name for path in folder.iterdir()] == ["held_out.npy"]


def pickled(path):
    np.save(path, np.array([[{"no": "triples"}]], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_text("[[0, 0, 1]]"),
        lambda path: np.save(path, np.load(path).astype(np.int64)),
        lambda path: np.save(path, np.load(path)[:, :2]),
        lambda path: np.save(path, np.load(path)[1:]),
        lambda path: np.save(path, np.load(path)[[0, *range(1, len(np.load(path)) - 1), 0]]),
        lambda path: np.save(path, np.load(path) + np.array([0, 0, 10_000], np.int32)),
        lambda path: np.save(path, np.load(path) - np.array([0, 100, 0], np.int32)),
        pickled,
    ],
)
def test_a_damaged_file_is_told(tmp_path, damage):
    splits = dense(400)
    file.save(tmp_path, moved(splits, held_out(splits, 0)))
    damage(tmp_path / "held_out.npy")
    with pytest.raises(UnreadableFile, match="held_out.npy"):
        file.load(tmp_path, splits, 20)


@pytest.fixture(scope="module")
def train_only(tmp_path_factory):
    """A town of 480 training triples without a validation split."""
    folder, splits = tmp_path_factory.mktemp("held") / "g", town(towns=20, streets=11)
    graphs.save(Splits(splits.vocabulary, splits["complete"].triples), folder)
    return folder


class StopAtValidation:
    """A listener that asks the run to stop at its first validation."""

    def stepped(self, fraction, facts):
        pass

    def validated(self, facts):
        import signal

        signal.raise_signal(signal.SIGINT)


def test_a_run_without_validation_triples_holds_some_out(train_only, tmp_path, quiet, settings_of, tiny, monkeypatch):
    """It trains on the others, stopped or not, and all of them are known when the model is asked."""
    notes, seen = [], []
    stream = session.Stream
    monkeypatch.setattr(
        session, "Stream", lambda graph, *rest, **more: seen.append(graph) or stream(graph, *rest, **more)
    )
    out, config = tmp_path / "run", settings_of(epochs=2, seed=3, validations=3)
    start = {"train_config": config, "model_options": tiny, "note": notes.append}
    stopped = session.start(str(train_only), out, listener=StopAtValidation(), **start)
    assert stopped.reason == "interrupted" and stopped.validated
    result = session.resume(out, listener=quiet, note=notes.append)
    assert result.reason == "finished" and result.metrics["mrr"] > 0
    assert len(notes) == 1 and "24 of its 480 training triples are held out" in notes[0]
    whole, held = graphs.load(train_only), np.load(out / "held_out.npy", allow_pickle=False)
    assert held.dtype == np.int32 and held.shape == (24, 3)
    assert json.loads((out / "run.json").read_text())["held_out"] == 24
    for graph in seen:
        assert np.array_equal(graph.triples, difference(whole.train, held))
    assert len(seen) == 2
    subject, relation, _ = held[0].tolist()
    names = whole.vocabulary
    question = f"SELECT ?x WHERE {{ :{names.entities[subject]} :{names.relations[relation]} ?x }}"
    known = knowledge_base.open(out).ask(question, mode="known")
    assert {row["x"] for row in known} == {
        names.entities[o] for s, r, o in whole.train.tolist() if (s, r) == (subject, relation)
    }


def test_a_run_whose_held_out_facts_were_changed_is_not_resumed(train_only, tmp_path, quiet, settings_of, tiny):
    out = tmp_path / "run"
    config = settings_of(epochs=2, validations=3)
    session.start(str(train_only), out, train_config=config, model_options=tiny, listener=StopAtValidation())
    (out / "held_out.npy").unlink()
    with pytest.raises(UnreadableFile, match="facts that the run holds out"):
        session.resume(out, listener=quiet)


def test_a_query_set_keeps_the_split_of_the_graph(train_only, tmp_path, quiet, settings_of, tiny):
    """Its training queries were mined from all training triples."""
    words = ["mine", str(train_only), "--paths", "50", "--dags", "50", "--out", str(tmp_path / "set")]
    assert main(words) == 0
    out, config = tmp_path / "run", settings_of(epochs=0.2)
    session.start(
        str(train_only),
        out,
        train_config=config,
        query_set=tmp_path / "set",
        model_options=tiny,
        listener=quiet,
    )
    assert Run.open(out).record["held_out"] is None and not (out / "held_out.npy").exists()
