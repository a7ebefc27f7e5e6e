"""Queries a second that training takes in, against the obvious way, and against the machine's matrix products.

The obvious way: transformers' BertForMaskedLM at the same width and depth, every query padded to 30 tokens,
logits at every position. Both train on the same queries in turns, so that a busy machine slows both alike.
Beside it: the floating-point rate of bare matrix products of the shapes that a step uses. A step has 6,000 tokens;
``biqe train`` takes 2,000 by default, which learns more in an hour though it reads less: see --batch-tokens.

    python benchmarks/train_throughput.py [--quick] [--graph FOLDER] [--batch-tokens 2000]

The last line is one JSON object; ``ratio`` is ours over the alternative.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from biqe.evaluate.machine import allocator, peak_resident_bytes, write_result
from biqe.graph import folder
from biqe.graph.knowledge_graph import Graph
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models.biqe import BiQE, Config
from biqe.query.tokens import token_count
from biqe.training.config import TrainConfig
from biqe.training.loop import take_step
from biqe.training.memory import FreedMemory, keep_freed_memory
from biqe.training.optimizers import RunningAverage, optimizer_of
from biqe.training.processes import Processes
from biqe.training.stream import Stream

PADDED = 30


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="graph folder; FB15k-237 of BIQE_DATA, or a generated graph, where left out")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5, help="turns that each way takes")
    parser.add_argument("--batch-tokens", type=int, default=6000, help="tokens a step; at most a fifth as many queries")
    parser.add_argument("--quick", action="store_true", help="a small model and one round")
    parser.add_argument(
        "--out", type=Path, help="also write the result there, such as results/speed/train_throughput.json"
    )
    options = parser.parse_args()
    if options.batch_tokens < 100:
        parser.error("--batch-tokens must be at least 100: a query has up to 30 and more")
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    name, graph = load_graph(options.graph, options.quick)
    size = dict(width=64, layers=2, heads=4, feed_forward=256) if options.quick else {}
    config = Config(**size)
    rounds = 1 if options.quick else options.rounds

    model = BiQE(config, graph.entity_count, graph.relation_count)
    mined = 1000 if options.quick else 50_000
    step = {"batch_tokens": options.batch_tokens, "batch_queries": options.batch_tokens // 5}
    settings = TrainConfig(epochs=1, paths=mined, dags=mined, **step)
    epoch = Stream(graph, model, settings).epoch(0)
    # The same mixture for both: batches in the order of training.
    batches = epoch.batches[: 4 if options.quick else 144_000 // options.batch_tokens * rounds]
    ours, flop = our_way(model, epoch, settings)
    theirs = obvious_way(config, token_count(graph.entity_count, graph.relation_count), epoch)

    ours(batches[0]), theirs(batches[0][:32])  # buffers, optimiser states, code paths
    rates: dict[str, list[float]] = {"ours": [], "alternative": [], "flops": []}
    per_round, memory = len(batches) // rounds, FreedMemory()
    for turn in range(rounds):
        mine = batches[turn * per_round : (turn + 1) * per_round]
        seconds = timed(lambda mine=mine: [ours(rows) for rows in mine])
        memory.stepped()
        rates["ours"].append(sum(map(len, mine)) / seconds)
        rates["flops"].append(sum(map(flop, mine)) / seconds)
        # A slice of the same queries, spread over the batches: the obvious way takes long.
        slice_ = np.concatenate([rows[:: max(1, len(rows) // 12)][:12] for rows in mine])[:128]
        rates["alternative"].append(len(slice_) / timed(lambda slice_=slice_: theirs(slice_)))
        print(f"round {turn + 1}: ours {rates['ours'][-1]:,.0f}, obvious {rates['alternative'][-1]:,.0f} queries/s")
    product = matrix_product_rate(config, graph.entity_count, settings.batch_tokens)
    mine_rate, theirs_rate = statistics.median(rates["ours"]), statistics.median(rates["alternative"])
    flops = statistics.median(rates["flops"])
    print(f"ours {mine_rate:,.0f} queries/s, transformers {theirs_rate:,.0f} queries/s, {mine_rate / theirs_rate:.1f}x")
    print(f"{flops / 1e9:.0f} GFLOP/s in training, {product / 1e9:.0f} GFLOP/s in bare matrix products of its shapes")
    result = {
        "benchmark": "train_throughput",
        "ratio": round(mine_rate / theirs_rate, 2),
        "ours": f"{mine_rate:,.0f} queries/s",
        "alternative": f"{theirs_rate:,.0f} queries/s (BertForMaskedLM, padded to {PADDED}, all logits)",
        "queries_per_second": round(mine_rate, 1),
        "alternative_queries_per_second": round(theirs_rate, 1),
        "rounds": {key: [round(value, 1) for value in values] for key, values in rates.items() if key != "flops"},
        "gflops": round(flops / 1e9, 1),
        "matrix_product_gflops": round(product / 1e9, 1),
        "share_of_matrix_product": round(flops / product, 3),
        "peak_resident_mib_both": peak_resident_bytes() >> 20,
        "graph": name,
        "batch_tokens": options.batch_tokens,
        "model": {"width": config.width, "layers": config.layers},
        "allocator": allocator(),
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
    }
    write_result(result, options.out)


def load_graph(path: str | None, quick: bool) -> tuple[str, Graph]:
    """The graph to train on, and what to call it."""
    if path:
        return Path(path).name, folder.load(path)["train"]
    data = Path(os.environ.get("BIQE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "FB15k-237"
    if data.is_dir() and not quick:
        return "FB15k-237", read_graph([data]).splits["train"]
    rng = np.random.default_rng(0)
    entities, relations, triples = (500, 20, 4000) if quick else (14_541, 237, 272_115)
    rows = np.stack([rng.integers(0, n, triples) for n in (entities, relations, entities)], 1)
    vocabulary = Vocabulary([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])
    return "generated", Graph(vocabulary, as_triples(rows))


def our_way(model: BiQE, epoch, settings: TrainConfig) -> tuple[Callable, Callable]:
    """One training step on the queries ``rows``, and its floating-point operations."""
    model.train()
    optimizer, average = optimizer_of(model, settings), RunningAverage(model)
    config, process = model.config, Processes(model)

    def step(rows: np.ndarray) -> None:
        take_step(process, epoch.encoded.batch(rows), optimizer, average, settings, 1000, 0.5)

    def flop(rows: np.ndarray) -> float:
        batch = epoch.encoded.batch(rows)
        tokens, targets, width = batch.tokens.numel(), len(batch.targets.gold), config.width
        layer = 4 * width * width + 2 * width * config.feed_forward
        products = tokens * config.layers * layer + targets * (width * width + width * model.entity_count)
        attention = 2 * config.layers * batch.tokens.shape[1] * tokens * width
        return 6.0 * (products + attention)  # two a multiplication, three times: forward and two gradients

    return step, flop


def obvious_way(config: Config, tokens: int, epoch) -> Callable:
    """A training step of BertForMaskedLM, all queries padded, logits everywhere."""
    import transformers

    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=tokens,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.feed_forward,
            max_position_embeddings=64,
        )
    ).train()
    optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-3, fused=True)

    def step(rows: np.ndarray) -> None:
        batch = epoch.encoded.batch(rows)
        input_ids = torch.zeros(len(rows), PADDED, dtype=torch.long)
        positions, seen = torch.zeros_like(input_ids), torch.zeros_like(input_ids)
        labels, at_masks = torch.full_like(input_ids, -100), torch.full_like(batch.tokens, -100)
        at_masks.view(-1)[batch.masks] = batch.targets.gold[batch.mask_targets] + 1
        length = min(PADDED, batch.tokens.shape[1])
        input_ids[:, :length], positions[:, :length] = batch.tokens[:, :length], batch.positions[:, :length]
        seen[:, :length] = 1 if batch.padding is None else ~batch.padding[:, :length]
        labels[:, :length] = at_masks[:, :length]
        loss = bert(input_ids=input_ids, position_ids=positions, attention_mask=seen, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(bert.parameters(), 1.0)
        optimizer.step()

    return step


def matrix_product_rate(config: Config, entities: int, tokens: int) -> float:
    """Floating-point operations a second of bare products of a step's shapes, weighed as in a step."""
    width, wide, targets = config.width, config.feed_forward, tokens // 4
    shapes = [(tokens, width, 3 * width), (tokens, width, width), (tokens, width, wide), (tokens, wide, width)]
    shapes = shapes * config.layers + [(targets, width, entities)]
    operations = seconds = 0.0
    for rows, inner, columns in shapes:
        for m, k, n in ((rows, inner, columns), (rows, columns, inner), (inner, rows, columns)):
            a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
            torch.mm(a, b, out=out)
            seconds += min(timed(lambda a=a, b=b, out=out: torch.mm(a, b, out=out)) for _ in range(3))
            operations += 2.0 * m * k * n
    return operations / seconds


def timed(work: Callable) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
