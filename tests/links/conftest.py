"""Links with given truth values, queries of many structures, and the brute force that searches are compared with."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from biqe.links.structures import StructuredQueries
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

ENTITIES, RELATIONS = 7, 3
EVERYTHING = ENTITIES**3
T, H = TARGET, HIDDEN
SHAPES = {
    "1p": BoundQuery((3, T), ((0, 1, 1),), (1,)),
    "2p": BoundQuery((3, H, T), ((0, 1, 1), (1, 2, 2)), (2,)),
    "3p": BoundQuery((3, H, H, T), ((0, 1, 1), (1, 2, 2), (2, 0, 3)), (3,)),
    "2i": BoundQuery((3, 5, T), ((0, 1, 2), (1, 2, 2)), (2,)),
    "3i": BoundQuery((3, 5, 1, T), ((0, 1, 3), (1, 2, 3), (2, 0, 3)), (3,)),
    "ip": BoundQuery((3, 5, H, T), ((0, 1, 2), (1, 2, 2), (2, 4, 3)), (3,)),
    "pi": BoundQuery((3, H, T, 5), ((0, 1, 1), (1, 2, 2), (3, 0, 2)), (2,)),
    "path of targets": BoundQuery((3, T, H, T), ((0, 1, 1), (1, 2, 2), (2, 0, 3)), (1, 3)),
    "two targets": BoundQuery((3, T, 5, T), ((0, 1, 1), (1, 2, 3), (2, 0, 3)), (1, 3)),
    "branches": BoundQuery((3, T, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3)), (1, 2, 3)),
    "hidden branch": BoundQuery((3, H, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3)), (2, 3)),
    "intersection of paths": BoundQuery((3, T, 5, T, T), ((0, 1, 1), (2, 0, 3), (1, 2, 4), (3, 1, 4)), (1, 3, 4)),
    "two edges": BoundQuery((3, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 2)), (1, 2)),
    "backwards": BoundQuery((T, H, 3), ((0, 1, 1), (1, 0, 2)), (0,)),
    "ring": BoundQuery((3, H, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3), (2, 1, 3)), (2, 3)),
    "ring of targets": BoundQuery((3, T, T, T), ((0, 1, 1), (1, 2, 2), (1, 0, 3), (2, 1, 3)), (1, 2, 3)),
    "cycle": BoundQuery((3, T, T), ((0, 1, 1), (1, 2, 2), (2, 1, 1)), (1, 2)),
    "constants joined": BoundQuery((3, 5, T), ((0, 1, 1), (1, 2, 2)), (2,)),
}


class TableLinks:
    """Links whose log-truths stand in a (2R, E, E) table: all that a search may ask of links."""

    def __init__(self, table: torch.Tensor, *, certain: bool = False) -> None:
        self.table, self.certain, self.entity_count = table, certain, table.shape[1]

    def to_all(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        return self.table[relations, heads].clone()


def random_links(seed: int = 0, certain_share: float = 0.0, entities: int = ENTITIES) -> TableLinks:
    """Random log-truths; a share of them is 0. Walked backwards, a link is as true as forwards."""
    generator = torch.Generator().manual_seed(seed)
    table = -3.0 * torch.rand(RELATIONS, entities, entities, generator=generator) - 0.1
    table[torch.rand(table.shape, generator=generator) < certain_share] = 0.0
    return TableLinks(torch.cat([table, table.transpose(1, 2)]), certain=certain_share > 0)


def batch_of(*queries: BoundQuery, entities: int = ENTITIES):
    return StructuredQueries(QuerySet.of(queries), entities, RELATIONS, "test").batch(np.arange(len(queries)))


def assignments(query: BoundQuery, links: TableLinks, t_norm: str = "product", beside: torch.Tensor | None = None):
    """Every assignment of the variables, in the order of their nodes, with its log-truth and with whether all of its
    links are certain. ``beside``, (targets, E), is added to the truth of the targets."""
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    targets = sorted(query.targets)
    for entities in itertools.product(range(links.entity_count), repeat=len(variables)):
        at = {**dict(enumerate(query.nodes)), **dict(zip(variables, entities, strict=True))}
        # What joins two constants says nothing about any variable.
        truths = [float(links.table[r, at[s], at[o]]) for s, r, o in query.edges if s in variables or o in variables]
        certain = all(truth == 0.0 for truth in truths)
        if beside is not None:
            truths += [float(beside[place, at[target]]) for place, target in enumerate(targets)]
        yield entities, (sum(truths) if t_norm == "product" else min(truths)), certain


def best_rows(query: BoundQuery, links: TableLinks, t_norm: str = "product", beside=None, *, only_missing=False):
    """Each tuple of the targets with the truth of its best assignment and all assignments that have that truth;
    ``only_missing``: without tuples that have an assignment of certain links."""
    variables = [node for node, value in enumerate(query.nodes) if value < 0]
    columns = [variables.index(target) for target in sorted(query.targets)]
    found: dict[tuple[int, ...], tuple[float, list[tuple[int, ...]]]] = {}
    held = set()
    for entities, truth, certain in assignments(query, links, t_norm, beside):
        row = tuple(entities[column] for column in columns)
        if certain:
            held.add(row)
        best, witnesses = found.get(row, (-np.inf, []))
        if truth > best + 1e-6:
            found[row] = truth, [entities]
        elif truth > best - 1e-6:
            witnesses.append(entities)
    return {row: best for row, best in found.items() if not (only_missing and row in held)}


def marginals_of(query: BoundQuery, links: TableLinks, t_norm: str = "product", beside=None) -> np.ndarray:
    """(targets, E) max-marginals by brute force."""
    found = np.full((len(query.targets), links.entity_count), -np.inf)
    for row, (truth, _) in best_rows(query, links, t_norm, beside).items():
        for target, entity in enumerate(row):
            found[target, entity] = max(truth, found[target, entity])
    return found
