"""Plans against what is really made: sizes counted on built models, and how needs grow."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from biqe.errors import InvalidOption
from biqe.models import _catalogue
from biqe.training import checkpoint
from biqe.training.checkpoint import Place
from biqe.training.config import TrainConfig
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.plan import Plan, Sizes, plan
from biqe.training.stream import Stream

from .conftest import town

SMALL = {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32}


def sizes_of(entities: int) -> Sizes:
    return Sizes(entities, 20, 10 * entities, 8 * entities)


def planned(entities: int = 5000, ranks: int = 1, **options) -> Plan:
    return plan(sizes_of(entities), TrainConfig(epochs=1, **options), options=SMALL, ranks=ranks)


@pytest.mark.parametrize("model", ["biqe", "cqd", "gqe"])
def test_weights_moments_and_checkpoint_are_those_of_a_run(tmp_path, model):
    options = SMALL if model == "biqe" else {}
    config = TrainConfig(epochs=1, optimizer="adagrad" if model == "cqd" else "adamw")
    found = plan(Sizes(2000, 3, 100, 100), config, model=model, options=options)
    built = _catalogue.build(model, options, 2000, 3)
    assert found.memory["weights"] == sum(4 * weight.numel() for weight in built.parameters())
    optimizer, average = optimizer_of(built, config), RunningAverage(built)
    for weight in built.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    held = sum(t.numel() for s in optimizer.state.values() for name, t in s.items() if name != "step")
    assert found.memory["moments"] == 4 * held
    path = checkpoint.save(tmp_path, Place(), built, average.tensors(), optimizer)
    assert path.stat().st_size == pytest.approx(found.checkpoint, rel=0.05, abs=30_000)


def test_steps_of_an_epoch_are_about_those_of_the_stream():
    splits = town(towns=60, streets=20)
    config = TrainConfig(epochs=1, paths=3000, dags=3000, batch_queries=200, batch_tokens=1000)
    model = _catalogue.build("biqe", SMALL, len(splits.vocabulary.entities), 4)
    epoch = Stream(splits["train"], model, config).epoch(0)
    found = plan(Sizes.of(splits, config.triple_answers), config, options=SMALL)
    assert found.steps_an_epoch == pytest.approx(len(epoch), rel=0.35)


def test_questions_are_counted_once_for_up_to_so_many_answers():
    splits = town(towns=3, streets=20)
    together = Sizes.of(splits, 8)
    apart = Sizes.of(splits, 1)
    assert apart.questions == apart.triples == len(splits.train)
    counts: dict[tuple[int, int], int] = {}
    for subject, relation, _ in splits.train.tolist():
        counts[subject, relation] = counts.get((subject, relation), 0) + 1
    assert together.questions == sum(-(-count // 8) for count in counts.values())


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 64), st.integers(1000, 10**8))
def test_splitting_entities_divides_their_memory(ranks, entities):
    assume((ranks - 1) * -(-entities // ranks) < entities)  # else some rank would have none, and training refuses
    whole, split = planned(entities), planned(entities, ranks, shard_entities=True)
    table = whole.memory["weights"] - planned(1000).memory["weights"] if entities > 1000 else 0
    saved = whole.memory["weights"] - split.memory["weights"]
    assert saved == pytest.approx(table * (1 - 1 / ranks), rel=0.05, abs=4 * 1000 * 17)
    assert split.traffic < planned(entities, ranks, softmax="full").traffic or entities < 100_000
    assert planned(entities).traffic == 0


def test_a_sampled_step_does_not_grow_with_the_entities():
    small, large = planned(10**5, softmax="sampled"), planned(10**7, softmax="sampled")
    assert large.step_flop == pytest.approx(small.step_flop, rel=0.15)
    assert large.memory["gradients"] == pytest.approx(small.memory["gradients"], rel=0.15)
    full = planned(10**7, softmax="full")
    assert full.step_flop > 50 * planned(10**5, softmax="full").step_flop * 0.5
    assert planned(10**7).softmax == "sampled" and planned(10**4).softmax == "full"


def test_refusals():
    with pytest.raises(InvalidOption, match="ranks"):
        planned(ranks=0)
    with pytest.raises(InvalidOption, match="entities"):
        planned(entities=0)
    with pytest.raises(InvalidOption, match="shared by the ranks"):
        planned(ranks=2, batch_queries=1)
    with pytest.raises(InvalidOption, match="some would have none"):
        planned(entities=5, ranks=4, shard_entities=True)
    assert dataclasses.asdict(planned())["softmax"] == "full"
