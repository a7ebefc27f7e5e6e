"""Rows for all targets of a query at once, ranked by their joint probability.

A model gives each target a distribution of its own. Three ways to make rows of them:

links      (p(river) p(city))^.05 t(river, city)^.95, where t says how true the links of the row are: a search in models
           that have links inside. Other models, and queries that cannot be searched, get the beam.
beam       p(river) p(city | river): fill one target, ask again with that entity in its place, and go on. The surest
           target goes first, and the best ``width`` partial rows are kept. Paper: section "Analysis", where the
           prediction of the first missing entity is added to the query.
product    p(river) p(city): one model call; the best river beside the best city, whether they go together or not. The
           yardstick for the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.predict.conditional import Template, Templates, ask, fillable
from biqe.predict.config import LINKS, PRODUCT, Joint
from biqe.predict.predictor import Predictor, Scores
from biqe.predict.rows import Entities, Excluded, Listed, Rows, all_different
from biqe.query.bound import BoundQuery

HEAD = 12
"""Members of the beam that are asked first; often their continuations leave few of the others to be asked."""
LAST_HEAD = 24
"""The same for the last target: by then most members have to be asked, and one call costs less than two."""
LISTED = 512
"""Rows that a search over links is asked for, at least. Their scores sum to 1, however many are asked for."""
GROWTH, MOST = 8, 32_768
"""Factor by which the request grows where too few of the rows are new, and its cap."""


def decode(
    predictor: Predictor,
    query: BoundQuery,
    prepared: BoundQuery,
    marginals: Scores,
    exclude: Entities | Excluded,
    *,
    count: int,
    joint: Joint | None = None,
) -> Rows:
    """The ``count`` best rows without those in ``exclude``.

    ``prepared`` is the query as the model reads it, ``marginals`` are the (T, E) log-probabilities of its targets.
    """
    joint = joint or Joint()
    excluded = Listed(exclude) if isinstance(exclude, np.ndarray) else exclude
    if joint.decode == PRODUCT:
        return product(marginals, excluded, count=count, injective=joint.injective)
    if joint.decode == LINKS and len(query.targets) > 1:
        found = _by_links(predictor, prepared, marginals, excluded, count, joint)
        if found is not None:
            return found
    return _beam(predictor, query, marginals, excluded, count, joint)


def _by_links(
    predictor: Predictor, prepared: BoundQuery, marginals: Scores, excluded: Excluded, count: int, joint: Joint
) -> Rows | None:
    """Rows by the model's own search over links; None where it has none."""
    # The model does not know which rows are to be left out, so it is asked for more than are wanted.
    asked = max(LISTED, 4 * count)
    while True:
        found = predictor.tuples(prepared, marginals, asked, joint.width)
        if found is None:
            return None
        rows, scores = found
        kept = ~excluded.holds(rows)
        if joint.injective:
            kept &= all_different(rows)
        if kept.sum() >= count or len(rows) < asked or asked >= MOST:
            break
        asked = min(MOST, GROWTH * asked)
    best = np.lexsort((*rows[kept].T[::-1], -scores[kept]))[:count]
    total = float(np.logaddexp.reduce(scores[:LISTED], initial=-np.inf))
    return Rows.scored(rows[kept][best], scores[kept][best] - total)


# The beam


def _beam(
    predictor: Predictor, query: BoundQuery, marginals: Scores, excluded: Excluded, count: int, joint: Joint
) -> Rows:
    targets = len(query.targets)
    templates = Templates(predictor, query)
    filled = np.full((1, targets), -1, np.int32)
    totals = np.zeros(1)
    order: list[int] = []
    while len(order) < targets and len(filled):
        open_columns = [column for column in range(targets) if column not in order]
        keep = count if len(open_columns) == 1 else joint.width
        blocked = _blocked(filled, order, open_columns, excluded, joint.injective)
        head = LAST_HEAD if len(open_columns) == 1 else HEAD
        if not order:
            chooser = _chooser(totals, np.zeros(1, np.int64), targets, blocked, keep)
            groups = [(tuple(open_columns), chooser(marginals[None], slice(0, 1)))]
        else:
            following = templates.after(order)
            groups = [
                (each.columns, _asked(predictor, each, filled, totals, blocked, keep, slice(0, head)))
                for each in following
            ]
        next_nodes = fillable(predictor, query, [query.targets[column] for column in open_columns])
        column, found = _surest([c for c in open_columns if query.targets[c] in next_nodes], groups, totals)
        # No continuation is more probable than what it continues: members below what is kept need not be asked.
        joint_scores = totals[found[0]] + found[2]
        floor = np.partition(joint_scores, -keep)[-keep] if len(joint_scores) >= keep else -np.inf
        last = int(np.searchsorted(-totals, -floor, side="right"))
        if order and last > head:
            template, place = templates.of(column, order)
            _, _, *chosen = _asked(predictor, template, filled, totals, blocked, keep, slice(head, last), only=place)
            members, values, scores = chosen
            found = tuple(np.concatenate(both) for both in zip(found, (members + head, values, scores), strict=True))
        filled, totals = _extend(filled, totals, column, found, keep)
        order.append(column)
    return Rows.scored(filled, totals)


