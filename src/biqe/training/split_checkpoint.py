"""Checkpoints of a run whose entities are split over ranks. Each rank writes its rows; any number can read them.

step-000001234/
    shard-00001-model-....safetensors     what rank 0 holds; one such file for each rank
    place.json                            how far the run has come, and how many files there are

PyTorch's distributed checkpoint decides which rank writes and reads what. Its safetensors format is used, since its own
holds pickles (decision 6). The folder gets its name only when all files are on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError

from biqe.errors import RunFailed, UnreadableFile
from biqe.graph.whole_folder import read_json
from biqe.models._split_entities import SplitTable
from biqe.models.store import write_whole
from biqe.training.optimizers import FADED
from biqe.training.ranks import Ranks, exchange

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

PLACE = "place.json"
FILES = "files"
"""Key of the number of files in PLACE."""


def save(
    folder: Path, place: dict[str, object], tensors: dict[str, torch.Tensor], table: SplitTable, ranks: Ranks
) -> Path:
    """Write ``tensors``; those of split weights are this rank's rows. Called on all ranks at once."""
    from torch.distributed.checkpoint import CheckpointException
    from torch.distributed.checkpoint import save as save_distributed
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    path = folder / f"step-{place['step']:09d}"
    partial = folder / f".{path.name}.partial"
    ranks.from_first(lambda: _make_empty(partial))
    state = {name: _as_part(tensor, table) if is_split(name, table) else tensor for name, tensor in tensors.items()}
    try:
        with exchange("writing a checkpoint"):
            save_distributed(state, storage_writer=HuggingFaceStorageWriter(str(partial), save_distributed=True))
    except (CheckpointException, OSError) as error:
        raise _write_error(path, error) from error
    ranks.from_first(lambda: _publish(partial, path, {**place, FILES: ranks.world}))
    return path


def read(path: Path, table: SplitTable | None) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint; with ``table``, only this rank's rows of split weights."""
    from torch.distributed.checkpoint import CheckpointException, DefaultLoadPlanner
    from torch.distributed.checkpoint import load as load_distributed
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    try:
        files, expected = len(list(path.glob("*.safetensors"))), _notes(path)[FILES]
        if files != expected:  # the library would leave uninitialised memory where a file is missing
            raise UnreadableFile(f"{path} is not a whole checkpoint: it has {files} files of {expected}")
        reader = HuggingFaceStorageReader(str(path))
        found: dict[str, torch.Tensor] = {}
        for name, facts in reader.read_metadata().state_dict_metadata.items():
            assert isinstance(facts, TensorStorageMetadata)  # safetensors hold nothing else
            shape = list(facts.size)
            if table is not None and is_split(name, table) and shape and shape[0] == table.rows.count:
                own = torch.empty([table.rows.last - table.rows.first, *shape[1:]], dtype=facts.properties.dtype)
                found[name] = _as_part(own, table)
            else:
                found[name] = torch.empty(shape, dtype=facts.properties.dtype)
        with warnings.catch_warnings():
            # Each rank reads on its own, so that one that fails does not block the others; the library warns of that.
            warnings.simplefilter("ignore")
            load_distributed(found, storage_reader=reader, planner=DefaultLoadPlanner(), no_dist=True)
    except (CheckpointException, SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise UnreadableFile(f"{path} is not a whole checkpoint: {error}") from error
    return {name: tensor.to_local() if hasattr(tensor, "to_local") else tensor for name, tensor in found.items()}


def read_place(path: Path) -> dict[str, object]:
    """How far the run had come, as a dictionary."""
    return {name: value for name, value in _notes(path).items() if name != FILES}


def _notes(path: Path) -> dict[str, object]:
    return dict(read_json(path / PLACE))


def is_split(name: str, table: SplitTable) -> bool:
    """Whether ``name`` in a checkpoint is a split weight, or the average or a moment of one."""
    kind, _, rest = name.partition(".")
    if kind == "optimizer":
        rest = rest.partition(".")[2]
    elif kind == "average":
        rest = rest.removeprefix(f"{FADED}.")
    return rest in table.names


def _as_part(own: torch.Tensor, table: SplitTable) -> DTensor | torch.Tensor:
    """This rank's rows as part of the distributed table. Scalars are the same on every rank and stay as they are."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    if own.dim() == 0:
        return own
    shape = torch.Size([table.rows.count, *own.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    mesh = DeviceMesh.from_group(table.rows.group, "cpu")
    return DTensor.from_local(own, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def _make_empty(partial: Path) -> None:
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    except OSError as error:
        raise _write_error(partial, error) from error


def _publish(partial: Path, path: Path, place: dict[str, object]) -> None:
    try:
        write_whole(partial / PLACE, json.dumps(place))
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: BaseException) -> RunFailed:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return RunFailed(
        f"cannot write checkpoint {path}: {reason}",
        hint="free some space, then continue with --resume; the checkpoint before it is whole",
    )
