"""Models on another device: what they compute there, forwards, backwards and in a search, equals what they compute on
the processor, and no tensor is made in the wrong place.

No GPU is needed: torch's device ``lazy`` stands in for one, because gradients there need no drivers. Its tensors
say that they are elsewhere, hold real values, and refuse to meet tensors of the processor.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from biqe.cli import main
from biqe.errors import InvalidOption
from biqe.evaluate.loop import evaluate
from biqe.evaluate.one_at_a_time import one_at_a_time
from biqe.evaluate.protocols import Cq
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.links.complex import ComplEx, product
from biqe.links.softmax import with_all
from biqe.models import _catalogue, _device
from biqe.models._contract import FindsTuples, HasAttention, raw_scores, trace, use_graph
from biqe.models._device import device_of, on_device
from biqe.models._entity_loss import sample_entities
from biqe.models._tokens import Places
from biqe.query.bound import HIDDEN, TARGET, AnswerSets, BoundQuery, QuerySet
from biqe.training.config import TrainConfig
from biqe.training.loop import take_step
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.processes import Processes

CHOOSE_ATTENTION = torch.ops.aten._fused_sdp_choice.default
ACROSS = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
"""What may take a tensor from one device to another."""


class Elsewhere(torch.Tensor):
    """A tensor whose values lie in ``inner``, in the processor's memory, and that says it is on another device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
        )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self):
        return self.inner.tolist()  # torch has this for no tensor that stands in for another

    def numpy(self):
        raise TypeError("can't convert a tensor that is elsewhere to numpy")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was called on a tensor that is elsewhere, outside of standing_in()")


class _Device(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [part for part in tree_flatten((args, kwargs))[0] if isinstance(part, torch.Tensor)]
        there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
        here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim()]
        if there and here and func not in ACROSS:
            raise AssertionError(f"{func} was given tensors of two devices")
        if func is CHOOSE_ATTENTION:
            return 0  # the one that is written out: the others are programs of one device
        goal = kwargs.get("device")
        if goal is not None:
            kwargs["device"] = torch.device("cpu")
        is_there = bool(there) if goal is None else torch.device(goal).type == self.device.type
        if func is torch.ops.aten.copy_.default:
            is_there = isinstance(args[0], Elsewhere)
        outer = {id(tensor.inner): tensor for tensor in there}
        found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))

        def wrapped(part):
            if not isinstance(part, torch.Tensor):
                return part
            if id(part) in outer:  # written in place, or into out=
                return outer[id(part)]
            return Elsewhere(part, self.device) if is_there else part

        return tree_map(wrapped, found)


def _inner(part):
    return part.inner if isinstance(part, Elsewhere) else part


@contextmanager
def standing_in() -> Iterator[torch.device]:
    """The device exists while the block runs."""
    device = torch.device("lazy")
    with _Device(device):
        yield device


def moved(model: nn.Module, device: torch.device) -> nn.Module:
    """``model`` with its weights and buffers on ``device``."""
    for module in model.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                there = Elsewhere(weight.detach().clone(), device)
                module._parameters[name] = nn.Parameter(there, requires_grad=weight.requires_grad)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = Elsewhere(buffer.clone(), device)
    return model


E, R = 40, 3
ONE = BoundQuery((3, TARGET), ((0, 1, 1),), (1,))
LONG = BoundQuery((3, HIDDEN, TARGET), ((0, 1, 1), (1, 2, 2)), (2,))
MEETING = BoundQuery((3, 7, TARGET), ((0, 1, 2), (1, 0, 2)), (2,))
JOINT = BoundQuery((3, TARGET, TARGET), ((0, 1, 1), (1, 2, 2)), (1, 2))
RING = BoundQuery((3, TARGET, TARGET, TARGET), ((0, 1, 1), (1, 2, 2), (2, 0, 3), (1, 1, 3)), (1, 2, 3))

MODELS = [
    ("biqe", {}),
    ("biqe", {"positions": "paper", "norm": "post", "mask_average": "probability", "context": "past"}),
    ("hybrid", {"search": 0.5, "rank": 4, "truth": "counted"}),
    ("hybrid", {"search": 1.0, "rank": 4, "truth": "counted", "stored": "one"}),
    ("cqd", {"rank": 4, "link": "counted", "known": "one"}),
    ("cqd", {"rank": 4, "t_norm": "minimum", "link": "minmax"}),
    ("gqe", {"projection": "transe"}),
    ("gqe", {"loss": "softmax", "projection": "distmult", "intersection": "mean"}),
    ("gqe", {"loss": "margin", "projection": "bilinear"}),
    ("query2box", {"negatives": 7}),
    ("query2box", {"loss": "softmax", "negatives": 7, "filter_negatives": False}),
    ("mpqe", {}),
    ("mpqe", {"loss": "margin", "readout": "sum", "filter_negatives": True, "negatives": 7}),
    ("tractor", {}),
    ("tractor", {"loss": "likelihood", "negatives": 7}),
]
SMALL = {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32, "dropout": 0.0}


