"""The share that a model gives one row of a query, out of 1 over all rows: what an explanation starts from.

p(row) = p(first) p(second | first) ...: the surest target is asked for first, the row's own entity is put in its place,
and the others are asked again with what still depends on them. This is what the beam does, along one row; with three
targets or more the beam may fill them in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.predict.conditional import Part, fillable, open_parts, prepared_apart
from biqe.predict.predictor import Predictor, Scores
from biqe.query.bound import BoundQuery

Masks = Mapping[int, NDArray[np.bool_]]
"""(E,) entities that conditions leave a node, by node."""


def row_share(
    predictor: Predictor,
    query: BoundQuery,
    row: Mapping[int, int],
    muted: frozenset[int] = frozenset(),
    *,
    settled: Set[int] = frozenset(),
    permitted: Masks | None = None,
    whole: bool = False,
) -> float:
    """p(row), where ``row`` gives an entity to each target node. UnsupportedQuery where the model cannot read what has
    to be asked, or where no pattern says anything about a target.

    Parts of the query that nothing joins are asked one by one and their shares multiplied; with ``whole`` they are
    read at once. Parts whose nodes are all in ``settled`` count as 1. ``muted`` are constants that the model is not
    told. ``permitted`` decides which target is the surest, and changes no share.
    """
    total = 0.0
    every = Part(query, tuple(range(len(query.nodes))), tuple(range(len(query.targets))))
    for part in [every] if whole else open_parts(query, {}):
        if set(part.places) <= settled:
            continue
        slots = {node: slot for slot, node in enumerate(part.places)}
        own = {slots[node]: entity for node, entity in row.items() if node in slots}
        masks = {slots[node]: mask for node, mask in (permitted or {}).items() if node in slots}
        hidden = frozenset(slots[node] for node in muted if node in slots)
        total += _log_share(predictor, part.query, own, hidden, masks)
    return min(1.0, float(np.exp(total)))  # rounding in single precision may carry it a little over 1


def _log_share(
    predictor: Predictor, query: BoundQuery, row: Mapping[int, int], muted: frozenset[int], permitted: Masks
) -> float:
    filled: dict[int, int] = {}
    left = list(query.targets)
    total = 0.0
    while left:
        scores = _given(predictor, query, filled, muted)
        surest = max(fillable(predictor, query, left), key=lambda node: _largest(scores[node], permitted.get(node)))
        total += float(scores[surest][row[surest]])
        filled[surest] = row[surest]
        left.remove(surest)
    return total


def _given(
    predictor: Predictor, query: BoundQuery, filled: Mapping[int, int], muted: frozenset[int]
) -> dict[int, Scores]:
    """Log-probabilities of each open target, given what is filled."""
    if not filled:
        try:
            read = predictor.prepare(query, muted)
            return dict(zip(read.targets, predictor.log_probabilities([read]), strict=True))
        except UnsupportedQuery:
            if len(query.targets) == 1:
                raise
    found: dict[int, Scores] = {}
    for part in open_parts(query, filled):
        hidden = frozenset(slot for slot, node in enumerate(part.places) if node in muted)
        prepared = list(prepared_apart(predictor, part.query, hidden))
        targets = [part.places[target] for piece in prepared for target in piece.targets]
        found.update(zip(targets, predictor.log_probabilities(prepared), strict=True))
    return found


def _largest(scores: Scores, permitted: NDArray[np.bool_] | None) -> float:
    """The largest score of an entity that is permitted."""
    return float((scores if permitted is None else scores[permitted]).max(initial=-np.inf))
