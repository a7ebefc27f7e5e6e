"""Runs that train a link predictor first: how long, with which settings, and how both parts are shown as one run.

A hybrid begins with the embeddings of a link predictor, which it would take longer to learn from queries
(docs/decisions/0010). The predictor has a run folder of its own, RUN/links, so that either part can be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Splits
from biqe.links.softmax import processor_multiplies_bfloat16
from biqe.models import _catalogue
from biqe.models._contract import StartsFromLinks
from biqe.training.config import TrainConfig
from biqe.training.loop import Listener
from biqe.training.ranks import Ranks

VALIDATIONS, PATIENCE, VALIDATION_QUERIES = 10, 3, 1_000
PREDICTOR = "cqd"
"""The model whose link predictor is trained."""
SHARE, SHARE_OF_SHORT_RUNS, SHORT, MOST_MINUTES = 0.4, 0.6, 5.0, 60.0
"""Share of the run that the predictor gets by default, and the most of it in minutes. In a run of a few minutes links
are what can be learnt."""
RANKS = ((2_000, 64), (10_000, 128))
"""Rank of the link predictor of a graph with fewer entities than that: a small one is learnt by heart otherwise."""
RANK, RANK_OF_LONG_RUNS, LONG = 200, 256, 15.0
"""Of larger graphs; the second from so many minutes on. In a short run steps matter more than rank
(docs/decisions/0020-links-in-a-short-time.md)."""
DENSE = 4
"""Triples an entity from which on predicting relations helps much. On sparser graphs it takes from what tails need
(docs/decisions/0020-links-in-a-short-time.md)."""
NEGATIVES = 2_048
"""Entities that a step compares with where there is no time to compare with all of them."""
FEWEST_EPOCHS = 20
"""With all entities compared, a run should come to so many epochs; else a sample teaches more in the same time
(docs/decisions/0020-links-in-a-short-time.md)."""
SPEED, SPEED_IN_BFLOAT16 = 1e11, 2e11
"""Floating-point operations a second and thread that training comes to on a processor."""


def default_minutes(minutes: float) -> float:
    """Minutes that train a link predictor, in a run of ``minutes``, where the user gives none.

    >>> default_minutes(60.0), default_minutes(600.0), default_minutes(3.0)
    (24.0, 60.0, 1.8)
    """
    return min(round(minutes * (SHARE_OF_SHORT_RUNS if minutes < SHORT else SHARE), 6), MOST_MINUTES)


def epochs_of(splits: Splits, rank: int, minutes: float, threads: int, precision: str = "auto") -> float:
    """About how many epochs of a link predictor that compares with all entities fit into ``minutes``."""
    directed = np.concatenate([splits.train[:, :2], splits.train[:, [2, 1]] + [0, len(splits.vocabulary.relations)]])
    questions, entities = len(np.unique(directed, axis=0)), len(splits.vocabulary.entities)
    # Three products of a vector with the table: of the scores, of the gradients of vectors and of the table.
    epoch = 6.0 * 2 * rank * questions * entities
    is_fast = precision == "auto" and processor_multiplies_bfloat16()
    return 60.0 * minutes * threads * (SPEED_IN_BFLOAT16 if is_fast else SPEED) / max(1.0, epoch)


def rank_for(entities: int, minutes: float) -> int:
    """Rank of the link predictor of a graph with so many entities, trained for ``minutes``.

    >>> rank_for(135, 1.5), rank_for(5_000, 4.0), rank_for(14_541, 4.0), rank_for(14_541, 24.0)
    (64, 128, 200, 256)
    """
    for most, rank in RANKS:
        if entities < most:
            return rank
    return RANK if minutes < LONG else RANK_OF_LONG_RUNS


def softmax_for(splits: Splits, rank: int, minutes: float, threads: int, precision: str = "auto") -> str:
    """Whether the link predictor compares with all entities (full) or with a sample of them: what fits ``minutes``."""
    is_enough = epochs_of(splits, rank, minutes, threads, precision) >= FEWEST_EPOCHS
    return "full" if is_enough or len(splits.vocabulary.entities) <= 2 * NEGATIVES else "sampled"


def relation_weight_for(triples: int, entities: int) -> float:
    """How much predicting the relation of a pair counts in the predictor's loss.

    >>> relation_weight_for(272_115, 14_541), relation_weight_for(86_835, 40_943)
    (1.0, 0.1)
    """
    return 1.0 if triples >= DENSE * entities else 0.1


def starts_from_links(model: str) -> bool:
    """Whether ``model`` begins with the weights of a link predictor."""
    return issubclass(_catalogue.class_of(model), StartsFromLinks)


def options(
    model: str, given: Mapping[str, Any], entities: int, minutes: float, begun: bool, ranks: Ranks
) -> dict[str, Any]:
    """Options of a ``model`` that will begin with a link predictor trained for ``minutes``, those that were ``given``
    among them; refused where it cannot. ``begun``: whether it begins with another model's weights already."""
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
    return {"rank": rank_for(entities, minutes), **given}


def settings(config: TrainConfig, splits: Splits, rank: int, threads: int) -> dict[str, Any]:
    """Training settings of the link predictor of a run with ``config``. It stops where single links are no longer
    predicted better."""
    assert config.links_minutes
    shared = ("clock", "seed", "threads", "precision", "checkpoint_minutes")
    own: dict[str, Any] = {
        "minutes": config.links_minutes,
        "validations": VALIDATIONS,
        "patience": PATIENCE,
        "negatives": NEGATIVES,
    }
    own["validation_queries"] = VALIDATION_QUERIES
    own["softmax"] = softmax_for(splits, rank, config.links_minutes, threads, config.precision)
    return own | {name: getattr(config, name) for name in shared}


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
