"""Continuous decoding: variables as free vectors, moved until the links of the query are as true as can be.

Arakelyan et al. 2021, section 3.1. Every variable of a query is a vector; Adam climbs

    t-norm over all links of sigmoid(score)   (as a logarithm)   -   n3 * sum over variables of |v_k|^3

and each target is then ranked by the links between every entity in its place and the vectors around it. A link
between two vectors has a score but no rank among entities, so the truth of a link is its sigmoid here. The start
is the best entity of each variable, seen from what leads to it; the best point on the way is kept, so the result
is never worse than the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from biqe.models._complex import ComplEx, conjugate_product, cubes, product
from biqe.models._cqd.max_product import combine
from biqe.models._cqd.structures import Group

CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class Climb:
    """Where the variables of b queries ended."""

    variables: torch.Tensor
    """(b, variables, D) in the order of the structure's variables."""
    start: torch.Tensor
    """(b,) what was climbed, at the start."""
    end: torch.Tensor
    """(b,) and at the best point found."""


def continuous_marginals(
    group: Group, predictor: ComplEx, t_norm: str, *, steps: int, rate: float, n3: float
) -> torch.Tensor:
    """(b, targets, E) logarithms of how true the query is with an entity in a target's place and all other variables
    where the climb left them. Under the product all links count; under the minimum those at the target, since
    the others would only make entities equal."""
    size = max(1, CHUNK_BYTES // (4 * len(predictor.entities)))
    parts = []
    for part in group.chunks(size):
        climb = climb_links(part, predictor, t_norm, steps=steps, rate=rate, n3=n3)
        parts.append(_Vectors(part, predictor, t_norm).rank_targets(climb.variables))
    return torch.cat(parts)


def climb_links(group: Group, predictor: ComplEx, t_norm: str, *, steps: int, rate: float, n3: float) -> Climb:
    """Move the variables of each query from their best entities to where the query is truest."""
    vectors = _Vectors(group, predictor, t_norm)
    # Those who ask for scores have switched gradients off; these are of the variables, not of the model.
    with torch.inference_mode(False), torch.enable_grad():
        variables = vectors.greedy_start().clone().requires_grad_(True)
        adam = torch.optim.Adam([variables], lr=rate)
        kept = variables.detach().clone()
        start = end = vectors.truth(kept) - n3 * cubes(kept).sum(1)
        for step in range(steps + 1):
            value = vectors.truth(variables) - n3 * cubes(variables).sum(1)  # (b,)
            with torch.no_grad():
                better = value > end
                end = torch.where(better, value, end)
                kept[better] = variables[better]
            if step < steps:
                adam.zero_grad()
                value.sum().neg().backward()
                adam.step()
    return Climb(kept, start, end.detach())


class _Vectors:
    """A group's constants and relations as vectors."""

    def __init__(self, group: Group, predictor: ComplEx, t_norm: str) -> None:
        self._structure = group.structure
        self._t_norm = t_norm
        self._places = {node: place for place, node in enumerate(group.structure.order)}
        with torch.inference_mode(False), torch.no_grad():
            self._table = predictor.entities.detach()
            self._constants = self._table[group.entities]  # (b, nodes, D)
            self._relations = predictor.relations.detach()[group.relations]  # (b, edges, D)

    def _at(self, node: int, variables: torch.Tensor) -> torch.Tensor:
        """(b, D)"""
        return variables[:, self._places[node]] if node in self._places else self._constants[:, node]

    def truth(self, variables: torch.Tensor) -> torch.Tensor:
        """(b,) logarithm of the t-norm of all links."""
        each = self._each_link(variables)
        return each.sum(1) if self._t_norm == "product" else each.amin(1)

    def _each_link(self, variables: torch.Tensor) -> torch.Tensor:
        """(b, links)"""
        scores = [
            (product(self._at(link.start, variables), self._relations[:, link.edge]) * self._at(link.end, variables))
            for link in self._structure.links
        ]
        return F.logsigmoid(torch.stack(scores, 1).sum(2))

    def greedy_start(self) -> torch.Tensor:
        """(b, variables, D) each variable at the entity that fits best to what leads to it."""
        with torch.no_grad():
            variables = self._constants.new_zeros(len(self._constants), len(self._places), self._table.shape[1])
            for node, place in self._places.items():
                variables[:, place] = self._table[self._around(node, variables, outward=False).argmax(1)]
            return variables

    def rank_targets(self, variables: torch.Tensor) -> torch.Tensor:
        """(b, targets, E)"""
        each = self._each_link(variables)
        ranked = []
        for target in self._structure.targets:
            truth = self._around(target, variables, outward=True)
            if self._t_norm == "product":
                elsewhere = [
                    number for number, link in enumerate(self._structure.links) if target not in (link.start, link.end)
                ]
                truth = truth + each[:, elsewhere].sum(1, keepdim=True)
            ranked.append(truth)
        return torch.stack(ranked, 1)

    def _around(self, node: int, variables: torch.Tensor, *, outward: bool) -> torch.Tensor:
        """(b, E) t-norm of the links that lead to a variable, and with ``outward`` of those that leave it, were it each
        of all entities."""
        total: torch.Tensor | None = None
        for link in self._structure.links:
            relation = self._relations[:, link.edge]
            if link.end == node:
                asked = product(self._at(link.start, variables), relation)
            elif link.start == node and outward:
                # The score is linear in the head too: Re(h r conj(t)) is the dot product of h and conj(r) t.
                asked = conjugate_product(relation, self._at(link.end, variables))
            else:
                continue
            truth = F.logsigmoid(asked @ self._table.t())
            total = truth if total is None else combine(self._t_norm, total, truth)
        assert total is not None
        return total
