"""Where the graph and the models of what a user opens lie.

What may be opened:

    "atlas"           the embedded graph and its model; a folder of that name is opened as "./atlas"
    a run folder      the run's best model and the graph that it was trained on
    a model folder    the model, with the graph given as ``graph=``
    a graph folder    the graph alone: known answers only
    several models    a folder with models/NAME/, each a model or a run folder; a run and a model folder may have such
                      models beside their own. selection.json says which was best on which shape of query.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, UnknownName, UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.vocabulary import Vocabulary, first_part
from biqe.graph.whole_folder import elsewhere, read_json
from biqe.knowledge_base.model_selection import Selection, read_selection

EMBEDDED = ("atlas",)
AUTO = "auto"
"""Reserved name: choose the model by query shape."""
LINK_PROBABILITIES = "links.safetensors"
"""File of a model folder with calibrated probabilities of links (links/probability.py)."""


@dataclass(frozen=True)
class Located:
    """Folders of a graph and of the models that were trained on it."""

    graph: Path
    main: Path | None
    """The main model; None where there is no model."""
    models: Mapping[str, Path]
    """All models by name, the main one first."""
    selection: Selection | None
    """Which of them was best on validation queries of which shape."""

    def check(self, vocabulary: Vocabulary) -> None:
        """VocabularyMismatch unless all models were trained on a graph with these names, as far as they are there."""
        for model in self.models.values():
            if (manifest := _json(model / "manifest.json")) is not None:
                check_vocabulary(model, manifest, vocabulary)


def locate(name: str | os.PathLike[str], graph: str | os.PathLike[str] | None) -> Located:
    """The folders of what is called ``name``; ``graph`` stands in for the graph folder that a run remembers."""
    main: Path | None
    if os.fspath(name) in EMBEDDED:
        from biqe import atlas

        folder = Path(atlas.model_path())
        place, main = Path(graph) if graph is not None else _embedded_graph(), folder
    else:
        folder = Path(name)
        place, main = _resolve(folder, graph)
    models = _models(folder, main)
    selection = read_selection(folder) if models else None
    if main is None and models:
        best = selection.default if selection is not None else None
        main = models[best if best in models else next(iter(models))]
    return Located(place, main, models, selection)


def _models(folder: Path, main: Path | None) -> dict[str, Path]:
    """Models by name: the main one under its own, and those in models/NAME."""
    found: dict[str, Path] = {}
    if main is not None:
        found[str((_json(main / "manifest.json") or {}).get("model", "model"))] = main
    for place in sorted((folder / "models").glob("*/")):
        inner = place / "model" if (place / "run.json").is_file() else place
        if (inner / "manifest.json").is_file() and place.name not in found:
            found[place.name] = inner
    if AUTO in found:
        raise InvalidOption(
            f"a model of {folder} is called {AUTO!r}, which stands for the best model of a query",
            hint="rename its folder",
        )
    return found


def _resolve(folder: Path, graph: str | os.PathLike[str] | None) -> tuple[Path, Path | None]:
    """Graph folder and main model folder of a run, model or graph folder, or of a folder of models."""
    if not folder.exists():
        raise UnknownName(
            f"{str(folder)!r} is neither a folder nor an embedded graph ({', '.join(EMBEDDED)})",
            hint=elsewhere(folder) or "open a run folder, a model folder, a graph folder, or: atlas",
        )
    if (folder / "run.json").is_file():
        return Path(graph) if graph is not None else graph_of_run(folder), folder / "model"
    manifest = _json(folder / "manifest.json") or {}
    if manifest.get("format") == "biqe-model":
        if graph is None:
            raise InvalidOption(
                f"{folder} is a model without its graph, so known and predicted answers cannot be told apart",
                hint="give the graph folder that it was trained on with --graph DIR (graph= in Python)",
            )
        return Path(graph), folder
    if (folder / "models").is_dir():
        return _graph_of_models(folder, graph), None
    if graph is not None and Path(graph) != folder:
        raise InvalidOption(f"{folder} is not a run or a model folder, so --graph makes no sense with it")
    return folder, None


def _graph_of_models(folder: Path, graph: str | os.PathLike[str] | None) -> Path:
    """The graph of a folder of models: as given, or that of the first run among them."""
    if graph is not None:
        return Path(graph)
    for place in sorted((folder / "models").glob("*/")):
        if (place / "run.json").is_file():
            return graph_of_run(place)
    raise InvalidOption(
        f"{folder} holds models without their graph, so known and predicted answers cannot be told apart",
        hint="give the graph folder that they were trained on with --graph DIR (graph= in Python)",
    )


def graph_of_run(folder: Path) -> Path:
    """The graph folder that a run remembers, as it was written, or as seen from the run folder, or its own copy."""
    graph = (_json(folder / "run.json") or {}).get("graph")
    if not isinstance(graph, dict) or not isinstance(graph.get("path"), str):
        raise UnreadableFile(f"{folder / 'run.json'} is damaged: it names no graph", hint="give it with --graph DIR")
    if graph.get("name") in EMBEDDED:
        # Wherever biqe is installed now, rather than where it was.
        return _embedded_graph()
    written = Path(graph["path"])
    for place in (written, folder / written, folder / "graph"):
        if graph_folder.is_graph_folder(place):
            return place
    raise UnreadableFile(
        f"the graph that {folder} was trained on is no longer at {written}",
        hint="if it was moved, say where it is with --graph DIR (graph= in Python)",
    )


def _embedded_graph() -> Path:
    from biqe import atlas

    return Path(atlas.path())


def check_vocabulary(folder: Path, manifest: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """VocabularyMismatch if the model in ``folder`` was not trained on a graph with these names."""
    theirs = manifest.get("vocabulary_fingerprint")
    sizes = [size for size in (manifest.get("entities"), manifest.get("relations")) if isinstance(size, int)]
    # A graph may have grown since: then its first names are the model's.
    part = first_part(vocabulary, *sizes) if len(sizes) == 2 else None
    if part is None or theirs != part.fingerprint:
        raise VocabularyMismatch(
            f"the model in {folder} knows {manifest.get('entities')} entities and {manifest.get('relations')} "
            f"relations, this graph has {len(vocabulary.entities)} and {len(vocabulary.relations)}; they were built "
            f"from different files (fingerprints {theirs} and {vocabulary.fingerprint})",
            hint="give the graph that the model was trained on with --graph DIR",
        )


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file or no object in it."""
    try:
        value = read_json(path)
    except (OSError, UnreadableFile):
        return None
    return value if isinstance(value, dict) else None