def _asked(
    predictor: Predictor,
    template: Template,
    filled: Entities,
    totals: NDArray[np.float64],
    blocked: Sequence[NDArray[np.int32]],
    keep: int,
    part: slice,
    only: int | None = None,
) -> tuple[NDArray[Any], ...]:
    """The continuations of some members of the beam: in all targets of the template, or in one."""
    nodes, filling = template.filled(filled[part])
    return ask(
        predictor, template, nodes, _chooser(totals[part], filling, len(template.columns), blocked[part], keep, only)
    )


def _surest(
    columns: Sequence[int],
    groups: Sequence[tuple[Sequence[int], tuple[NDArray[Any], ...]]],
    totals: NDArray[np.float64],
) -> tuple[int, tuple[NDArray[Any], ...]]:
    """The column whose best entity is most probable, in the mean over the beam, and its continuations."""
    sureness: dict[int, float] = {}
    best: dict[int, tuple[NDArray[Any], ...]] = {}
    weights = np.exp(totals - totals.max())
    for own, (members, maxima, *chosen) in groups:
        for place, column in enumerate(own):
            sureness[column] = float(weights[members] @ np.exp(maxima[:, place]))
            best[column] = tuple(chosen[3 * place : 3 * place + 3])
    column = max(columns, key=sureness.__getitem__)
    return column, best[column]


def _chooser(
    totals: NDArray[np.float64],
    filling: NDArray[np.int64],
    targets: int,
    blocked: Sequence[NDArray[np.int32]],
    keep: int,
    only: int | None = None,
) -> Callable[[Scores, slice], tuple[NDArray[Any], ...]]:
    """Keeps, of each target or of one, the best entity's score for each member of the beam, and the ``keep`` best
    continuations as members, entities and scores."""
    wanted = range(targets) if only is None else (only,)

    def choose(scores: Scores, rows: slice) -> tuple[NDArray[Any], ...]:
        members = np.flatnonzero((filling >= rows.start) & (filling < rows.stop))
        own = filling[members] - rows.start
        maxima = np.empty((len(members), len(wanted)))
        chosen: list[NDArray[Any]] = []
        for place, target in enumerate(wanted):
            table = scores[own, target]  # (members, E), a copy
            for at, member in enumerate(members.tolist()):
                if len(blocked[member]):
                    table[at, blocked[member]] = -np.inf
            maxima[:, place] = table.max(axis=1)
            table += totals[members, None].astype(np.float32)
            row, entity = np.divmod(_best(table, maxima[:, place] + totals[members], keep), table.shape[1])
            values = scores[own[row], target, entity].astype(np.float64)
            chosen += [members[row], entity.astype(np.int32), values]
        return members, maxima, *chosen

    return choose


def _best(table: Scores, maxima: NDArray[np.float64], keep: int) -> NDArray[np.int64]:
    """Flat places of the ``keep`` best finite entries of an (n, E) table whose rows have these maxima."""
    rows, entities = table.shape
    if rows >= keep:
        # As many rows reach this floor, so the best entries do too; most entries are never looked at again.
        floor = np.partition(maxima, rows - keep)[rows - keep] - 1e-4
        chosen = np.flatnonzero(table.ravel() >= np.float32(floor))
    else:
        count = min(keep, entities)
        columns = np.argpartition(table, entities - count, axis=1)[:, entities - count :]
        chosen = (np.arange(rows)[:, None] * entities + columns).ravel()
    values = table.ravel()[chosen]
    chosen, values = chosen[values > -np.inf], values[values > -np.inf]
    return chosen[np.argpartition(-values, keep - 1)[:keep]] if len(chosen) > keep else chosen


def _blocked(
    filled: Entities, order: Sequence[int], open_columns: Sequence[int], excluded: Excluded, injective: bool
) -> Sequence[NDArray[np.int32]]:
    """For each member of the beam, the entities that it may not go on with."""
    blocked: Sequence[NDArray[np.int32]] = [np.zeros(0, np.int32)] * len(filled)
    if len(open_columns) == 1:
        blocked = excluded.completing(filled, open_columns[0])
    if injective and order:
        blocked = [np.concatenate([ids, row[list(order)]]) for ids, row in zip(blocked, filled, strict=True)]
    return blocked


