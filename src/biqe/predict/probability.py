"""From scores to probabilities: the only place where that is done.

A model spreads a share of 1 over all rows of a query, and over all objects of a subject and a relation. Without a
calibration, probabilities are these shares. With one, they are the probabilities of being true (see calibration.py).

    of_links   how probable single links are
    of_rows    how probable the rows are that are listed for one query
    of_facts   how probable it is that several links are all true
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biqe.graph.index import objects as stored_objects
from biqe.graph.knowledge_graph import Graph

if TYPE_CHECKING:
    from biqe.predict.calibration import Calibration


def of_links(
    scores: NDArray[np.floating],
    key: tuple[int, int],
    objects: Sequence[int],
    graph: Graph | None,
    calibration: Calibration | None,
) -> list[float]:
    """How probable it is that the links from subject and relation ``key`` to each of ``objects`` exist.

    ``scores`` are the (E,) log-probabilities of all objects, when the model is asked for them and for nothing else. A
    calibration needs the graph: a link is compared with the best one that is not known.
    """
    shares = scores[list(objects)].astype(np.float64)
    if calibration is None or graph is None:
        return np.minimum(np.exp(shares), 1.0).tolist()
    known = stored_objects(graph.index, *key)
    others = scores.copy()
    others[known] = -np.inf
    # The best object that is not known comes first, as in the lists that the calibration was fitted on.
    listed = np.concatenate([[float(others.max(initial=-1e3))], shares])
    return of_rows(listed, calibration, targets=1, known=len(known))[1:].tolist()


def of_rows(
    scores: NDArray[np.floating], calibration: Calibration | None, *, targets: int, known: int
) -> NDArray[np.float64]:
    """Probabilities of the rows listed for one query, best first, from their log-shares. The order never changes.

    ``targets`` is the query's number of targets, ``known`` the number of its rows that the graph holds, which are not
    in the list.
    """
    shares = np.asarray(scores, np.float64)
    if calibration is None or len(shares) == 0:
        return np.minimum(np.exp(shares), 1.0)  # rounding in single precision may carry a share a little over 1
    return calibration.probabilities_of(shares, targets=targets, known=known)


def of_facts(chances: Iterable[float]) -> float:
    """How probable it is that all of several missing links are true: their product."""
    return math.prod(chances)
