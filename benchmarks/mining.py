"""How fast a dataset is mined: paths and DAGs with both filters, against plain Python over dicts and sets.

Ours: ``biqe.mine``. The alternative does the same work the straightforward way: walks by ``random.choice`` over
adjacency lists, DAGs by a dict from entity to the walks that pass it, filters by set operations along the query,
forward and back (semi-joins, too: a search over matches would not end on hubs). It runs on a sample; the unit is
queries a second, each with filters on the split and on the complete graph. Before anything is timed, both
compute the filters of the same queries, and these must agree.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.read import read_graph
from biqe.mine.dataset import MineConfig, mine_split
from biqe.mine.filters import with_filters
from biqe.query.bound import KINDS, BoundQuery

Walk = tuple[list[int], list[int]]
"""Entities and relations."""


class PlainGraph:
    """Adjacency in dicts: edges out of an entity, and both directions of (entity, relation)."""

    def __init__(self, graph: Graph) -> None:
        self.out: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.objects: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.subjects: dict[tuple[int, int], set[int]] = defaultdict(set)
        for subject, relation, object_ in graph.triples.tolist():
            self.out[subject].append((relation, object_))
            self.objects[subject, relation].add(object_)
            self.subjects[object_, relation].add(subject)

    def follow(self, entities: set[int], relation: int) -> set[int]:
        return set().union(*(self.objects[e, relation] for e in entities if (e, relation) in self.objects))

    def follow_back(self, entities: set[int], relation: int) -> set[int]:
        return set().union(*(self.subjects[e, relation] for e in entities if (e, relation) in self.subjects))


def plain_walks(graph: PlainGraph, count: int, rng: random.Random) -> list[Walk]:
    """Walks from random nodes, depth 2 to 5; those that come to an end before are dropped."""
    starts = list(graph.out)
    found: list[Walk] = []
    while len(found) < count:
        depth = rng.randint(2, 5)
        entities, relations = [rng.choice(starts)], []
        while len(relations) < depth and entities[-1] in graph.out:
            relation, entity = rng.choice(graph.out[entities[-1]])
            relations.append(relation)
            entities.append(entity)
        if len(relations) == depth:
            found.append((entities, relations))
    return found


def plain_path(walk: Walk) -> BoundQuery:
    """A walk as a query."""
    entities, relations = walk
    targets = range(1, len(entities))
    edges = tuple((i, relation, i + 1) for i, relation in enumerate(relations))
    return BoundQuery((entities[0], *[-1] * len(targets)), edges, tuple(targets))


def plain_dags(graph: PlainGraph, walks: list[Walk], count: int, rng: random.Random) -> list[BoundQuery]:
    """Walks that pass one entity, two or three at a time, cut there, and one edge on."""
    visits: dict[int, list[tuple[Walk, int]]] = defaultdict(list)
    for walk in walks:
        for place in range(1, len(walk[1])):
            visits[walk[0][place]].append((walk, place))
    sets = []
    for entity, here in visits.items():
        rng.shuffle(here)
        while len(here) >= 2:
            size = 3 if rng.random() < 0.4 else 2
            sets.append((entity, here[:size]))
            here = here[size:]
    rng.shuffle(sets)
    queries = []
    for entity, branches in sets[:count]:
        centre = sum(place for _, place in branches)
        nodes: list[int] = []
        edges = []
        for (entities, relations), place in branches:
            for step in range(place):
                edges.append((len(nodes), relations[step], centre if step == place - 1 else len(nodes) + 1))
                nodes.append(entities[0] if step == 0 else -1)
        edges.append((centre, rng.choice(graph.out[entity])[0], centre + 1))
        nodes += [-1, -1]
        queries.append(BoundQuery(tuple(nodes), tuple(edges), tuple(i for i, n in enumerate(nodes) if n < 0)))
    return queries


def plain_filters(graph: PlainGraph, query: BoundQuery) -> list[set[int]]:
    """True values of each target: forward along the edges, which are in order, then back."""
    values: list[set[int] | None] = [{node} if node >= 0 else None for node in query.nodes]
    for subject, relation, object_ in query.edges:
        reached = graph.follow(values[subject] or set(), relation)
        held = values[object_]
        values[object_] = reached if held is None else held & reached
    for subject, relation, object_ in reversed(query.edges):
        values[subject] = (values[subject] or set()) & graph.follow_back(values[object_] or set(), relation)
    return [values[target] or set() for target in query.targets]


def check_agreement(splits: Splits, plain: dict[str, PlainGraph], queries: int) -> None:
    """Both ways must find the same filters for the same queries."""
    config = MineConfig(paths=queries, dags=queries)
    mined = with_filters(splits, "train", mine_split(splits, "train", config))
    for name, graph in (("split", plain["train"]), ("complete", plain["complete"])):
        sets = iter(mined.filters[name])
        for query in mined:
            for theirs in plain_filters(graph, query):
                if sorted(theirs) != next(sets).tolist():
                    sys.exit(f"the filters of {query} on the {name} graph disagree")


def ours(splits: Splits, paths: int, dags: int, seed: int, threads: int) -> tuple[int, float]:
    """Queries mined with filters, and seconds."""
    start = time.perf_counter()
    mined = with_filters(
        splits, "train", mine_split(splits, "train", MineConfig(paths=paths, dags=dags, seed=seed)), threads=threads
    )
    return len(mined), time.perf_counter() - start


def alternative(plain: dict[str, PlainGraph], paths: int, dags: int, seed: int) -> tuple[int, float]:
    """The same, the plain way."""
    rng = random.Random(seed)
    start = time.perf_counter()
    walks = plain_walks(plain["train"], max(paths, dags), rng)
    queries = [plain_path(walk) for walk in walks[:paths]] + plain_dags(plain["train"], walks, dags, rng)
    for query in queries:
        plain_filters(plain["train"], query)
        plain_filters(plain["complete"], query)
    return len(queries), time.perf_counter() - start


def read_splits(place: str | None) -> tuple[str, Splits]:
    """A graph folder, a folder of files, FB15k-237 where the benchmark data are, or a made-up graph of its size."""
    if place is not None:
        is_graph = graph_folder.is_graph_folder(place)
        return Path(place).name, graph_folder.load(place) if is_graph else read_graph([place]).splits
    data = Path(os.environ.get("BIQE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "FB15k-237"
    if data.is_dir():
        return "FB15k-237", read_graph([data]).splits
    print("FB15k-237 is absent (set BIQE_DATA): a made-up graph of its size instead", file=sys.stderr)
    return "made up", made_up(14_541, 237, 310_116)


def made_up(entities: int, relations: int, triples: int) -> Splits:
    """Entities and relations with a long tail of degrees, as real graphs have."""
    from biqe.graph.triples import as_triples
    from biqe.graph.vocabulary import Vocabulary

    rng = np.random.default_rng(0)
    ids = [(count * rng.random(triples) ** 3).astype(np.int32) for count in (entities, relations, entities)]
    rows = rng.permutation(as_triples(np.stack(ids, axis=1)))
    cut = len(rows) // 16
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    parts = rows[2 * cut :], rows[:cut], rows[cut : 2 * cut]
    return Splits(Vocabulary(*names), *(as_triples(part) for part in parts))


def main() -> None:
    """Run the benchmark; the last line printed is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="graph folder or folder of files (default: FB15k-237 in BIQE_DATA)")
    parser.add_argument("--paths", type=int, default=50_000, help="paths that ours mines (default %(default)s)")
    parser.add_argument("--dags", type=int, default=50_000, help="DAGs that ours mines (default %(default)s)")
    parser.add_argument("--sample", type=int, default=1_500, help="paths, and DAGs, of the alternative")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each, in turn")
    parser.add_argument("--threads", type=int, default=2, help="threads of ours")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, once")
    parser.add_argument("--out", type=Path, help="also write the result there, such as results/speed/mining.json")
    options = parser.parse_args()
    if options.quick:
        options.paths, options.dags, options.sample, options.repeat = 5_000, 5_000, 300, 1

    name, splits = read_splits(options.graph)
    allocator = os.environ.get("LD_PRELOAD") or "the C library's"
    print(f"{name}: {len(splits.train):,} training triples; {options.threads} threads; allocator {allocator}")
    plain = {split: PlainGraph(splits[split]) for split in ("train", "complete")}
    check_agreement(splits, plain, 100)  # compiles the kernels, too
    print("filters of 200 queries agree")

    fast, slow, seconds = [], [], []
    for turn in range(options.repeat):
        count, taken = ours(splits, options.paths, options.dags, turn, options.threads)
        fast.append(count / taken)
        seconds.append(taken)
        plain_count, plain_taken = alternative(plain, options.sample, options.sample, turn)
        slow.append(plain_count / plain_taken)
        print(
            f"run {turn + 1}: ours {count:,} queries in {taken:.2f} s ({fast[-1]:,.0f}/s), "
            f"plain Python {plain_count:,} in {plain_taken:.2f} s ({slow[-1]:,.0f}/s)"
        )
    kinds = ", ".join(KINDS[1:])
    result = {
        "benchmark": "mining",
        "graph": name,
        "unit": f"queries/s ({kinds}), with split and complete filters",
        "ours": round(statistics.median(fast), 1),
        "alternative": round(statistics.median(slow), 1),
        "ratio": round(statistics.median(fast) / statistics.median(slow), 2),
        "ours_seconds": round(statistics.median(seconds), 3),
        "ours_queries": count,
        "threads": options.threads,
        "allocator": allocator,
        "repeat": options.repeat,
    }
    from biqe.evaluate.machine import write_result  # late: it brings torch, which is no part of what was measured

    write_result(result, options.out)


if __name__ == "__main__":
    main()
