"""A graph and the model that was trained on it, in one handle: ``biqe.open(...).ask(...)``.

What may be opened:

    "atlas"         the embedded graph and its model; a folder of that name is opened as "./atlas"
    a run folder    the run's best model and the graph that it was trained on
    a model folder  the model, with the graph given as ``graph=``
    a graph folder  the graph alone: known answers only

The model, and torch with it, is loaded when something is predicted for the first time; known answers need neither.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biqe.answer.combine import AskConfig, combine
from biqe.answer.result import Answers
from biqe.errors import InvalidOption, UnknownName, UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind
from biqe.query.sparql import parse

if TYPE_CHECKING:
    from biqe.answer.predicted import Predictor

EMBEDDED = ("atlas",)
KNOWN = ("complete", "train")


@dataclass(frozen=True)
class KnowledgeBase:
    """A graph, and perhaps a model that predicts what the graph does not hold. Made by ``open``."""

    name: str
    """What was opened, as it was written."""
    splits: Splits
    known: str = "complete"
    """The triples that count as known: ``complete`` (train, valid and test) or ``train``."""
    model_folder: Path | None = None
    """None where there is no model."""
    prefixes: Mapping[str, str] | None = None
    """Prefixes that queries may use without declaring them."""

    def __repr__(self) -> str:
        model = f", model {self.model_folder}" if self.model_folder else ""
        return f"KnowledgeBase({self.name!r}, {self.vocabulary}{model})"

    @property
    def vocabulary(self) -> Vocabulary:
        """Names, ids and labels of the graph."""
        return self.splits.vocabulary

    @property
    def graph(self) -> Graph:
        """The triples that count as known."""
        return self.splits[self.known]

    @cached_property
    def predictor(self) -> Predictor:
        """The model, loaded on first use."""
        if self.model_folder is None:
            raise InvalidOption(
                f"{self.name} is a graph without a model, so nothing can be predicted; mode must be known",
                hint=f"train one with: biqe train {self.name} --out RUN, then ask RUN",
            )
        if not (self.model_folder / "manifest.json").is_file():
            raise UnreadableFile(
                f"{self.name} has no model yet: {self.model_folder} has no manifest.json",
                hint="a run writes its first model after its first validation; --mode known does without",
            )
        # The only place where asking needs torch.
        from biqe.answer.predicted import Predictor
        from biqe.models.store import load

        loaded = load(self.model_folder)
        _check_vocabulary(self.model_folder, loaded.manifest, self.vocabulary)
        return Predictor(loaded.model)

    def ask(
        self,
        text: str,
        *,
        mode: str = "both",
        top: int = 20,
        min_probability: float = 0.0,
        joint: str = "beam",
        width: int | None = None,
    ) -> Answers:
        """Answers to a SPARQL query: known rows first and complete, then up to ``top`` predicted ones.

        ``mode`` is ``both``, ``known`` or ``predicted``. A graph without a model gives known rows only, and refuses
        ``predicted``. ``joint`` and ``width`` say how tuples of several variables are found (see AskConfig). A query
        that the model cannot answer raises UnsupportedQuery with its reason, unless ``mode`` is ``known``.
        """
        start = time.perf_counter()
        options: dict[str, Any] = {"mode": mode, "top": top, "min_probability": min_probability, "joint": joint}
        config = AskConfig(**options) if width is None else AskConfig(**options, width=width)
        query = bind(parse(text, prefixes=self.prefixes), self.vocabulary)
        predict = mode != "known" and not (mode == "both" and self.model_folder is None)
        loading = time.perf_counter()
        predictor = self.predictor if predict else None
        # The first question waits for the model; that is not what the question took.
        start += time.perf_counter() - loading
        rows = combine(self.graph, query, predictor, config)
        return Answers(
            text, query, self.graph, rows, config, predictor.name if predictor else None, self.name,
            time.perf_counter() - start,
        )  # fmt: skip


def open(
    name: str | os.PathLike[str], *, graph: str | os.PathLike[str] | None = None, known: str | None = None
) -> KnowledgeBase:
    """The knowledge base called ``name``: ``atlas``, a run folder, a model folder or a graph folder.

    ``graph`` is a graph folder that stands in for the one that a run remembers; it must have the same vocabulary.
    ``known`` says which of its triples count as known, ``complete`` or ``train``; left out, the graph itself decides
    (``complete`` unless its manifest says otherwise, as the atlas does, whose held-out facts are there to be
    predicted).
    """
    if known is not None and known not in KNOWN:
        raise InvalidOption(f"'known' must be one of {', '.join(KNOWN)}. Got {known!r}")
    shown = os.fspath(name)
    model: Path | None
    if shown in EMBEDDED:
        from biqe import atlas

        place, model = Path(graph) if graph is not None else _embedded_graph(), Path(atlas.model_path())
    else:
        place, model = _resolve(Path(name), graph)
    splits = graph_folder.load(place)
    manifest = graph_folder.load_manifest(place)
    if model is not None and (manifest_of_model := _json(model / "manifest.json")) is not None:
        _check_vocabulary(model, manifest_of_model, splits.vocabulary)
    known = known or manifest.get("known") or manifest.get("source", {}).get("known") or "complete"
    return KnowledgeBase(shown, splits, known, model, manifest.get("prefixes"))


def _resolve(folder: Path, graph: str | os.PathLike[str] | None) -> tuple[Path, Path | None]:
    """Graph folder and model folder of a run, model or graph folder."""
    if not folder.exists():
        raise UnknownName(
            f"{str(folder)!r} is neither a folder nor an embedded graph ({', '.join(EMBEDDED)})",
            hint="open a run folder, a model folder, a graph folder, or: atlas",
        )
    if (folder / "run.json").is_file():
        return Path(graph) if graph is not None else _graph_of_run(folder), folder / "model"
    manifest = _json(folder / "manifest.json") or {}
    if manifest.get("format") == "biqe-model":
        if graph is None:
            raise InvalidOption(
                f"{folder} is a model without its graph, so known and predicted answers cannot be told apart",
                hint="give the graph folder that it was trained on with --graph DIR (graph= in Python)",
            )
        return Path(graph), folder
    if graph is not None and Path(graph) != folder:
        raise InvalidOption(f"{folder} is not a run or a model folder, so --graph makes no sense with it")
    return folder, None


def _graph_of_run(folder: Path) -> Path:
    """The graph folder that a run remembers, as it was written or as seen from the run folder."""
    graph = (_json(folder / "run.json") or {}).get("graph")
    if not isinstance(graph, dict) or not isinstance(graph.get("path"), str):
        raise UnreadableFile(f"{folder / 'run.json'} is damaged: it names no graph", hint="give it with --graph DIR")
    if graph.get("name") in EMBEDDED:
        # Wherever biqe is installed now, rather than where it was.
        return _embedded_graph()
    written = Path(graph["path"])
    for place in (written, folder / written):
        if graph_folder.is_graph_folder(place):
            return place
    raise UnreadableFile(
        f"the graph that {folder} was trained on is no longer at {written}",
        hint="if it was moved, say where it is with --graph DIR (graph= in Python)",
    )


def _embedded_graph() -> Path:
    from biqe import atlas

    return Path(atlas.path())


def _check_vocabulary(folder: Path, manifest: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    theirs = manifest.get("vocabulary_fingerprint")
    if theirs != vocabulary.fingerprint:
        raise VocabularyMismatch(
            f"the model in {folder} knows {manifest.get('entities')} entities and {manifest.get('relations')} "
            f"relations, this graph has {len(vocabulary.entities)} and {len(vocabulary.relations)}; they were built "
            f"from different files (fingerprints {theirs} and {vocabulary.fingerprint})",
            hint="give the graph that the model was trained on with --graph DIR",
        )


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file or no object in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
