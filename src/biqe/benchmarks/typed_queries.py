"""Questions of GQE's seven types, sampled from any graph whose entities have types, with negatives.

    1-chain   a -> ?              2-chain  a -> . -> ?          3-chain  a -> . -> . -> ?
    2-inter   a, b -> ?           3-inter  a, b, c -> ?
    3-inter_chain   a -> ? and b -> . -> ?      the target is where the branches meet
    3-chain_inter   a, b -> . -> ?              the target comes after

A question is drawn as Hamilton et al. (2018) draw theirs: a random relation, in either direction, and a random
entity that has it are where the target stands; random edges lead on from there to the constants. A question of
valid or test is kept if its target is an answer in the triples up to that split and none in those before, so it
needs a triple that a model has not seen. Unlike theirs, a constant never is the target itself, a question is asked
once, and the questions of test need a triple of test. Negatives are entities of the target's type that are no
answer in the complete graph; hard ones, for types that intersect, fulfil one branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.set_operations import pick_members, pick_outside, sorted_sets, subtract
from biqe.benchmarks.shaped import LAYOUTS, ShapedQueries, join_shapes, lay_out
from biqe.errors import EmptyResult, InvalidOption
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import SPLITS, Graph, Splits
from biqe.graph.triples import contains, union
from biqe.mine.filters import holds
from biqe.mine.walks import Keys, random_edges, signatures, unseen
from biqe.query.bound import AnswerSets

TYPES = {
    "1-chain": "1p",
    "2-chain": "2p",
    "3-chain": "3p",
    "2-inter": "2i",
    "3-inter": "3i",
    "3-inter_chain": "pi",
    "3-chain_inter": "ip",
}
"""GQE's name of each type, in its order, and ours of the same shape."""

_BRANCHES = {
    "2i": (("1p", (0,), (0,)), ("1p", (1,), (1,))),
    "3i": (("1p", (0,), (0,)), ("1p", (1,), (1,)), ("1p", (2,), (2,))),
    "pi": (("2p", (0,), (0, 1)), ("1p", (1,), (2,))),
    "ip": (("2p", (0,), (0, 2)), ("2p", (1,), (1, 2))),
}
"""For each type that intersects, what is left with one branch alone: shape, constants, relations."""

_CHUNK = 8_192
"""Questions tried at a time."""
_BARREN = 40
"""Chunks in a row without one new question after which there are taken to be no more."""


@dataclass(frozen=True)
class TypedConfig:
    """How many questions of each type are sampled, and with how many negatives."""

    seed: int = 0
    """The same seed on the same graph gives the same questions."""
    train: int = 50_000
    """Most training questions of each type but 1-chain, of which every one is taken."""
    valid: int = 1_000
    """Most questions of each type from valid. GQE has 1,000."""
    test: int = 5_000
    """Most questions of each type from test. GQE has 10,000."""
    negatives: int = 100
    """Most negatives of a question, and most hard ones."""

    def __post_init__(self) -> None:
        for name in ("seed", "train", "valid", "test"):
            if getattr(self, name) < 0:
                raise InvalidOption(f"{name} must be 0 or more. Got {getattr(self, name)}")
        if self.negatives < 1:
            raise InvalidOption(f"negatives must be 1 or more. Got {self.negatives}")


def training_questions(splits: Splits, config: TypedConfig | None = None) -> ShapedQueries:
    """Questions answered by the training triples, without answers: those are computed when they are needed.

    1-chain: every entity and relation, in either direction, that has an answer. The gold entity of the others is
    the one they were drawn from.
    """
    config = config or TypedConfig()
    graph = splits["train"]
    if len(graph.triples) == 0:
        raise EmptyResult("there are no training triples to sample questions from")
    source = _Targets(graph)
    parts = [_single(*_all_pairs(graph))]
    for code, (name, shape) in enumerate(TYPES.items()):
        if shape != "1p":
            sampler = _Sampler(source, shape, np.random.default_rng([config.seed, 0, code]))
            drawn = _collect(config.train, sampler.draw)
            parts.append(_questions(name, shape, _Drawn.join([sampler.none, *drawn])))
    return join_shapes(parts)


def typed_questions(
    splits: Splits, types: NDArray[np.integer], split: str, config: TypedConfig | None = None
) -> ShapedQueries:
    """Questions of ``valid`` or ``test`` with answers, hard answers, negatives and hard negatives.

    ``types`` is the type of each entity. Types of question that the graph has none of are left out.
    """
    config = config or TypedConfig()
    if split not in SPLITS[1:]:
        raise InvalidOption(f"split must be one of {', '.join(SPLITS[1:])}. Got {split!r}")
    if len(types) != len(splits.vocabulary.entities):
        raise InvalidOption(
            f"types must give one for each of {len(splits.vocabulary.entities):,} entities. Got {len(types):,}"
        )
    worlds = _Worlds(splits, split, np.asarray(types))
    parts = []
    for code, (name, shape) in enumerate(TYPES.items()):
        rng = np.random.default_rng([config.seed, SPLITS.index(split), code])
        part = _held_out(worlds, name, shape, getattr(config, split), config.negatives, rng)
        if part is not None:
            parts.append(part)
    if not parts:
        raise EmptyResult(f"no question could be sampled that needs a triple of {split}")
    return join_shapes(parts)


