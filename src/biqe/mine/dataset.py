"""A whole dataset of mined queries: recipes, and the splits of a graph turned into query sets.

Paper: section "Datasets". Each split's queries are mined from that split's triples alone. The DAGs of a split
are made of that split's paths, so the recipes ``cq`` and ``paths`` with one seed share their walks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields

import numpy as np

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.knowledge_graph import SPLITS, Graph, Splits
from biqe.mine.intersect import dag_queries, distinct_depths
from biqe.mine.leakage import Leakage, leakage, refuse_leakage
from biqe.mine.statistics import SplitStatistics, split_statistics
from biqe.mine.walks import DEPTHS, path_queries, walks
from biqe.query.bound import QuerySet, concatenate

RECIPES = ("cq", "paths")
DEPTHS_OF_UNKNOWNS = ("distinct", "any")


@dataclass(frozen=True)
class MineConfig:
    """What is mined from a graph, and how much of it."""

    recipe: str = "cq"
    """cq: paths and DAGs to train on, DAGs to evaluate. paths: paths for both. Triples train in either."""
    seed: int = 0
    """The same seed on the same graph gives the same queries."""
    paths: int = 50_000
    """Most training paths. The paper takes 50,000 from FB15K-237 and 10,000 from WN18RR."""
    dags: int = 50_000
    """Most training DAGs. The paper has 48,865 from FB15K-237 and, capped at 10,000, 9,465 from WN18RR."""
    eval_paths: int = 5_000
    """Most paths from each of valid and test; the DAGs there are made of them."""
    eval_dags: int = 3_000
    """Most DAGs from each of valid and test. The paper has 2,785 and 2,599 from FB15K-237."""
    shortest: int = DEPTHS[0]
    """Edges of the shortest walk."""
    longest: int = DEPTHS[1]
    """Edges of the longest walk."""
    three_share: float = 0.4
    """Share of three-walk sets among those drawn; the others have two walks."""
    train_passes: int = 30
    """Most passes over the training walks; each pass groups them anew into DAGs, until there are enough."""
    eval_passes: int = 1
    """Most passes over the walks of valid and test. Within a pass each branch is used once."""
    depths: str = "distinct"
    """distinct: of two unknowns of a DAG at one depth the later one is given, as the paper requires. any: both are
    asked for, which the paper's positions cannot tell apart."""
    equal_branches: bool = False
    """Keep branches that ask what another branch of their DAG asks, as the authors' release does."""
    at_ends: bool = False
    """Let walks meet at their last entity, too. The paper says intermediate entities."""
    train_filters: bool = True
    """Compute filters for training queries. Those of valid and test always are."""

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise InvalidOption(
                f"recipe must be one of {', '.join(RECIPES)}. Got {self.recipe!r}",
                hint="cq evaluates DAGs, paths evaluates paths",
            )
        if self.depths not in DEPTHS_OF_UNKNOWNS:
            raise InvalidOption(
                f"depths must be {' or '.join(DEPTHS_OF_UNKNOWNS)}. Got {self.depths!r}",
                hint="distinct keeps the paper's rule; any asks for all entities on the branches",
            )
        for name in ("seed", "paths", "dags", "eval_paths", "eval_dags"):
            if getattr(self, name) < 0:
                raise InvalidOption(
                    f"{name} must be 0 or more. Got {getattr(self, name)}",
                    hint=_range_hint(name, "a whole number from 0 up"),
                )
        for name in ("train_passes", "eval_passes"):
            if getattr(self, name) < 1:
                raise InvalidOption(
                    f"{name} must be 1 or more. Got {getattr(self, name)}",
                    hint=_range_hint(name, "a whole number from 1 up"),
                )
        if not 2 <= self.shortest <= self.longest <= 16:
            raise InvalidOption(
                f"walks must have 2 <= shortest <= longest <= 16 edges. Got {self.shortest} and {self.longest}",
                hint=f"the paper's walks have from {DEPTHS[0]} to {DEPTHS[1]} edges, which is the default",
            )
        if not 0 <= self.three_share <= 1:
            raise InvalidOption(
                f"three_share must be between 0 and 1. Got {self.three_share}",
                hint=_range_hint("three_share", "a share from 0 to 1"),
            )

    def to_dict(self) -> dict[str, object]:
        """Plain values, for the manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> MineConfig:
        """The configuration written by ``to_dict``; unknown keys are refused."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidOption(
                f"unknown mining options: {', '.join(unknown)}. Known are {', '.join(sorted(known))}",
                hint="the set was mined by another version of biqe; mine it again",
            )
        return cls(**values)  # type: ignore[arg-type]


