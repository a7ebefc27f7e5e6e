"""Settings with a name of their own, for ``biqe train --preset NAME``: a model, its options and how it is trained.

``paper`` is BiQE as Kotnis, Lawrence and Niepert (2021) describe it, of a size that two cores can train; ``paper-base``
is the same in the size of BERT-base. The paper leaves rates, batch sizes and dropout to an appendix that is not part of
it: dropout and weight decay are BERT's, the rest is what trains well here. What departs from the paper is the size of
``paper``, and nothing else.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biqe.errors import BiqeError, InvalidOption, UnknownName


@dataclass(frozen=True)
class Preset:
    """Settings that belong together."""

    model: str
    model_config: Mapping[str, Any]
    train: Mapping[str, Any]
    """Fields of TrainConfig."""
    summary: str


_PAPER = {
    "positions": "paper",
    "norm": "post",
    "mask_average": "probability",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "inverses": False,
}
_TRAIN = {
    "online": False,
    "inverse_share": 0.0,
    "hide_share": 0.0,
    "reveal_share": 0.0,
    "answers": "one",
    "triple_answers": 1,
    "softmax": "full",
    "label_smoothing": 0.0,
    "average": 0.0,
    "weight_decay": 0.01,
}

PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "biqe",
        {**_PAPER, "layers": 4, "width": 256, "heads": 8, "feed_forward": 1024},
        {**_TRAIN, "learning_rate": 5e-4},
        "BiQE as published, for two cores: 4 layers, width 256, 8 heads, 1,024 between (BERT-base: 12, 768, 12, 3,072)",
    ),
    "paper-base": Preset(
        "biqe",
        {**_PAPER, "layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
        {**_TRAIN, "learning_rate": 1e-4, "warmup_steps": 10_000},
        "BiQE as published, in BERT-base's size: 12 layers, width 768, 12 heads, 3,072 between",
    ),
}


def chosen(name: str | None, model: str | None = None, *, continued: bool = False) -> Preset | None:
    """The preset that the user has named, if any; refused beside another ``model``, and for a run that is continued."""
    if name is None:
        return None
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1)
        raise UnknownName(
            f"there is no preset {name!r}; there are {', '.join(PRESETS)}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    found = PRESETS[name]
    if continued:
        raise InvalidOption("a continued run keeps its own settings: give --continue or --preset, not both")
    if model not in (None, found.model):
        raise InvalidOption(f"preset {name!r} is of model {found.model}. Got --model {model}", hint="leave out --model")
    return found


@contextmanager
def mined_once(graph: str, run: Path, seed: int) -> Iterator[Path]:
    """The fixed training set of a new run, mined into the run folder by the recipe ``cq``; removed again where the run
    is refused."""
    from biqe.mine import dataset, folder
    from biqe.training.run import QUERIES, check_free, is_run_folder
    from biqe.training.session import open_graph

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidOption(
            "several processes need a set of queries that all of them can read",
            hint=f"mine one first, biqe mine {graph} --out SET, and give it with --set SET",
        )
    check_free(run)
    place = run / QUERIES
    folder.save(dataset.mine(open_graph(graph)[1], dataset.MineConfig(seed=seed, train_filters=False)), place)
    try:
        yield place
    except BiqeError:
        if not is_run_folder(run):
            shutil.rmtree(place)
            with suppress(OSError):  # it may hold a copy of a live graph
                run.rmdir()
        raise