class _Worlds:
    """The graphs that a split's questions are about, each built once."""

    def __init__(self, splits: Splits, split: str, types: NDArray[np.integer]) -> None:
        place = SPLITS.index(split)
        self.new = getattr(splits, split)
        self.before = Graph(splits.vocabulary, union(*(getattr(splits, part) for part in SPLITS[:place])))
        self.upto = Graph(splits.vocabulary, union(self.before.triples, self.new))
        self.complete = self.upto if place == len(SPLITS) - 1 else splits["complete"]
        self.source = _Targets(self.upto)
        self.types = types


@dataclass(frozen=True)
class _Drawn:
    """Questions of one shape as drawn."""

    anchors: NDArray[np.int32]
    relations: NDArray[np.int32]
    target: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: NDArray[np.integer]) -> _Drawn:
        return _Drawn(self.anchors[rows], self.relations[rows], self.target[rows])

    @staticmethod
    def join(parts: list[_Drawn]) -> _Drawn:
        return _Drawn(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("anchors", "relations", "target")))


Part = TypeVar("Part", _Drawn, ShapedQueries)


def _collect(count: int, draw: Callable[[], Part]) -> list[Part]:
    """Questions from one draw after the other: ``count`` of them, or as many as there are."""
    found: list[Part] = []
    missing, barren = count, 0
    while missing > 0 and barren < _BARREN:
        part = draw()
        barren = 0 if len(part) else barren + 1
        if len(part):
            found.append(part.take(np.arange(min(missing, len(part)))))
            missing -= len(found[-1])
    return found


def _held_out(
    worlds: _Worlds, name: str, shape: str, count: int, negatives: int, rng: np.random.Generator
) -> ShapedQueries | None:
    """``count`` questions of one type, or as many as there are; None where there are none."""
    sampler = _Sampler(worlds.source, shape, rng, worlds.new)

    def draw() -> ShapedQueries:
        drawn = sampler.draw()
        if len(drawn) == 0:
            return _questions(name, shape, drawn)
        return _with_answers(worlds, name, shape, drawn, negatives, rng)

    found = _collect(count, draw)
    return join_shapes(found) if found else None


def _with_answers(
    worlds: _Worlds, name: str, shape: str, drawn: _Drawn, negatives: int, rng: np.random.Generator
) -> ShapedQueries:
    """Those of the questions that need a new triple and have negatives, with all their sets."""

    def solve(graph: Graph, some: _Drawn) -> AnswerSets:
        return answer_sets(graph, lay_out(shape, some.anchors, some.relations))

    known = solve(worlds.before, drawn)
    rows = np.flatnonzero(~holds(known, drawn.target))
    drawn, known = drawn.take(rows), known.take(rows)
    answers, true = solve(worlds.upto, drawn), solve(worlds.complete, drawn)
    outside = pick_outside(true, worlds.types, worlds.types[drawn.target], negatives, rng)
    part_way = _partial(worlds, shape, drawn, true)
    chosen = pick_members(part_way, negatives, rng)
    usable = np.diff(outside.offsets) > 0
    if shape in _BRANCHES:
        usable &= np.diff(chosen.offsets) > 0
    kept = np.flatnonzero(usable)
    return _questions(
        name,
        shape,
        drawn.take(kept),
        answers=answers.take(kept),
        hard=subtract(answers, known).take(kept),
        negatives=outside.take(kept),
        hard_negatives=chosen.take(kept),
    )


def _partial(worlds: _Worlds, shape: str, drawn: _Drawn, true: AnswerSets) -> AnswerSets:
    """For each question the entities of its target's type that fulfil a branch but are no answer."""
    count = len(drawn)
    sets, owners = [], []
    for branch, anchors, relations in _BRANCHES.get(shape, ()):
        rows = lay_out(branch, drawn.anchors[:, list(anchors)], drawn.relations[:, list(relations)])
        found = answer_sets(worlds.complete, rows)
        sets.append(found.values)
        owners.append(np.repeat(np.arange(count), np.diff(found.offsets)))
    if not sets:
        return AnswerSets(np.zeros(count + 1, np.int64), np.zeros(0, np.int32))
    values, owner = np.concatenate(sets), np.concatenate(owners)
    alike = worlds.types[values] == worlds.types[drawn.target[owner]]
    return subtract(sorted_sets(owner[alike], values[alike], count), true)


