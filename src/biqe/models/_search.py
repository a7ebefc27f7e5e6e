"""A second opinion on every target, from a search over the links of a predictor, pooled with the encoder's own.

The encoder has read many queries and has one guess a target; CQD's search (``_cqd.max_product``) has read none, and
follows the links of the query one by one. They err on different targets, and their weighted geometric mean

    p(e)  ~  encoder(e)^(1 - w)  search(e)^w                        w: ``search`` of the model's options

ranks better than either of them. The search is made when queries are answered, and never while training.

Tuples of several targets are searched for as well: what the encoder says of each target stands beside the links
between them,

    score(a, b, c)  =  log encoder(a) + log encoder(b) + log encoder(c)  +  LINKS_WEIGHT sum over links of log truth

so that a tuple is made of likely entities that go together.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from biqe.graph.knowledge_graph import Graph
from biqe.models._contract import Tuples
from biqe.models._cqd.beam import joint_beams, joint_tuples
from biqe.models._cqd.links import KnownLinks, Links
from biqe.models._cqd.max_product import tree_marginals
from biqe.models._cqd.structures import Batch
from biqe.models._predictor import LinkPredictor

BEAM = 64
"""Entities kept of each variable that leads on to others."""
LINKS_WEIGHT = 1.0
"""What the truths of links count in a tuple, beside the encoder's own distributions."""
LINK, T_NORM = "counted", "product"
"""How truths of links are made and joined; what cqd does unless told otherwise."""


class LinkSearch:
    """Max-marginals of targets under the links of a predictor; links of ``graph`` say how many tails a pair has."""

    def __init__(self, predictor: LinkPredictor, graph: Graph | None) -> None:
        self._links = Links(predictor, LINK, None if graph is None else KnownLinks(graph), known_is_sure=False)

    @torch.no_grad()
    def log_probabilities(self, batch: Batch) -> torch.Tensor:
        """(V, E), a row for each target in the order of the batch's queries and nodes."""
        found = torch.empty(len(batch.targets.gold), self._links.entity_count)
        for group in batch.groups:
            if group.structure.is_forest:
                truths = tree_marginals(group, self._links, T_NORM, BEAM)
            else:
                truths = joint_beams(group, self._links, T_NORM, BEAM).marginals
            found[group.rows.flatten()] = truths.flatten(0, 1)
        return torch.log_softmax(found, 1)

    @torch.no_grad()
    def tuples(self, batch: Batch, count: int, own: torch.Tensor) -> list[Tuples]:
        """The ``count`` best tuples of each query; ``own``, (V, E), is what the encoder says of each target."""
        found = joint_tuples(batch, self._links, T_NORM, BEAM, count, own / LINKS_WEIGHT)
        return [replace(tuples, scores=LINKS_WEIGHT * tuples.scores) for tuples in found]


def pooled(own: torch.Tensor, other: torch.Tensor, weight: float) -> torch.Tensor:
    """(V, E) logarithms of the normalised geometric mean of two distributions; ``weight`` is that of ``other``."""
    return torch.log_softmax(torch.lerp(own, other, weight), 1)
