"""Where a model lives, the processor or a GPU, and how batches come there.

Queries are encoded as arrays in the processor's memory; ``on_device`` brings a batch to the model. What is made on the
way from a batch to its scores is made on the device of what it is made from. Rules, kinds and stored links are arrays
and stay with the processor: links/probability.py carries ids to them and probabilities back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

from biqe.errors import InvalidOption
from biqe.links.softmax import bfloat16_products, processor_multiplies_bfloat16

DEVICES = ("auto", "cpu", "cuda", "mps")
CPU = torch.device("cpu")
WIDE = 128
"""Width of layers from which on a processor gains by products in bfloat16."""
T = TypeVar("T")


def device_named(name: str) -> torch.device:
    """The device that a user asks for: auto takes a GPU where torch sees one. Under torchrun each rank of a machine
    takes a GPU of its own."""
    if name not in DEVICES:
        raise InvalidOption(f"--device must be one of {', '.join(DEVICES)}. Got {name!r}")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(kind for kind, is_there in there.items() if is_there) if name == "auto" else name
    if not there[kind]:
        raise InvalidOption(
            f"torch sees no {kind} device on this machine",
            hint="leave out --device, or install the build of torch for your GPU: docs/guides/gpu.md",
        )
    if kind != "cuda":
        return torch.device(kind)
    torch.set_float32_matmul_precision("high")
    number, count = int(os.environ.get("LOCAL_RANK") or 0), torch.cuda.device_count()
    if number >= count:
        raise InvalidOption(
            f"rank {number} of this machine has no GPU of its own: torch sees {count}",
            hint=f"torchrun --nproc-per-node {count}, or --device cpu",
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def device_of(model: object) -> torch.device:
    """Where the weights of ``model`` are; the processor for what has none."""
    parameters = getattr(model, "parameters", None)
    first = None if parameters is None else next(iter(parameters()), None)
    return CPU if first is None else first.device


def on_device(batch: T, device: torch.device) -> T:
    """``batch``, a dataclass, with all of its tensors on ``device``. On the way to a GPU they are pinned, so that the
    copy need not be waited for."""
    if isinstance(batch, torch.Tensor):
        if batch.device == device:
            return batch
        pinned = batch.pin_memory() if device.type == "cuda" and torch.cuda.is_available() else batch
        return pinned.to(device, non_blocking=True)  # type: ignore[return-value]
    if device == CPU:  # where batches are made
        return batch
    if isinstance(batch, tuple):
        return tuple(on_device(part, device) for part in batch)  # type: ignore[return-value]
    if not is_dataclass(batch) or isinstance(batch, type):
        return batch
    own: dict[str, Any] = {field.name: getattr(batch, field.name) for field in fields(batch)}
    moved = {name: on_device(part, device) for name, part in own.items()}
    return replace(batch, **{name: part for name, part in moved.items() if part is not own[name]})


def ahead(batches: Iterable[tuple[int, T]], device: torch.device) -> Iterator[tuple[int, T]]:
    """Numbers of queries and their batches, on ``device``. For a GPU, a thread cuts and copies the next batch while
    the one before it is computed."""
    if device == CPU:
        yield from batches
        return
    waiting = iter(batches)

    def fetch() -> tuple[int, T] | None:
        found = next(waiting, None)
        return None if found is None else (found[0], on_device(found[1], device))

    with ThreadPoolExecutor(1, "next-batch") as thread:
        coming = thread.submit(fetch)
        while (found := coming.result()) is not None:
            coming = thread.submit(fetch)
            yield found


def half_precision(model: object, precision: str = "auto") -> AbstractContextManager[Any]:
    """Where a training step multiplies: with ``precision`` auto in bfloat16 on devices that multiply it faster, the
    layers of models that say so (``layers_in_bfloat16``) and the loss over a large table of entities; with single
    nowhere. Sums, norms, softmax and weights stay in single precision."""
    found, device = ExitStack(), device_of(model)
    if precision == "auto" and device.type in ("cuda", "cpu"):
        on_processor = device.type == "cpu"
        if on_processor:
            found.enter_context(bfloat16_products())
        if getattr(model, "layers_in_bfloat16", False) and (not on_processor or _is_worth_it(model)):
            found.enter_context(torch.autocast(device.type, torch.bfloat16))
    return found


def _is_worth_it(model: Any) -> bool:
    """Whether layers are so wide that a processor gains more by products in bfloat16 than the conversions cost."""
    return processor_multiplies_bfloat16() and getattr(model.config, "width", 0) >= WIDE
