"""A model, asked with queries as the user wrote them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from biqe.errors import RefusedByModel, TooManyPaths, UnsupportedQuery
from biqe.graph.knowledge_graph import Graph
from biqe.predict import probability
from biqe.predict.calibration import Calibration
from biqe.predict.config import BEAM, LINKS
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, link_queries, selected_rows
from biqe.query.orient import orient
from biqe.query.queryset import QuerySet

if TYPE_CHECKING:
    from biqe.links.probability import LinkProbability
    from biqe.models._contract import QueryModel, SolvesOtherwise

LinkKey = tuple[int, int]
"""Subject and relation of a link whose object is asked for."""
Triple = tuple[int, int, int]
Scores = NDArray[np.float32]
Allowed = Mapping[str, NDArray[np.bool_]]
"""(E,) entities that conditions leave a variable, by its name."""

SCORES_AT_ONCE = 32_000_000
"""Scores that one model call may return (128 MB of float32); more queries than that go in several calls."""
ROW_BEAM = 24
"""Entities of each variable, beside all stored ones, that a search for rows keeps."""
UNCALIBRATED = "these are scores, not probabilities: too few facts were held out from training to calibrate them"
REMEMBERED = 4_000_000
"""Scores of single links that are kept while one question is answered (16 MB)."""


class Predictor:
    """A model, asked with queries as the user wrote them.

    A model trained with inverse relations reads every edge pointing away from the constants, whichever way the user
    wrote the pattern; any other model reads the query as it stands. This class is the only place that knows about
    either, and about the order in which a model returns its targets: everything above it uses SELECT order.

    One predictor serves many threads. ``for_question`` makes a copy for one question, which remembers what the model
    said about single links; ``restricted`` makes a copy that gives no probability to entities that a condition
    excludes.
    """

    def __init__(self, model: QueryModel, calibration: Calibration | None = None) -> None:
        self.links: LinkProbability | None = getattr(model, "link_probability", None)
        """Probabilities of single links, fitted on held-out facts. Where there are any, they are the only numbers that
        are shown, and rows are searched by them."""
        if self.links is not None:
            model = cast("SolvesOtherwise", model).solving(search=1.0, stored="one", search_beam=ROW_BEAM)
        self.model = model
        self.calibration = None if self.links is not None else calibration
        self.name = model.name
        self.inverses = bool(getattr(model.config, "inverses", False))
        self.entity_count = model.entity_count
        self.seen: tuple[int, int] | None = getattr(model, "seen", None)
        """Numbers of entities and relations that the model knows, the first of the graph's; None: all of them."""
        self._allowed: Allowed = {}
        self._link_scores: dict[LinkKey, Scores] | None = None
        """What the model said about the objects of these links; None where nothing is remembered."""
        self._ahead: list[LinkKey] = []
        """Links to ask about together with the first query."""

    def for_question(self, ahead: Iterable[LinkKey] = (), *, shared: bool = False) -> Predictor:
        """A copy for one question and one thread, which asks the model about no link twice. Links in ``ahead`` are
        asked about in the same call as the first query. With ``shared``, this is the predictor itself if it is such a
        copy already."""
        if shared and self._link_scores is not None:
            return self
        made = copy.copy(self)
        made._link_scores = {}
        made._ahead = [key for key in dict.fromkeys(ahead) if self.knows(*key)]
        return made

    def encoder_alone(self) -> Predictor:
        """A copy that asks the encoder without links; this predictor itself where it has none."""
        if self.links is None:
            return self
        made = copy.copy(self)
        made.model, made.links = cast("SolvesOtherwise", self.model).solving(search=0.0), None
        return made

    def restricted(self, allowed: Allowed) -> Predictor:
        """A copy that gives these variables no other entities; it shares what is remembered about links."""
        made = copy.copy(self)
        made._allowed = allowed
        return made

    @property
    def joint(self) -> str:
        """How rows of several targets are found by default: as those that the probabilities were calibrated on;
        without a calibration, by the search over links where the model has one."""
        if self.calibration is not None:
            return self.calibration.decode
        return LINKS if hasattr(self.model, "tuples") else BEAM

    def calibration_note(self, joint: str | None, targets: int) -> str:
        """A warning where probabilities were not calibrated on held-out facts, or on rows found in another way."""
        if self.links is not None:
            return "" if self.links.knowledge.record.calibrated else UNCALIBRATED
        # With one target, every way finds the same rows.
        if self.calibration is None or targets < 2 or joint in (None, self.calibration.decode):
            return ""
        return f"probabilities were calibrated on rows found by {self.calibration.decode}; these are by {joint}"

    def knows(self, entity: int, relation: int) -> bool:
        """Whether entity and relation were there when the model was trained."""
        return self.seen is None or (entity < self.seen[0] and relation < self.seen[1])

    # Queries

    def prepare(self, query: BoundQuery, muted: frozenset[int] = frozenset()) -> BoundQuery:
        """``query`` as the model reads it, nodes and edges in the same order; UnsupportedQuery where it cannot.

        Constants in ``muted`` become hidden variables after the edges were turned, so that nothing else changes in
        what the model reads.
        """
        oriented = orient(query, self.model.relation_count) if self.inverses else query
        if muted:
            nodes = tuple(HIDDEN if node in muted else value for node, value in enumerate(oriented.nodes))
            oriented = replace(oriented, nodes=nodes)
        try:
            support = self.model.supports(oriented)
        except TooManyPaths as error:
            raise UnsupportedQuery(error.message, hint=error.hint) from error
        if not support.yes:
            known = "mode 'known' (--mode known) answers from the graph alone"
            hint = known if support.hint is None else support.hint
            hint = hint if "known" in hint else f"{hint}; {known}"
            raise RefusedByModel(self.name, support.reason, hint)
        return oriented

    def reads(self, query: BoundQuery) -> bool:
        """Whether the model reads the query in one piece."""
        try:
            self.prepare(query)
        except UnsupportedQuery:
            return False
        return True

    def log_probabilities(self, prepared: Sequence[BoundQuery]) -> Scores:
        """(V, E) one row for each target: query by query, and in a query in the order of its ``targets``."""
        keys = [_link_of(query) for query in prepared] if self._link_scores is not None else []
        if keys and None not in keys:
            return self._links_once(prepared, [key for key in keys if key is not None])
        return self._without_excluded(prepared, self._asked(prepared, keys))

    def _asked(self, prepared: Sequence[BoundQuery], keys: Sequence[LinkKey | None]) -> Scores:
        """Scores of queries that have to be computed; those of links ahead of time are computed with the first."""
        ahead, self._ahead = [key for key in self._ahead if key not in keys], []
        try:
            links = link_queries(ahead, self.prepare)
        except UnsupportedQuery:  # raised again where the links are needed
            ahead, links = [], []
        scores = self._computed([*prepared, *links])
        if self._link_scores is not None:
            row = 0
            for key, query in zip([*keys, *ahead], [*prepared, *links], strict=True):
                if key is not None and (len(self._link_scores) + 1) * scores.shape[1] <= REMEMBERED:
                    # A copy: a view would keep the whole table in memory.
                    self._link_scores[key] = scores[row].copy()
                row += len(query.targets)
        return scores[: len(scores) - len(links)]

    def _links_once(self, prepared: Sequence[BoundQuery], keys: Sequence[LinkKey]) -> Scores:
        said = self._link_scores or {}
        new = {key: query for key, query in zip(keys, prepared, strict=True) if key not in said}
        fresh = dict(zip(new, self._asked(list(new.values()), list(new)), strict=True)) if new else {}
        return self._without_excluded(prepared, np.stack([fresh[key] if key in fresh else said[key] for key in keys]))

    def _computed(self, prepared: Sequence[BoundQuery]) -> Scores:
        import torch  # here, because known answers do without it

        # Where a model keeps buffers, inference mode would make them useless for training.
        is_training = getattr(self.model, "training", False)
        if is_training:
            self.model.eval()
        try:
            with torch.no_grad() if is_training else torch.inference_mode():
                found = self.model.scores(self.model.encoder(QuerySet.of(prepared)))
        finally:
            if is_training:
                self.model.train()
        # numpy has no type for bfloat16
        scores = (found if found.dtype == torch.float64 else found.float()).cpu().numpy()
        order = selected_rows(prepared)
        return scores if order == list(range(len(order))) else scores[order]

    def _without_excluded(self, prepared: Sequence[BoundQuery], scores: Scores) -> Scores:
        """The scores with -inf for entities that a condition excludes."""
        if not self._allowed:
            return scores
        names = [query.names[node] if query.names else "" for query in prepared for node in query.targets]
        if any(name in self._allowed for name in names):
            scores = scores.copy()  # the original may be remembered
        for number, name in enumerate(names):
            if name in self._allowed:
                scores[number, ~self._allowed[name]] = -np.inf
        return scores

    def permits(self, query: BoundQuery, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(n,) which (n, targets) rows of ``query`` have no excluded entity."""
        passed = np.ones(len(rows), bool)
        for column, node in enumerate(query.targets):
            name = query.names[node] if query.names else ""
            if name in self._allowed:
                passed &= self._allowed[name][rows[:, column]]
        return passed

    def queries_at_once(self, targets: int) -> int:
        """How many queries with so many targets go in one call."""
        scores = getattr(self.model, "scores_at_once", SCORES_AT_ONCE)  # a model shared by many callers takes less
        return max(1, scores // max(1, targets * self.entity_count))

    def tuples(
        self, prepared: BoundQuery, marginals: Scores, count: int, width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        """The ``count`` best (n, T) rows by the model's own search over links, and their scores; None where it has no
        such search. ``marginals`` are the (T, E) log-probabilities of the targets; at least ``width`` partial rows are
        kept on the way."""
        import torch

        from biqe.models._contract import FindsTuples

        if not isinstance(self.model, FindsTuples):
            return None
        order = selected_rows([prepared])
        by_node = np.ascontiguousarray(marginals[np.argsort(order)])
        with torch.inference_mode():
            found = self.model.tuples(QuerySet.of([prepared]), count, torch.from_numpy(by_node), width)
        return None if found is None else (found[0].rows[:, order], found[0].scores)

    # Single links

    def link_scores(self, keys: Sequence[LinkKey]) -> Iterable[tuple[LinkKey, Scores]]:
        """Each subject and relation with the (E,) log-probabilities of their objects; UnsupportedQuery where the model
        reads no such query. Keys that the model does not know are left out."""
        known = [key for key in dict.fromkeys(keys) if self.knows(*key)]
        remembered = self._link_scores or {}
        yield from ((key, remembered[key]) for key in known if key in remembered)
        asked = sorted(key for key in known if key not in remembered)
        queries = link_queries(asked, self.prepare)
        step = self.queries_at_once(1)
        for first in range(0, len(asked), step):
            part = slice(first, first + step)
            yield from zip(asked[part], self.log_probabilities(queries[part]), strict=True)

    def link_probabilities(self, links: Sequence[Triple], graph: Graph | None = None) -> list[float]:
        """How probable each link (subject, relation, object) is by itself; see ``probability.of_links``."""
        if self.links is not None:
            return np.exp(self.links.of(*np.array(links, np.int64).reshape(-1, 3).T)).tolist()
        objects: dict[LinkKey, list[int]] = {}
        for subject, relation, object_ in dict.fromkeys(links):
            if self.knows(object_, relation):
                objects.setdefault((subject, relation), []).append(object_)
        # A link with an end that is newer than the model has probability 0.
        found: dict[Triple, float] = {}
        for key, scores in self.link_scores(list(objects)):
            chances = probability.of_links(scores, key, objects[key], graph, self.calibration)
            found.update(((*key, object_), chance) for object_, chance in zip(objects[key], chances, strict=True))
        return [found.get((subject, relation, object_), 0.0) for subject, relation, object_ in links]


def _link_of(query: BoundQuery) -> LinkKey | None:
    """Subject and relation of a prepared query that asks for the objects of one link and for nothing else."""
    if len(query.edges) != 1 or len(query.nodes) != 2:
        return None
    ((subject, relation, object_),) = query.edges
    if query.nodes[subject] < 0 or query.nodes[object_] != TARGET:
        return None
    return query.nodes[subject], relation
