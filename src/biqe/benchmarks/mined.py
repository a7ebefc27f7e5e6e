"""CQ and Paths sets mined from the public graphs by fixed recipes, with the paper's numbers of queries.

The authors' own sets are read by ``read_release``; these are made the same way from the same graphs, and are the same
for everybody: a digest of the queries is checked each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from biqe.benchmarks._cache import cache_folder, digest_of, key_of
from biqe.errors import BiqeError, UnreadableFile
from biqe.graph.knowledge_graph import Splits
from biqe.mine import folder as set_folder
from biqe.mine.dataset import MineConfig, MinedSet, mine

RECIPES = {
    "fb15k237-cq": MineConfig(recipe="cq", paths=50_000, dags=50_000),
    "fb15k237-paths": MineConfig(recipe="paths", paths=50_000, dags=50_000),
    "wn18rr-cq": MineConfig(recipe="cq", paths=10_000, dags=10_000),
    "wn18rr-paths": MineConfig(recipe="paths", paths=10_000, dags=10_000),
}
DIGESTS = {
    "fb15k237-cq": "e893eca15ffda4c2",
    "fb15k237-paths": "248b0e41b9e56ba8",
    "wn18rr-cq": "5ceb89ed55c3a50f",
    "wn18rr-paths": "b117bc14b9aca845",
}
"""Digest of the queries of each set with seed 0."""

_COLUMNS = ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds")


def mined_set(
    name: str, splits: Splits, *, seed: int = 0, on_step: Callable[[str], None] = lambda step: None
) -> MinedSet:
    """The set ``name`` of ``splits``; mined once into the cache. With seed 0 it must be the known one."""
    config = replace(RECIPES[name], seed=seed)
    key = key_of("mined", set_folder.VERSION, sorted(config.to_dict().items()), splits.fingerprint)
    place = cache_folder() / "mined" / f"{name}-{key}"
    try:
        found = set_folder.load(place, splits)
    except UnreadableFile:
        set_folder.save(mine(splits, config, on_step=on_step), place, force=True)
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
