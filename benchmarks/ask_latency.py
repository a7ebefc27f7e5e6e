"""Milliseconds from a query's text to predicted rows, one query at a time, warm; beside a plain transformers pipeline.

    python benchmarks/ask_latency.py --run runs/fb                # a trained model and its graph
    python benchmarks/ask_latency.py [--graph kg/fb15k237]        # an untrained model of the default size
    python benchmarks/ask_latency.py --run runs/fb --quick

Ours is ``biqe.open(...).ask(text, mode="predicted")``: parse, bind, predict, leave out what is known, find the missing
links of each row and their probabilities. The alternative is what one writes with transformers: the same parser, tokens
padded to 30, BertForMaskedLM of width 256 and 4 layers, logits at every position, softmax, the best 20 entities at each
mask. It makes neither tuples nor missing links, and does not leave out what is known.

Queries are walks in the training graph, in five shapes, as many of each. Both take turns, query by query, so that a
busy machine slows both alike; processor time is measured beside wall time, for on a busy machine only that says what
was done. ``ratio`` is the alternative's median over ours. Stages are parse (text to names), bind (names to ids), known
(rows that the graph holds), model (what the network does, encoding included) and rest, which has the search for the
links that each row misses; medians, in processor time. In the end all questions are asked once more, and what the model
multiplies is multiplied again by itself: how far an answer is from the machine's rate of matrix products. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import biqe
from biqe import knowledge_base
from biqe.answer import execute
from biqe.evaluate.machine import machine, write_result
from biqe.graph import folder
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.read import read_graph
from biqe.knowledge_base import KnowledgeBase
from biqe.models import store
from biqe.models.biqe import BiQE, Config
from biqe.predict.predictor import Predictor
from biqe.query.bind import bind
from biqe.query.bound import QuerySet
from biqe.query.sparql import parse
from biqe.query.tokens import FIRST_ENTITY, MASK, token_count, token_table

PADDED, TOP, WARM = 30, 20, 10
TARGET_MS = 15.0
"""Median that is wanted on two cores of a quiet machine."""


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
            vocab_size=size,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=8,
            intermediate_size=1024,
            max_position_embeddings=PADDED,
        )
    ).eval()

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


class Stages:
    """Processor time by stage, measured around the functions that a question passes through; no stage is in another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        for home, name, stage in (
            (knowledge_base, "parse_question", "parse"),
            (knowledge_base, "bind_question", "bind"),
            (execute, "_known", "known"),
            (Predictor, "log_probabilities", "model"),
        ):
            setattr(home, name, self._timed(getattr(home, name), stage))

    def _timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - start

        return timed

    def taken(self, total: float) -> dict[str, float]:
        """Seconds by stage since the last call, with what is in no stage of ``total`` as ``rest``."""
        found = self.seconds | {"rest": total - sum(self.seconds.values())}
        self.seconds = {}
        return found


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
    parser.add_argument("--out", type=Path, help="also write the result there, such as results/speed/ask_latency.json")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    each = 5 if arguments.quick else arguments.each
    with tempfile.TemporaryDirectory() as place:
        base = opened(arguments, Path(place))
        plain = plain_pipeline(base)
        options = {"joint": arguments.joint} if arguments.joint else {}
        texts = queries_of(base.splits["train"], each + WARM, arguments.seed)
        stages = Stages()
        measured = {shape: [] for shape in texts}
        by_stage: dict[str, list[dict[str, float]]] = {shape: [] for shape in texts}
        for shape, asked in texts.items():
            for number, text in enumerate(asked):
                start = clock()
                rows = list(base.ask(text, mode="predicted", top=TOP, **options))
                middle = clock()
                spent = stages.taken(float((middle - start)[1]))
                if not rows:
                    continue  # all that was ranked is known; it says nothing about the cost of predicted rows
                again = clock()
                plain(f"{text} ")  # another text, which has not been read before
                end = clock()
                if number >= WARM:
                    measured[shape].append((*middle - start, *end - again))
                    by_stage[shape].append(spent)
        products = against_products(base, [text for asked in texts.values() for text in asked], options)
    report(arguments, measured, by_stage, products, base.predictor.model.config)


