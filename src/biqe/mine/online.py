"""Fresh paths and DAGs for every epoch of training, so that no fixed sample can be learnt by heart.

The procedure is the paper's, the same as for mined sets; only the walks are new each time.
"""

from __future__ import annotations

import numpy as np

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.mine.intersect import dag_queries
from biqe.mine.paths import path_queries
from biqe.mine.walks import walks
from biqe.query.queryset import QuerySet, concatenate


def epoch_queries(
    graph: Graph, *, paths: int, dags: int, seed: int, epoch: int, inverse_share: float = 0.0, rank: int = 0
) -> QuerySet:
    """``paths`` path queries, then ``dags`` DAG queries, all without filters; fewer where the graph has fewer.

    The same seed and epoch give the same queries, whatever was mined before. ``inverse_share`` is the share of
    queries mined on the graph walked both ways; their edges carry inverse relations where they go against
    the direction of a triple. Where several processes mine for one epoch, each has a ``rank`` and walks of its own.
    """
    if min(paths, dags) < 0:
        raise InvalidOption(f"paths and dags must be 0 or more. Got {paths} and {dags}")
    if min(seed, epoch) < 0:
        raise InvalidOption(f"seed and epoch must be 0 or more. Got {seed} and {epoch}")
    # Seeds are padded with zeros, so the ranks stand behind a mark that no other use of the seed has.
    rng = np.random.default_rng([seed, epoch, *([0xA7, rank] if rank else [])])
    walked = walks(graph, count=max(paths, dags), rng=rng, inverse_share=inverse_share)
    return concatenate([path_queries(walked.take(slice(0, paths))), dag_queries(graph, walked, count=dags, rng=rng)])
