"""What several ranks compute, beside one process on the same queries; run by torchrun for test_training_ranks_equal.py.

    torchrun --nproc-per-node N ranks_equal.py OUT [CHECKPOINT OF ANOTHER NUMBER OF RANKS]

Every rank computes both roads, and rank 0 writes the largest differences over all ranks to OUT/N.json.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from biqe.graph import folder
from biqe.models import _catalogue, biqe, hybrid
from biqe.models._contract import predictions
from biqe.models._entity_loss import EntitySampler, Sample, sample_entities
from biqe.models._split_entities import Rows, split, split_cross_entropy
from biqe.training import checkpoint
from biqe.training.checkpoint import Place
from biqe.training.clock import Clock
from biqe.training.config import TrainConfig
from biqe.training.loop import take_step
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.processes import Processes, Replicas, SeveralProcesses
from biqe.training.ranks import Ranks, joined
from biqe.training.stream import Stream

SIZES = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "dropout": 0.0}
TRAIN = TrainConfig(epochs=1, paths=60, dags=60, batch_tokens=300, learning_rate=0.01, warmup_steps=0, threads=1)
MODELS = {
    "hidden": {},
    "probability": {"mask_average": "probability", "positions": "paper"},
    "hybrid": {"rank": 3},
}
SMOOTHING = 0.1
WHOLE, SMOOTHED = (TrainConfig(epochs=1, label_smoothing=share, clip=1e9) for share in (0.0, SMOOTHING))


def built(graph, **options) -> biqe.BiQE:
    """A model that is the same on every rank, with biases that matter."""
    torch.manual_seed(0)
    kind = hybrid if "rank" in options else biqe
    model = kind.MODEL(kind.Config(**SIZES, **options), graph.entity_count, graph.relation_count)
    with torch.no_grad():
        model.entity_bias.normal_()
    return model.train()


def batches(graph, model, world: int) -> tuple[object, list]:
    """A step's queries: all of them as one batch, and each rank's. Ranks have different numbers of them."""
    encoded, _ = Stream(graph, model, TRAIN).own_batches(0)
    ends = [0, *(7 * (rank + 1) + 5 * rank * rank for rank in range(world))]
    rows = torch.randperm(len(encoded.sizes), generator=torch.Generator().manual_seed(1)).numpy()
    return encoded.batch(rows[: ends[-1]]), [encoded.batch(rows[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


def apart(expected: dict, found: dict) -> float:
    """Largest difference of tensors by name; infinite where names differ."""
    if expected.keys() != found.keys():
        return float("inf")
    return max(float((expected[name] - found[name]).abs().max()) for name in expected)


def gradients(model) -> dict:
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {name: (grad.to_dense() if grad.is_sparse else grad).clone() for name, grad in found.items()}


def own_rows(tensors: dict, table) -> dict:
    return {name: table.rows.of(tensor) if name in table.names else tensor for name, tensor in tensors.items()}


def split_and_replicas(graph, ranks: Ranks, found: dict) -> None:
    """Loss and gradients of a step: whole model on all queries, replicas on parts, split model on parts."""
    for name, options in MODELS.items():
        whole = built(graph, **options)
        everything, parts = batches(graph, whole, ranks.world)
        counts = [predictions(whole, part) for part in parts]
        share = counts[ranks.rank] / sum(counts)
        expected = whole.loss(everything, label_smoothing=SMOOTHING)
        expected.backward()

        copied = built(graph, **options)
        loss, _ = Replicas(copied, ranks).backward(parts[ranks.rank], SMOOTHED, share)
        total = torch.tensor(float(loss) * share, dtype=torch.float64)
        dist.all_reduce(total)
        found[f"replicas {name} loss"] = abs(float(total) - float(expected.detach()))
        found[f"replicas {name} gradients"] = apart(gradients(whole), gradients(copied))

        parted = built(graph, **options)
        table = split(parted, ranks.rank, ranks.world)
        loss, norm = Replicas(parted, ranks, table.names).backward(parts[ranks.rank], SMOOTHED, share)
        found[f"split {name} loss"] = abs(float(loss) - float(expected.detach()))
        found[f"split {name} gradients"] = apart(own_rows(gradients(whole), table), gradients(parted))
        found[f"split {name} norm"] = abs(float(norm) - float(torch.nn.utils.get_total_norm(gradients(whole).values())))


def sampled(graph, ranks: Ranks, found: dict) -> None:
    """Sparse gradients, added up over the ranks, beside those of one process that draws what each rank draws."""
    whole, copied = built(graph), built(graph)
    for model in (whole, copied):
        sample_entities(model, graph, 20)
    _, parts = batches(graph, whole, ranks.world)
    counts = [predictions(whole, part) for part in parts]
    for rank, part in enumerate(parts):
        torch.manual_seed(rank)
        (whole.loss(part) * (counts[rank] / sum(counts))).backward()
    replicas = Replicas(copied, ranks)
    torch.manual_seed(ranks.rank)
    replicas.backward(parts[ranks.rank], WHOLE, counts[ranks.rank] / sum(counts))
    found["sampled is sparse"] = 0.0 if copied.embed_entities.weight.grad.is_sparse else 1.0
    found["sampled gradients"] = apart(gradients(whole), gradients(copied))


def sampled_split(graph, ranks: Ranks, found: dict) -> None:
    """Each rank draws from its own rows; one process that is given the draws of all ranks finds the same."""
    for name, options in MODELS.items():
        whole, parted = built(graph, **options), built(graph, **options)
        everything, parts = batches(graph, whole, ranks.world)
        table = split(parted, ranks.rank, ranks.world)
        sample_entities(parted, graph, 24)
        entities, weights = [], []
        for rank in range(ranks.world):
            torch.manual_seed(rank)
            rows = Rows(graph.entity_count, rank, ranks.world)
            drawn = EntitySampler.of(graph, -(-24 // ranks.world), rows.first, rows.last).draw()
            entities.append(drawn.entities + rows.first)
            weights.append(drawn.log_weights)
        sample_entities(whole, graph, 24)
        together = Sample(torch.cat(entities), torch.cat(weights))
        whole.entity_loss.sampler.draw = lambda _device, together=together: together
        expected = whole.loss(everything, label_smoothing=SMOOTHING)
        expected.backward()
        replicas = Replicas(parted, ranks, table.names)
        own = Sample(entities[ranks.rank] - table.rows.first, weights[ranks.rank])
        parted.entity_loss.sampler.draw = lambda _device, own=own: own
        loss, _ = replicas.backward(parts[ranks.rank], SMOOTHED, 0.0)
        found[f"split sampled {name} is sparse"] = 0.0 if parted.embed_entities.weight.grad.is_sparse else 1.0
        found[f"split sampled {name} loss"] = abs(float(loss) - float(expected.detach()))
        found[f"split sampled {name} gradients"] = apart(own_rows(gradients(whole), table), gradients(parted))


def other_models(graph, ranks: Ranks, found: dict) -> None:
    """Models that do not use all of their weights in every batch, or learn from triples alone."""
    for name, options in (("gqe", {"width": 8}), ("cqd", {"rank": 4})):
        torch.manual_seed(0)
        whole = _catalogue.build(name, options, graph.entity_count, graph.relation_count)
        copied = copy.deepcopy(whole)
        parts = []
        for rank in range(ranks.world):
            encoded, rows = Stream(graph, whole, TRAIN, ranks=Ranks(rank, ranks.world)).own_batches(0)
            parts.append(encoded.batch(rows[0]))
        counts = [predictions(whole, part) for part in parts]
        for rank, part in enumerate(parts):
            torch.manual_seed(rank)
            (whole.loss(part) * (counts[rank] / sum(counts))).backward()
        replicas = Replicas(copied, ranks)
        torch.manual_seed(ranks.rank)
        replicas.backward(parts[ranks.rank], WHOLE, counts[ranks.rank] / sum(counts))
        expected, summed = gradients(whole), gradients(copied)
        # What no rank used has no gradient in one process, and one of zeros here.
        unused = {weight: torch.zeros_like(gradient) for weight, gradient in summed.items() if weight not in expected}
        found[f"replicas {name} gradients"] = apart({**expected, **unused}, summed)


def library_loss(ranks: Ranks, found: dict) -> None:
    """Where PyTorch's own parallel loss applies (one true entity, the same queries on every rank), it agrees."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    generator = torch.Generator().manual_seed(3)
    entities, targets, width = 37, 5 * ranks.world, 8
    weight, hidden = (torch.randn(n, width, generator=generator) for n in (entities, targets))
    bias, gold = torch.randn(entities, generator=generator), torch.randint(entities, (targets,), generator=generator)
    rows = Rows(entities, ranks.rank, ranks.world)
    mesh = DeviceMesh("cpu", list(range(ranks.world)))

    theirs = rows.of(weight).requires_grad_()
    placed = DTensor.from_local(theirs, mesh, [Shard(0)], run_check=False, shape=weight.shape, stride=(width, 1))
    placed_bias = DTensor.from_local(rows.of(bias), mesh, [Shard(0)], run_check=False, shape=bias.shape, stride=(1,))
    everywhere = DTensor.from_local(hidden, mesh, [Replicate()], run_check=False)
    with loss_parallel():
        logits = everywhere @ placed.t() + placed_bias
        expected = torch.nn.functional.cross_entropy(logits, gold)
        expected.backward()

    mine = slice(5 * ranks.rank, 5 * (ranks.rank + 1))
    ours = rows.of(weight).requires_grad_()
    own_bias = rows.of(bias).requires_grad_()
    loss = split_cross_entropy(hidden[mine], ours, own_bias, torch.arange(6), gold[mine], 0.0, rows)
    loss.backward()
    whole = (expected.full_tensor() if isinstance(expected, DTensor) else expected).detach()
    found["library loss"] = abs(float(loss.detach()) - float(whole))
    found["library gradients"] = float((ours.grad - theirs.grad).abs().max())


