"""A second opinion, from a search over the links of a predictor: what is likely in each place, and what goes together.

The encoder has read many queries and has one guess a target; CQD's search (``_cqd``) has read none, and follows the
links of the query one by one. They err on different targets. So an assignment of all variables is weighed by both,

    weight(a, b, c)  =  (encoder(a) encoder(b) encoder(c))^(1 - w)  truth(links of a, b, c)^w      w: ``search``

and a target's score for an entity is the weight of the best assignment with that entity in its place (max-marginals, as
CQD's own). What the encoder says of one target thus helps to find another, and the entities that the search keeps of
each variable are those that both think of: few of them are enough.

Tuples are the best assignments themselves, with more weight on the links; and a link that the graph holds is true,
whatever the predictor says of it (``known_is_sure``), so that a tuple is the likelier the fewer links it is missing. A
target by itself is ranked without that: what is known of a place says who is there, not who else might be. Tuples that
miss none are left out: the graph holds them, and whoever asks has them from there.

The search is made when queries are answered, and never while training.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import Tuples
from biqe.models._cqd.beam import beam_marginals, joint_tuples
from biqe.models._cqd.links import KnownLinks, Links
from biqe.models._cqd.max_product import tree_marginals, with_constants_said
from biqe.models._cqd.structures import Batch
from biqe.models._predictor import LinkPredictor

TUPLE_BEAM = 12
"""Partial tuples that are kept, at least, for each ordered pair of targets: of several places that the graph knows many
entities for, the right ones are a small part of all that fit."""
TUPLE_WEIGHT = 0.95
"""What links count in a tuple, whatever ``search`` is. What the encoder says of a target has the others in it already,
so the product over many targets counts them again and again."""
FEW = 100
"""Nodes of all queries, up to which what their constants say is looked up at once."""
LINK, T_NORM = "counted", "product"
"""How truths of links are made and joined; what cqd does unless told otherwise."""


class LinkSearch:
    """Assignments under the links of a predictor. Links of ``graph`` say how many tails a pair has; in tuples they are
    true themselves, with ``known_is_sure``."""

    def __init__(self, predictor: LinkPredictor, graph: Graph | None, *, known_is_sure: bool) -> None:
        known = None if graph is None else KnownLinks(graph)
        self._links = Links(predictor, LINK, known, known_is_sure=False)
        self._tuple_links = Links(predictor, LINK, known, known_is_sure)
        self._leave_out_held = known_is_sure and known is not None

    @torch.no_grad()
    def log_probabilities(self, batch: Batch, own: torch.Tensor, weight: float, beam: int) -> torch.Tensor:
        """(V, E), a row for each target in the order of the batch's queries and nodes. ``own``, (V, E), is what the
        encoder says; ``weight`` is that of the links, above 0; ``beam`` entities are kept of each variable."""
        beside, found = _beside(own, weight), torch.empty_like(own)
        searched = torch.zeros(len(own), dtype=torch.bool)
        few = sum(group.entities.numel() for group in batch.groups) <= FEW
        for group in with_constants_said(batch.groups, self._links) if few else batch.groups:
            if group.structure.is_forest:
                best = tree_marginals(group, self._links, T_NORM, beam, beside)
            else:
                best = beam_marginals(group, self._links, T_NORM, beam, beside)
            rows = group.rows.flatten()
            found[rows], searched[rows] = best.flatten(0, 1) * weight, True
        if not searched.all():
            found[~searched] = own[~searched]  # what cannot be searched for
        return torch.log_softmax(found, 1)

    @torch.no_grad()
    def tuples(self, batch: Batch, count: int, own: torch.Tensor, width: int) -> list[Tuples]:
        """The ``count`` best tuples of each query, with logarithms of their weights. ``own``, (V, E), is what is known
        of each target: what the encoder says, or that beside the links, which makes no difference that was seen. At
        least ``width`` partial tuples are kept on the way, or as many as TUPLE_BEAM says."""
        found = joint_tuples(
            batch,
            self._tuple_links,
            T_NORM,
            width,
            count,
            _beside(own, TUPLE_WEIGHT),
            width_a_pair=TUPLE_BEAM,
            leave_out_held=self._leave_out_held,
        )
        return [replace(tuples, scores=TUPLE_WEIGHT * tuples.scores) for tuples in found]


def _beside(own: torch.Tensor, weight: float) -> torch.Tensor:
    """What stands beside the links, so that the whole times ``weight`` is the mean of both; what is impossible stays
    so."""
    if weight == 1.0:
        return torch.where(own.isneginf(), own, 0.0)
    return own * ((1.0 - weight) / weight)
