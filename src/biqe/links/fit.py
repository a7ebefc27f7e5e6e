"""Fits the probability of a link on facts that were held out from training.

For each held-out fact the questions (s, r, ?) and (?, r, o) are asked. The entities that complete a held-out fact are
right, all others that the training graph does not have are wrong. Whether a hidden layer is better than none is decided
by the loss on the other half of the facts, and so is everything that the record says.

Where the graph lacks further facts, such as those of its test split, some of what counts as wrong is right. Which ones
is not looked at; how many is enough. A missing fact is a held-out one or another with the odds of their numbers. So
where a question has held-out answers beside the fact that it is about, each stands for itself and for as many others as
there are further facts for one held-out fact: it counts as right 1 + further / held-out times. That makes sums over
right answers true on average (docs/decisions/0019-what-a-link-is-worth.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph
from biqe.links.complex import ComplEx
from biqe.links.kinds import Kinds
from biqe.links.knowledge import COMPLEX_FEATURES, Ids, Knowledge, Record, Weigher, straighten
from biqe.links.link_rules import mine_link_rules
from biqe.links.probability import ROWS_BYTES, LinkProbability, bounded_by_kinds
from biqe.links.rules import Walks, mine
from biqe.links.softmax import with_all

FIT_FACTS, FIT_FEWEST, FIT_TRIED = 2_000, 200, 16
"""Held-out facts that the weights are fitted on, at most; at least, where time is short; and those that are timed to
tell how many there is time for."""
NORMALISER_WORK, NORMALISED_OVER = 2e12, 4_096
"""Floating-point operations that normalisers may take: where all entities take more, a sample of them stands for all,
of at least so many."""
FEWEST_FACTS = 20
"""With fewer held-out facts nothing is fitted, and what links have is a score."""
KIND_DOUBTS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Odds by which kinds may be wrong, from which the held-out facts choose."""
CURVE_BINS, CURVE_LINKS, CURVE_CAUTION, CURVE_BEGINS = 16, 100, 20.0, -8.0
"""Bins of the curve that straightens probabilities; the listed links that one needs; links that are added to each as if
it was right already; and the logit below which nothing is changed."""
MOST_FURTHER = 2.0
"""Further missing facts that a held-out one stands for, at most: what few facts say of many is mostly chance."""
BINS = 10
"""Of the check of probabilities."""
COVERAGES = (50, 60, 70, 80, 85, 90, 95, 98, 99)
"""Percentages of hidden facts for which the record has a threshold."""
NEAR, FAR = 64, 48
"""Of each question that is fitted on: the candidates nearest to the top, and a sample of all others."""


