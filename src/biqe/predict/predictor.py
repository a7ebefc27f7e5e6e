"""A model, asked with queries as the user wrote them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from biqe.errors import RefusedByModel, TooManyPaths, UnsupportedQuery
from biqe.predict.config import BEAM, LINKS
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet, link_queries, selected_rows
from biqe.query.dag import orient

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
REMEMBERED = 4_000_000
"""Scores of single links that are kept while one question is answered (16 MB)."""
UNCALIBRATED = "these are scores, not probabilities: too few facts were held out from training to calibrate them"
SHARES = "these are shares of 1 over all rows, not probabilities"


class Predictor:
    """A model, asked with queries as the user wrote them.

    A model with calibrated probabilities of links is asked for nothing else: rows are searched by them
    (link_search.py). Of any other model, one trained with inverse relations reads every edge pointing away from the
    constants, whichever way the user wrote the pattern; the rest read the query as it stands. This class is the only
    place that knows about either, and about the order in which a model returns its targets: everything above it uses
    SELECT order.

    One predictor serves many threads. ``for_question`` makes a copy for one question, which remembers what the model
    said about single links; ``restricted`` makes a copy that gives no probability to entities that a condition
    excludes.
    """

    def __init__(self, model: QueryModel) -> None:
        self.links: LinkProbability | None = getattr(model, "link_probability", None)
        """Probabilities of single links, fitted on held-out facts. Where there are any, they are the only numbers that
        are shown."""
        if self.links is not None:
            model = cast("SolvesOtherwise", model).solving(search=1.0, stored="one")
        self.model = model
        self.name = model.name
        self.inverses = bool(getattr(model.config, "inverses", False))
        self.entity_count = model.entity_count
        self.seen: tuple[int, int] | None = getattr(model, "seen", None)
        """Numbers of entities and relations that the model knows, the first of the graph's; None: all of them."""
        self.allowed: Allowed = {}
        """Entities that conditions leave variables, by name."""
        self._link_scores: dict[LinkKey, Scores] | None = None
        """Cached log-probabilities of the objects of single links; None where nothing is cached."""

    def for_question(self) -> Predictor:
        """A copy for one question and one thread, which asks the model about no link twice; this predictor itself if it
        is such a copy already."""
        if self._link_scores is not None:
            return self
        made = copy.copy(self)
        made._link_scores = {}
        return made

    def encoder_alone(self) -> Predictor:
        """A copy that asks the encoder without links; this predictor itself where it has none."""
        if self.links is None:
            return self
        made = copy.copy(self)
        made.model, made.links = cast("SolvesOtherwise", self.model).solving(search=0.0, stored="off"), None
        return made

    def restricted(self, allowed: Allowed) -> Predictor:
        """A copy that gives these variables no other entities; it shares what is remembered about links."""
        made = copy.copy(self)
        made.allowed = allowed
        return made

    @property
    def joint(self) -> str:
        """How rows of several targets are found by default: by the search over links where the model has one."""
        return LINKS if hasattr(self.model, "tuples") else BEAM

    @property
    def note(self) -> str:
        """A warning where the numbers of this model are no calibrated probabilities."""
        if self.links is None:
            return SHARES
        return "" if self.links.knowledge.record.calibrated else UNCALIBRATED

    def knows(self, entity: int, relation: int) -> bool:
        """Whether entity and relation were there when the model was trained, as far as that matters to it: rules and
        kinds speak of entities that came later."""
        if self.seen is None:
            return True
        return relation % self.model.relation_count < self.seen[1] and (self.links is not None or entity < self.seen[0])

    # Queries

    def prepare(self, query: BoundQuery, muted: frozenset[int] = frozenset()) -> BoundQuery:
        """``query`` as the model reads it, nodes and edges in the same order; UnsupportedQuery where it cannot.

        Constants in ``muted`` become hidden variables after the edges were turned, so that nothing else changes in
        what the model reads.
        """
        oriented = orient(query, self.model.relation_count) if self.inverses and self.links is None else query
        if muted:
            nodes = tuple(HIDDEN if node in muted else value for node, value in enumerate(oriented.nodes))
            oriented = replace(oriented, nodes=nodes)
        if self.links is not None:
            from biqe.links import structures

            support = structures.support(oriented, self.name)
        else:
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
        keys = [_link_of(query) for query in prepared]
        if self._link_scores is None or None in keys:
            return self._without_excluded(prepared, self._computed(prepared))
        said = self._link_scores
        new = {key: query for key, query in zip(keys, prepared, strict=True) if key not in said}
        fresh = dict(zip(new, self._computed(list(new.values())), strict=True)) if new else {}
        for key, scores in fresh.items():
            if key is not None and (len(said) + 1) * len(scores) <= REMEMBERED:
                said[key] = scores.copy()  # a view would keep the whole table in memory
        return self._without_excluded(
            prepared, np.stack([fresh[key] if key in fresh else said[key] for key in keys if key is not None])
        )

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
        if not self.allowed:
            return scores
        names = [query.names[node] if query.names else "" for query in prepared for node in query.targets]
        if any(name in self.allowed for name in names):
            scores = scores.copy()  # the original may be remembered
        for number, name in enumerate(names):
            if name in self.allowed:
                scores[number, ~self.allowed[name]] = -np.inf
        return scores

    def permits(self, query: BoundQuery, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(n,) which (n, targets) rows of ``query`` have no excluded entity."""
        passed = np.ones(len(rows), bool)
        for column, node in enumerate(query.targets):
            name = query.names[node] if query.names else ""
            if name in self.allowed:
                passed &= self.allowed[name][rows[:, column]]
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
        asked = sorted(key for key in set(keys) if self.knows(*key))
        queries = link_queries(asked, self.prepare)
        step = self.queries_at_once(1)
        for first in range(0, len(asked), step):
            part = slice(first, first + step)
            yield from zip(asked[part], self.log_probabilities(queries[part]), strict=True)

    def link_probabilities(self, links: Sequence[Triple]) -> list[float]:
        """How probable each link (subject, relation, object) is by itself: calibrated, or the object's share among all
        objects of subject and relation."""
        if self.links is not None:
            return _by_fewest_ends(self.links, links)
        objects: dict[LinkKey, list[int]] = {}
        for subject, relation, object_ in dict.fromkeys(links):
            if self.knows(object_, relation):
                objects.setdefault((subject, relation), []).append(object_)
        # A link with an end that is newer than the model has probability 0.
        found: dict[Triple, float] = {}
        for key, scores in self.link_scores(list(objects)):
            # Rounding in single precision may carry a share a little over 1.
            chances = np.minimum(np.exp(scores[objects[key]].astype(np.float64)), 1.0).tolist()
            found.update(((*key, object_), chance) for object_, chance in zip(objects[key], chances, strict=True))
        return [found.get((subject, relation, object_), 0.0) for subject, relation, object_ in links]


def _by_fewest_ends(links: LinkProbability, asked: Sequence[Triple]) -> list[float]:
    """Calibrated probabilities. A link has the same one from either of its ends, and what takes time is each different
    end with its relation; so each link is asked about from the end that more of them share."""
    subjects, relations, objects = np.array(asked, np.int64).reshape(-1, 3).T
    count, entities = links.graph.relation_count, links.entity_count
    _, from_subject, subject_sizes = np.unique(relations * entities + subjects, return_inverse=True, return_counts=True)
    _, from_object, object_sizes = np.unique(relations * entities + objects, return_inverse=True, return_counts=True)
    turned = object_sizes[from_object] > subject_sizes[from_subject]
    found = links.of(
        np.where(turned, objects, subjects),
        np.where(turned, relations + count, relations),
        np.where(turned, subjects, objects),
    )
    return np.exp(found).tolist()  # type: ignore[no-any-return]


def _link_of(query: BoundQuery) -> LinkKey | None:
    """Subject and relation of a prepared query that asks for the objects of one link and for nothing else."""
    if len(query.edges) != 1 or len(query.nodes) != 2:
        return None
    ((subject, relation, object_),) = query.edges
    if query.nodes[subject] < 0 or query.nodes[object_] != TARGET:
        return None
    return query.nodes[subject], relation