def graph():
    drawn = np.random.default_rng(0).integers(0, [E, R, E], (200, 3))
    return Graph(
        Vocabulary([f"e{n}" for n in range(E)], ["a", "b", "c"]), as_triples([tuple(t) for t in drawn.tolist()])
    )


def build(name, options):
    torch.manual_seed(0)
    kind = type(_catalogue.build(name, {}, 2, 1).config)
    model = _catalogue.build(name, {k: v for k, v in SMALL.items() if hasattr(kind, k)} | options, E, R)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    use_graph(model, graph())
    return model.eval()


def asked(model, *queries):
    able = QuerySet.of([query for query in queries if model.supports(query, strict=False)])
    gold = np.random.default_rng(1).integers(0, E, len(able.nodes))
    able = replace(able, gold=np.where(able.nodes < 0, gold, able.nodes).astype(np.int32))
    answers = [np.unique([able.gold[node], 5, 9]) for node in able.target_nodes]
    offsets = np.cumsum([0, *map(len, answers)])
    filters = AnswerSets(offsets.astype(np.int64), np.concatenate(answers).astype(np.int32))
    return able.with_filters(train=filters, complete=filters)


def close(there, here, **options):
    assert isinstance(there, Elsewhere) and there.device.type != "cpu"
    torch.testing.assert_close(there.inner, here, **options)


@pytest.mark.parametrize(("name", "options"), MODELS, ids=str)
def test_scores_and_searches_are_those_of_the_processor(name, options):
    here = build(name, options)
    queries = asked(here, ONE, LONG, MEETING, JOINT, RING)
    with torch.no_grad():
        batch = here.encoder(queries)
        scores, raw = here.scores(batch), raw_scores(here, batch)
        tuples = here.tuples(asked(here, JOINT), 3) if isinstance(here, FindsTuples) else None
    with torch.no_grad(), standing_in() as device:
        there = moved(copy.deepcopy(here), device)
        assert device_of(there) == device
        batch = there.encoder(queries)
        close(there.scores(batch), scores, rtol=1e-4, atol=1e-4)
        close(raw_scores(there, batch), raw, rtol=1e-4, atol=1e-4)
        if isinstance(there, HasAttention):
            close(trace(there, batch).scores, scores, rtol=1e-4, atol=1e-4)
        if tuples is not None:
            for found, expected in zip(there.tuples(asked(here, JOINT), 3), tuples, strict=True):
                np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)
                np.testing.assert_array_equal(found.rows, expected.rows)


@pytest.mark.parametrize(("name", "options"), MODELS, ids=str)
def test_a_training_step_is_that_of_the_processor(name, options):
    here = build(name, options).train()
    queries = asked(here, *((ONE,) if name in ("cqd", "tractor") else (ONE, LONG, MEETING)))
    rows, config = np.arange(len(queries)), TrainConfig(epochs=1, learning_rate=0.01)
    if name == "cqd":
        config = replace(config, optimizer="adagrad")
    there, losses = copy.deepcopy(here), []

    def steps(model):
        processes, optimizer, average = Processes(model), optimizer_of(model, config), RunningAverage(model)
        for step in range(2):
            torch.manual_seed(step)
            batch = on_device(model.encode(queries).batch(rows), device_of(model))
            losses.append(take_step(processes, batch, optimizer, average, config, step, 0.1))

    steps(here)
    with standing_in() as device:
        steps(moved(there, device))
        np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-3)
        for weight, expected in zip(there.parameters(), here.parameters(), strict=True):
            close(weight.detach(), expected.detach(), rtol=1e-2, atol=2e-2)


def test_a_sampled_softmax_updates_its_rows_there():
    here = build("biqe", {}).train()
    queries = asked(here, ONE, LONG)
    with standing_in() as device:
        model = moved(here, device)
        sample_entities(model, graph(), 8)
        torch.manual_seed(0)
        loss = model.loss(model.encoder(queries))
        assert loss.device == device and torch.isfinite(loss)


