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

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.predict.conditional import Question, Reply, Template, Templates, ask, fillable
from biqe.predict.config import JOINT, LINKS, PRODUCT, Joint
from biqe.predict.predictor import Predictor, Scores
from biqe.predict.product import product
from biqe.predict.rows import Entities, Excluded, Listed, Rows, all_different
from biqe.query.bound import BoundQuery

HEAD = 12
"""Members of the beam that are asked first; often their continuations leave few of the others to be asked."""
LAST_HEAD = 24
"""The same for the last target: by then most members have to be asked, and one call costs less than two."""
TOGETHER = 32
"""Queries that are decoded side by side."""
LISTED = 512
"""Rows that a search over links is asked for, at least. Their scores sum to 1, however many are asked for."""
GROWTH, MOST = 8, 32_768
"""Factor by which the request grows where too few of the rows are new, and its cap."""

Decoding = Generator[list[Question], Reply, Rows]
"""A decoder hands out the questions of a step, is given what they kept, and returns rows in the end."""


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
    decoding = _decoding(predictor, query, prepared, marginals, exclude, count, joint or Joint())
    return _drive(predictor, [decoding])[0]


def decode_many(
    predictor: Predictor,
    queries: Sequence[BoundQuery],
    exclude: Sequence[Entities | Excluded],
    *,
    count: int,
    joint: Joint | None = None,
    together: int = TOGETHER,
    progress: Callable[[int, int], None] | None = None,
) -> list[Rows]:
    """The same for many queries, ``together`` of them side by side, so that the model sees few and large batches."""
    found: list[Rows] = []
    pairs = list(zip(queries, exclude, strict=True))
    for first in range(0, len(queries), together):
        block = pairs[first : first + together]
        found += _drive(predictor, [_from_nothing(predictor, *pair, count, joint or Joint()) for pair in block])
        if progress is not None:
            progress(len(found), len(queries))
    return found


def ways(predictor: Predictor, joint: Joint | None = None) -> dict[str, Callable[..., list[tuple[Any, Any]]]]:
    """The ways of decoding for ``evaluate.tuples.evaluate_tuples``, by name."""
    base = joint or Joint()

    def way(name: str) -> Callable[..., list[tuple[Any, Any]]]:
        options = Joint(name, base.width, base.injective)

        def found(
            queries: Sequence[BoundQuery], exclude: Sequence[Excluded], count: int
        ) -> list[tuple[Entities, NDArray[np.float64] | None]]:
            ranked = decode_many(predictor, queries, exclude, count=count, joint=options)
            return [(rows.entities, rows.scores) for rows in ranked]

        return found

    return {name: way(name) for name in JOINT}


def _drive(predictor: Predictor, decodings: Sequence[Decoding]) -> list[Rows]:
    """Runs decoders side by side, the questions of a step of all of them in one go."""
    done: dict[int, Rows] = {}
    replies: dict[int, Reply | None] = dict.fromkeys(range(len(decodings)))
    while replies:
        asked: list[tuple[int, list[Question]]] = []
        for number, reply in replies.items():
            try:
                asked.append((number, next(decodings[number]) if reply is None else decodings[number].send(reply)))
            except StopIteration as stop:
                done[number] = stop.value
        every = [question for _, questions in asked for question in questions]
        found = iter(ask(predictor, every) if every else ())
        replies = {number: [next(found) for _ in questions] for number, questions in asked}
    return [done[number] for number in range(len(decodings))]


def _from_nothing(
    predictor: Predictor, query: BoundQuery, exclude: Entities | Excluded, count: int, joint: Joint
) -> Decoding:
    """A decoder that asks for the marginals first."""
    prepared = predictor.prepare(query)
    read = Template(prepared, tuple(range(len(query.targets))), ())
    ((marginals,),) = yield [Question(read, np.array([prepared.nodes], np.int32), lambda scores, _: (scores.copy(),))]
    return (yield from _decoding(predictor, query, prepared, marginals[0], exclude, count, joint))


def _decoding(
    predictor: Predictor,
    query: BoundQuery,
    prepared: BoundQuery,
    marginals: Scores,
    exclude: Entities | Excluded,
    count: int,
    joint: Joint,
) -> Decoding:
    excluded = Listed(exclude) if isinstance(exclude, np.ndarray) else exclude
    if joint.decode == PRODUCT:
        return product(marginals, excluded, count=count, injective=joint.injective)
    if joint.decode == LINKS and len(query.targets) > 1:
        found = _by_links(predictor, prepared, marginals, excluded, count, joint)
        if found is not None:
            return found
    return (yield from _beam(predictor, query, marginals, excluded, count, joint))


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
) -> Decoding:
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
            replies = yield [_question(each, filled, totals, blocked, keep, slice(0, head)) for each in following]
            groups = [(template.columns, reply) for template, reply in zip(following, replies, strict=True)]
        next_nodes = fillable(predictor, query, [query.targets[column] for column in open_columns])
        column, found = _surest([c for c in open_columns if query.targets[c] in next_nodes], groups, totals)
        # No continuation is more probable than what it continues: members below what is kept need not be asked.
        joint_scores = totals[found[0]] + found[2]
        floor = np.partition(joint_scores, -keep)[-keep] if len(joint_scores) >= keep else -np.inf
        last = int(np.searchsorted(-totals, -floor, side="right"))
        if order and last > head:
            template, place = templates.of(column, order)
            ((_, _, *chosen),) = yield [
                _question(template, filled, totals, blocked, keep, slice(head, last), only=place)
            ]
            members, values, scores = chosen
            found = tuple(np.concatenate(both) for both in zip(found, (members + head, values, scores), strict=True))
        filled, totals = _extend(filled, totals, column, found, keep)
        order.append(column)
    return Rows.scored(filled, totals)


def _question(
    template: Template,
    filled: Entities,
    totals: NDArray[np.float64],
    blocked: Sequence[NDArray[np.int32]],
    keep: int,
    part: slice,
    only: int | None = None,
) -> Question:
    """The question for the continuations of some members of the beam: in all targets of the template, or in one."""
    nodes, filling = template.filled(filled[part])
    chooser = _chooser(totals[part], filling, len(template.columns), blocked[part], keep, only)
    return Question(template, nodes, chooser)


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
