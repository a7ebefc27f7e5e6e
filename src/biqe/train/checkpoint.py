"""The whole state of a run in one file that is written whole or not at all.

A checkpoint holds weights, their running average, the optimiser's moments, the random state and the place in
the stream. It is a safetensors file: loading it executes nothing. The last two are kept; a file takes its name
only after it is synced to disk, so that a kill at any moment leaves the one before it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from biqe.errors import RunFailed, UnreadableFile
from biqe.models.store import read_tensors, write_tensors

KEPT = 2


@dataclass
class Place:
    """Where a run stands."""

    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    step: int = 0
    """Steps taken."""
    seconds: float = 0.0
    """Time used, over all parts of the run."""
    validations: int = 0
    """Validations done."""
    best: float = -1.0
    """Best validation so far."""
    since_best: int = 0
    """Validations since the best."""
    finished: bool = False
    """Whether the run came to its end."""


def save(
    folder: Path,
    place: Place,
    model: torch.nn.Module,
    average: dict[str, torch.Tensor],
    optimizer: torch.optim.Optimizer,
) -> Path:
    """Write the state; the name carries the step."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = value
    tensors["random"] = torch.get_rng_state()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{place.step:09d}.safetensors"
    try:
        write_tensors(path, tensors, {"place": json.dumps(asdict(place))})
    except OSError as error:
        raise RunFailed(
            f"cannot write checkpoint {path}: {error.strerror or error}",
            hint="free some space, then continue with --resume; the checkpoint before it is whole",
        ) from error
    for old in sorted(folder.glob("step-*.safetensors"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> Path | None:
    """The newest checkpoint, or None. Leftovers of a write that was cut short are removed."""
    for partial in folder.glob(".step-*.partial"):
        partial.unlink(missing_ok=True)
    files = sorted(folder.glob("step-*.safetensors"))
    return files[-1] if files else None


def read_place(path: Path) -> Place:
    """Where the run stood when the checkpoint was written."""
    try:
        with safe_open(os.fspath(path), "pt") as file:
            return Place(**json.loads((file.metadata() or {})["place"]))
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise UnreadableFile(f"{path} is not a checkpoint: {error}") from error


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Place, dict[str, torch.Tensor]]:
    """Put the state back into ``model``, ``optimizer`` and the random generator; the place and the average."""
    place, tensors = read_place(path), read_tensors(path)
    try:
        parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "average": {}}
        moments: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, name = key.partition(".")
            if kind == "optimizer":
                moment, _, owner = name.partition(".")
                moments.setdefault(owner, {})[moment] = tensor
            elif kind in parts:
                parts[kind][name] = tensor
        model.load_state_dict(parts["model"])
        for name, parameter in model.named_parameters():
            if name in moments:
                optimizer.state[parameter] = moments[name]
        torch.set_rng_state(tensors["random"])
    except (KeyError, RuntimeError) as error:
        raise UnreadableFile(f"{path} is not a checkpoint of this run: {error}") from error
    return place, parts["average"]
