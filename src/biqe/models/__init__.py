"""What reads a whole query: one file for each model, whose name is the file's name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biqe.models.store import LoadedModel


def load(folder: str | os.PathLike[str]) -> LoadedModel:
    """The model in a model folder, or the best model of a run folder.

    >>> from biqe import atlas
    >>> loaded = load(atlas.model_path())
    >>> loaded.manifest["model"], len(loaded.vocabulary.entities)
    ('hybrid', 4304)
    """
    from pathlib import Path

    from biqe.models import store

    inner = Path(folder) / "model"
    return store.load(inner if not store.is_model_folder(folder) and store.is_model_folder(inner) else folder)
