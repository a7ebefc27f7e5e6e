"""The model folder: what a trained model is on disk. Nothing in it can execute code.

manifest.json         format, version, model, config, sizes, fingerprints, how it was trained
weights.safetensors   parameters, float32 or float16
vocabulary.json       names of entities and relations, in id order, and labels
card.md               the same for people
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from biqe.errors import BiqeError, InvalidOption, RunFailed, UnreadableFile
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.whole_folder import open_regular, read_json
from biqe.models import _catalogue
from biqe.models._contract import QueryModel, SolvesOtherwise
from biqe.models._device import CPU

LINKS_FILE = "links.safetensors"
"""What a hybrid knows of links beside its weights; see links/knowledge.py."""
FORMAT = "biqe-model"
VERSION = 1
MAX_VOCABULARY_BYTES = 1 << 34
MAX_NAMES = 1 << 31
"""Entities, or relations: ids have 32 bits."""
_ENTRIES: dict[str, type] = {
    "model": str,
    "config": dict,
    "entities": int,
    "relations": int,
    "vocabulary_fingerprint": str,
    "graph_fingerprint": str,
    "trained": dict,
}
"""Entries of a manifest, and their types."""
_FLOATS = ("F16", "BF16", "F32", "F64")
_TRAIN = "copy the model again from where it came from, or train it anew"
_WORDS = {str: "a text", dict: "an object", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class LoadedModel:
    """A model read from its folder, ready to score."""

    model: QueryModel
    vocabulary: Vocabulary
    manifest: dict[str, Any]


def is_model_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` says of itself that it is a model folder."""
    try:
        return read_json(Path(folder) / "manifest.json").get("format") == FORMAT  # type: ignore[no-any-return]
    except (OSError, UnreadableFile, AttributeError):
        return False


