"""What predicted rows rest on, with the model's opinion of their missing links.

The search is that of explanations (explain/search.py, explain/weigh.py), so that ``row.missing`` and
``kb.explain(row)`` name the same links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from biqe.explain.search import Evidence, EvidenceFinder, IdLink, Way
from biqe.explain.weigh import Opinion, chosen

if TYPE_CHECKING:
    from biqe.answer.predicted import Predictor

__all__ = ["Evidence", "EvidenceFinder", "IdLink", "Way", "weighed"]


def weighed(
    finder: EvidenceFinder, choices: Sequence[Sequence[list[Way]]], predictor: Predictor
) -> tuple[list[Evidence], dict[IdLink, float]]:
    """Of each row, the evidence whose missing links are most probable; and the probabilities of those links."""
    opinion = Opinion(
        predictor.prepare,
        predictor.log_probabilities,
        partial(predictor.link_probabilities, graph=finder.graph),
        predictor.knows,
    )
    return chosen(finder, choices, opinion)
