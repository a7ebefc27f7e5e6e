"""Tuples for all targets of a query at once, ranked by their joint probability.

A model gives each target a distribution of its own. Five ways to make tuples of them:

product    p(river) p(city): one model call; the best river beside the best city, whether they go together or not.
beam       p(river) p(city | river): fill one target, ask again with that entity in its place, and go on. The surest
           target goes first, and the best ``width`` partial tuples are kept. Paper: section "Analysis", where the
           prediction of the first missing entity is added to the query.
blended    p(river) sqrt(p(city) p(city | river)): the beam, but what it goes on with is the geometric mean of what the
           whole query says of the city and what the filled one says. Once the river is there, the model is asked about
           the rest of the query alone, and what else it knew of the city is lost to the beam.
linked     (p(river) p(city))^.05 t(river, city)^.95, where t is how true the links of the tuple are: a search in models
           with links inside. For biqe with a link predictor; cqd goes by t alone. Other models, and queries that cannot
           be searched, get the beam. See linked.py.
rescored   the tuples that either of them finds, ranked by the geometric mean of several ways to write the joint
           probability: the beam's order of targets, the reverse order, and each target given all others. They would be
           equal if the model's conditional distributions fitted together; they are learnt, and do so only roughly.

How the model is asked again is in refill.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.answer.config import JOINT, WIDTH, AskConfig
from biqe.answer.linked import linked
from biqe.answer.predicted import Predictor
from biqe.answer.ranked import Excluded, Listed, Ranked, Tuples, product
from biqe.answer.refill import CONTEXTS, Question, Refiller, Reply, Scores, Template, answered, parts
from biqe.answer.rescore import rescore
from biqe.errors import InvalidOption
from biqe.query.bound import BoundQuery

__all__ = [
    "Joint",
    "Listed",
    "Ranked",
    "Tuples",
    "beam",
    "decode",
    "decode_many",
    "joint_of",
    "parts",
    "product",
    "rescored",
    "ways",
]

HEAD = 12
"""Members of the beam that are asked first; often their continuations leave few of the others to be asked."""
LAST_HEAD = 24
"""The same for the last target: by then most members have to be asked, and one call costs less than two."""
TOGETHER = 32
"""Queries that are decoded side by side."""


@dataclass(frozen=True)
class Joint:
    """How tuples are found."""

    decode: str = JOINT[0]
    """beam, blended, linked, product or rescored."""
    width: int = WIDTH
    """Tuples that the beam keeps after each target."""
    injective: bool = False
    """Whether the entities of a tuple must all be different."""
    context: str = "rest"
    """What the model reads when it is asked again: whole (the query with entities filled in) or rest."""

    def __post_init__(self) -> None:
        for name, allowed in (("decode", JOINT), ("context", CONTEXTS)):
            if getattr(self, name) not in allowed:
                raise InvalidOption(f"{name!r} must be one of {', '.join(allowed)}. Got {getattr(self, name)!r}")
        if self.width < 1:
            raise InvalidOption(f"'width' must be at least 1. Got {self.width}")


def joint_of(config: AskConfig, predictor: Predictor) -> Joint:
    """How tuples are found for a question that is asked of this predictor."""
    return Joint(config.joint or predictor.joint, config.width, config.injective)


Decoding = Generator[list[Question], Reply, Ranked]
"""A decoder hands out the questions of a step, is given what they kept, and returns tuples in the end."""


def decode(
    predictor: Predictor,
    query: BoundQuery,
    marginals: Scores,
    exclude: Tuples | Excluded,
    *,
    count: int,
    joint: Joint | None = None,
) -> Ranked:
    """The ``count`` best tuples without those in ``exclude``.

    ``marginals`` are the (T, E) log-probabilities of the query's targets with nothing filled.
    """
    return _drive(predictor, [_decoding(predictor, query, marginals, exclude, count, joint or Joint())])[0]


def decode_many(
    predictor: Predictor,
    queries: Sequence[BoundQuery],
    exclude: Sequence[Tuples | Excluded],
    *,
    count: int,
    joint: Joint | None = None,
    together: int = TOGETHER,
    progress: Callable[[int, int], None] | None = None,
) -> list[Ranked]:
    """The same for many queries, ``together`` of them side by side, so that the model sees few and large batches."""
    found: list[Ranked] = []
    for first in range(0, len(queries), together):
        found += _drive(
            predictor,
            [
                _from_nothing(predictor, query, excluded, count, joint or Joint())
                for query, excluded in zip(
                    queries[first : first + together], exclude[first : first + together], strict=True
                )
            ],
        )
        if progress is not None:
            progress(len(found), len(queries))
    return found


def beam(
    predictor: Predictor,
    query: BoundQuery,
    marginals: Scores,
    exclude: Tuples | Excluded,
    *,
    count: int,
    width: int = WIDTH,
) -> Ranked:
    """``decode`` by beam."""
    return decode(predictor, query, marginals, exclude, count=count, joint=Joint(decode="beam", width=width))


def rescored(
    predictor: Predictor,
    query: BoundQuery,
    marginals: Scores,
    exclude: Tuples | Excluded,
    *,
    count: int,
    width: int = WIDTH,
) -> Ranked:
    """``decode`` by rescoring."""
    return decode(predictor, query, marginals, exclude, count=count, joint=Joint(decode="rescored", width=width))


def ways(predictor: Predictor, joint: Joint | None = None) -> dict[str, Callable[..., list[tuple[Any, Any]]]]:
    """The ways of decoding for ``evaluate.tuples.evaluate_tuples``, by name."""
    base = joint or Joint()

    def way(name: str) -> Callable[..., list[tuple[Any, Any]]]:
        options = Joint(name, base.width, base.injective, base.context)

        def found(
            queries: Sequence[BoundQuery], exclude: Sequence[Excluded], count: int
        ) -> list[tuple[Tuples, NDArray[np.float64]]]:
            ranked = decode_many(predictor, queries, exclude, count=count, joint=options)
            return [(part.tuples, part.log_probabilities) for part in ranked]

        return found

    return {name: way(name) for name in JOINT}


def _drive(predictor: Predictor, decodings: Sequence[Decoding]) -> list[Ranked]:
    """Runs decoders side by side, the questions of a step of all of them in one go."""
    done: dict[int, Ranked] = {}
    replies: dict[int, Reply | None] = dict.fromkeys(range(len(decodings)))
    while replies:
        asked: list[tuple[int, list[Question]]] = []
        for number, reply in replies.items():
            try:
                asked.append((number, next(decodings[number]) if reply is None else decodings[number].send(reply)))
            except StopIteration as stop:
                done[number] = stop.value
        found = iter(answered(predictor, [question for _, questions in asked for question in questions]))
        replies = {number: [next(found) for _ in questions] for number, questions in asked}
    return [done[number] for number in range(len(decodings))]


def _from_nothing(
    predictor: Predictor, query: BoundQuery, exclude: Tuples | Excluded, count: int, joint: Joint
) -> Decoding:
    """A decoder that asks for the marginals first."""
    read = Template(predictor.prepare(query), tuple(range(len(query.targets))), ())
    ((marginals,),) = yield [Question(read, np.array([read.query.nodes], np.int32), lambda scores, _: (scores.copy(),))]
    return (yield from _decoding(predictor, query, marginals[0], exclude, count, joint))


def _decoding(
    predictor: Predictor, query: BoundQuery, marginals: Scores, exclude: Tuples | Excluded, count: int, joint: Joint
) -> Decoding:
    excluded = Listed(exclude) if isinstance(exclude, np.ndarray) else exclude
    if joint.decode == "product":
        return product(marginals, excluded, count=count, injective=joint.injective)
    if joint.decode == "linked" and len(query.targets) > 1:
        own = linked(predictor, query, marginals, excluded, count=count, width=joint.width, injective=joint.injective)
        if own is not None:
            return own
    refiller = Refiller(predictor, query, joint.context)
    wanted = max(count, joint.width) if joint.decode == "rescored" else count
    found, order = yield from _beam(predictor, query, refiller, marginals, excluded, wanted, joint)
    if joint.decode != "rescored" or len(query.targets) == 1:
        return Ranked(found.tuples[:count], found.log_probabilities[:count])
    paired = product(marginals, excluded, count=wanted, injective=joint.injective)
    rows = np.unique(np.concatenate([found.tuples, paired.tuples]), axis=0)
    if len(rows) == 0:
        return found
    order += [column for column in range(len(query.targets)) if column not in order]  # where the beam ran dry
    return (yield from rescore(refiller, marginals, rows, order, count))


def _beam(
    predictor: Predictor,
    query: BoundQuery,
    refiller: Refiller,
    marginals: Scores,
    excluded: Excluded,
    count: int,
    joint: Joint,
) -> Generator[list[Question], Reply, tuple[Ranked, list[int]]]:
    """The best tuples, and the order in which their columns were filled."""
    targets = len(query.targets)
    filled = np.full((1, targets), -1, np.int32)
    totals = np.zeros(1)
    beside = marginals if joint.decode == "blended" else None
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
            templates = refiller.templates(order)
            replies = yield [
                _question(template, filled, totals, blocked, keep, slice(0, head), beside) for template in templates
            ]
            groups = [(template.columns, reply) for template, reply in zip(templates, replies, strict=True)]
        column, found = _surest(_may_be_next(predictor, query, open_columns), groups, totals)
        # No continuation is more probable than what it continues: members below what is kept need not be asked.
        joint_scores = totals[found[0]] + found[2]
        floor = np.partition(joint_scores, -keep)[-keep] if len(joint_scores) >= keep else -np.inf
        last = int(np.searchsorted(-totals, -floor, side="right"))
        if order and last > head:
            template, place = refiller.template_of(column, order)
            tail = slice(head, last)
            ((_, _, *chosen),) = yield [_question(template, filled, totals, blocked, keep, tail, beside, place)]
            members, values, scores = chosen
            found = tuple(np.concatenate(both) for both in zip(found, (members + head, values, scores), strict=True))
        filled, totals = _extend(filled, totals, column, found, keep)
        order.append(column)
    return Ranked(filled, totals), order


def _question(
    template: Template,
    filled: Tuples,
    totals: NDArray[np.float64],
    blocked: Sequence[NDArray[np.int32]],
    keep: int,
    part: slice,
    beside: Scores | None,
    only: int | None = None,
) -> Question:
    """The question for the continuations of some members of the beam: in all targets of the template, or in one. They
    are blended with the scores ``beside``, if any, which have a row for each column."""
    nodes, filling = template.filled(filled[part])
    own = None if beside is None else beside[list(template.columns)]
    chooser = _chooser(totals[part], filling, len(template.columns), blocked[part], keep, own, only)
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
    beside: Scores | None = None,
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
            if beside is not None:
                table = 0.5 * (table + beside[target])
            for at, member in enumerate(members.tolist()):
                if len(blocked[member]):
                    table[at, blocked[member]] = -np.inf
            maxima[:, place] = table.max(axis=1)
            table += totals[members, None].astype(np.float32)
            row, entity = np.divmod(_best(table, maxima[:, place] + totals[members], keep), table.shape[1])
            values = scores[own[row], target, entity].astype(np.float64)
            if beside is not None:
                values = 0.5 * (values + beside[target, entity])
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
    filled: Tuples, order: Sequence[int], open_columns: Sequence[int], excluded: Excluded, injective: bool
) -> Sequence[NDArray[np.int32]]:
    """For each member of the beam, the entities that it may not go on with."""
    blocked: Sequence[NDArray[np.int32]] = [np.zeros(0, np.int32)] * len(filled)
    if len(open_columns) == 1:
        blocked = excluded.completing(filled, open_columns[0])
    if injective and order:
        blocked = [np.concatenate([ids, row[list(order)]]) for ids, row in zip(blocked, filled, strict=True)]
    return blocked


def _extend(
    filled: Tuples, totals: NDArray[np.float64], column: int, found: tuple[NDArray[Any], ...], keep: int
) -> tuple[Tuples, NDArray[np.float64]]:
    """The ``keep`` best continuations (members, entities, scores), best first; equal ones in order of entity ids."""
    members, values, scores = found
    joint = totals[members] + scores
    extended = filled[members]
    extended[:, column] = values
    order = np.lexsort((*extended.T[::-1], -joint))[:keep]
    return extended[order], joint[order]


def _may_be_next(predictor: Predictor, query: BoundQuery, open_columns: Sequence[int]) -> Sequence[int]:
    if predictor.inverses:
        return open_columns
    # Such a model has only seen constants at the start of paths: fill from the sources on.
    behind: set[int] = set()
    for start in (query.targets[column] for column in open_columns):
        frontier, seen = [start], {start}
        while frontier:
            node = frontier.pop()
            following = {o for s, _, o in query.edges if s == node} - seen
            seen |= following
            frontier.extend(following)
        behind |= seen - {start}
    return [column for column in open_columns if query.targets[column] not in behind] or open_columns
