"""Runs that train a link predictor first: how long, with which settings, and how both parts are shown as one run.

A hybrid begins with the embeddings of a link predictor, which it would take longer to learn from queries
(docs/decisions/0010). The predictor has a run folder of its own, RUN/links, so that either part can be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biqe.errors import InvalidOption
from biqe.models import _catalogue
from biqe.models._contract import StartsFromLinks
from biqe.train.config import TrainConfig
from biqe.train.loop import Listener
from biqe.train.ranks import Ranks

PREDICTOR = "cqd"
"""The model whose link predictor is trained."""
SHARE, FEWEST_MINUTES, MOST_MINUTES = 1 / 6, 2.0, 20.0
"""Share of the run that the predictor gets by default, and the least and most of it in minutes. In a short run links
are what can be learnt, so they get up to half of it."""


def default_minutes(minutes: float) -> float:
    """Minutes that train a link predictor, in a run of ``minutes``, where the user gives none.

    >>> default_minutes(60.0), default_minutes(600.0), default_minutes(3.0)
    (10.0, 20.0, 1.5)
    >>> round(60 * default_minutes(0.5)), round(60 * default_minutes(0.1))
    (15, 3)
    """
    return min(max(minutes * SHARE, FEWEST_MINUTES), MOST_MINUTES, minutes / 2)


def rank_for(entities: int) -> int:
    """Rank of the link predictor of a graph with so many entities: a small graph is learnt by heart at a high one."""
    return 64 if entities < 2_000 else 100 if entities < 10_000 else 200


def starts_from_links(model: str) -> bool:
    """Whether ``model`` begins with the weights of a link predictor."""
    return issubclass(_catalogue.class_of(model), StartsFromLinks)


def options(model: str, given: Mapping[str, Any], sizes: tuple[int, int], begun: bool, ranks: Ranks) -> dict[str, Any]:
    """Options of a ``model`` that will begin with a link predictor, those that were ``given`` among them; refused where
    it cannot. ``begun``: whether it begins with another model's weights already."""
    kind = _catalogue.class_of(model)
    if not issubclass(kind, StartsFromLinks):
        raise InvalidOption(
            f"{model} cannot begin with a link predictor", hint="leave out --links-minutes, or train a hybrid"
        )
    if begun:
        raise InvalidOption("a run begins with one model's weights: give --links-minutes, --start-from or --continue")
    if ranks.several:
        raise InvalidOption(
            "--links-minutes is for one process",
            hint="train the link predictor first, biqe train GRAPH --model cqd --out LINKS; then --start-from LINKS",
        )
    return {"rank": rank_for(sizes[0]), **given}


def settings(config: TrainConfig) -> dict[str, Any]:
    """Training settings of the link predictor of a run with ``config``. It is validated once, at its end."""
    shared = ("clock", "seed", "threads", "validation_queries", "checkpoint_minutes")
    return {"minutes": config.links_minutes, "validations": 1} | {name: getattr(config, name) for name in shared}


class Part:
    """Passes the progress of one part of a run on to the run's listener."""

    def __init__(self, listener: Listener, begin: float, end: float, **facts: Any) -> None:
        """The part goes from ``begin`` to ``end`` of the run, both from 0 to 1. ``facts`` go with each validation."""
        self._listener, self._begin, self._size, self._facts = listener, begin, end - begin, facts

    def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
        """Some steps of the part were taken."""
        self._listener.stepped(self._begin + self._size * fraction, facts)

    def validated(self, facts: dict[str, Any]) -> None:
        """The part's model was validated."""
        self._listener.validated({**facts, **self._facts})
