"""Milliseconds from a query's text to predicted rows, one query at a time, warm; beside a plain transformers pipeline.

    python benchmarks/ask_latency.py --run runs/fb                # a trained model and its graph
    python benchmarks/ask_latency.py [--graph kg/fb15k237]        # an untrained model of the default size
    python benchmarks/ask_latency.py --run runs/fb --quick

Ours is ``biqe.open(...).ask(text, mode="predicted")``: parse, bind, predict, leave out what is known, find the missing
links of each row and their probabilities. The alternative is what one writes with transformers: the same parser, tokens
padded to 30, BertForMaskedLM of width 256 and 4 layers, logits at every position, softmax, the best 20 entities at each
mask. It makes neither tuples nor missing links, and does not leave out what is known.

Queries are walks in the training graph, in five shapes, as many of each. Both take turns, query by query, so that a
busy machine slows both alike. ``ratio`` is the alternative's median over ours. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import biqe
from biqe.evaluate.machine import machine
from biqe.graph import folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.read import read_graph
from biqe.knowledge_base import KnowledgeBase
from biqe.models import store
from biqe.models.biqe import BiQE, Config
from biqe.query.bind import bind
from biqe.query.queryset import QuerySet
from biqe.query.sparql import parse
from biqe.query.token_table import FIRST_ENTITY, MASK, token_count, token_table

PADDED, TOP, WARM = 30, 20, 10


def queries_of(graph: Graph, each: int, seed: int) -> dict[str, list[str]]:
    """Texts by shape. Every query has an answer in the graph, so that known rows have to be left out, too."""
    rng = np.random.default_rng(seed)
    triples = graph.triples
    by_subject = [np.zeros(0, np.int64)] * graph.entity_count
    by_object = list(by_subject)
    for rows, column in ((by_subject, 0), (by_object, 2)):
        order = np.argsort(triples[:, column], kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(triples[order, column])) + 1):
            rows[triples[part[0], column]] = part

    def entity(number: int) -> str:
        return f"<{graph.vocabulary.entities[int(number)]}>"

    def relation(number: int) -> str:
        return f"<{graph.vocabulary.relations[int(number)]}>"

    found: dict[str, list[str]] = {"1p": [], "2p": [], "2i": [], "chain of 2": [], "star of 3": []}
    while any(len(texts) < each for texts in found.values()):
        subject, first, middle = triples[rng.integers(len(triples))].tolist()
        if len(by_subject[middle]) < 2:
            continue
        (_, second, end), (_, third, _) = triples[rng.choice(by_subject[middle], 2, replace=False)].tolist()
        other, fourth, _ = triples[rng.choice(by_object[end])].tolist()
        start, one, two = entity(subject), relation(first), relation(second)
        texts = {
            "1p": f"SELECT ?x WHERE {{ {start} {one} ?x }}",
            "2p": f"SELECT ?y WHERE {{ {start} {one} ?x . ?x {two} ?y }}",
            "2i": f"SELECT ?y WHERE {{ {entity(middle)} {two} ?y . {entity(other)} {relation(fourth)} ?y }}",
            "chain of 2": f"SELECT ?x ?y WHERE {{ {start} {one} ?x . ?x {two} ?y }}",
            "star of 3": f"SELECT ?x ?y ?z WHERE {{ {start} {one} ?x . ?x {two} ?y . ?x {relation(third)} ?z }}",
        }
        for shape, text in texts.items():
            if len(found[shape]) < each:
                found[shape].append(text)
    return found


def plain_pipeline(base: KnowledgeBase) -> Callable[[str], list[list[tuple[str, float]]]]:
    """Text -> for each mask, the names and probabilities of its best entities."""
    import transformers

    vocabulary = base.vocabulary
    entities, relations = len(vocabulary.entities), len(vocabulary.relations)
    size = token_count(entities, relations) + 1
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=size, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024,
            max_position_embeddings=PADDED,
        )
    ).eval()  # fmt: skip

    def ask(text: str) -> list[list[tuple[str, float]]]:
        query = bind(parse(text, prefixes=base.prefixes), vocabulary)
        table = token_table(QuerySet.of([query]), entities)
        tokens = torch.full((1, PADDED), size - 1)
        length = len(table.tokens)
        tokens[0, :length] = torch.from_numpy(table.tokens.astype(np.int64))
        with torch.inference_mode():
            logits = bert(input_ids=tokens, attention_mask=(tokens != size - 1).long()).logits  # (1, 30, tokens)
            probabilities = torch.softmax(logits, -1)[0, tokens[0] == MASK, FIRST_ENTITY : FIRST_ENTITY + entities]
            best = probabilities.topk(TOP)
        return [
            [(vocabulary.label(entity), value) for entity, value in zip(ids, values, strict=True)]
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    return ask


def opened(arguments: argparse.Namespace, place: Path) -> KnowledgeBase:
    """The run; or an untrained model of the default size, saved to ``place``, with FB15k-237."""
    if arguments.run:
        return biqe.open(arguments.run, graph=arguments.graph)
    splits = _fb15k237(arguments.graph)
    graph_folder = place / "graph"
    folder.save(splits, graph_folder)
    torch.manual_seed(0)
    model = BiQE(Config(), len(splits.vocabulary.entities), len(splits.vocabulary.relations))
    store.save(model, place / "model", vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)
    return biqe.open(place / "model", graph=graph_folder)


def _fb15k237(graph: Path | None) -> Splits:
    if graph is not None:
        return folder.load(graph)
    data = Path(os.environ.get("BIQE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "FB15k-237"
    return read_graph([data]).splits


def main() -> None:
    """Read the options, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder, or model folder with --graph")
    parser.add_argument("--graph", type=Path, help="graph folder; default: the run's, or FB15k-237 from BIQE_DATA")
    parser.add_argument("--each", type=int, default=40, help="queries of each shape")
    parser.add_argument("--quick", action="store_true", help="5 of each")
    parser.add_argument("--joint", help="how tuples are found; default: as biqe ask does")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    each = 5 if arguments.quick else arguments.each
    with tempfile.TemporaryDirectory() as place:
        base = opened(arguments, Path(place))
        plain = plain_pipeline(base)
        options = {"joint": arguments.joint} if arguments.joint else {}
        texts = queries_of(base.splits["train"], each + WARM, arguments.seed)
        ours: dict[str, list[float]] = {shape: [] for shape in texts}
        theirs: dict[str, list[float]] = {shape: [] for shape in texts}
        for shape, asked in texts.items():
            for number, text in enumerate(asked):
                start = time.perf_counter()
                rows = list(base.ask(text, mode="predicted", top=TOP, **options))
                middle = time.perf_counter()
                plain(text)
                end = time.perf_counter()
                assert rows, "a query without predicted rows says nothing about their cost"
                if number >= WARM:
                    ours[shape].append(1000 * (middle - start))
                    theirs[shape].append(1000 * (end - middle))
    for shape in texts:
        mine, other = statistics.median(ours[shape]), statistics.median(theirs[shape])
        print(f"{shape:12} ours {mine:7.2f} ms   transformers {other:7.2f} ms")
    every, others = ([value for part in times.values() for value in part] for times in (ours, theirs))
    mine, other = statistics.median(every), statistics.median(others)
    about = machine()
    print(f"{'median':12} ours {mine:7.2f} ms   transformers {other:7.2f} ms   {other / mine:.2f}x "
          f"({about['threads']} threads, allocator {about['allocator']})")  # fmt: skip
    print(json.dumps({
        "benchmark": "ask_latency",
        "run": str(arguments.run) if arguments.run else None,
        "queries": len(every),
        "median_ms": mine,
        "p95_ms": float(np.percentile(every, 95)),
        "transformers_median_ms": other,
        "ratio": other / mine,
        "by_shape": {shape: {"ours_ms": statistics.median(ours[shape]),
                             "transformers_ms": statistics.median(theirs[shape])} for shape in texts},
        "threads": about["threads"],
        "allocator": about["allocator"],
        "machine": about,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
