"""How single facts that were held out of training are found: the answer to (s, r, ?) and to (?, r, o) for each.

A model whose links have calibrated probabilities counted this at the end of its training, each fact by weights that
were fitted on the others, and that record is told. Fitted on all of them, its probabilities would look better here than
they are. The facts of other models are ranked now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from biqe.benchmarks.shaped import lay_out
from biqe.errors import EmptyResult
from biqe.evaluate.loop import evaluate
from biqe.evaluate.protocols import Cq
from biqe.exact.answers import answer_sets
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import union

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

MOST_FACTS = 2_000
"""Facts that are ranked, at most; drawn by seed."""


@dataclass(frozen=True)
class HiddenFacts:
    """Ranks of held-out facts, asked for in both directions."""

    facts: int
    questions: int
    hits_1: float
    hits_3: float
    hits_10: float
    mrr: float
    guess_1: float | None = None
    """HITS@1 of guessing the entities that the relation has most often; None where it was not counted."""
    guess_10: float | None = None
    calibration_error: float | None = None
    """Expected calibration error of the probabilities of links; None where links have scores alone."""


def hidden_facts(model: QueryModel, splits: Splits) -> HiddenFacts | None:
    """How ``model`` finds the facts in the valid split. None where there are none, or it can read no single link."""
    knowledge = getattr(model, "knowledge", None)
    if knowledge is not None and knowledge.record.calibrated:
        record = knowledge.record
        return HiddenFacts(
            record.facts,
            record.questions,
            record.hits_1,
            record.hits_3,
            record.hits_10,
            record.mrr,
            record.guess_1,
            record.guess_10,
            record.error,
        )
    facts = splits.valid
    if len(facts) > MOST_FACTS:
        facts = facts[np.sort(np.random.default_rng(0).choice(len(facts), MOST_FACTS, replace=False))]
    if len(facts) == 0:
        return None
    heads, tails = np.concatenate([facts[:, 0], facts[:, 2]]), np.concatenate([facts[:, 2], facts[:, 0]])
    relations = np.concatenate([facts[:, 1], facts[:, 1] + len(splits.vocabulary.relations)])
    asked = lay_out("1p", heads[:, None], relations[:, None], tails)
    seen = Graph(splits.vocabulary, union(splits.train, splits.valid))
    asked = asked.with_filters(seen=answer_sets(seen, asked))
    try:
        report = evaluate(model, asked, Cq("seen"), bootstrap=0)
    except EmptyResult:
        return None
    figures = report.metrics["realistic"]
    return HiddenFacts(
        len(facts),
        report.counts["ranked_queries"],
        figures["hits@1"],
        figures["hits@3"],
        figures["hits@10"],
        figures["mrr"],
    )
