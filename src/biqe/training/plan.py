"""Estimates of what a training run will need: memory, time and network traffic of each rank.

The formulas are those of docs/concepts/scale.md. Memory is the sum of all large arrays. Time is the number of
multiplications of a step, divided by the speed of matrix products measured on this machine. Expect memory to be off by
a fifth, and time by a factor of two.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Splits
from biqe.links.softmax import rows_at_once
from biqe.models import _catalogue
from biqe.models._contract import QueryModel
from biqe.models._split_entities import check_split
from biqe.training.config import TrainConfig
from biqe.training.optimizers import learnt
from biqe.training.session import samples
from biqe.training.stream import check_budgets

PROGRAM = 300 << 20
"""Bytes of the interpreter, the libraries and compiled kernels."""
QUERY_BYTES = 150
"""Bytes of a triple as a training query: nodes, edge, answers, tokens, place in a batch."""
MINED_BYTES = 700
"""Bytes of a mined path or DAG."""
SORTING = 2.0
"""Peak memory of preparing an epoch, relative to the queries it keeps: sorting needs keys and orders."""
PATH_TOKENS, DAG_TOKENS, DAG_TARGETS = 8.0, 15.0, 3.5
"""Averages of mined queries. About half the tokens of a path are predicted."""
BYTES_A_SECOND = 4e9
"""Speed at which the optimiser reads and writes weights, moments and average; a cautious figure."""
PASSES = 14
"""Reads and writes of each weight in a step: gradient, two moments, weight, average."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a graph."""

    entities: int
    relations: int
    triples: int
    """Of the training split."""
    questions: int
    """Training queries made of its triples: up to ``triple_answers`` triples with the same subject and relation make
    one."""

    @classmethod
    def of(cls, splits: Splits, triple_answers: int) -> Sizes:
        """Sizes of the training split."""
        train = splits.train
        starts = (
            np.flatnonzero(np.any(np.diff(train[:, :2], axis=0, prepend=-1), axis=1)) if len(train) else train[:, 0]
        )
        answers = np.diff(starts, append=len(train))
        questions = int((-(-answers // triple_answers)).sum())
        return cls(len(splits.vocabulary.entities), len(splits.vocabulary.relations), len(train), questions)


@dataclass(frozen=True)
class Plan:
    """Needs of one rank."""

    softmax: str
    """full or sampled, as the run would choose."""
    ranks: int
    shard_entities: bool
    memory: dict[str, int]
    """Bytes by purpose."""
    step_flop: float
    """Floating-point operations of an average step."""
    step_seconds: float
    steps_an_epoch: int
    traffic: int
    """Bytes that a rank sends in a step."""
    checkpoint: int
    """Bytes of a checkpoint on disk; two are kept."""

    @property
    def total(self) -> int:
        """Peak of resident memory."""
        return sum(self.memory.values())

    @property
    def epoch_hours(self) -> float:
        return self.steps_an_epoch * self.step_seconds / 3600


def plan(
    sizes: Sizes,
    config: TrainConfig,
    *,
    model: str = "biqe",
    options: dict[str, Any] | None = None,
    ranks: int = 1,
    rate: float = 1e11,
) -> Plan:
    """Needs of each of ``ranks`` ranks that train ``model``; ``rate`` is floating-point operations a second."""
    if ranks < 1:
        raise InvalidOption(f"'ranks' must be at least 1. Got {ranks}")
    if sizes.entities < 1:
        raise InvalidOption("a plan needs a graph with entities", hint="biqe stats GRAPH shows what it holds")
    built = _shapes(model, dict(options or {}), sizes)
    # A run that would be refused is refused here, too.
    sampled = samples(built, config)
    check_budgets(config, ranks)
    if config.shard_entities and ranks > 1:
        check_split(built, ranks)
    parts = ranks if config.shard_entities else 1
    weights = learnt(built).values()
    table = sum(weight.numel() for weight in weights if weight.shape[:1] == (sizes.entities,))
    own_table, others = math.ceil(table / parts), sum(weight.numel() for weight in weights) - table
    width = getattr(built.config, "width", 0) or 2 * getattr(built.config, "rank", 64)
    if config.triples and config.triples < sizes.triples:
        share = config.triples / sizes.triples
        sizes = replace(sizes, questions=math.ceil(share * sizes.questions))
    mined = getattr(built, "learns_from", "queries") == "queries"
    steps, tokens, targets = _steps(sizes, config, mined=mined)
    tokens, targets = math.ceil(tokens / ranks), math.ceil(targets / ranks)  # budgets are those of all ranks together
    # Some models are trained against negatives of their own instead of a softmax.
    compared = config.negatives if sampled else getattr(built.config, "negatives", sizes.entities)
    candidates = min(compared, sizes.entities)
    touched = (candidates + tokens) * width if sampled else own_table
    memory = {
        "weights": 4 * (own_table + others),
        "moments": (4 if config.optimizer == "adagrad" else 8) * (own_table + others),
        "running average": 4 * (own_table + others),
        # Output and input each make a gradient of the table, and the two are added up.
        "gradients": 4 * (2 * touched + others),
        "validation": 4 * (own_table + others),
        "activations": 4 * tokens * _floats_a_token(built, tokens, width),
        "logits": 2 * _logits(targets * parts, math.ceil(candidates / (1 if sampled else parts))),
        "graph": 36 * sizes.triples + 24 * sizes.entities,
        "an epoch's queries": _epoch_bytes(sizes, config, ranks, mined=mined),
        "program": PROGRAM,
    }
    # With a split table a rank projects the targets of all ranks onto its part of the entities: as much.
    flop = 6.0 * (tokens * _products_a_token(built) + targets * width * (width + candidates))
    walked = 4 * PASSES * (touched + others) / BYTES_A_SECOND
    return Plan(
        "sampled" if sampled else "full",
        ranks,
        config.shard_entities,
        {name: int(size) for name, size in memory.items()},
        flop,
        flop / rate + walked,
        math.ceil(steps),
        _traffic(ranks, config.shard_entities, sampled, table, others, touched, tokens, targets, width),
        4 * (table + others) * (3 if config.optimizer == "adagrad" else 4),
    )


def _shapes(model: str, options: dict[str, Any], sizes: Sizes) -> QueryModel:
    """The model with the shapes of its weights, but without their memory."""
    with torch.device("meta"):
        return _catalogue.build(model, options, sizes.entities, sizes.relations)  # type: ignore[no-any-return]


def _steps(sizes: Sizes, config: TrainConfig, *, mined: bool) -> tuple[float, int, int]:
    """Steps of an epoch, and tokens and targets of an average one, of all ranks together."""
    triples = max(1, min(config.batch_queries, config.batch_tokens // 3))
    kinds = [(sizes.questions * (1 if mined else 2), triples, 3 * triples, triples)]
    if mined:
        for count, length, share in ((config.paths, PATH_TOKENS, 0.5), (config.dags, DAG_TOKENS, 0.0)):
            queries = max(1, min(config.batch_queries, int(config.batch_tokens / length)))
            predicted = queries * (length * share or DAG_TARGETS)
            kinds.append((count, queries, int(queries * length), int(predicted)))
    steps = sum(count / queries for count, queries, _, _ in kinds)
    shares = [count / queries / max(steps, 1e-9) for count, queries, _, _ in kinds]
    tokens, targets = (sum(share * kind[place] for share, kind in zip(shares, kinds, strict=True)) for place in (2, 3))
    return steps, math.ceil(tokens), math.ceil(targets)


def _floats_a_token(model: QueryModel, tokens: int, width: int) -> int:
    """Floats that the forward pass keeps for each token, for the backward pass."""
    layers, feed, heads = (getattr(model.config, name, 1) for name in ("layers", "feed_forward", "heads"))
    return int(layers * (14 * width + 4 * feed + 3 * heads * DAG_TOKENS) + 6 * width)


def _products_a_token(model: QueryModel) -> float:
    """Multiplications for each token in the layers: elements of all matrices but the embedding tables."""
    tables = {model.entity_count, model.relation_count, 2 * model.relation_count, 2 * model.relation_count + 1}
    return float(sum(w.numel() for w in model.parameters() if w.dim() == 2 and len(w) not in tables))


def _logits(targets: int, candidates: int) -> int:
    row = 4 * max(1, candidates)
    return row * rows_at_once(max(1, targets), row)


def _epoch_bytes(sizes: Sizes, config: TrainConfig, ranks: int, *, mined: bool) -> int:
    """Every rank makes the queries of all triples before it takes its share; it mines only its share of walks."""
    triples = QUERY_BYTES * sizes.questions * (1 if mined else 2)
    walks = MINED_BYTES * (config.paths + config.dags) / ranks if mined and config.online else 0
    return int(SORTING * (triples + walks))


def _traffic(
    ranks: int, split: bool, sampled: bool, table: int, others: int, touched: int, tokens: int, targets: int, width: int
) -> int:
    """Bytes that a rank sends in a step: gradients of shared weights are added up in a ring."""
    if ranks == 1:
        return 0
    ring = 2 * (ranks - 1) / ranks
    if split:
        # To every other rank: rows of its tokens and their gradients, hidden states at targets and their gradients,
        # three numbers for each target.
        rows = 2 * tokens * width * (ranks - 1) / ranks
        hidden = 2 * targets * width * (ranks - 1) + 3 * targets * (ranks - 1)
        return int(4 * (rows + hidden + ring * others))
    # Sparse rows go to every other rank, with row numbers of eight bytes.
    entities = (ranks - 1) * (touched + 2 * touched / max(1, width)) if sampled else ring * table
    return int(4 * (entities + ring * others))


def measured_rate(seconds: float = 0.4) -> float:
    """Floating-point operations per second of matrix products of the shapes that layers have, measured now."""
    a, b, out = torch.randn(2048, 256), torch.randn(256, 1024), torch.empty(2048, 1024)
    torch.mm(a, b, out=out)
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        torch.mm(a, b, out=out)
        done += 1
    return done * 2.0 * 2048 * 256 * 1024 / (time.perf_counter() - start)
