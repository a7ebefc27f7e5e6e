"""Which parts of a query each unknown looked at, while the model read the query with all of its unknowns open.

A part is a node of the query or a pattern, by its relation. The attention of an unknown on a part is the sum over the
tokens that stand for it, averaged over the unknown's own tokens and over heads; it sums to 1 over all parts, in every
layer. Two rollups over layers: the mean of all of them, and the last one alone. Hidden variables have no token, so
nothing can look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from biqe.errors import UnsupportedQuery
from biqe.query.tokens import tokens

if TYPE_CHECKING:
    from biqe.predict.predictor import Predictor
    from biqe.query.bound import BoundQuery

Table = tuple[tuple[float, ...], ...]
"""Shares: a row for each unknown, a column for each part."""


@dataclass(frozen=True)
class Attention:
    """Shares of attention, from 0 to 1."""

    targets: tuple[int, ...]
    """Nodes of the unknowns, in SELECT order."""
    nodes: tuple[int, ...]
    """Nodes that the model read, ascending: the first columns."""
    patterns: tuple[int, ...]
    """Numbers of the patterns, from 0: the columns after them."""
    by_layer: tuple[Table, ...]
    """Mean over heads, in each layer."""
    heads: int

    @property
    def mean(self) -> Table:
        """Mean over heads and over all layers."""
        return _table(np.mean(self.by_layer, axis=0))

    @property
    def last(self) -> Table:
        """Mean over heads, in the last layer."""
        return self.by_layer[-1]


def attend(predictor: Predictor, query: BoundQuery) -> Attention:
    """What each unknown of ``query`` looks at. UnsupportedQuery where the model has no attention over tokens, or cannot
    read the query."""
    from biqe.evaluate.attention import query_attention  # torch: not before a model is asked

    if not query.targets:
        raise UnsupportedQuery("the question has no unknown that could look at something")
    predictor = predictor.encoder_alone()
    oriented = predictor.prepare(query)
    found = query_attention(predictor.model, oriented, None, top=1)
    elements = np.array(tokens(oriented).elements)  # (T,) nodes, then number of nodes + edge
    read = np.unique(elements)
    belongs = elements[:, None] == read  # (T, parts)
    rows = sorted(query.targets)  # the order of ``found.targets``
    shares = found.weights.mean(axis=1) @ belongs  # (layers, V, parts)
    shares = shares[:, [rows.index(target) for target in query.targets]]
    count = len(query.nodes)
    return Attention(
        targets=query.targets,
        nodes=tuple(element for element in read.tolist() if element < count),
        patterns=tuple(element - count for element in read.tolist() if element >= count),
        by_layer=tuple(_table(layer) for layer in shares),
        heads=found.weights.shape[1],
    )


def _table(shares: np.ndarray) -> Table:
    return tuple(tuple(row) for row in shares.tolist())