def fit(
    predictor: ComplEx | None,
    graph: Graph,
    held_out: NDArray[np.integer],
    *,
    further: int = 0,
    rule_seconds: float = 60.0,
    fit_seconds: float = 60.0,
    seed: int = 0,
) -> Knowledge:
    """What ``graph``, which lacks the facts ``held_out`` (n, 3), teaches about links, and weights for the voices.
    ``further``: how many facts of the same sort it lacks beside them, such as a test split.
    Mining rules takes ``rule_seconds`` at most, and asking about held-out facts about ``fit_seconds``."""
    rules, kinds = mine(graph, seconds=rule_seconds, seed=seed), Kinds.of(graph)
    pairs, normalisers, usual = _normalisers(predictor, graph, seed)
    loops = graph.triples[graph.triples[:, 0] == graph.triples[:, 2], 1]
    has_loops = np.bincount(loops, minlength=graph.relation_count) > 0
    knowledge = Knowledge(
        rules,
        kinds,
        pairs,
        normalisers,
        usual,
        has_loops,
        _untrained(graph.relation_count),
        _untrained(graph.relation_count),
        KIND_DOUBTS[0],
        np.zeros((0, 2), np.float32),
        Record(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, calibrated=False),
        mine_link_rules(graph, seed=seed),
    )
    facts = np.asarray(held_out, np.int64).reshape(-1, 3)
    facts = facts[np.random.default_rng(seed).permutation(len(facts))[:FIT_FACTS]]
    if len(facts) < FEWEST_FACTS:
        return replace(knowledge, record=replace(knowledge.record, facts=len(facts)))
    links = LinkProbability(knowledge, predictor, graph, certain=False)
    every_fact = np.asarray(held_out, np.int64).reshape(-1, 3)
    began = time.process_time()
    stand_for = 1.0 + min(MOST_FURTHER, further / len(every_fact))
    _examples(links, facts[:FIT_TRIED], every_fact, stand_for, seed)
    each = (time.process_time() - began) / min(FIT_TRIED, len(facts))
    facts = facts[: int(max(FIT_FEWEST, fit_seconds / max(each, 1e-6)))]
    examples = _examples(links, facts, every_fact, stand_for, seed)
    judged, hidden = _crossed(examples, graph.relation_count, seed)
    doubts = {doubt: bounded_by_kinds(judged, examples.features, doubt) for doubt in KIND_DOUBTS}
    losses = {doubt: _loss(examples, bounded) for doubt, bounded in doubts.items()}
    # The least doubt that the facts do not speak against: on few facts, losses differ by chance.
    least = min(losses.values())  # below 0 where right answers stand for many others
    tolerance = abs(least) * max(0.002, 1.0 / len(facts))
    doubt = next(doubt for doubt in KIND_DOUBTS if losses[doubt] <= least + tolerance)
    judged, curve = _straightened(examples, doubts[doubt])
    every = np.arange(len(examples.right))
    return replace(
        knowledge,
        weigher=_trained(examples, every, graph.relation_count, hidden, seed),
        plain_weigher=_trained(examples.without_complex(), every, graph.relation_count, hidden, seed),
        kind_doubt=doubt,
        curve=curve,
        record=_record(examples, 1.0 / (1.0 + np.exp(-judged)), len(facts)),
    )


def _untrained(relation_count: int) -> Weigher:
    """Weights that add the voices up, for graphs with nothing to fit on."""
    weigher = Weigher(relation_count, hidden=False)
    with torch.no_grad():
        weigher.linear.weight.zero_()
        weigher.linear.weight[0, [0, 1, 3, 4]] = torch.tensor([0.5, 0.5, 0.5, 0.25])
        weigher.linear.bias.fill_(-1.0)
    return weigher