def steps(graph, ranks: Ranks, found: dict) -> None:
    """Some steps of training: replicas, a split model, and one process that steps over the ranks' batches together."""
    parts = []
    for rank in range(ranks.world):
        encoded, rows = Stream(graph, built(graph), TRAIN, ranks=Ranks(rank, ranks.world)).own_batches(0)
        parts.append([encoded.batch(rows[step % len(rows)]) for step in range(4)])
    whole, copied, parted = OfAllRanks(built(graph)), built(graph), built(graph)
    table = split(parted, ranks.rank, ranks.world)
    own, together = parts[ranks.rank], list(zip(*parts, strict=True))
    for processes, given in (
        (Processes(whole), together),
        (SeveralProcesses(copied, ranks), own),
        (SeveralProcesses(parted, ranks, table), own),
    ):
        optimizer, average = optimizer_of(processes.model, TRAIN), RunningAverage(processes.model)
        for step, batch in enumerate(given):
            processes.before_step(batch, 1, Clock(TRAIN))
            take_step(processes, batch, optimizer, average, TRAIN, step, 0.0)
    expected = {name: weight.detach() for name, weight in whole.model.named_parameters() if steady(name)}
    found["weights of replicas"] = apart(expected, {n: w.detach() for n, w in copied.named_parameters() if steady(n)})
    found["weights split"] = apart(
        own_rows(expected, table), {n: w.detach() for n, w in parted.named_parameters() if steady(n)}
    )
    checkpoints(graph, (parted, optimizer, average), table, ranks, found)


