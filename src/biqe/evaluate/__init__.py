"""How good a model is.

ranks.py          ranks of gold entities, filtered, under three tie rules
metrics.py        MRR, HITS@k, bootstrap confidence intervals
scoring.py        which queries a model supports, and its scores of them, batch by batch
protocol.py       what a protocol is
protocols.py      protocols cq and q2b, and the list of all
bio.py            protocol bio: AUC and APR
loop.py           evaluate(): any protocol, and its report
missing_links.py  how many links an answer needs that are not stored
hidden_facts.py   how a run finds the facts that it held out of training
report.py         the report: JSON on disk
text_table.py     text tables in 80 columns, and the report as one
one_at_a_time.py  predicting one target after the other (paper, section "Analysis")
attention.py      what masks attend to (paper, section "Analysis")
timing.py         milliseconds a query
machine.py        the machine that figures were made on
pictures.py       what all pictures share: matplotlib, colours, files
"""

from biqe.evaluate.loop import evaluate, evaluate_together
from biqe.evaluate.protocols import PROTOCOLS, Bio, Cq, Query2Box, protocol_named
from biqe.evaluate.ranks import Ranks, rank_targets
from biqe.evaluate.report import Report

__all__ = [
    "PROTOCOLS",
    "Bio",
    "Cq",
    "Query2Box",
    "Ranks",
    "Report",
    "evaluate",
    "evaluate_together",
    "protocol_named",
    "rank_targets",
]
