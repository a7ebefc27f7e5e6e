"""Runs with a sampled softmax and sparse updates: they learn, and resume to the bit."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file

from biqe.errors import InvalidOption
from biqe.graph import folder
from biqe.models import _catalogue, store
from biqe.query.bound import TARGET, BoundQuery, QuerySet
from biqe.training import checkpoint, session

FAST = {"epochs": 3, "learning_rate": 0.01, "validations": 3}


class StopAfter:
    """A listener that asks the run to stop, as Ctrl-C does, at one of its validations."""

    def __init__(self, validations: int) -> None:
        self._left = validations

    def stepped(self, fraction, facts):
        pass

    def validated(self, facts):
        import signal

        self._left -= 1
        if self._left == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def run_of(graph_folder, tmp_path_factory):
    """Function that trains on the town, whole or stopped on the way and resumed, by name."""
    from .conftest import EPOCHS, TINY

    made = {}

    def make(name: str, *, stopped: int = 0, **options):
        if name not in made:
            out = tmp_path_factory.mktemp("sampled") / name
            config = session.settings("biqe", **{**EPOCHS, **FAST, **options})
            made[name] = out
            listener = StopAfter(stopped)
            session.start(str(graph_folder), out, train_config=config, model_options=dict(TINY), listener=listener)
            if stopped:
                assert not checkpoint.read_place(checkpoint.latest(out / "checkpoints")).finished
                session.resume(out, listener=StopAfter(0))
        return made[name]

    return make


def final(run):
    return load_file(checkpoint.latest(run / "checkpoints"))


def test_a_sampled_run_learns(run_of, graph_folder):
    """The triples that it has seen are likelier than chance, over all entities."""
    loaded = store.load(run_of("sampled", softmax="sampled", negatives=20, epochs=6) / "model").model
    triples = folder.load(graph_folder)["train"].triples.tolist()
    seen = QuerySet.of([BoundQuery((s, TARGET), ((0, r, 1),), (1,)) for s, r, _ in triples])
    with torch.inference_mode():
        scores = loaded.scores(loaded.encoder(seen))
    own = scores.gather(1, torch.tensor([[o] for _, _, o in triples]))
    assert float(own.mean()) > -math.log(72) + 0.25


def test_where_all_entities_are_drawn_it_is_the_full_run(run_of):
    """Every row is touched at every step: the optimisers agree, and so do the runs, up to rounding."""
    full, sampled = final(run_of("full", softmax="full")), final(run_of("all drawn", softmax="sampled", negatives=72))
    for name in ("model.embed_entities.weight", "model.entity_bias", "model.head.0.weight", "average.entity_bias"):
        torch.testing.assert_close(sampled[name], full[name], rtol=0.02, atol=2e-3)


def test_a_sampled_run_resumes_to_the_bit(run_of):
    whole = final(run_of("whole", softmax="sampled", negatives=20))
    again = final(run_of("stopped", softmax="sampled", negatives=20, stopped=2))
    assert whole.keys() == again.keys() and "average.faded.embed_entities.weight" in whole
    for name in whole:
        assert torch.equal(whole[name], again[name]), name


def test_which_runs_sample(settings_of):
    biqe, gqe = _catalogue.build("biqe", {"width": 8, "heads": 2}, 30, 3), _catalogue.build("gqe", {"width": 8}, 30, 3)
    assert not session.samples(biqe, settings_of(epochs=1)), "auto is full where entities are few"
    assert session.samples(biqe, settings_of(epochs=1, softmax="sampled"))
    biqe.entity_count = gqe.entity_count = session.SAMPLED_FROM
    assert session.samples(biqe, settings_of(epochs=1))
    assert not session.samples(biqe, settings_of(epochs=1, softmax="full"))
    assert not session.samples(gqe, settings_of(epochs=1)), "auto leaves models alone that cannot"


def test_models_without_a_softmax_say_so(graph_folder, tmp_path, quiet):
    config = session.settings("gqe", epochs=1, softmax="sampled")
    with pytest.raises(InvalidOption, match="gqe has no softmax over entities"):
        session.start(str(graph_folder), tmp_path / "run", train_config=config, model="gqe", listener=quiet)
    for options in ({"softmax": "some"}, {"negatives": 0}):
        with pytest.raises(InvalidOption, match="must be"):
            session.settings("biqe", epochs=1, **options)