def _normalisers(
    predictor: ComplEx | None, graph: Graph, seed: int
) -> tuple[Ids, NDArray[np.float32], NDArray[np.float32]]:
    """Pairs of the graph, their normalisers, and the usual one of each direction."""
    R, E = graph.relation_count, graph.entity_count
    walks = Walks.of(graph)
    heads = np.repeat(np.arange(E), np.diff(walks.offsets))
    keys = walks.directions.astype(np.int64) * E + heads
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    if predictor is None or len(pairs) == 0:
        return pairs[:0], np.zeros(0, np.float32), np.zeros(2 * R, np.float32)
    ends, tails = np.append(starts, len(order)), walks.tails[order].astype(np.int64)
    found = np.empty(len(pairs), np.float32)
    share = NORMALISER_WORK / (2.0 * len(pairs) * predictor.entities.numel())
    n = min(E, max(NORMALISED_OVER, int(share * E)))
    drawn = np.sort(np.random.default_rng(seed).permutation(E)[:n])
    place = np.full(E, -1)
    place[drawn] = np.arange(n)
    step = max(1, ROWS_BYTES // (4 * n))
    with torch.no_grad():
        table = predictor.entities[torch.from_numpy(drawn)]
        for first in range(0, len(pairs), step):
            some = pairs[first : first + step]
            scores = with_all(predictor.queries(torch.from_numpy(some % E), torch.from_numpy(some // E)), table)
            counts = np.diff(ends[first : first + len(some) + 1])
            known = place[tails[ends[first] : ends[first + len(some)]]]
            at = (np.repeat(np.arange(len(some)), counts) * n + known)[known >= 0]
            scores.view(-1)[torch.from_numpy(at)] = -1e4
            found[first : first + len(some)] = torch.logsumexp(scores, 1).numpy()
    found += np.float32(np.log(E / n))
    counts = np.bincount(pairs // E, minlength=2 * R)
    usual = np.bincount(pairs // E, found, 2 * R) / np.maximum(1, counts)
    usual[counts == 0] = found.mean()
    return pairs, found, usual.astype(np.float32)


@dataclass(frozen=True)
class _Examples:
    """Links of questions about held-out facts, right and wrong."""

    features: NDArray[np.float32]
    relations: Ids
    right: NDArray[np.float32]
    """0 for wrong ones; how many right answers each other one stands for."""
    weights: NDArray[np.float32]
    """How many links of its question each stands for."""
    questions: Ids
    facts: Ids
    """The held-out fact that each question is about; both of its questions are in one half."""
    asked: NDArray[np.bool_]
    """The link of that fact itself."""
    guess_ranks: NDArray[np.float64]
    """Rank of each question's fact by how often the relation has the entity: what somebody would guess."""

    def without_complex(self) -> _Examples:
        """The same as rules and kinds alone see them."""
        features = self.features.copy()
        features[:, :COMPLEX_FEATURES] = 0.0
        return replace(self, features=features)


def _examples(links: LinkProbability, facts: Ids, held_out: Ids, stand_for: float, seed: int) -> _Examples:
    """Each right answer beside the fact that a question is about counts ``stand_for`` times."""
    rng, R = np.random.default_rng(seed + 1), links.graph.relation_count
    heads = np.concatenate([facts[:, 0], facts[:, 2]])
    directions = np.concatenate([facts[:, 1], facts[:, 1] + R])
    tails = np.concatenate([facts[:, 2], facts[:, 0]])
    hidden: dict[tuple[int, int], list[int]] = {}
    for s, r, o in held_out.tolist():
        hidden.setdefault((s, r), []).append(o)
        hidden.setdefault((o, r + R), []).append(s)
    parts: list[tuple[NDArray[Any], ...]] = []
    guess_ranks: list[float] = []
    everybody = np.arange(links.entity_count)
    frequencies: dict[int, NDArray[np.int64]] = {}
    step = max(1, ROWS_BYTES // (4 * links.entity_count))
    for first in range(0, len(heads), step):
        asked = links.asked(heads[first : first + step], directions[first : first + step])
        collected: list[tuple[NDArray[Any], ...]] = []
        for row in range(len(asked.heads)):
            head, direction = int(asked.heads[row]), int(asked.directions[row])
            order = asked.order[row].numpy().copy()
            order[links.walks.of_head(head, direction)] = -np.inf
            if not links.knowledge.has_loops[direction % R]:
                order[head] = -np.inf
            true = np.asarray(hidden[head, direction])
            open_ = np.flatnonzero(np.isfinite(order))
            near = open_[np.argsort(-order[open_], kind="stable")[:NEAR]]
            near = np.union1d(near, true)
            others = np.setdiff1d(open_, near, assume_unique=True)
            far = rng.choice(others, min(FAR, len(others)), replace=False)
            some = np.concatenate([near, far])
            stands_for = np.append(np.ones(len(near)), np.full(len(far), len(others) / max(1, len(far))))
            numbers = np.full(len(some), row)
            collected.append((numbers, some, np.isin(some, true), stands_for, some == tails[first + row]))
            if direction not in frequencies:
                frequencies[direction] = links.walks.counts(
                    everybody, np.full(len(everybody), (direction + R) % (2 * R))
                )
            wrong = frequencies[direction][np.setdiff1d(open_, true)]
            own = frequencies[direction][tails[first + row]]
            guess_ranks.append(1 + (wrong > own).sum() + (wrong == own).sum() / 2)
        places, entities, *rest = (np.concatenate(column) for column in zip(*collected, strict=True))
        features, relations, _ = links.features(asked, places, entities)
        parts.append((features, relations, places + first, *rest))
    features, relations, questions, right, weights, is_fact = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _Examples(
        features,
        relations,
        np.where(is_fact, 1.0, right * stand_for).astype(np.float32),
        weights.astype(np.float32),
        questions,
        questions % len(facts),
        is_fact,
        np.array(guess_ranks),
    )


def _trained(examples: _Examples, members: Ids, relation_count: int, hidden: bool, seed: int) -> Weigher:
    """Weights fitted on the examples ``members``."""
    torch.manual_seed(seed)
    weigher = Weigher(relation_count, hidden=hidden)
    features = torch.from_numpy(examples.features[members])
    weigher.mean.copy_(features.mean(0))
    weigher.scale.copy_(features.std(0) + 1e-6)
    relations = torch.from_numpy(examples.relations[members])
    right, weights = torch.from_numpy(examples.right[members]), torch.from_numpy(examples.weights[members])
    positives = float(right.sum())
    optimizer = torch.optim.Adam(weigher.parameters(), lr=0.01)
    size = min(4_096, len(members))
    steps = int(np.clip(6 * len(members) / size, 300, 1_500))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 0.02 * (1 - step / steps) + 1e-4
            some = torch.randint(len(members), (size,))
            logits = weigher(features[some], relations[some])
            each = F.binary_cross_entropy_with_logits(logits, right[some], reduction="none")
            loss = (each * weights[some]).sum() * (len(members) / size)
            penalty = 3.0 * (weigher.relation_weights.square().sum() + 0.1 * weigher.relation_bias.square().sum())
            loss = (loss + penalty) / positives + 1e-4 * weigher.linear.weight.square().sum()
            if weigher.hidden is not None:
                loss = loss + 1e-4 * sum(w.square().sum() for w in weigher.hidden.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return weigher.eval().requires_grad_(False)


def _crossed(examples: _Examples, relation_count: int, seed: int) -> tuple[NDArray[np.float64], bool]:
    """Logits of all examples, each by weights fitted on the other half of the facts; and whether a hidden layer is
    better than none."""
    found = {}
    for hidden in (True, False):
        judged = np.empty(len(examples.right))
        for half in (0, 1):
            mine_, others = np.flatnonzero(examples.facts % 2 == half), np.flatnonzero(examples.facts % 2 != half)
            weigher = _trained(examples, others, relation_count, hidden, seed)
            with torch.no_grad():
                logits = weigher(
                    torch.from_numpy(examples.features[mine_]), torch.from_numpy(examples.relations[mine_])
                )
            judged[mine_] = logits.double().numpy()
        found[hidden] = _loss(examples, judged), judged
    hidden = found[True][0] <= found[False][0]
    return found[hidden][1], hidden


def _straightened(examples: _Examples, judged: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Logits of all examples by a curve fitted on the listed ones of the other half of the facts, and the curve by all
    facts; as they were, and no curve, where it does not help."""
    top, straight = _listed(examples, judged), judged.copy()
    for half in (0, 1):
        own = examples.facts % 2 == half
        straight[own] = straighten(judged[own], _curve(judged[top], examples.right[top], ~own[top]))
    if _loss(examples, straight, top) >= _loss(examples, judged, top):
        return judged, np.zeros((0, 2), np.float32)
    return straight, _curve(judged[top], examples.right[top], np.ones(len(top), bool))


def _curve(logits: NDArray[np.float64], right: NDArray[np.float32], members: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(k, 2) logits and what they should have been, from bins of equally many listed links; begins where nothing is
    changed, and always rises."""
    order = np.flatnonzero(members)[np.argsort(logits[members], kind="stable")]
    points = []
    for part in np.array_split(order, min(CURVE_BINS, len(order) // CURVE_LINKS)) if len(order) >= CURVE_LINKS else []:
        said = float((1.0 / (1.0 + np.exp(-logits[part]))).mean())
        true = min(float(right[part].sum()), len(part) - 0.5)  # right answers that stand for others may sum up to more
        true = (true + CURVE_CAUTION * said) / (len(part) + CURVE_CAUTION)
        points.append([np.log(said / (1.0 - said)), np.log(true / (1.0 - true))])
    if not points:
        return np.zeros((0, 2), np.float32)
    first = min(CURVE_BEGINS, points[0][0] - 1.0, points[0][1] - 1.0)
    x, y = np.array([[first, first], *points]).T
    y = np.maximum.accumulate(y)
    rising = np.arange(len(y)) * 0.01  # so that the order of links stays
    kept = np.append(True, np.diff(x) > 1e-3)
    return np.stack([x, y + rising], 1)[kept].astype(np.float32)


def _listed(examples: _Examples, judged: NDArray[np.float64]) -> Ids:
    """Numbers of the ten most probable links of each question."""
    order = np.lexsort((-judged, examples.questions))
    first = np.searchsorted(examples.questions[order], examples.questions[order])
    return order[np.arange(len(order)) - first < 10]


def _loss(examples: _Examples, logits: NDArray[np.float64], members: Ids | slice = slice(None)) -> float:
    """Logarithmic loss of some of the examples."""
    each = (np.logaddexp(0.0, logits) - examples.right * logits) * examples.weights
    return float(each[members].sum())


def _record(examples: _Examples, judged: NDArray[np.float64], facts: int) -> Record:
    ranks, guesses = _ranks(examples, judged), examples.guess_ranks
    top = _listed(examples, judged)
    bins = reliability(judged[top], examples.right[top])
    return Record(
        facts,
        len(ranks),
        float((ranks <= 1).mean()),
        float((ranks <= 3).mean()),
        float((ranks <= 10).mean()),
        float((1 / ranks).mean()),
        float((guesses <= 1).mean()),
        float((guesses <= 10).mean()),
        calibration_error(bins),
        calibrated=True,
        bins=bins,
        coverage=_coverage(judged[examples.asked]),
    )


def _coverage(facts: NDArray[np.floating]) -> dict[str, float]:
    """By coverage: the probability that so large a share of hidden facts, judged (n,) by weights that were fitted on
    others, reaches. Split-conformal prediction: rounded so that the share is not too small, and left out where there
    are too few facts for it."""
    ordered = np.sort(facts)
    found = {}
    for percent in COVERAGES:
        below = int(np.floor((len(ordered) + 1) * (100 - percent) / 100))
        if below >= 1:
            found[f"{percent / 100:.2f}"] = float(ordered[below - 1])
    return found


def _ranks(examples: _Examples, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rank of each question's own fact, other right answers left out; ties count half."""
    fact = np.flatnonzero(examples.asked)
    own = np.empty(int(examples.questions.max()) + 1)
    own[examples.questions[fact]] = scores[fact]
    against = own[examples.questions]
    wrong = (examples.right == 0) * examples.weights
    above = np.bincount(examples.questions, wrong * (scores > against))
    level = np.bincount(examples.questions, wrong * (scores == against))
    return 1 + above + level / 2


def reliability(said: NDArray[np.floating], true: NDArray[np.floating]) -> list[list[float]]:
    """By bins of a tenth of the probabilities ``said``: how many, their mean, and the share that is ``true``, 1 at most
    where some of ``true`` count more than once.

    >>> reliability(np.array([0.25, 0.25, 1.0]), np.array([True, False, True]))[2]
    [2.0, 0.25, 0.5]
    """
    number = np.minimum((np.asarray(said) * BINS).astype(int), BINS - 1)
    counts = np.bincount(number, minlength=BINS)
    sums = [np.bincount(number, values, BINS) / np.maximum(1, counts) for values in (said, true)]
    sums[1] = np.minimum(sums[1], 1.0)
    return np.stack([counts, *sums], 1).tolist()  # type: ignore[no-any-return]


def calibration_error(bins: list[list[float]]) -> float:
    """Expected calibration error: how far the mean probability of a bin is from the share that is true, on average."""
    counts, said, true = np.array(bins).T
    return float(counts @ np.abs(said - true) / max(1.0, counts.sum()))