def save(
    model: QueryModel,
    folder: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary,
    graph_fingerprint: str,
    weights: dict[str, torch.Tensor] | None = None,
    trained: dict[str, Any] | None = None,
    half: bool = False,
) -> None:
    """Write ``model`` to ``folder``, or write it anew there; each file is replaced whole or not at all.

    ``weights`` stand in for the model's own (an average over training, say). ``half`` stores float16.
    """
    folder = Path(folder)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "model": model.name,
        "config": dataclasses.asdict(model.config),
        "entities": model.entity_count,
        "relations": model.relation_count,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "graph_fingerprint": graph_fingerprint,
        "trained": trained or {},
    }
    tensors = {
        name: tensor.detach().to(torch.float16 if half and tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in (weights or model.state_dict()).items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _same_vocabulary(folder, vocabulary):
            write_whole(folder / "vocabulary.json", _vocabulary_json(vocabulary))
        write_tensors(folder / "weights.safetensors", tensors)
        write_whole(folder / "card.md", _card(manifest, vocabulary))
        write_whole(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise RunFailed(
            f"cannot write the model to {folder}: {error.strerror or error}",
            hint="free some space, or choose another folder; no file was damaged",
        ) from error


class _Undrawn(TorchFunctionMode):
    """Initial values are not drawn. For tensors without memory torch would load its compiler to draw them, which takes
    a second or more."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == torch.nn.init.__name__ or func is torch.Tensor.normal_:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def load(folder: str | os.PathLike[str], device: torch.device = CPU) -> LoadedModel:
    """The model in ``folder``, in evaluation mode, on ``device``."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    path = folder / "weights.safetensors"
    _check_shapes(folder / "manifest.json", manifest, path)
    vocabulary = _read_vocabulary(folder, manifest)
    # Drawing a million rows that are replaced at once would take most of the time.
    hollow = getattr(_catalogue.class_of(manifest["model"]), "draws_only_weights", False)
    with torch.device("meta") if hollow else nullcontext(), _Undrawn() if hollow else nullcontext():
        model = _catalogue.build(manifest["model"], manifest["config"], manifest["entities"], manifest["relations"])
    tensors = read_tensors(path)
    for name, tensor in tensors.items():
        # NaN passes through both, and infinity is one of them.
        if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
            raise UnreadableFile(f"{path} is damaged: {name} has a weight that is not a number", hint=_TRAIN)
    try:
        # Weights are not copied: they stay mapped from the file, copy-on-write, so that processes share them.
        weights = {name: tensor.float() for name, tensor in tensors.items()}
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise UnreadableFile(
            f"{path} does not hold the weights that manifest.json describes: {error}", hint=_TRAIN
        ) from error
    model.eval().to(device)
    if hasattr(model, "knowledge") and os.path.lexists(folder / LINKS_FILE):
        from biqe.links import knowledge  # with a compiler, which other models do without

        model.knowledge = knowledge.load(folder)
    return LoadedModel(model, vocabulary, manifest)


def _check_shapes(path: Path, manifest: Mapping[str, Any], weights: Path) -> None:
    """UnreadableFile unless the file of weights holds the tensors of the model that the manifest describes: floats of
    the same shapes. Only its header is read, and no memory is taken for the model."""
    shapes, elements = {}, 0
    try:
        os.close(open_regular(weights))
        with safe_open(os.fspath(weights), "pt") as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                shapes[name] = tuple(part.get_shape())
                if part.get_dtype() not in _FLOATS:
                    raise UnreadableFile(
                        f"{weights} is damaged: {name} is of type {part.get_dtype()}, not float", hint=_TRAIN
                    )
    except (OSError, SafetensorError) as error:
        raise UnreadableFile(f"{weights} cannot be read: {error}", hint=_TRAIN) from error

    def count(module: torch.nn.Module, name: str, parameter: Any) -> None:
        nonlocal elements
        elements += 1
        if elements > 2 * len(shapes) + 100:  # a parameter can have several names, and be replaced
            raise _TooMany(f"it describes more weights than the {len(shapes):,} of {weights.name}")

    defaults = _catalogue.defaults(manifest["model"])
    for name, value in manifest["config"].items():
        kind = type(defaults.get(name, value))
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise UnreadableFile(f"{path} is damaged: {name!r} is {str(value)[:60]!r}, not {_WORDS[kind]}", hint=_TRAIN)
    try:
        with torch.device("meta"), _Undrawn(), register_module_parameter_registration_hook(count):
            model = _catalogue.build(manifest["model"], manifest["config"], manifest["entities"], manifest["relations"])
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    except (ValueError, TypeError, RuntimeError, ArithmeticError, MemoryError, _TooMany) as error:
        raise UnreadableFile(f"{path} is damaged: {str(error)[:200]}", hint=_TRAIN) from error
    for name in sorted(set(wanted) | set(shapes)):
        if wanted.get(name) != shapes.get(name):
            found, needed = (str(some[name]) if name in some else "nothing" for some in (shapes, wanted))
            raise UnreadableFile(
                f"{weights} does not hold the weights that {path.name} describes: {name} is {found}, not {needed}",
                hint="the folder mixes files of two models",
            )


def _damaged(message: str) -> UnreadableFile:
    return UnreadableFile(message, hint=_TRAIN)


class _TooMany(Exception):
    """A manifest that describes more weights than there are."""


@torch.no_grad()
def for_few_rows(model: QueryModel) -> QueryModel:
    """The same model, with its matrices copied to where products with few rows, as in a single question, are fast.

    Weights come mapped from a file, where they begin at any byte and stand row by row. Such products are faster if a
    matrix begins at a cache line and stands column by column. Tables of entities stay as they are, mapped and shared by
    processes: products with them are made in another order (links/softmax.py)."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()
    return model


def solve_by(folder: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Write other options of how queries are solved (``SolvesOtherwise``) into a model folder; returns all options
    of the model. Weights stay as they are. Options that shape weights are refused."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    # Options do not depend on how many names there are, so two entities and a relation do for checking them.
    small = _catalogue.build(manifest["model"], manifest["config"], 2, 1)
    if not isinstance(small, SolvesOtherwise):
        raise InvalidOption(f"{small.name} has no options that can be changed after training. Got {', '.join(options)}")
    changed = small.solving(**options)
    manifest["config"] = dataclasses.asdict(changed.config)
    vocabulary = _read_vocabulary(folder, manifest)
    try:
        write_whole(folder / "card.md", _card(manifest, vocabulary))
        write_whole(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise RunFailed(
            f"cannot write to {folder}: {error.strerror or error}",
            hint="free some space, or copy the folder to where you may write",
        ) from error
    return dict(manifest["config"])


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model folder says of itself, checked for format and version."""
    path = Path(folder) / "manifest.json"
    try:
        manifest = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnreadableFile(
            f"{folder} is not a model folder: it has no manifest.json", hint="a run keeps its best model in RUN/model"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UnreadableFile(f"{path} does not describe a biqe model", hint=_TRAIN)
    if manifest.get("version") != VERSION:
        raise UnreadableFile(
            f"{path} is of version {manifest.get('version')}; this program reads version {VERSION}", hint=_TRAIN
        )
    missing = {"model", "config", "entities", "relations", "vocabulary_fingerprint"} - set(manifest)
    if missing:
        raise UnreadableFile(f"{path} lacks {', '.join(sorted(missing))}", hint=_TRAIN)
    for name, kind in _ENTRIES.items():
        if type(manifest.get(name, kind())) is not kind:
            raise UnreadableFile(
                f"{path} is damaged: {name!r} is {str(manifest[name])[:60]!r}, not {_WORDS[kind]}", hint=_TRAIN
            )
    if not all(0 <= manifest[name] < MAX_NAMES for name in ("entities", "relations")):
        raise UnreadableFile(
            f"{path} is damaged: numbers of entities and relations go from 0 to {MAX_NAMES:,}", hint=_TRAIN
        )
    return manifest


def _vocabulary_json(vocabulary: Vocabulary) -> str:
    return json.dumps(
        {
            "entities": list(vocabulary.entities),
            "relations": list(vocabulary.relations),
            "labels": {str(entity): label for entity, label in vocabulary.labels.items()},
        },
        ensure_ascii=False,
    )


def _read_vocabulary(folder: Path, manifest: dict[str, Any]) -> Vocabulary:
    path = folder / "vocabulary.json"
    try:
        data = read_json(path, MAX_VOCABULARY_BYTES)
        if not all(isinstance(name, str) for kind in ("entities", "relations") for name in data[kind]):
            raise TypeError("a name is not a text")
        labels = {int(entity): str(label) for entity, label in data["labels"].items()}
        vocabulary = Vocabulary(data["entities"], data["relations"], labels)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}", hint=_TRAIN) from error
    if vocabulary.fingerprint != manifest["vocabulary_fingerprint"]:
        raise UnreadableFile(
            f"{path} is not the vocabulary that manifest.json was written with",
            hint="the folder mixes files of two models",
        ) from None
    return vocabulary


def _same_vocabulary(folder: Path, vocabulary: Vocabulary) -> bool:
    try:
        return read_manifest(folder)["vocabulary_fingerprint"] == vocabulary.fingerprint
    except BiqeError:
        return False


def _card(manifest: dict[str, Any], vocabulary: Vocabulary) -> str:
    lines = [
        f"# {manifest['model']}, trained with biqe",
        "",
        f"{len(vocabulary.entities):,} entities, {len(vocabulary.relations):,} relations; "
        f"graph {manifest['graph_fingerprint']}.",
        "",
        "| option | value |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in manifest["config"].items()),
    ]
    if manifest["trained"]:
        lines += ["", "| trained | |", "|---|---|", *(f"| {k} | {v} |" for k, v in manifest["trained"].items())]
    return "\n".join(lines) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part."""
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors likewise, synced to disk before they take the name ``path``."""

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise OSError(28, str(error)) from error

    _replace(path, write)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file."""
    try:
        os.close(open_regular(path))
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}", hint=_TRAIN) from error


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fchmod(file.fileno(), 0o644)  # safetensors makes files that only their owner can read
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
