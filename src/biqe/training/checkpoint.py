"""Checkpoints: the whole state of a run in a safetensors file, or in a folder if the entities are split over ranks.

A checkpoint holds the weights, their running average, the optimiser's moments, the random state and the place in the
stream. Loading it executes no code. The newest two are kept. A checkpoint gets its name only after it is synced to
disk, so that a kill at any moment leaves the one before it intact.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from biqe.errors import RunFailed, UnreadableFile
from biqe.graph.whole_folder import open_regular
from biqe.models._contract import QueryModel
from biqe.models._device import device_of
from biqe.models._split_entities import SplitTable
from biqe.models.store import read_tensors, write_tensors
from biqe.training import split_checkpoint
from biqe.training.optimizers import FADED
from biqe.training.ranks import Ranks

KEPT = 2


@dataclass
class Place:
    """How far a run has come."""

    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    step: int = 0
    """Steps taken."""
    seconds: float = 0.0
    """Time used, over all parts of the run."""
    validations: int = 0
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
    """Write the state to a new file of ``folder``, named after the step."""
    tensors = _tensors(model, average, optimizer)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{place.step:09d}.safetensors"
    try:
        write_tensors(path, tensors, {"place": json.dumps(asdict(place))})
    except OSError as error:
        raise RunFailed(
            f"cannot write checkpoint {path}: {error.strerror or error}",
            hint="free some space, then continue with --resume; the checkpoint before it is whole",
        ) from error
    _remove_old(folder)
    return path


def save_split(
    folder: Path,
    place: Place,
    model: torch.nn.Module,
    average: dict[str, torch.Tensor],
    optimizer: torch.optim.Optimizer,
    table: SplitTable,
    ranks: Ranks,
) -> None:
    """Write the state of a model that is split over ``ranks`` as a folder. Called on all ranks at once."""
    split_checkpoint.save(folder, asdict(place), _tensors(model, average, optimizer), table, ranks)
    if ranks.first:
        _remove_old(folder)


def _tensors(
    model: torch.nn.Module, average: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = value
    tensors["random"] = torch.get_rng_state()
    if device_of(model).type == "cuda":
        tensors["random_cuda"] = torch.cuda.get_rng_state()
    return tensors


def _saved(folder: Path) -> list[Path]:
    """Checkpoints, oldest first: files, and folders of a split model."""
    return sorted(folder.glob("step-*"), key=lambda path: path.name.partition(".")[0])


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_old(folder: Path) -> None:
    for old in _saved(folder)[:-KEPT]:
        _remove(old)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint, or None. Leftovers of interrupted writes are removed."""
    for partial in folder.glob(".step-*.partial"):
        _remove(partial)
    saved = _saved(folder)
    return saved[-1] if saved else None


def newest(folder: Path, ranks: Ranks) -> Path | None:
    """On every rank, the checkpoint that rank 0 finds to be the latest."""

    def name() -> str | None:
        found = latest(folder)
        return None if found is None else found.name

    found = ranks.from_first(name)
    return None if found is None else folder / found


def read_place(path: Path) -> Place:
    """Where the run stood when the checkpoint was written."""
    try:
        if path.is_dir():
            return Place(**split_checkpoint.read_place(path))  # type: ignore[arg-type]
        os.close(open_regular(path))
        with safe_open(os.fspath(path), "pt") as file:
            return Place(**json.loads((file.metadata() or {})["place"]))
    except (OSError, KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise UnreadableFile(f"{path} is not a checkpoint: {error}") from error


def load(
    path: Path, model: QueryModel, optimizer: torch.optim.Optimizer, table: SplitTable | None = None
) -> tuple[Place, dict[str, torch.Tensor]]:
    """Restore ``model``, ``optimizer`` and the random generator; returns the place and the average.

    With ``table``, the model holds only this rank's rows of its entities. It gets them from a checkpoint of any number
    of ranks.
    """
    place = read_place(path)
    tensors = split_checkpoint.read(path, table) if path.is_dir() else read_tensors(path)
    try:
        parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "average": {}}
        moments: dict[str, dict[str, torch.Tensor]] = {}  # by kind of moment, then by weight
        for key, tensor in tensors.items():
            kind, _, name = key.partition(".")
            if kind == "optimizer":
                moment, _, owner = name.partition(".")
                moments.setdefault(moment, {})[owner] = tensor
            elif kind in parts:
                parts[kind][name] = tensor
        model.load_state_dict(_own_rows(parts["model"], table))
        moments = {moment: _own_rows(owners, table) for moment, owners in moments.items()}
        for name, parameter in model.named_parameters():
            found = {moment: owners[name] for moment, owners in moments.items() if name in owners}
            if found:
                optimizer.state[parameter] = {moment: tensor.to(parameter.device) for moment, tensor in found.items()}
        torch.set_rng_state(tensors["random"])
        if "random_cuda" in tensors and device_of(model).type == "cuda":
            torch.cuda.set_rng_state(tensors["random_cuda"])
    except (KeyError, RuntimeError) as error:
        raise UnreadableFile(f"{path} is not a checkpoint of this run: {error}") from error
    return place, _own_rows(parts["average"], table)


def _own_rows(tensors: dict[str, torch.Tensor], table: SplitTable | None) -> dict[str, torch.Tensor]:
    """``tensors`` by weight; of split weights that are still whole, only this rank's rows."""
    if table is None:
        return tensors
    rows = table.rows
    return {
        name: rows.of(tensor)
        if name.removeprefix(f"{FADED}.") in table.names and tensor.dim() and len(tensor) == rows.count
        else tensor
        for name, tensor in tensors.items()
    }
