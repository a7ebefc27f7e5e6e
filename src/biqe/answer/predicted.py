"""What a model says about the targets of a query, as log-probabilities over all entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.answer.calibration import Calibration, calibrated
from biqe.answer.config import JOINT
from biqe.errors import UnsupportedQuery
from biqe.graph.index import objects as stored_objects
from biqe.graph.knowledge_graph import Graph
from biqe.query.bound import BoundQuery, link_queries, selected_rows
from biqe.query.orient import orient
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

LinkKey = tuple[int, int]
"""Subject and relation of a link whose object is asked for."""
SCORES_AT_ONCE = 32_000_000
"""Scores that one model call may return (128 MB of float32); more queries than that go in several calls."""


class Predictor:
    """A model, asked in queries as the user wrote them.

    A model trained with inverses is asked with every edge pointing away from the anchors, whatever way the
    user wrote the pattern; any other model gets the query as it stands. With a calibration, probabilities of rows and
    links are those of being true; without, they are the model's shares.
    """

    def __init__(self, model: QueryModel, calibration: Calibration | None = None) -> None:
        self.model = model
        self.calibration = calibration
        self.name = model.name
        self.inverses = bool(getattr(model.config, "inverses", False))
        self.entity_count = model.entity_count
        self.seen: tuple[int, int] | None = getattr(model, "seen", None)
        """Entities and relations that the model knows, the first of the graph's; None where it knows them all."""

    @property
    def joint(self) -> str:
        """How tuples are found unless told otherwise: as those that the probabilities were calibrated on; else by the
        model itself, where it does that well."""
        if self.calibration is not None:
            return self.calibration.decode
        return "linked" if hasattr(self.model, "tuples") else JOINT[0]

    def remark(self, joint: str | None, targets: int) -> str:
        """What a user has to know about the probabilities of tuples that were found so; '' where there is nothing."""
        # With one target, every way finds the same rows.
        if self.calibration is None or targets < 2 or joint in (None, self.calibration.decode):
            return ""
        return f"probabilities were calibrated on rows found by {self.calibration.decode}; these are by {joint}"

    def prepare(self, query: BoundQuery) -> BoundQuery:
        """``query`` as the model reads it, nodes in the same order; UnsupportedQuery where it cannot."""
        oriented = orient(query, self.model.relation_count) if self.inverses else query
        support = self.model.supports(oriented)
        if not support.yes:
            known = "mode 'known' (--mode known) answers from the graph alone"
            hint = known if support.hint is None else support.hint
            hint = hint if "known" in hint else f"{hint}; {known}"
            raise UnsupportedQuery(f"{self.name} cannot predict this query: {support.reason}", hint=hint)
        return oriented

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> NDArray[np.float32]:
        """(V, E) one row for each target: query by query, and in a query in the order of its ``targets``."""
        # Queries come from ``prepare``; torch is imported by whoever loaded the model.
        import torch

        with torch.inference_mode():
            scores = self.model.scores(self.model.encoder(QuerySet.of(prepared))).numpy()
        order = selected_rows(prepared)
        return scores if order == list(range(len(order))) else scores[order]

    def tuples(
        self, prepared: BoundQuery, marginals: NDArray[np.float32], count: int, width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        """The ``count`` best (n, T) rows that the model finds by itself, and their scores; None where it finds none so.
        ``marginals`` are the (T, E) log-probabilities of the targets; ``width`` partial rows are kept, at least."""
        import torch

        from biqe.models._contract import FindsTuples

        if not isinstance(self.model, FindsTuples):
            return None
        order = selected_rows([prepared])
        by_node = np.ascontiguousarray(marginals[np.argsort(order)])
        with torch.inference_mode():
            found = self.model.tuples(QuerySet.of([prepared]), count, torch.from_numpy(by_node), width)
        return None if found is None else (found[0].rows[:, order], found[0].scores)

    def permits(self, query: BoundQuery, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(n,) which (n, targets) rows of ``query`` this predictor may propose: all of them."""
        return np.ones(len(rows), bool)

    def queries_at_once(self, targets: int) -> int:
        """How many queries with so many targets go in one call."""
        scores = getattr(self.model, "scores_at_once", SCORES_AT_ONCE)  # a model shared by many callers takes less
        return max(1, scores // max(1, targets * self.entity_count))

    def probabilities(
        self, log_probabilities: NDArray[np.floating], *, targets: int, known: int
    ) -> NDArray[np.float64]:
        """Of the listed rows of one query, best first; see ``calibration.calibrated``."""
        return calibrated(log_probabilities, self.calibration, targets=targets, known=known)

    def link_probabilities(
        self,
        links: Sequence[tuple[int, int, int]],
        graph: Graph | None = None,
        *,
        answered: Mapping[LinkKey, NDArray[np.float32]] | None = None,
    ) -> list[float]:
        """How probable each link (subject, relation, object) is by itself, everything else left out.

        It is the object's share when the model is asked for the objects of that subject and relation; calibrated, if
        the graph tells which of these objects are known, so that the link is compared with those that are not.
        ``answered`` are (E,) log-probabilities of objects that the model was asked for before.
        """
        found: dict[tuple[int, int, int], float] = {}
        objects: dict[LinkKey, list[int]] = {}
        for subject, relation, object_ in links:
            if not self.knows(max(subject, object_), relation):
                found[subject, relation, object_] = 0.0  # newer than the model, which has nothing to say about it
            else:
                objects.setdefault((subject, relation), []).append(object_)

        def take(key: LinkKey, scores: NDArray[np.float32]) -> None:
            chances = self._chances(scores, objects[key], graph, key)
            found.update(((*key, object_), chance) for object_, chance in zip(objects[key], chances, strict=True))

        for key, scores in (answered or {}).items():
            if key in objects:
                take(key, scores)
        asked = sorted(key for key in objects if answered is None or key not in answered)
        if not asked:
            return [found[subject, relation, object_] for subject, relation, object_ in links]
        queries = self.link_queries(asked)
        step = self.queries_at_once(1)
        for first in range(0, len(asked), step):
            keys = asked[first : first + step]
            for key, row in zip(keys, self.log_probabilities(queries[first : first + step]), strict=True):
                take(key, row)
        return [found[subject, relation, object_] for subject, relation, object_ in links]

    def knows(self, entity: int, relation: int) -> bool:
        """Whether the model can have something to say about them: they are no newer than it is."""
        return self.seen is None or (entity < self.seen[0] and relation < self.seen[1])

    def link_queries(self, keys: Sequence[LinkKey]) -> list[BoundQuery]:
        """For each key, the query for its objects, prepared; UnsupportedQuery where the model reads no such query."""
        return link_queries(keys, self.prepare)

    def _chances(
        self, scores: NDArray[np.float32], wanted: Sequence[int], graph: Graph | None, key: tuple[int, int]
    ) -> list[float]:
        shares = scores[list(wanted)].astype(np.float64)
        if self.calibration is None or graph is None:
            return np.exp(shares).tolist()
        known = stored_objects(graph.index, *key)
        others = scores.copy()
        others[known] = -np.inf
        # The best object that is not known comes first, as in the lists that the calibration was fitted on.
        listed = np.concatenate([[float(others.max(initial=-1e3))], shares])
        return self.probabilities(listed, targets=1, known=len(known))[1:].tolist()


class Restricted(Predictor):
    """A predictor that gives no probability to entities that a condition excludes; all others keep theirs."""

    def __init__(self, predictor: Predictor, allowed: Mapping[str, NDArray[np.bool_]]) -> None:
        super().__init__(predictor.model, predictor.calibration)
        self._inner = predictor
        self._allowed = allowed
        """(E,) for each restricted variable, by its name."""

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> NDArray[np.float32]:
        """As the predictor's own, with -inf for excluded entities."""
        scores = self._inner.log_probabilities(prepared)
        names = [query.names[node] if query.names else "" for query in prepared for node in query.targets]
        if any(name in self._allowed for name in names):
            scores = scores.copy()  # others may hold on to what the model said
        for number, name in enumerate(names):
            if name in self._allowed:
                scores[number, ~self._allowed[name]] = -np.inf
        return scores

    def permits(self, query: BoundQuery, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(n,) which rows have no excluded entity."""
        passed = np.ones(len(rows), bool)
        for column, node in enumerate(query.targets):
            name = query.names[node] if query.names else ""
            if name in self._allowed:
                passed &= self._allowed[name][rows[:, column]]
        return passed