def _extend(
    filled: Entities, totals: NDArray[np.float64], column: int, found: tuple[NDArray[Any], ...], keep: int
) -> tuple[Entities, NDArray[np.float64]]:
    """The ``keep`` best continuations (members, entities, scores), best first; equal ones in order of entity ids."""
    members, values, scores = found
    joint = totals[members] + scores
    extended = filled[members]
    extended[:, column] = values
    order = np.lexsort((*extended.T[::-1], -joint))[:keep]
    return extended[order], joint[order]


# The product


TRIED = 100_000
"""Rows that ``product`` looks at before it gives up finding more that are not excluded."""
BLOCK = 1 << 16
"""Scores that ``top`` looks at together."""
FIRST = 256
"""Entities that a ``Descent`` sorts at first; each time it needs more, eight times as many."""


def product(marginals: NDArray[np.float32], excluded: Excluded, *, count: int, injective: bool = False) -> Rows:
    """The ``count`` best rows under the product of the targets' own distributions, (T, E) log-probabilities; fewer
    where the first TRIED hold fewer that are not excluded."""
    columns = [Descent(row) for row in marginals]
    found: list[Entities] = []
    scores: list[NDArray[np.float64]] = []
    enough, tried = 0, 0
    ranks_of = _best_first(columns)
    while enough < count and tried < TRIED:
        block = np.array([ranks for _, ranks in zip(range(max(64, count)), ranks_of, strict=False)], np.int64)
        if len(block) == 0:
            break
        tried += len(block)
        pairs = list(zip(columns, block.T, strict=True))
        values = np.stack([column.entities[ranks] for column, ranks in pairs], axis=1)
        kept = ~excluded.holds(values)
        if injective:
            kept &= all_different(values)
        found.append(values[kept])
        each = np.stack([np.array(column.scores)[ranks[kept]] for column, ranks in pairs], axis=1)
        scores.append(each.sum(axis=1))
        enough += int(kept.sum())
    rows = np.concatenate([np.zeros((0, len(columns)), np.int32), *found])[:count]
    return Rows.scored(rows, np.concatenate([np.zeros(0), *scores])[:count])


def _best_first(columns: Sequence[Descent]) -> Iterator[tuple[int, ...]]:
    """Ranks, one for each column, the largest sum of scores first."""
    if not all(column.reaches(0) for column in columns):
        return
    heap = [(-sum(column.scores[0] for column in columns), (0,) * len(columns), 0)]
    while heap and heap[0][0] < np.inf:
        cost, ranks, first = heapq.heappop(heap)
        yield ranks
        # Only columns from the last one that moved on: so each combination is reached along one way.
        for number in range(first, len(columns)):
            column, rank = columns[number], ranks[number]
            # Impossible entities (-inf) make no row.
            if column.reaches(rank + 1) and column.scores[rank + 1] > -np.inf:
                following = (*ranks[:number], rank + 1, *ranks[number + 1 :])
                heapq.heappush(heap, (cost + column.scores[rank] - column.scores[rank + 1], following, number))


class Descent:
    """A row of scores from its best entity downwards, sorted no further than somebody has looked."""

    def __init__(self, scores: NDArray[np.floating]) -> None:
        self._all = scores
        self.entities = np.zeros(0, np.int32)
        """Best first, as far as they were sorted."""
        self.scores: list[float] = []
        """Of these."""

    def reaches(self, rank: int) -> bool:
        """Whether there is an entity of this rank, from 0; sorts as far as needed to have it."""
        if rank >= len(self.scores) and len(self.scores) < len(self._all):
            self.entities = top(self._all, min(len(self._all), max(FIRST, 8 * rank)))
            self.scores = self._all[self.entities].astype(np.float64).tolist()
        return rank < len(self.scores)


def top(scores: NDArray[np.floating], count: int) -> NDArray[np.int32]:
    """Places of the ``count`` largest of (E,) scores, the largest first; of equal ones, the first. Found block by
    block, so that nothing as large as the scores is sorted or copied."""
    places, values = np.zeros(0, np.int64), scores[:0]
    floor = -np.inf
    for start in range(0, len(scores), BLOCK):
        block = scores[start : start + BLOCK]
        # What equals the floor comes later than all that made it, and loses to them.
        inside = np.flatnonzero(block > floor) if len(places) >= count else np.arange(len(block))
        places, values = np.concatenate([places, inside + start]), np.concatenate([values, block[inside]])
        if len(places) > count:
            kept = _largest(values, count)
            places, values = places[kept], values[kept]
            floor = values.min(initial=np.inf)
    return places[np.argsort(-values, kind="stable")].astype(np.int32)


def _largest(values: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Places of the ``count`` largest, in order of place; of equal ones, the first."""
    if count == 0:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > least)
    level = np.flatnonzero(values == least)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))