class _Sampler:
    """Draws different questions of one shape; with ``new``, such as have an edge among these triples."""

    def __init__(
        self, source: _Targets, shape: str, rng: np.random.Generator, new: NDArray[np.int32] | None = None
    ) -> None:
        self.source, self.layout, self.rng, self.new = source, LAYOUTS[shape], rng, new
        self.seen: Keys = np.zeros(0, np.uint64)

    @property
    def none(self) -> _Drawn:
        """No question of the shape."""
        shapes = (0, self.layout.anchors), (0, len(self.layout.edges)), (0,)
        return _Drawn(*(np.zeros(shape, np.int32) for shape in shapes))

    def draw(self) -> _Drawn:
        """Questions from one chunk of targets that were not drawn before."""
        graph, layout = self.source.graph, self.layout
        count = graph.relation_count
        target = self.source.draw(self.rng)
        value = np.full((len(target), len(layout.nodes)), -1, np.int32)
        value[:, -1] = target
        relations = np.empty((len(target), len(layout.edges)), np.int32)
        # Edges point to the target; walked from the target back to the constants, each leads to its first end.
        for edge in range(len(layout.edges) - 1, -1, -1):
            start, end = layout.edges[edge]
            relation, value[:, start] = random_edges(
                graph.index, value[:, end], self.rng, relation_count=count, both_ways=True
            )
            relations[:, edge] = np.where(relation < count, relation + count, relation - count)
        anchors = value[:, [layout.nodes.index(anchor) for anchor in range(layout.anchors)]]
        good = (anchors != target[:, None]).all(axis=1)
        for edge, (start, end) in enumerate(layout.edges):
            for other, (other_start, other_end) in enumerate(layout.edges[:edge]):
                if other_end == end:  # edges that meet must not be the same one
                    differ = relations[:, edge] != relations[:, other]
                    good &= differ | (value[:, start] != value[:, other_start])
        if self.new is not None:
            good &= _uses(self.new, layout.edges, value, relations, count)
        rows = np.flatnonzero(good)
        drawn = _Drawn(anchors[rows], relations[rows], target[rows])
        fresh, self.seen = unseen(signatures(drawn.anchors, drawn.relations), self.seen)
        return drawn.take(fresh)


class _Targets:
    """Where a question may end: a random relation, in either direction, then a random entity that has it."""

    def __init__(self, graph: Graph) -> None:
        triples, count = graph.triples.astype(np.int64), graph.relation_count
        relation = np.concatenate([triples[:, 1], triples[:, 1] + count])
        entity = np.concatenate([triples[:, 0], triples[:, 2]])
        pairs = np.unique(relation * graph.entity_count + entity)
        self.graph = graph
        self._entities = (pairs % graph.entity_count).astype(np.int32)
        self._offsets = np.searchsorted(pairs // graph.entity_count, np.arange(2 * count + 1))
        self._used = np.flatnonzero(np.diff(self._offsets))

    def draw(self, rng: np.random.Generator) -> NDArray[np.int32]:
        """A chunk of entities."""
        drawn = self._used[rng.integers(0, len(self._used), _CHUNK)]
        start, stop = self._offsets[drawn], self._offsets[drawn + 1]
        return self._entities[start + (rng.random(_CHUNK) * (stop - start)).astype(np.int64)]


def _uses(
    new: NDArray[np.int32],
    edges: tuple[tuple[int, int], ...],
    value: NDArray[np.int32],
    relations: NDArray[np.int32],
    count: int,
) -> NDArray[np.bool_]:
    """(n,) whether one of the edges of a question is one of the new triples."""
    uses = np.zeros(len(value), bool)
    for place, (start, end) in enumerate(edges):
        inverse = relations[:, place] >= count
        rows = np.stack(
            [
                np.where(inverse, value[:, end], value[:, start]),
                relations[:, place] % count,
                np.where(inverse, value[:, start], value[:, end]),
            ],
            axis=1,
        )
        uses |= contains(new, rows)
    return uses


def _all_pairs(graph: Graph) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every entity and relation, of 2R, with an answer, sorted."""
    triples, count = graph.triples.astype(np.int64), graph.relation_count
    width = 2 * count
    pairs = np.unique(
        np.concatenate([triples[:, 0] * width + triples[:, 1], triples[:, 2] * width + triples[:, 1] + count])
    )
    return (pairs // width).astype(np.int32), (pairs % width).astype(np.int32)


def _single(anchors: NDArray[np.int32], relations: NDArray[np.int32]) -> ShapedQueries:
    rows = lay_out("1p", anchors[:, None], relations[:, None])
    return ShapedQueries(rows, np.arange(len(rows)), ("1-chain",), np.zeros(len(rows), np.int8))


def _questions(name: str, shape: str, drawn: _Drawn, **sets: AnswerSets) -> ShapedQueries:
    rows = lay_out(shape, drawn.anchors, drawn.relations, drawn.target)
    return ShapedQueries(rows, np.arange(len(rows)), (name,), np.zeros(len(rows), np.int8), **sets)