def _range_hint(name: str, allowed: str) -> str:
    """Allowed values and default of a mining option, for an error message."""
    default = next(item.default for item in fields(MineConfig) if item.name == name)
    spelt = name if name in ("train_passes", "three_share") else f"--{name.replace('_', '-')}"  # those have no option
    return f"{spelt} takes {allowed}; the default is {default}"


@dataclass(frozen=True)
class MinedSet:
    """Query sets by split, and what is known about them."""

    config: MineConfig
    queries: Mapping[str, QuerySet]
    """train: paths, then DAGs (recipe ``cq``), or paths. valid and test, where the graph has them: DAGs or paths."""
    statistics: Mapping[str, SplitStatistics]
    leakage: Leakage
    graph_fingerprint: str
    """Fingerprint of the splits that the queries were mined from."""
    vocabulary_fingerprint: str
    entity_count: int
    relation_count: int

    def __getitem__(self, split: str) -> QuerySet:
        if split not in self.queries:
            raise InvalidOption(
                f"this set has no split {split!r}. It has {', '.join(self.queries)}",
                hint="a split that has no triples in the graph has no queries in the set",
            )
        return self.queries[split]


def mine(
    splits: Splits,
    config: MineConfig | None = None,
    *,
    threads: int = 2,
    on_step: Callable[[str], None] = lambda step: None,
) -> MinedSet:
    """Mine every split that has triples, compute filters and statistics, and check for leakage.

    ``on_step`` is told what is being done. Refused: a graph without training queries, and splits that overlap.
    """
    # numba comes with the exact engine; mining without filters does not need it.
    from biqe.mine.filters import with_filters

    config = config or MineConfig()
    if threads < 1:
        raise InvalidOption(f"threads must be 1 or more. Got {threads}", hint="--threads takes a number from 1 up")
    if config.paths == 0:
        raise EmptyResult(
            "there is nothing to mine: with 0 paths there is no walk, and DAGs are made of walks, too",
            hint=f"leave --paths out for {MineConfig.paths:,}, or give it a number above 0",
        )
    queries: dict[str, QuerySet] = {}
    for split in SPLITS:
        if len(splits[split].triples):
            on_step(f"walking {split}")
            queries[split] = mine_split(splits, split, config)
    if "train" not in queries or len(queries["train"]) == 0:
        raise EmptyResult(
            f"no query could be mined from the {len(splits.train):,} training triples",
            hint=f"a graph needs walks of at least {config.shortest} edges",
        )
    on_step("checking for leakage")
    found = leakage(splits, queries)
    refuse_leakage(found)
    for split in queries:
        if split != "train" or config.train_filters:
            on_step(f"filters of {split}")
            queries[split] = with_filters(
                splits, split, queries[split], reach=config.recipe == "paths", threads=threads
            )
    return MinedSet(
        config,
        queries,
        {
            split: split_statistics(some, splits.vocabulary, splits.train if split == "train" else None)
            for split, some in queries.items()
        },
        found,
        splits.fingerprint,
        splits.vocabulary.fingerprint,
        len(splits.vocabulary.entities),
        len(splits.vocabulary.relations),
    )


def mine_split(splits: Splits, split: str, config: MineConfig) -> QuerySet:
    """The queries of one split, without filters. Every split has its own random numbers."""
    graph = splits[split]
    rng = np.random.default_rng([config.seed, SPLITS.index(split)])
    is_train = split == "train"
    walked = walks(
        graph, count=config.paths if is_train else config.eval_paths, rng=rng, depths=(config.shortest, config.longest)
    )
    if config.recipe == "paths":
        return path_queries(walked)
    dags = dag_queries(
        graph,
        walked,
        count=config.dags if is_train else config.eval_dags,
        rng=rng,
        three_share=config.three_share,
        equal_branches=config.equal_branches,
        at_ends=config.at_ends,
        passes=config.train_passes if is_train else config.eval_passes,
    )
    if config.depths == "distinct":
        dags = distinct_depths(dags)
    return concatenate([path_queries(walked), dags]) if is_train else dags


def epoch_queries(
    graph: Graph, *, paths: int, dags: int, seed: int, epoch: int, inverse_share: float = 0.0, rank: int = 0
) -> QuerySet:
    """Fresh queries for an epoch of training, so that no fixed sample can be learnt by heart: ``paths`` path queries,
    then ``dags`` DAG queries, all without filters; fewer where the graph has fewer. All entities on the branches of a
    DAG are asked for, two of one depth among them.

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