class OfAllRanks(torch.nn.Module):
    """One process that learns from the batches of all ranks in each step."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model
        self.uses_all_weights = model.uses_all_weights

    def loss(self, together, label_smoothing):
        counts = [predictions(self.model, part) for part in together]
        losses = [self.model.loss(part, label_smoothing=label_smoothing) for part in together]
        return sum(loss * (count / sum(counts)) for loss, count in zip(losses, counts, strict=True))


def steady(name: str) -> bool:
    """All but the biases of keys: these change no output, so their gradients are rounding, which Adam blows up."""
    return not name.endswith("attention_in.bias")


def checkpoints(graph, trained: tuple, table, ranks: Ranks, found: dict) -> None:
    """A split checkpoint is read back; and one that another number of ranks wrote."""
    out = Path(sys.argv[1])
    parted, optimizer, average = trained
    tensors = state(parted, average.tensors(), optimizer)
    checkpoint.save_split(out / f"by-{ranks.world}", Place(step=4), parted, average.tensors(), optimizer, table, ranks)
    gathered = table.gathered(parted.state_dict())
    if ranks.first:
        expected = {name: tensor.contiguous() for name, tensor in gathered.items()}
        save_file(expected, out / f"expected-{ranks.world}.safetensors")
    fresh = built(graph)
    again = split(fresh, ranks.rank, ranks.world)
    optimizer = optimizer_of(fresh, TRAIN)
    place, saved = checkpoint.load(checkpoint.latest(out / f"by-{ranks.world}"), fresh, optimizer, again)
    found["read back"] = apart(tensors, state(fresh, saved, optimizer)) + abs(place.step - 4)
    for other in sys.argv[2:]:
        fresh = built(graph)
        again = split(fresh, ranks.rank, ranks.world)
        checkpoint.load(checkpoint.latest(out / f"by-{other}"), fresh, optimizer_of(fresh, TRAIN), again)
        expected = load_file(out / f"expected-{other}.safetensors")
        found[f"read what {other} wrote"] = apart(own_rows(expected, again), fresh.state_dict())


def state(model, average: dict, optimizer) -> dict:
    """All that a checkpoint holds but the random state, which every rank has another of."""
    return {name: t for name, t in checkpoint._tensors(model, average, optimizer).items() if name != "random"}


def main() -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(1)
    with joined(60.0) as ranks:
        graph = folder.load(Path(sys.argv[1]) / "town")["train"]
        found: dict[str, float] = {}
        split_and_replicas(graph, ranks, found)
        sampled(graph, ranks, found)
        sampled_split(graph, ranks, found)
        other_models(graph, ranks, found)
        library_loss(ranks, found)
        steps(graph, ranks, found)
        largest = torch.tensor(list(found.values()), dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        if ranks.first:
            result = dict(zip(found, largest.tolist(), strict=True))
            (Path(sys.argv[1]) / f"{ranks.world}.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
