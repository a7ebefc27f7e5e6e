"""How good a model is: ranks, metrics, protocols, reports, and the analyses of the paper."""

from biqe.evaluate.loop import VERSIONS, evaluate, evaluate_bio, evaluate_q2b, evaluate_under
from biqe.evaluate.questions import RankedQuestions, rank_questions
from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.report import Report
from biqe.evaluate.targets import RankedTargets, rank_queries

__all__ = [
    "VERSIONS",
    "RankedQuestions",
    "RankedTargets",
    "Ranks",
    "Report",
    "evaluate",
    "evaluate_bio",
    "evaluate_q2b",
    "evaluate_under",
    "rank_queries",
    "rank_questions",
    "rank_targets",
]
