"""A run that trains its own link predictor first: how long, with which settings, and how both parts are shown as one.

A sixth of the minutes spent on a link predictor gives biqe embeddings to begin with, which it would take longer to
learn from queries (docs/decisions/0010). The predictor has a run folder of its own, RUN/links, so that either part is
resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from biqe.errors import InvalidOption
from biqe.models import _catalogue
from biqe.train.config import TrainConfig
from biqe.train.loop import Listener
from biqe.train.ranks import Ranks

PREDICTOR = "cqd"
"""The model whose link predictor is trained."""
FROM_MINUTES = 30.0
"""Runs from this length on begin with a link predictor unless told otherwise; shorter ones need all their time."""
SHARE, MOST_MINUTES = 1 / 6, 20.0
"""Share of the run that it gets by default, and the most."""


def default_minutes(model: str, entities: int, length: dict[str, float | None], *, sampled_from: int) -> float:
    """Minutes of a run of ``model`` that train a link predictor where the user gives none.

    >>> default_minutes("biqe", 14541, {"minutes": 60.0}, sampled_from=100_000)
    10.0
    >>> default_minutes("biqe", 14541, {"minutes": 10.0}, sampled_from=100_000)
    0.0
    """
    minutes = length.get("minutes")
    if minutes is None or minutes < FROM_MINUTES or entities >= sampled_from:  # its softmax is over all entities
        return 0.0
    return min(MOST_MINUTES, minutes * SHARE) if _catalogue.class_of(model).links_first else 0.0


def options(model: str, given: Mapping[str, Any], sizes: tuple[int, int], begun: bool, ranks: Ranks) -> dict[str, Any]:
    """Options of a ``model`` that will begin with a link predictor, those that were ``given`` among them; refused where
    it cannot. ``begun``: whether it begins with another model's weights already."""
    kind = _catalogue.class_of(model)
    if not kind.links_first:
        raise InvalidOption(f"{model} cannot begin with a link predictor", hint="leave out --links-minutes")
    if begun:
        raise InvalidOption("a run begins with one model's weights: give --links-minutes, --start-from or --continue")
    if ranks.several:
        raise InvalidOption(
            "--links-minutes is for one process",
            hint="train the link predictor first, biqe train GRAPH --model cqd --out LINKS; then --start-from LINKS",
        )
    with torch.device("meta"):  # its shape is all that is asked for
        predictor = _catalogue.build(PREDICTOR, {}, *sizes)
    found = {**kind.options_from(predictor), **kind.links_first, **given}
    if not found["predictor_rank"]:  # its embeddings alone are taken, so there is nothing to search
        found = {name: value for name, value in found.items() if name in given or name not in kind.solving_options}
    return found


def settings(config: TrainConfig) -> dict[str, Any]:
    """Training settings of the link predictor of a run with ``config``. It is validated once, at its end."""
    shared = ("clock", "seed", "threads", "validation_queries", "checkpoint_minutes")
    return {"minutes": config.links_minutes, "validations": 1} | {name: getattr(config, name) for name in shared}


class Part:
    """Shows a part of a run as the part that it is."""

    def __init__(self, listener: Listener, begin: float, end: float, **facts: Any) -> None:
        """``begin`` and ``end``, from 0 to 1: which part. ``facts`` go with each validation."""
        self._listener, self._begin, self._size, self._facts = listener, begin, end - begin, facts

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Some steps of the part were taken."""
        self._listener.stepped(self._begin + self._size * fraction, facts)

    def validated(self, facts: dict[str, Any]) -> None:
        """The part's model was validated."""
        self._listener.validated({**facts, **self._facts})
