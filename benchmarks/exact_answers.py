"""Per-target answers of mined CQ DAGs a second: ours against pyoxigraph.

    python benchmarks/exact_answers.py                  # 1,000 DAGs of FB15k-237, about a minute
    python benchmarks/exact_answers.py --quick          # 100
    python benchmarks/exact_answers.py --graph kg/g     # another graph, imported before

pyoxigraph gets one query a target, in the form that it answers fastest: semi-joins written out as nested
``SELECT DISTINCT`` (``--form nested``). The plain form, ``SELECT DISTINCT ?target WHERE { all patterns }``, walks
through every match before it drops doubles; a DAG over hubs then takes it minutes (``--form plain``, with few
queries and patience). Reading terms out of its results is timed, turning them into ids is not.

Both answer the same queries, and the answers must agree before a figure is printed. ``ratio`` is at one thread each;
ours on more threads stands beside it. FB15k-237 comes from BIQE_DATA; without it a graph of its size is generated.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pyoxigraph

from biqe.exact.adjacency import adjacency
from biqe.exact.answers import answer_sets
from biqe.graph import folder
from biqe.graph.knowledge_graph import Graph
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import epoch_queries
from biqe.query.bound import AnswerSets, BoundQuery, QuerySet

ENTITY, RELATION = "http://example.org/e", "http://example.org/r"


def generated(seed: int) -> Graph:
    """A graph of FB15k-237's size, with hubs: entities and relations are drawn by Zipf's law."""
    rng = np.random.default_rng(seed)
    entities, relations, triples = 14_541, 237, 272_115
    weights = 1 / np.arange(1, entities + 1) ** 0.7
    ends = rng.choice(entities, (2, triples), p=weights / weights.sum())
    weights = 1 / np.arange(1, relations + 1)
    rows = np.stack([ends[0], rng.choice(relations, triples, p=weights / weights.sum()), ends[1]], axis=1)
    names = (f"e{i}" for i in range(entities)), (f"r{i}" for i in range(relations))
    return Graph(Vocabulary(*names), as_triples(rows))


def graph_of(arguments: argparse.Namespace) -> tuple[str, Graph]:
    """The training graph to ask, and what to call it."""
    if arguments.graph:
        return str(arguments.graph), folder.load(arguments.graph)["train"]
    data = Path(os.environ.get("BIQE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "FB15k-237"
    if data.is_dir():
        return "FB15k-237", read_graph([data]).splits["train"]
    return "generated", generated(arguments.seed)


def store_of(graph: Graph) -> pyoxigraph.Store:
    """The triples in pyoxigraph's store, in memory."""
    store = pyoxigraph.Store()
    entities = [pyoxigraph.NamedNode(f"{ENTITY}{i}") for i in range(graph.entity_count)]
    relations = [pyoxigraph.NamedNode(f"{RELATION}{i}") for i in range(graph.relation_count)]
    store.bulk_extend(pyoxigraph.Quad(entities[s], relations[r], entities[o]) for s, r, o in graph.triples.tolist())
    store.optimize()
    return store


def pattern(query: BoundQuery, edge: tuple[int, int, int], relation_count: int) -> str:
    """One edge in SPARQL."""
    subject, relation, object_ = edge
    if relation >= relation_count:
        subject, relation, object_ = object_, relation - relation_count, subject
    terms = [f"?v{n}" if query.nodes[n] < 0 else f"<{ENTITY}{query.nodes[n]}>" for n in (subject, object_)]
    return f"{terms[0]} <{RELATION}{relation}> {terms[1]} ."


def plain(query: BoundQuery, target: int, relation_count: int) -> str:
    """All patterns side by side."""
    body = " ".join(pattern(query, edge, relation_count) for edge in query.edges)
    return f"SELECT DISTINCT ?v{target} WHERE {{ {body} }}"


def nested(query: BoundQuery, target: int, relation_count: int) -> str:
    """Each branch, seen from the target, as a subquery that hands up one variable. The query must be a tree."""

    def conditions(node: int, via: tuple[int, int, int] | None) -> str:
        parts = []
        for edge in query.edges:
            if edge is via or node not in (edge[0], edge[2]):
                continue
            other = edge[2] if edge[0] == node else edge[0]
            here = pattern(query, edge, relation_count)
            if query.nodes[other] < 0:
                here = f"{{ SELECT DISTINCT ?v{node} WHERE {{ {here} {conditions(other, edge)} }} }}"
            parts.append(here)
        return " ".join(parts)

    return f"SELECT DISTINCT ?v{target} WHERE {{ {conditions(target, None)} }}"


