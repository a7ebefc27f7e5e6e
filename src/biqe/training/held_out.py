"""Facts that a run holds out of training to validate on, where its graph has too few validation triples.

    held_out(splits, seed)  ->  splits with some training triples moved to valid
    save, load              the triples that were moved, in RUN/held_out.npy, so that a resumed run sees the same split

The graph folder is not changed: a model that is asked later treats held-out triples as known, like all others.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from biqe.errors import UnreadableFile
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.split import split
from biqe.graph.triples import Triples, as_triples, contains, difference, union
from biqe.graph.whole_folder import read_array

FILE = "held_out.npy"
"""Name of the file in the run folder: int32 (n, 3), subject, relation, object."""
ENOUGH_VALID = 20
"""A graph with this many validation triples keeps its own split."""
FEWEST_TRIPLES = 40
"""A graph with fewer training triples needs all of them; nothing is held out."""
SHARE = 0.05
AT_LEAST, FROM_TRIPLES, AT_MOST = 50, 500, 5_000
"""Held-out triples: at least 50 of graphs with 500 training triples or more, at most 5,000."""


def held_out(splits: Splits, seed: int) -> Splits:
    """``splits`` with about 5 % of the training triples moved to valid, where valid has fewer than 20.

    Every entity and every relation keeps a training triple, so a sparse graph gives fewer triples, or none. The result
    depends on the graph and the seed alone.
    """
    if len(splits.valid) >= ENOUGH_VALID or len(splits.train) < FEWEST_TRIPLES:
        return splits
    count = round(SHARE * len(splits.train))
    if len(splits.train) >= FROM_TRIPLES:
        count = max(AT_LEAST, min(AT_MOST, count))
    share = count / len(splits.train)
    drawn = split(Graph(splits.vocabulary, splits.train), valid=share, test=0.0, seed=seed).valid
    return _moved(splits, drawn)


def moved(before: Splits, after: Splits) -> Triples:
    """The triples that ``held_out`` has moved from train to valid."""
    return difference(before.train, after.train)


def save(folder: Path, triples: Triples) -> None:
    """Write held-out triples to the run ``folder``, whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(triples, np.int32), allow_pickle=False)
    partial = folder / f".{FILE}.partial"
    with open(partial, "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, folder / FILE)


def load(folder: Path, splits: Splits, count: int) -> Splits:
    """``splits`` with the ``count`` triples that the run in ``folder`` holds out moved to valid.

    UnreadableFile if the file is missing or damaged, or if it does not belong to the graph.
    """
    path = folder / FILE
    try:
        triples = np.array(read_array(path, damaged="copy the run again from where it came from"))
    except UnreadableFile as error:
        raise UnreadableFile(f"the facts that the run holds out: {error.message}", hint=error.hint) from error
    if triples.dtype != np.int32 or triples.ndim != 2 or triples.shape != (count, 3):
        raise UnreadableFile(
            f"{path} must hold {count:,} triples, int32 ({count}, 3). Got {triples.dtype} {triples.shape}"
        )
    ordered = as_triples(triples)
    if len(ordered) != count or not contains(splits.train, ordered).all():
        raise UnreadableFile(f"{path} holds triples that are not training triples of the graph, or holds some twice")
    return _moved(splits, ordered)


def _moved(splits: Splits, triples: Triples) -> Splits:
    if len(triples) == 0:
        return splits
    return Splits(
        splits.vocabulary, difference(splits.train, triples), union(splits.valid, triples), splits.test, splits.literals
    )
