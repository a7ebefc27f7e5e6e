"""Max-marginals of queries whose variables form a tree: how true a query can be with an entity in a given place.

The truth of an assignment is the t-norm of its links. The max-marginal of entity e at variable v is the truth of the
best assignment that has e there. On a tree it splits into messages (Viterbi's recursion, max-product; the minimum in
place of the product works as well): what variable u tells its neighbour v about v's entity e is

    m(u -> v, e) = max over u's entity c of   link(c, e) x constants of u at c x messages of u's other neighbours at c

Every message between two variables would need E x E links. So a variable that leads to others keeps only its
``width`` best entities, as the links that lead to it judge them (first pass), and all that are certain; a variable that
leads nowhere keeps all. With ``width`` >= E the result is exact. Entities that a variable did not keep are ranked
after those that it kept, in the order of the first pass. Variables joined through constants only are separate
questions.

The published beam search keeps the best continuations of every partial assignment, width ** hops of them. Here
assignments that agree on the last variable are merged, since the better one stays the better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from biqe.links.structures import Group
from biqe.links.truth import CERTAIN, Links

CHUNK_BYTES = 16 << 20
"""Size of one table of links, (queries, width, E). Blocks below 32 MiB are taken from the heap again and again,
larger ones are mapped anew each time."""
EXCLUDED = -30.0
"""Logarithm of the truth of what a stored link excludes. Not minus infinity: it still has a place in a ranking."""
MOST_CERTAIN, CERTAIN_BYTES = 4096, 256 << 20
"""Certain entities that a variable keeps at most, and the size that their table of links may have."""


def best(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, count) largest of each row of (n, m), and where they are; largest first.

    The best ``count`` entries lie in the ``count`` blocks with the best maxima, so only those are sorted.
    """
    n, m = values.shape
    count, block = min(count, m), 64
    if m < 4 * block * count:
        found = values.topk(count, 1)
        return found.values, found.indices
    padding = -m % block
    if padding:
        values = torch.nn.functional.pad(values, (0, padding), value=float("-inf"))
    blocks = values.view(n, -1, block)
    chosen = blocks.amax(2).topk(count, 1, sorted=False).indices  # (n, count)
    inside = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, block)).view(n, -1)
    found = inside.topk(count, 1)
    return found.values, chosen.gather(1, found.indices // block) * block + found.indices % block


def most_certain(links: Links) -> int:
    """Certain entities, or states, that a search keeps at most beside its width; 0 where no link is certain."""
    return min(MOST_CERTAIN, max(1, CERTAIN_BYTES // (4 * links.entity_count))) if links.certain else 0


def keep(
    values: torch.Tensor, width: int, certain: torch.Tensor | None, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, k) what is kept of each row of (n, m) ``values``, and where it stands: the ``width`` best; and with
    ``certain``, (n, m), before them all that are certain, up to ``most``, best first. A row that has fewer certain
    ones than another is filled up with minus infinity."""
    count = 0 if certain is None else min(most, int(certain.sum(1).max()))
    if certain is None or count == 0:
        return best(values, width)
    sure, sure_places = best(values.masked_fill(~certain, float("-inf")), count)
    rest, rest_places = best(values.masked_fill(certain, float("-inf")), width)
    return torch.cat([sure, rest], 1), torch.cat([sure_places, rest_places], 1)


def combine(t_norm: str, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The t-norm of two truth values, given and returned as logarithms."""
    return first + second if t_norm == "product" else torch.minimum(first, second)


def neutral(t_norm: str) -> float:
    """The neutral element of ``combine``."""
    return 0.0 if t_norm == "product" else float("inf")


def constants(group: Group, node: int, links: Links, t_norm: str) -> torch.Tensor:
    """(b, E) log-truth of the links that lead from constants to each entity at a variable."""
    total: torch.Tensor | None = None
    for link in group.structure.from_constants(node):
        truth = group.from_constants.get(link.edge)
        if truth is None:
            truth = links.to_all(group.entities[:, link.start], group.relations[:, link.edge])
        total = truth if total is None else combine(t_norm, total, truth)
    if total is not None:
        return total
    return torch.full((len(group), links.entity_count), neutral(t_norm), device=group.entities.device)


def without_negated(
    group: Group, node: int, links: Links, t_norm: str, width: int, total: torch.Tensor
) -> torch.Tensor:
    """``total``, (b, E), with what speaks against each entity of a variable: a negated part counts 1 - s m, where m is
    the truth of its best assignment with the entity, and s the factor that ``links`` gives to what is negated."""
    for negation in group.structure.negations:
        if negation.at == node:
            against = tree_marginals(group.negated(negation), links, t_norm, width)[:, 0].exp()
            against = against.mul_(getattr(links, "negation", 1.0)).clamp_max_(1.0)
            total = combine(t_norm, total, torch.log1p(-against).clamp_min_(EXCLUDED))
    return total


def with_constants(groups: Sequence[Group], links: Links) -> list[Group]:
    """The same groups, with the links from their constants looked up for all groups in one call: one product of many
    rows with the table of entities takes less time than many products of few."""
    asked = [
        (number, link)
        for number, group in enumerate(groups)
        for node in group.structure.order
        for link in group.structure.from_constants(node)
    ]
    if len(asked) < 2:
        return list(groups)
    heads = torch.cat([groups[number].entities[:, link.start] for number, link in asked])
    relations = torch.cat([groups[number].relations[:, link.edge] for number, link in asked])
    parts = links.to_all(heads, relations).split([len(groups[number]) for number, _ in asked])
    found: list[dict[int, torch.Tensor]] = [{} for _ in groups]
    for (number, link), truth in zip(asked, parts, strict=True):
        found[number][link.edge] = truth
    return [replace(group, from_constants=known) for group, known in zip(groups, found, strict=True)]


def link_table(group: Group, start: int, end: int, entities: torch.Tensor, links: Links, t_norm: str) -> torch.Tensor:
    """(b, k, E) links from entities, (b, k), of one variable to all entities of another."""
    total: torch.Tensor | None = None
    for link in group.structure.between(start, end):
        relations = group.relations[:, link.edge].unsqueeze(1).expand_as(entities)
        truth = links.to_all(entities.reshape(-1), relations.reshape(-1))
        total = truth if total is None else combine(t_norm, total, truth)
    assert total is not None
    return total.view(*entities.shape, -1)


def after_the_best(order: torch.Tensor, places: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """(b, E) ``truth``, (b, k), at the entities ``places``; all others below those, in the order of ``order``, (b, E).

    Where an entity stands several times in ``places``, its best truth counts. Minus infinity stands for no truth.
    """
    lowest = torch.where(truth.isfinite(), truth, float("inf")).amin(1, keepdim=True)
    others = order - order.amax(1, keepdim=True) + lowest - 1.0
    return others.scatter_reduce_(1, places, truth, "amax")


def chunk_size(group: Group, entity_count: int, width: int) -> int:
    """Queries that can be solved at once within the memory of a chunk."""
    rows = max(1, len(group.structure.pairs) * min(width, entity_count))
    return max(1, CHUNK_BYTES // (4 * entity_count * rows))


def tree_marginals(
    group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None = None
) -> torch.Tensor:
    """(b, targets, E) logarithms of max-marginals of a group whose variables form a forest. ``beside``, (V, E), are
    logarithms that are added to those of the targets' entities."""
    size = chunk_size(group, links.entity_count, width + most_certain(links))
    return torch.cat([_Tree(part, links, t_norm, width, beside).marginals() for part in group.chunks(size)])


class _Tree:
    """One chunk of queries: tables of links, and the messages over them."""

    def __init__(self, group: Group, links: Links, t_norm: str, width: int, beside: torch.Tensor | None = None) -> None:
        self._group = group
        self._beside = beside
        self._structure = group.structure
        self._links = links
        self._t_norm = t_norm
        self._width = width
        self._constants: dict[int, torch.Tensor] = {}
        """(b, k or E) for each variable: truth, at the entities it keeps, by its constants and by ``beside``."""
        self._first: dict[int, torch.Tensor] = {}
        """(b, E) for each variable: truth by all links that lead to it."""
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """(b, k) for each variable that leads on: the truths, by the first pass, of the entities it keeps; and those
        entities."""
        self._certain: dict[int, torch.Tensor] = {}
        """(b, k) for each variable that leads on: which of these all links that lead there are certain of."""
        self._tables: dict[tuple[int, int], torch.Tensor] = {}
        """(b, k, E or k) links from a variable's kept entities to another's, all of them or the kept."""
        self._messages: dict[tuple[int, int], torch.Tensor] = {}
        for node in self._structure.order:
            self._look(node)

    def _look(self, node: int) -> None:
        """The first pass at one variable."""
        by_links = constants(self._group, node, self._links, self._t_norm)  # (b, E)
        certain = None
        if self._links.certain:
            certain = (by_links == CERTAIN) | (not self._structure.from_constants(node))
        total = without_negated(self._group, node, self._links, self._t_norm, self._width, by_links)
        if self._beside is not None and node in self._structure.targets:
            own = self._beside[self._group.rows[:, self._structure.targets.index(node)]]
            total = combine(self._t_norm, total, own)
        self._constants[node] = total
        tables = {}
        for parent in self._structure.parents(node):
            truths, kept = self._kept[parent]
            table = link_table(self._group, parent, node, kept, self._links, self._t_norm)  # (b, k, E)
            tables[parent] = table
            total = combine(self._t_norm, total, combine(self._t_norm, table, truths.unsqueeze(2)).amax(1))
            if certain is not None:
                certain = certain & ((table == CERTAIN) & self._certain[parent].unsqueeze(2)).any(1)
        self._first[node] = total
        if self._structure.children(node):
            truths, kept = self._kept[node] = keep(total, self._width, certain, most_certain(self._links))
            if certain is not None:
                self._certain[node] = certain.gather(1, kept)
            # Rows that are filled up hold minus infinity, and must count for nothing.
            self._constants[node] = self._constants[node].gather(1, kept).masked_fill(truths.isneginf(), -torch.inf)
            tables = {parent: _columns(table, kept) for parent, table in tables.items()}
        for parent, table in tables.items():
            self._tables[parent, node] = table

    def marginals(self) -> torch.Tensor:
        return torch.stack([self._marginal(target) for target in self._structure.targets], 1)

    def _marginal(self, node: int) -> torch.Tensor:
        """(b, E)"""
        if node not in self._kept:
            return self._first[node] if self._all_leads_to(node) else self._held(node)
        return after_the_best(self._first[node], self._kept[node][1], self._held(node))

    def _all_leads_to(self, node: int) -> bool:
        """Whether all other variables lead to this one, so that the first pass has seen everything."""
        above, todo = {node}, [node]
        while todo:
            parents = self._structure.parents(todo.pop())
            above.update(parents)
            todo += parents
        return all(set(self._structure.children(other)) <= above for other in above)

    def _held(self, node: int, without: int | None = None) -> torch.Tensor:
        """(b, k or E) truth of each entity of a variable, by its constants and all neighbours but one."""
        total = self._constants[node]
        for other in [*self._structure.parents(node), *self._structure.children(node)]:
            if other != without:
                total = combine(self._t_norm, total, self._message(other, node))
        return total

    def _message(self, source: int, goal: int) -> torch.Tensor:
        """(b, k or E) the message about the entities of ``goal`` from ``source`` and all variables behind it."""
        if (source, goal) not in self._messages:
            held = self._held(source, without=goal)
            if (source, goal) in self._tables:
                message = combine(self._t_norm, self._tables[source, goal], held.unsqueeze(2)).amax(1)
            else:
                message = combine(self._t_norm, self._tables[goal, source], held.unsqueeze(1)).amax(2)
            self._messages[source, goal] = message
        return self._messages[source, goal]


def _columns(table: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """(b, k, j) of a (b, k, E) table, the columns ``kept``, (b, j)."""
    return table.gather(2, kept.unsqueeze(1).expand(-1, table.shape[1], -1))