def ask(store: pyoxigraph.Store, texts: list[str]) -> list[list[pyoxigraph.NamedNode]]:
    """The terms of each query's only column."""
    return [[solution[0] for solution in store.query(text)] for text in texts]


def check(ours: AnswerSets, theirs: list[list[pyoxigraph.NamedNode]]) -> None:
    """Stop the benchmark if one answer differs."""
    for target, terms in enumerate(theirs):
        values = sorted(int(term.value.removeprefix(ENTITY)) for term in terms)
        if ours[target].tolist() != values:
            sys.exit(
                f"answers of target {target} differ: {len(ours[target]):,} of ours, {len(values):,} of pyoxigraph's"
            )


def seconds_of_ours(graph: Graph, queries: QuerySet, threads: int) -> float:
    """Median of five runs: one takes only some tens of milliseconds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        answer_sets(graph, queries, threads=threads)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, help="folder made by `biqe import`; default FB15k-237 of BIQE_DATA")
    parser.add_argument("--queries", type=int, default=1000, help="DAGs to mine and answer (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved repetitions, of which the median counts")
    parser.add_argument("--threads", type=int, default=2, help="threads of ours in the figure beside the ratio")
    parser.add_argument("--form", choices=("nested", "plain"), default="nested", help="how pyoxigraph is asked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="100 queries")
    parser.add_argument("--out", type=Path, help="also write the result there")
    arguments = parser.parse_args()
    name, graph = graph_of(arguments)
    queries = epoch_queries(
        graph, paths=0, dags=100 if arguments.quick else arguments.queries, seed=arguments.seed, epoch=0
    )

    start = time.perf_counter()
    adjacency(graph)
    ours_loading = time.perf_counter() - start
    start = time.perf_counter()
    store = store_of(graph)
    theirs_loading = time.perf_counter() - start

    form = nested if arguments.form == "nested" else plain
    texts = [form(query, target, graph.relation_count) for query in queries for target in query.targets]
    # The first run compiles; it is not timed.
    ours = answer_sets(graph, queries, threads=1)
    one, several, theirs = [], [], []
    for number in range(arguments.rounds):
        one.append(seconds_of_ours(graph, queries, 1))
        start = time.perf_counter()
        terms = ask(store, texts)
        theirs.append(time.perf_counter() - start)
        several.append(seconds_of_ours(graph, queries, arguments.threads))
        if number == 0:
            check(ours, terms)

    rates = {
        kind: len(queries) / statistics.median(times)
        for kind, times in (("ours", one), ("ours_threads", several), ("pyoxigraph", theirs))
    }
    result = {
        "benchmark": "exact_answers",
        "graph": name,
        "triples": len(graph.triples),
        "queries": len(queries),
        "targets": len(ours),
        "answers": len(ours.values),
        "form": arguments.form,
        "rounds": arguments.rounds,
        "ours_queries_per_second": round(rates["ours"], 1),
        f"ours_queries_per_second_{arguments.threads}_threads": round(rates["ours_threads"], 1),
        "pyoxigraph_queries_per_second": round(rates["pyoxigraph"], 2),
        "ours_loading_seconds": round(ours_loading, 2),
        "pyoxigraph_loading_seconds": round(theirs_loading, 2),
        "threads": 1,
        "allocator": os.environ.get("LD_PRELOAD") or "system",
        "pyoxigraph": pyoxigraph.__version__,
        "ratio": round(rates["ours"] / rates["pyoxigraph"], 1),
    }
    print(f"{name}: {len(queries):,} DAGs, {len(ours):,} targets, {len(ours.values):,} answers, all equal")
    more = f"{rates['ours_threads']:,.0f} on {arguments.threads}"
    print(f"ours         {rates['ours']:12,.0f} queries/s on 1 thread, {more}")
    print(f"pyoxigraph   {rates['pyoxigraph']:12,.1f} queries/s ({arguments.form} form)")
    print(f"ratio        {result['ratio']:12,.1f}")
    from biqe.evaluate.machine import write_result  # late: it brings torch, which is no part of what was measured

    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