def test_a_protocol_and_an_analysis_find_there_what_they_find_here():
    here = build("biqe", {})
    queries = asked(here, ONE, LONG, JOINT)
    found = evaluate(here, queries, Cq("complete"), bootstrap=0), one_at_a_time(here, queries, bootstrap=0)
    with standing_in() as device:
        there = moved(copy.deepcopy(here), device)
        assert evaluate(there, queries, Cq("complete"), bootstrap=0).value("mrr") == pytest.approx(
            found[0].value("mrr")
        )
        again = one_at_a_time(there, queries, bootstrap=0)
        assert again.overall.metrics["realistic"] == pytest.approx(found[1].overall.metrics["realistic"])


def test_torchs_own_stand_in_for_cuda_finds_no_mixed_devices():
    with torch.device("meta"):
        models = [_catalogue.build(name, SMALL if name == "biqe" else {}, E, R) for name in ("biqe", "gqe")]
        links = ComplEx(4, E, R)
    with FakeTensorMode(), torch.no_grad():

        def fake(like):
            return torch.empty(like.shape, dtype=like.dtype, device="cuda")

        for model in (*models, links):
            for module in model.modules():
                for name, weight in list(module._parameters.items()):
                    if weight is not None:
                        module._parameters[name] = nn.Parameter(fake(weight), requires_grad=False)
        ids = torch.empty(5, dtype=torch.int64, device="cuda")
        heads, relations = fake(torch.empty(5, 8)), fake(torch.empty(5, 8))
        assert with_all(product(heads, relations), links.entities).device.type == "cuda"
        encoder, walker = (model.eval() for model in models)
        places = Places((5, 1), ids)
        x = fake(torch.empty(5, 16))
        for number, layer in enumerate(encoder.layers):
            x = layer(x, None, places, None, number + 1 == len(encoder.layers))
        assert encoder.head(x).device.type == "cuda"
        assert walker.set_operator(fake(torch.empty(5, 2, 400))).device.type == "cuda"
        with pytest.raises(RuntimeError, match="device"):
            product(heads, torch.empty(5, 8))


def test_layers_may_compute_in_half_precision_and_the_loss_does_not():
    model = build("biqe", {"norm": "post"}).train()
    batch = model.encoder(asked(model, ONE, LONG, MEETING))
    full = float(model.loss(batch).detach())
    with torch.autocast("cpu", torch.bfloat16):
        half = model.loss(batch)
    assert half.dtype == torch.float32 and float(half.detach()) == pytest.approx(full, rel=0.02)
    half.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


@pytest.mark.parametrize(
    ("width", "precision", "is_half"),
    [(_device.WIDE, "auto", True), (_device.WIDE, "single", False), (8, "auto", False)],
)
def test_wide_layers_multiply_in_bfloat16_where_the_processor_is_faster_so(monkeypatch, width, precision, is_half):
    model = build("biqe", {"width": width, "heads": 2}).train()
    for fast in (True, False):
        monkeypatch.setattr(_device, "processor_multiplies_bfloat16", lambda fast=fast: fast)
        with _device.half_precision(model, precision):
            found = model.layers[0].feed_in(torch.zeros(1, width))
        assert found.dtype == (torch.bfloat16 if fast and is_half else torch.float32)


@pytest.mark.parametrize("kind", ["cpu", "meta"])
def test_batches_come_in_order_and_an_error_on_the_way_is_not_lost(kind):
    def some():
        yield from ((n, torch.zeros(n)) for n in range(5))
        raise RuntimeError("the stream broke")

    found, device = [], torch.device(kind)
    with pytest.raises(RuntimeError, match="broke"):
        for number, batch in _device.ahead(some(), device):
            found.append((number, len(batch), batch.device))
    assert found == [(n, n, device) for n in range(5)]


def test_a_loop_that_stops_early_leaves_no_thread_behind():
    batches = _device.ahead(((n, torch.zeros(n)) for n in range(5)), torch.device("meta"))
    assert next(batches)[0] == 0
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("next-batch")]


def test_a_device_that_is_not_there_is_refused_with_a_hint():
    with pytest.raises(InvalidOption, match="must be one of auto, cpu, cuda, mps"):
        _device.device_named("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidOption, match="sees no cuda device") as error:
            _device.device_named("cuda")
        assert "gpu.md" in error.value.hint
    assert _device.device_named("cpu") == _device.CPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "command",
    [
        ["train", "atlas", "--out", "run"],
        ["evaluate", "atlas"],
        ["ask", "atlas", "ASK { :Rhine :flows_into :North_Sea }"],
        ["serve", "atlas", "--check"],
        ["reproduce", "positions"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_computes_takes_a_device_and_refuses_one_that_is_not_there(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--device", "cuda"]) == 2
    assert "torch sees no cuda device" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
