"""Settings that follow from the graph and the length of a run, where the user gives none.

A small graph is learnt by heart by a wide model, and an epoch of a hundred thousand mined queries would be its whole
run. A short run cannot spend its minutes on warming up and on being validated.
"""

from __future__ import annotations

from typing import Any

from biqe.models import _catalogue
from biqe.models.biqe import BiQE

SMALL_GRAPH = 30_000
"""Training triples below which the encoder is small."""
SMALL_ENCODER = {"width": 128, "layers": 2, "heads": 4, "feed_forward": 256}
SHORT_RUN = 5.0
"""Minutes below which a run is validated less often, on fewer queries."""


def adapted(model: str, triples: int, minutes: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Model options and training settings for a ``model`` trained on so many triples; nothing for baselines.

    >>> adapted("hybrid", 5_000, 3.0)[0]["width"], adapted("hybrid", 272_115, 60.0)[0]
    (128, {})
    """
    if not issubclass(_catalogue.class_of(model), BiQE):
        return {}, {}
    mined = min(50_000, max(1_000, triples // 2))
    training: dict[str, Any] = {"paths": mined, "dags": mined}
    options: dict[str, Any] = {}
    if triples < SMALL_GRAPH:
        options = dict(SMALL_ENCODER)
        training |= {"learning_rate": 0.003, "warmup_steps": 100}
    if minutes is not None:
        training["patience"] = 3
        if minutes < SHORT_RUN:
            training |= {"validations": 6, "validation_queries": 200}
    return options, training
