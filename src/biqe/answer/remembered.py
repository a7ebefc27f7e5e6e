"""What a model has said about single links while one question is answered, so that nothing is asked twice.

A question asks about the same links again and again: a beam fills ``?x`` and asks for the objects of ``x located_on``,
its next step does so again, and so does whoever weighs the missing links of the rows in the end. And some links are
asked about whatever the rows turn out to be: these go along with the first question, in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biqe.answer.predicted import LinkKey, Predictor
from biqe.errors import UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import TARGET, BoundQuery

REMEMBERED = 4_000_000
"""Scores that are kept for one question (16 MB)."""

Scores = NDArray[np.float32]


class Remembering(Predictor):
    """A predictor for one question, not to be shared between threads; the one that it stands for is."""

    def __init__(self, predictor: Predictor, ahead: Sequence[LinkKey] = ()) -> None:
        super().__init__(predictor.model, predictor.calibration)
        self._inner = predictor
        self._ahead = [key for key in dict.fromkeys(ahead) if self.knows(*key)]
        """Links to ask about along with the first question."""
        self._said: dict[LinkKey, Scores] = {}

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> Scores:
        """As the predictor's own."""
        keys = [_link_of(query) for query in prepared]
        if None in keys:
            return self._asked(prepared, keys)
        new = {key: query for key, query in zip(keys, prepared, strict=True) if key not in self._said}
        fresh = dict(zip(new, self._asked(list(new.values()), list(new)), strict=True)) if new else {}
        return np.stack([fresh[key] if key in fresh else self._said[key] for key in keys if key is not None])

    def _asked(self, prepared: Sequence[BoundQuery], keys: Sequence[LinkKey | None]) -> Scores:
        """Scores of new questions, with those of links ahead of time behind them the first time."""
        ahead, self._ahead = [key for key in self._ahead if key not in keys], []
        try:
            links = self.link_queries(ahead) if ahead else []
        except UnsupportedQuery:  # whoever needs them will be told
            ahead, links = [], []
        scores = self._inner.log_probabilities([*prepared, *links])
        row = 0
        for key, query in zip([*keys, *ahead], [*prepared, *links], strict=True):
            if key is not None and (len(self._said) + 1) * scores.shape[1] <= REMEMBERED:
                # A copy, for a row would keep the whole table.
                self._said[key] = scores[row].copy()
            row += len(query.targets)
        return scores[: len(scores) - len(links)]

    def link_probabilities(
        self,
        links: Sequence[tuple[int, int, int]],
        graph: Graph | None = None,
        *,
        answered: Mapping[LinkKey, Scores] | None = None,
    ) -> list[float]:
        """As the predictor's own, from what was said before where it was."""
        return super().link_probabilities(links, graph, answered={**self._said, **(answered or {})})


def _link_of(query: BoundQuery) -> LinkKey | None:
    """Subject and relation of a prepared query that asks for the objects of one link and for nothing else."""
    if len(query.edges) != 1 or len(query.nodes) != 2:
        return None
    ((subject, relation, object_),) = query.edges
    if query.nodes[subject] < 0 or query.nodes[object_] != TARGET:
        return None
    return query.nodes[subject], relation