def against_products(base: KnowledgeBase, texts: list[str], options: dict[str, Any]) -> dict[str, float]:
    """Seconds of all model calls of these questions, and of bare products of the shapes that they multiply."""
    shapes: Counter[tuple[int, int, int]] = Counter()
    linear, called = torch.nn.functional.linear, Predictor.log_probabilities
    seconds = 0.0

    def noted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        shapes[x.numel() // x.shape[-1], x.shape[-1], weight.shape[0]] += 1
        return linear(x, weight, bias)

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal seconds
        start = time.perf_counter()
        try:
            return called(*arguments, **options)
        finally:
            seconds += time.perf_counter() - start

    torch.nn.functional.linear, Predictor.log_probabilities = noted, timed
    try:
        start = time.perf_counter()
        for text in texts:
            base.ask(text, mode="predicted", top=TOP, **options)
        whole = time.perf_counter() - start
    finally:
        torch.nn.functional.linear, Predictor.log_probabilities = linear, called
    operations = sum(2.0 * m * k * n * count for (m, k, n), count in shapes.items())
    bare = sum(count * product_seconds(*shape) for shape, count in shapes.items())
    if not seconds:  # calibrated links are searched without a call of the model
        return {}
    return {
        "answer_gflops": round(operations / whole / 1e9, 1),
        "model_gflops": round(operations / seconds / 1e9, 1),
        "bare_gflops": round(operations / bare / 1e9, 1),
        "answer_share": round(bare / whole, 3),
        "model_share": round(bare / seconds, 3),
    }


def product_seconds(rows: int, inner: int, columns: int) -> float:
    """The shortest time of a bare product of these shapes."""
    a, b, out = torch.randn(rows, inner), torch.randn(columns, inner), torch.empty(rows, columns)
    found = []
    for _ in range(6):
        start = time.perf_counter()
        torch.mm(a, b.t(), out=out)
        found.append(time.perf_counter() - start)
    return min(found)


def clock() -> NDArray[np.float64]:
    """(2,) seconds of wall time and of processor time."""
    return np.array([time.perf_counter(), time.process_time()])


def report(
    arguments: argparse.Namespace,
    measured: dict[str, list[Any]],
    spent: dict[str, list[dict[str, float]]],
    products: dict[str, float],
    config: Any,
) -> None:
    """Print the medians by shape and over all queries, and the JSON line."""
    about = machine()
    by_stage = {
        shape: {stage: round(1000 * statistics.median(row.get(stage, 0.0) for row in rows), 2) for stage in rows[0]}
        for shape, rows in spent.items()
    }
    medians = {shape: 1000 * np.median(np.array(rows), axis=0) for shape, rows in measured.items()}
    for shape, (mine, mine_cpu, other, other_cpu) in medians.items():
        stages = "  ".join(f"{stage} {value:.1f}" for stage, value in by_stage[shape].items())
        print(
            f"{shape:11} ours {mine:6.1f} ms ({mine_cpu:.1f} of processor time)   transformers {other:6.1f} ms "
            f"({other_cpu:.1f})\n{'':11} {stages}"
        )
    every = 1000 * np.array([row for rows in measured.values() for row in rows])
    mine, mine_cpu, other, other_cpu = np.median(every, axis=0).tolist()
    print(
        f"{'median':11} ours {mine:6.1f} ms ({mine_cpu:.1f} of processor time)   transformers {other:6.1f} ms "
        f"({other_cpu:.1f})   {other / mine:.2f}x, {other_cpu / mine_cpu:.2f}x of processor time\n"
        f"{about['threads']} threads, allocator {about['allocator']}, load {os.getloadavg()[0]:.1f}"
    )
    if products:
        print(
            f"{products['model_gflops']:.0f} GFLOP/s while the model works, {products['bare_gflops']:.0f} in bare "
            f"products of its shapes: {products['model_share']:.0%} of its time, "
            f"{products['answer_share']:.0%} of an answer's"
        )
    columns = ("ours", "ours_cpu", "alternative", "alternative_cpu", "stages_cpu")
    result = {
        "benchmark": "ask_latency",
        "run": str(arguments.run) if arguments.run else None,
        "model_config": dataclasses.asdict(config),
        "queries": len(every),
        "ours": f"{mine:.1f} ms from text to predicted rows, median",
        "alternative": f"{other:.1f} ms (transformers BertForMaskedLM, marginals only)",
        "ratio": round(other / mine, 2),
        "ours_ms": round(mine, 2),
        "alternative_ms": round(other, 2),
        "ours_cpu": round(mine_cpu, 2),
        "alternative_cpu": round(other_cpu, 2),
        "ratio_cpu": round(other_cpu / mine_cpu, 2),
        "p95": round(float(np.percentile(every[:, 0], 95)), 2),
        "target": TARGET_MS,
        "target_met": mine <= TARGET_MS,
        "by_shape": {
            shape: dict(zip(columns, [*values.round(2).tolist(), by_stage[shape]], strict=True))
            for shape, values in medians.items()
        },
        "products": products,
        "threads": about["threads"],
        "allocator": about["allocator"],
        "load_average": round(os.getloadavg()[0], 1),
        "machine": about,
    }
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
