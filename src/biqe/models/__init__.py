"""What a network predicts. The file name is the model's name; torch begins here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel
    from biqe.models._entity_index import EntityIndex
    from biqe.models.store import LoadedModel


def load(folder: str | os.PathLike[str]) -> LoadedModel:
    """The model in a model folder, or the best model of a run folder."""
    from pathlib import Path

    from biqe.models import store

    inner = Path(folder) / "model"
    return store.load(inner if not store.is_model_folder(folder) and store.is_model_folder(inner) else folder)


def entity_index(model: QueryModel, *, lists: int = 0, seed: int = 0) -> EntityIndex:
    """An approximate index over the entities of a model (extra ``ann``); it measures what it misses."""
    from biqe.models._entity_index import EntityIndex

    return EntityIndex.of(model, lists=lists, seed=seed)
