"""A bound question to rows: known ones from the graph, then predicted ones that it does not hold.

select_rows   SELECT: rows of all sides of a UNION, ordered and cut as the question says
verdict       ASK: one row without columns, known or predicted
count         COUNT: how many rows are known, and how many more are expected
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, InvalidOption
from biqe.exact.answers import MAX_ROWS, holds, tuples
from biqe.exact.filters import Filters, columns_of, filtered_rows
from biqe.exact.store import node_of
from biqe.graph.knowledge_graph import Graph
from biqe.predict.conditional import filled_in
from biqe.predict.config import AskConfig
from biqe.predict.decompose import Asking
from biqe.predict.evidence import EvidenceSearch
from biqe.predict.predictor import Predictor
from biqe.predict.rows import Entities, Listed, Marginals, Rows, all_different, chance_of, join_notes
from biqe.query.bind import BoundBranch, BoundQuestion
from biqe.query.bound import BoundQuery
from biqe.query.question import PROBABILITY, Order

KNOWN_ROWS = 100_000
"""Known rows that are kept; a query with more of them says so."""
SET_ROWS = 500
"""Rows of an answer set, at most."""
LISTED_ROWS = 2_000
"""Predicted rows that conditions on several variables are evaluated on."""
LEAST, LEAST_OF_SMALL_GRAPHS = 0.001, 0.005
"""Rows below this probability are not listed, where probabilities are those of links; nor, on a graph of under a
thousand entities, rows less probable than an entity drawn blindly, up to the second bound."""
UNLIKELY = 0.01
"""Nor are rows so many times less probable than the first: beside a likely answer they are noise."""
COUNTED_ROWS = 1_000
"""Predicted rows whose probabilities are added up for COUNT."""
TOO_MANY = "the query has more matches on this graph than its conditions can be checked for"

Arrange = Callable[[Graph, Entities], NDArray[np.integer]]
"""Places of known rows in the order that the question asks for."""


# SELECT


def select_rows(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Rows:
    """The rows of a SELECT: all sides of its UNION, in its order, and no more than it asks for."""
    if config.coverage is not None and config.mode != "known" and predictor is not None:
        least = max(config.min_probability, _threshold(predictor, config.coverage))
        config = replace(config, top=SET_ROWS, min_probability=least)
    # What OFFSET skips is listed, too: ``top`` counts rows from there. ORDER BY orders the same rows on every page.
    skipped = 0 if question.order else question.offset
    listed = asked = replace(config, top=min(config.top + skipped, max(config.top, LISTED_ROWS)))
    if len(question.branches) > 1 and config.mode == "predicted":
        # A row that one side knows is no prediction of another; so known rows are looked up, and dropped at the end.
        asked = replace(listed, mode="both")
    arrange = _arrange(question)
    rows = merge(graph, _sides(graph, question, predictor, asked), asked, arrange)
    if asked is not listed:
        rows = replace(rows.take(slice(rows.known_count, None)), known_capped=False)
    return _arranged(graph, rows, question, config.top)


def _threshold(predictor: Predictor, coverage: float) -> float:
    """The probability that rows of an answer set reach, by the least coverage that was measured and is as large;
    InvalidOption where there is none."""
    record = None if predictor.links is None else predictor.links.knowledge.record
    if record is None or not record.calibrated:
        raise InvalidOption(
            f"{predictor.name} has no calibrated probabilities, so no coverage can be stated",
            hint="leave --coverage out, or train a model that has them: biqe train GRAPH --out RUN",
        )
    enough = sorted(share for share in record.coverage if float(share) >= coverage)
    if not enough:
        measured = ", ".join(sorted(record.coverage)) or "none"
        raise InvalidOption(
            f"a coverage of {coverage:g} was not measured; measured were {measured}",
            hint="take one of these, or a smaller one; more held-out facts allow larger ones",
        )
    return record.coverage[enough[0]]


def _refuse_coverage(config: AskConfig, what: str) -> None:
    if config.coverage is not None:
        raise InvalidOption(f"--coverage is for rows, and {what} gives none", hint="leave --coverage out")


def _sides(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> list[Rows]:
    """Each side of a UNION answered; none predicts what another knows."""
    arrange = _arrange(question)
    if len(question.branches) == 1 or predictor is None or config.mode == "known":
        return [combine(graph, branch, predictor, config, arrange=arrange) for branch in question.branches]
    known = [combine(graph, branch, None, config, arrange=arrange).known for branch in question.branches]
    return [
        combine(
            graph,
            branch,
            predictor,
            config,
            known_elsewhere=np.concatenate([*known[:number], *known[number + 1 :]]),
            arrange=arrange,
        )
        for number, branch in enumerate(question.branches)
    ]


def _arrange(question: BoundQuestion) -> Arrange | None:
    """How ORDER BY puts known rows in order, whose probability is 1; None where the question has none."""
    if not question.order:
        return None
    return lambda graph, rows: by_keys(graph, rows, np.ones(len(rows)), question.columns, question.order)


def _arranged(graph: Graph, rows: Rows, question: BoundQuestion, top: int | None) -> Rows:
    """The rows, known ones as they are and predicted ones by ORDER BY, cut by OFFSET, LIMIT and ``top``."""
    known = rows.known_count
    order = np.arange(len(rows))
    if question.order:
        chances = rows.probabilities[known:]
        order[known:] = known + by_keys(graph, rows.predicted, chances, question.columns, question.order)
    start = question.offset
    stop = None if question.limit is None else start + question.limit
    order = order[start:stop]
    shown = int((order < known).sum())
    taken = rows.take(order if top is None else order[: shown + top])
    return replace(
        taken,
        known_complete=rows.known_complete and shown == known,
        known_capped=rows.known_capped and (stop is None or stop > known),
    )


def merge(graph: Graph, sides: Sequence[Rows], config: AskConfig, arrange: Arrange | None = None) -> Rows:
    """The sides of a UNION together: a known row once, a predicted row with its best probability, if it is not known.

    Known rows of all sides are put in one order, as those of each side are.
    """
    if len(sides) == 1:
        return sides[0]
    widest = max(side.entities.shape[1] for side in sides)
    joined = Rows(
        np.concatenate([_widened(side.entities, widest) for side in sides]),
        np.concatenate([side.probabilities for side in sides]),
        selected=sides[0].known.shape[1],
        marginals=_best_marginals(sides),
        evidence=[each for side in sides for each in side.evidence or [None] * len(side)] if config.links else (),
        against=[each for side in sides for each in side.against or [()] * len(side)],
        link_probabilities={link: chance for side in sides for link, chance in side.link_probabilities.items()},
        sides=np.repeat(np.arange(len(sides)), [len(side) for side in sides]),
        note=join_notes([side.note for side in sides]),
    )
    is_known = np.concatenate([np.arange(len(side)) < side.known_count for side in sides])
    selected = [tuple(row) for row in joined.entities[:, : joined.selected].tolist()]
    known: dict[tuple[int, ...], int] = {}
    best: dict[tuple[int, ...], int] = {}
    for place in np.flatnonzero(is_known).tolist():
        known.setdefault(selected[place], place)
    # In predicted mode known rows are not shown, and each side has left out its own only.
    for place in np.flatnonzero(~is_known).tolist():
        row = selected[place]
        if row not in known and (row not in best or joined.probabilities[place] > joined.probabilities[best[row]]):
            best[row] = place
    places = np.array(list(known.values()), np.int64)
    shown = (arrange or by_label)(graph, joined.entities[places, : joined.selected])[:KNOWN_ROWS]
    ranked = sorted(best, key=lambda row: (-joined.probabilities[best[row]], row))[: config.top]
    taken = joined.take(np.concatenate([places[shown], np.array([best[row] for row in ranked], np.int64)]))
    return replace(
        taken,
        known_count=len(shown),
        known_complete=all(side.known_complete for side in sides) and len(shown) == len(known),
        known_capped=any(side.known_capped for side in sides) or len(shown) < len(known),
    )


def _widened(rows: Entities, width: int) -> Entities:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1)


def _best_marginals(sides: Sequence[Rows]) -> Marginals | None:
    """Of each target alone, by the side that thinks most of it; all entities together have probability 1."""
    parts = [side.marginals for side in sides if side.marginals is not None]

    def best() -> NDArray[np.float32]:
        table = np.maximum.reduce([part() for part in parts])
        return table - np.logaddexp.reduce(table, axis=1, keepdims=True)

    return best if parts else None


# One conjunction


def combine(
    graph: Graph,
    query: BoundQuery | BoundBranch,
    predictor: Predictor | None,
    config: AskConfig,
    *,
    known_elsewhere: Entities | None = None,
    arrange: Arrange | None = None,
) -> Rows:
    """Known rows from ``graph``, then predicted rows that it does not hold, the most probable first.

    LIMIT counts both; known rows are served first. Without a predictor there are known rows only. Rows in
    ``known_elsewhere``, those of other sides of a UNION, are not predicted. ``arrange`` puts known rows in order; left
    out, they are in alphabetical order.
    """
    branch = query if isinstance(query, BoundBranch) else BoundBranch(query, query)
    limit = branch.query.limit
    width = len(branch.query.targets)
    filters = Filters(branch.filters, graph)
    is_shown = config.mode != "predicted"
    known, complete = _known(graph, branch, filters, arrange, is_shown=is_shown)
    capped = is_shown and not complete
    if is_shown and limit is not None and len(known) > limit:
        known, complete = known[:limit], False
    shown = known if is_shown else known[:0]
    result = Rows(
        shown,
        np.ones(len(shown)),
        len(shown),
        selected=width,
        known_complete=complete,
        known_capped=capped,
    )
    wanted = config.top
    if limit is not None:
        wanted = min(wanted, limit - len(shown))
    if config.mode == "known" or predictor is None or wanted <= 0:
        return result
    elsewhere = known[:0, :width] if known_elsewhere is None else known_elsewhere
    found = _predicted(graph, branch, filters, predictor, config, wanted, known, complete, elsewhere)
    wide = found.marginals
    return replace(
        found,
        entities=np.concatenate([shown, found.entities]),
        probabilities=np.concatenate([result.probabilities, found.probabilities]),
        known_count=len(shown),
        scores=None,
        selected=width,
        marginals=None if wide is None else lambda: wide()[:width],
        evidence=[*([None] * len(shown)), *found.evidence] if found.evidence else (),
        against=[*([()] * len(shown)), *found.against] if found.against else (),
        known_complete=complete,
        known_capped=capped,
    )


def _known(
    graph: Graph, branch: BoundBranch, filters: Filters, arrange: Arrange | None, *, is_shown: bool
) -> tuple[Entities, bool]:
    """(n, W) known rows of the wide query, in order where they are shown; and whether these are all."""
    arrange = arrange if is_shown else None
    # The first rows of an order are the first of all rows, so all of them are looked at.
    most = KNOWN_ROWS if arrange is None else MAX_ROWS
    width = len(branch.query.targets)
    if branch.is_plain:
        # One row more than wanted tells whether there are more.
        rows = tuples(graph, branch.query, limit=most + 1)
        rows, complete = rows[:most], len(rows) <= most
    else:
        rows, complete = filtered_rows(graph, branch.wide, filters, width, limit=most)
    if arrange is not None and not complete:
        raise BiqeError(
            f"the query has too many known rows to put in order; at most {most:,} are",
            hint="leave ORDER BY out, or fix one of its variables",
        )
    if is_shown:
        complete = complete and len(rows) <= KNOWN_ROWS
        rows = rows[(arrange or by_label)(graph, rows[:, :width])[:KNOWN_ROWS]]
    return np.ascontiguousarray(rows), complete


def _predicted(
    graph: Graph,
    branch: BoundBranch,
    filters: Filters,
    predictor: Predictor,
    config: AskConfig,
    count: int,
    known: Entities,
    complete: bool,
    elsewhere: Entities,
) -> Rows:
    """Up to ``count`` rows that the graph does not hold and that pass the conditions, the most probable first.

    ``known`` are rows of the wide query that the graph holds; ``elsewhere`` are rows of the query itself that another
    side of a UNION knows.
    """
    width = len(branch.query.targets)
    # Where not all known rows are at hand, the graph tells which of the ranked rows are known after all.
    wanted = count if complete else 4 * max(count, config.width)
    selected = np.concatenate([known[:, :width], elsewhere])
    exclude = selected if branch.is_plain else known
    asking = Asking(graph, predictor.for_question(), config.joint_of(predictor.joint))
    while True:
        found = asking.rank_with_filters(branch.wide, exclude, wanted, filters)
        kept = _passing(branch, filters, found.entities, selected)
        if config.injective:
            kept = kept[all_different(found.entities[kept, :width])]
        exhausted = len(found) < wanted or wanted >= LISTED_ROWS
        if (branch.is_plain and not config.injective) or len(kept) >= count or exhausted:
            break
        # Conditions on several variables sort rows out only afterwards: list more.
        wanted = min(4 * wanted, LISTED_ROWS)
    if not complete:
        places = (n for n in kept.tolist() if not holds(graph, filled_in(branch.wide, found.entities[n].tolist())))
        kept = np.array([n for n, _ in zip(places, range(wanted), strict=False)], np.int64)
    found = found.take(kept)
    if predictor.links is None:
        found = found.take(np.flatnonzero(found.probabilities >= config.min_probability)[:count])
        if not config.links:
            return found
    if not found.evidence:
        evidence, chances = EvidenceSearch(graph, branch.wide).find(found.entities.tolist(), asking.predictor)
        found = replace(found, evidence=evidence, link_probabilities=chances)
    if filters.negated_parts():
        found = replace(found, against=asking.against(filters, branch.wide, found.entities))
    if predictor.links is None:
        return found
    if config.coverage is not None:  # its threshold alone decides
        return _by_links(found, config.min_probability, 0.0, count)
    return _by_links(found, max(config.min_probability, least_listed(graph)), UNLIKELY, count)


def least_listed(graph: Graph) -> float:
    """The least probability of a row that is listed."""
    return float(np.clip(1.0 / max(1, graph.entity_count), LEAST, LEAST_OF_SMALL_GRAPHS))


def _by_links(found: Rows, least: float, unlikely: float, count: int) -> Rows:
    """The rows with the probability of all their missing links, in its order; those below ``least``, or so many times
    less probable than the first, are left out."""
    said = found.link_probabilities
    # A link that nobody can judge has no probability, and neither has a row that needs it.
    chances = np.array([math.prod(said.get(link, 0.0) for link in each.missing) for each in found.evidence if each])
    if found.against:
        chances = chances * [chance_of(each) for each in found.against]
    order = np.lexsort((*found.entities.T[::-1], -chances))
    order = order[chances[order] >= max(least, unlikely * chances.max(initial=0.0))][:count]
    return replace(found.take(order), probabilities=chances[order])


def _passing(branch: BoundBranch, filters: Filters, rows: Entities, known: Entities) -> NDArray[np.int64]:
    """Places of the listed rows that pass the conditions, each selected row once, by its most probable wide row."""
    if branch.is_plain:
        return np.arange(len(rows))
    selected = rows[:, : known.shape[1]]
    passed = filters.passes(columns_of(branch.wide, rows), len(rows)) & ~Listed(known).holds(selected)
    places = np.flatnonzero(passed)
    _, first = np.unique(selected[places], axis=0, return_index=True)
    return places[np.sort(first)]


# ASK


def verdict(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Rows:
    """ASK: one row without selected columns, known or predicted; none where nothing speaks for it. What the graph holds
    is true in every mode.

    The probability is that of the side of the UNION which is most probable.
    """
    _refuse_coverage(config, "ASK")
    empty = Rows.empty(0, selected=0)
    for number, branch in enumerate(question.branches):
        wide = _known_match(graph, branch)
        if wide is not None:
            return Rows(wide, np.ones(1), 1, selected=0, sides=np.array([number]))
    if predictor is None or config.mode == "known":
        return empty
    found = []
    for number, branch in enumerate(question.branches):
        filters = Filters(branch.filters, graph)
        allowed = {name: mask for name in branch.wide.names if name and (mask := filters.allowed(name)) is not None}
        asking = Asking(graph, predictor.restricted(allowed), config.joint_of(predictor.joint))

        def passes(query: BoundQuery, rows: Entities, filters: Filters = filters) -> NDArray[np.bool_]:
            return filters.passes(columns_of(query, rows), len(rows))

        chance, evidence = asking.closed(branch.wide, passes)
        if evidence is not None and filters.negated_parts():
            row = np.array([[evidence.nodes[node] for node in branch.wide.targets]], np.int32)
            chance *= chance_of(asking.against(filters, branch.wide, row)[0])
        found.append((chance, evidence, number))
    chance, evidence, number = max(found, key=lambda side: side[0])
    if evidence is None or chance < config.min_probability or config.top == 0 or not evidence.missing:
        return empty
    links = list(evidence.missing)
    targets = question.branches[number].wide.targets
    return Rows(
        np.array([[evidence.nodes[node] for node in targets]], np.int32).reshape(1, len(targets)),
        np.array([chance]),
        selected=0,
        evidence=[evidence],
        link_probabilities=dict(zip(links, predictor.link_probabilities(links), strict=True)),
        sides=np.array([number]),
    )


def _known_match(graph: Graph, branch: BoundBranch) -> Entities | None:
    """(1, W) a match that passes the conditions; None where the graph has none."""
    if branch.is_plain:
        return np.zeros((1, 0), np.int32) if holds(graph, branch.query) else None
    passed, complete = filtered_rows(graph, branch.wide, Filters(branch.filters, graph), 0, limit=1)
    if not complete and len(passed) == 0:
        raise BiqeError(TOO_MANY, hint="fix one of its variables")
    return passed[:1] if len(passed) else None


# COUNT


@dataclass(frozen=True)
class Counted:
    """What COUNT comes to."""

    known: int
    """Matches that the graph holds: exact."""
    expected: float | None
    """Matches beyond them that the model expects: the sum of their probabilities; None where no model was asked."""
    note: str = ""
    """What to know about how these were found."""


def count(graph: Graph, question: BoundQuestion, predictor: Predictor | None, config: AskConfig) -> Counted:
    """Matches of a question: distinct ones for COUNT DISTINCT, all of them over all sides of a UNION otherwise."""
    _refuse_coverage(config, "COUNT")
    # Everything below works on the counted variables, or on all of them; so no row stands for two matches.
    distinct = bool(question.columns)
    sides = [_known_rows(graph, branch) for branch in question.branches]
    known = len({tuple(row) for side in sides for row in side.tolist()}) if distinct else sum(map(len, sides))
    if predictor is None or config.mode == "known":
        return Counted(known, None)
    asked = replace(config, mode="both", top=COUNTED_ROWS, links=False)
    if distinct:
        found = [merge(graph, _sides(graph, question, predictor, asked), asked)]
    else:
        found = [combine(graph, branch, predictor, asked) for branch in question.branches]
    expected = float(sum(side.probabilities[side.known_count :].sum() for side in found))
    return Counted(known, expected, join_notes([side.note for side in found]))


def _known_rows(graph: Graph, branch: BoundBranch) -> Entities:
    if branch.is_plain:
        return tuples(graph, branch.query)
    filters = Filters(branch.filters, graph)
    width = len(branch.query.targets)
    passed, complete = filtered_rows(graph, branch.wide, filters, width, limit=MAX_ROWS, judged=2 * MAX_ROWS)
    if not complete:
        raise BiqeError(TOO_MANY, hint="fix one of its variables, or count in parts")
    return passed[:, :width]


# The order of rows

# Without ORDER BY, rows are for people: by what is shown for them, whatever its capitals. ORDER BY has SPARQL's own
# order of terms, blank nodes before IRIs and these by their characters, so that rows stand as in any SPARQL store.


def by_label(graph: Graph, rows: Entities) -> NDArray[np.integer]:
    """Places of the rows in the alphabetical order of what is shown for them."""
    return _sorted(rows, [*_labels(graph, rows).T])


def by_keys(
    graph: Graph, rows: Entities, chances: NDArray[np.float64], columns: Sequence[str], order: Sequence[Order]
) -> NDArray[np.integer]:
    """Places of the rows by the keys of ORDER BY, then by what is shown. ``chances`` are what ``?probability`` is."""
    terms = _terms(graph, rows)
    keys: list[NDArray[Any]] = []
    for key in order:
        if key.variable == PROBABILITY and PROBABILITY.name not in columns:
            values: NDArray[Any] = chances
        else:
            values = terms[:, columns.index(key.variable.name)]
        keys.append(-values if key.descending else values)
    # Two entities never have one place, so labels matter only where some column is no key.
    is_all = {key.variable.name for key in order}.issuperset(columns)
    return _sorted(rows, keys if is_all else [*keys, *_labels(graph, rows).T])


def _sorted(rows: Entities, keys: Sequence[NDArray[Any]]) -> NDArray[np.integer]:
    if len(rows) == 0 or len(keys) == 0:
        return np.arange(len(rows))
    return np.lexsort(list(keys)[::-1])  # which takes the last key first


def _labels(graph: Graph, rows: Entities) -> Entities:
    return _ranks(graph, rows, lambda entity: graph.vocabulary.label(entity).casefold())


def _terms(graph: Graph, rows: Entities) -> Entities:
    from pyoxigraph import BlankNode

    def term(entity: int) -> tuple[bool, str]:
        node = node_of(graph.vocabulary.entities[entity])
        return not isinstance(node, BlankNode), node.value

    return _ranks(graph, rows, term)


def _ranks(graph: Graph, rows: Entities, key: Callable[[int], Any]) -> Entities:
    """For each entity of the rows, its place among all of them by ``key``; by number where two have the same."""
    is_there = np.zeros(len(graph.vocabulary.entities), bool)
    is_there[rows] = True
    ids = np.flatnonzero(is_there).tolist()
    ranks = np.zeros(len(is_there), np.int32)
    ranks[sorted(ids, key=key)] = np.arange(len(ids))
    return ranks[rows]
