"""How good a model is: ranks, metrics, protocols, reports."""

from biqe.evaluate.loop import RankedTargets, evaluate, rank_queries
from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.report import Report

__all__ = ["RankedTargets", "Ranks", "Report", "evaluate", "rank_queries", "rank_targets"]
