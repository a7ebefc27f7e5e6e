"""FB15k-237, WN18RR and NELL-995, imported from their text files, and the CQ and Paths sets mined from them.

Both are the same for everybody: the fingerprint of each graph and the digest of each mined set are checked every
time. The sets are made by the paper's procedure with its numbers of queries; the authors' own are read by
``read_release``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from biqe.benchmarks.storage import cache_folder, digest_of, key_of
from biqe.errors import BiqeError, UnreadableFile, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.importer import import_files
from biqe.graph.knowledge_graph import Splits
from biqe.mine import folder as set_folder
from biqe.mine.dataset import MineConfig, MinedSet, mine

FINGERPRINTS = {"FB15k-237": "280ef5cc286f9a8f", "WN18RR": "96d6a587748ac720", "NELL-995": "098f93b8bc95ea30"}
"""Fingerprint of each public graph, imported from its files as they were published."""
GRAPH_FILES = ("train.txt", "valid.txt", "test.txt")

RECIPES = {
    "fb15k237-cq": MineConfig(recipe="cq", paths=50_000, dags=50_000),
    "fb15k237-paths": MineConfig(recipe="paths", paths=50_000, dags=50_000),
    "wn18rr-cq": MineConfig(recipe="cq", paths=10_000, dags=10_000),
    "wn18rr-paths": MineConfig(recipe="paths", paths=10_000, dags=10_000),
}
DIGESTS = {
    "fb15k237-cq": "3247f86c2e191e7f",
    "fb15k237-paths": "248b0e41b9e56ba8",
    "wn18rr-cq": "3dcb9a2aaeb4aad8",
    "wn18rr-paths": "b117bc14b9aca845",
}
"""Digest of the queries of each set with seed 0."""

_COLUMNS = ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds")


def public_graph(name: str, data: Path) -> Splits:
    """The graph ``name`` from its text files in the data folder, imported once into the cache."""
    folder = data / name
    files = [folder / file for file in GRAPH_FILES]
    labels = folder / "labels.tsv"
    key = key_of("graph", graph_folder.VERSION, files=[*files, labels] if labels.is_file() else files)
    place = cache_folder() / "graphs" / f"{name}-{key}"
    if graph_folder.is_graph_folder(place):
        try:
            return check_graph(name, graph_folder.load(place))
        except UnreadableFile:
            pass  # damaged or of another version: made again below
    import_files([folder], place, force=True)
    return check_graph(name, graph_folder.load(place))


def check_graph(name: str, splits: Splits) -> Splits:
    """``splits``; VocabularyMismatch unless they are the public graph ``name`` to the bit."""
    pinned = FINGERPRINTS[name]
    if splits.fingerprint != pinned:
        raise VocabularyMismatch(
            f"this graph has fingerprint {splits.fingerprint}; {name} as published has {pinned}",
            hint="its files were changed, or it was imported from other files; import the published ones again",
        )
    return splits


def mined_set(name: str, splits: Splits, *, seed: int = 0) -> MinedSet:
    """The set ``name`` of ``splits``, mined once into the cache. With seed 0 it must be the known one."""
    config = replace(RECIPES[name], seed=seed)
    key = key_of("mined", set_folder.VERSION, sorted(config.to_dict().items()), splits.fingerprint)
    place = cache_folder() / "mined" / f"{name}-{key}"
    try:
        found = set_folder.load(place, splits)
    except UnreadableFile:
        set_folder.save(mine(splits, config), place, force=True)
        found = set_folder.load(place, splits)
    if seed == 0 and (digest := queries_digest(found)) != DIGESTS[name]:
        raise BiqeError(
            f"{name} mined here has digest {digest}; the known set has {DIGESTS[name]}",
            hint=f"delete {place} and try again; if it stays so, this version mines other queries than the known ones",
        )
    return found


def queries_digest(mined: MinedSet) -> str:
    """Sixteen hex digits over the queries of all splits, without their filters."""
    return digest_of(
        {f"{split}.{name}": getattr(queries, name) for split, queries in mined.queries.items() for name in _COLUMNS}
    )
