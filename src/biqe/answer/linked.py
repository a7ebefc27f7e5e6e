"""Tuples that a model finds by itself: a search over links that stand beside its distributions (``QueryModel.tuples``).

The model does not know which tuples are to be left out. So more are asked for than are wanted, and more again where too
few of them are new. Scores become probabilities by their sum over the LISTED best, however many are asked for.
"""

from __future__ import annotations

import numpy as np

from biqe.answer.predicted import Predictor
from biqe.answer.ranked import Excluded, Ranked, all_different
from biqe.answer.refill import Scores
from biqe.query.bound import BoundQuery

LISTED = 512
"""Tuples that are asked for, at least."""
MORE, MOST = 8, 32_768
"""So many times more where too few of them are new; and the most."""


def linked(
    predictor: Predictor,
    query: BoundQuery,
    marginals: Scores,
    excluded: Excluded,
    *,
    count: int,
    width: int,
    injective: bool,
) -> Ranked | None:
    """The ``count`` best tuples without excluded ones; None where the model finds no tuples by itself."""
    prepared = predictor.prepare(query)
    asked = max(LISTED, 4 * count)
    while True:
        found = predictor.tuples(prepared, marginals, asked, width)
        if found is None:
            return None
        rows, scores = found
        kept = ~excluded.holds(rows)
        if injective:
            kept &= all_different(rows)
        if kept.sum() >= count or len(rows) < asked or asked >= MOST:
            break
        asked = min(MOST, MORE * asked)
    best = np.lexsort((*rows[kept].T[::-1], -scores[kept]))[:count]
    return Ranked(rows[kept][best], scores[kept][best] - float(np.logaddexp.reduce(scores[:LISTED], initial=-np.inf)))
