"""The search over the links of a query as models use it: alone, or beside what an encoder says of the targets.

An encoder has read many queries and has one guess for each target; the search has read none, and follows the links of
the query one by one. They err on different targets. So an assignment of all variables is weighed by both,

    weight(a, b, c)  =  (encoder(a) encoder(b) encoder(c))^(1 - w)  truth(links of a, b, c)^w      w: links' weight

and a target's score for an entity is the weight of the best assignment with that entity in its place (max-marginals).
What the encoder says of one target thus helps to find another, and the search keeps those entities of each variable
that both find likely: few of them are enough.

Tuples are the best assignments themselves, with more weight on the links. Where stored links are certain
(``Links.certain``), a tuple is the likelier the fewer links it is missing, and tuples that miss none are left out: the
graph holds them already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from biqe.links.beam import Tuples, beam_marginals, joint_tuples
from biqe.links.max_product import neutral, tree_marginals, with_constants
from biqe.links.structures import Batch, Group
from biqe.links.truth import Links

TUPLE_BEAM = 12
"""Partial tuples that are kept, at least, for each ordered pair of targets."""
TUPLE_WEIGHT = 0.95
"""Weight of the links in a tuple. What the encoder says of one target depends on the others already, so the product
over many targets counts the same evidence again and again."""
FEW_NODES = 100
"""Up to this many nodes in a batch, the links from all of its constants are looked up in one call."""


def marginals(group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None = None) -> torch.Tensor:
    """(b, targets, E) max-marginals, as logarithms: by messages where the variables form a tree, else by a beam."""
    solve = tree_marginals if group.structure.is_forest else beam_marginals
    return solve(group, links, t_norm, width, beside)


@torch.no_grad()
def beside_encoder(
    groups: Sequence[Group], links: Links, own: torch.Tensor, weight: float, width: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each group: the numbers of its targets, and their (v, E) log-probabilities by encoder and links, up to a
    number that the entities of a target share. ``own``, (V, E), is what the encoder says of all targets of the batch;
    ``weight``, above 0, is that of the links; ``width`` entities are kept of each variable."""
    beside = _beside(own, weight)
    few = sum(group.entities.numel() for group in groups) <= FEW_NODES
    for group in with_constants(groups, links) if few else groups:
        best = marginals(group, links, "product", width, beside)
        yield group.rows.flatten(), best.flatten(0, 1) * weight


@torch.no_grad()
def tuples_beside_encoder(
    batch: Batch, links: Links, own: torch.Tensor, count: int, width: int, width_per_pair: int = TUPLE_BEAM
) -> list[Tuples]:
    """The ``count`` best tuples of each query, with logarithms of their weights. ``own``, (V, E), is what the encoder
    says of each target. At least ``width`` partial tuples are kept on the way."""
    found = joint_tuples(
        batch,
        links,
        "product",
        width,
        count,
        _beside(own, TUPLE_WEIGHT),
        width_per_pair=width_per_pair,
        only_missing=links.certain,
    )
    return [replace(tuples, scores=TUPLE_WEIGHT * tuples.scores) for tuples in found]


def _beside(own: torch.Tensor, weight: float) -> torch.Tensor:
    """What is added to the links' logarithms so that the sum times ``weight`` is the weighted mean of both; what is
    impossible stays so."""
    return only_possible(own, "product") if weight == 1.0 else own * ((1.0 - weight) / weight)


def only_possible(own: torch.Tensor, t_norm: str) -> torch.Tensor:
    """(V, E) minus infinity where ``own`` is, and elsewhere the neutral element of the t-norm."""
    return torch.where(own.isneginf(), own, neutral(t_norm))
