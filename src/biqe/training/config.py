"""How a model is trained. What the model is belongs to the model's own Config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from biqe.errors import InvalidOption

MOST_SEED = 2**63 - 1
"""The largest seed of torch's generator."""
MOST_THREADS = 1024
"""More than any machine has cores. The system cannot start many more, and ends the program."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run. Either ``minutes`` or ``epochs`` says when it ends."""

    minutes: float | None = None
    """Length of the run in minutes; the learning rate falls to 0 over them."""
    clock: str = "wall"
    """How minutes are measured: wall, or processor, which does not count time in which other programs use the cores."""
    links_minutes: float = 0.0
    """Of the minutes: how many first train a link predictor that the model begins with; 0 for none."""
    epochs: float | None = None
    """Length of the run in passes over the training stream. Such a run ends with the same weights, bit by bit, however
    often it is stopped and resumed."""
    seed: int = 0
    """Seed of weights, mining, order, dropout and held-out facts."""
    online: bool = True
    """Mine fresh paths and DAGs for every epoch (online), or train on those of the query set (fixed)."""
    triples: int = 0
    """Triples of an epoch, drawn anew each time; 0 takes all. Limits the memory that a huge graph needs."""
    paths: int = 50_000
    """Paths mined for each epoch, if online."""
    dags: int = 50_000
    """DAGs mined for each epoch, if online."""
    inverse_share: float = 0.25
    """Share of training queries that may follow edges backwards, so that questions can be asked from either end."""
    answers: str = "one"
    """What a target learns to predict: one (the entity of the mined query) or all (every answer in the training graph,
    with equal probability)."""
    triple_answers: int = 8
    """With answers=one: up to this many triples with the same subject and relation make one query; 1 keeps them
    apart."""
    most_answers: int = 1000
    """With answers=all: answers used for one target, drawn anew each epoch; 0 uses all."""
    set_queries: int = 100_000
    """Queries of an epoch, if a benchmark brings training queries; equally many of each shape."""
    hide_share: float = 0.1
    """Share of mined queries in which some targets become existential variables, which are not predicted."""
    reveal_share: float = 0.1
    """Share of mined queries in which some targets are given, as when answers are filled in one by one."""
    batch_tokens: int = 6000
    """Tokens of a step, over all ranks."""
    batch_queries: int = 1200
    """Maximum number of queries in a step, over all ranks."""
    softmax: str = "auto"
    """Entities that a target is compared with: full (all), sampled (some, drawn anew each step), or auto: sampled from
    100,000 entities on, if the model can."""
    negatives: int = 8192
    """With softmax=sampled: entities drawn for a step."""
    optimizer: str = "adamw"
    """adamw, or adagrad, which suits link predictors."""
    learning_rate: float = 1e-3
    """Highest learning rate, reached after warm-up."""
    warmup_steps: int = 500
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = 0.01
    """Weight decay of matrices; biases and norms do not decay."""
    clip: float = 1.0
    """Maximum norm of the gradient."""
    label_smoothing: float = 0.1
    """Share of the target's probability that is spread over all entities."""
    average: float = 0.999
    """Decay of the running average of the weights, which is validated and kept; 0 keeps the weights themselves."""
    validations: int = 10
    """How often the run is validated, evenly spread over it."""
    validation_queries: int = 500
    """Maximum number of validation queries; drawn once by seed."""
    patience: int = 0
    """Stop after this many validations without improvement; 0 never stops early."""
    checkpoint_minutes: float = 3.0
    """Minutes between checkpoints. One is also written at every validation."""
    precision: str = "auto"
    """What products are computed in while training: auto (bfloat16 where the device multiplies it faster than single
    precision, and tables or layers are large) or single."""
    threads: int = 0
    """Processor threads of each process; 0 takes OMP_NUM_THREADS, or divides the cores among the processes."""
    shard_entities: bool = False
    """Under torchrun: split the embeddings of entities, and the softmax over them, among the ranks."""
    rank_timeout: float = 600.0
    """Under torchrun: seconds that a rank waits for the others before it gives up. Validation must be faster."""

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.epochs is None):
            raise InvalidOption(
                "a run needs either 'minutes' or 'epochs', not both and not neither", hint="for example --minutes 10"
            )
        for names, is_allowed, must, takes in _RULES:
            for name in names.split():
                value = getattr(self, name)
                if value is not None and not is_allowed(value):
                    raise InvalidOption(f"{name!r} must {must}. Got {value!r}", hint=_hint(name, takes))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidOption(
                    f"{name!r} must be {' or '.join(allowed)}. Got {getattr(self, name)!r}",
                    hint=_hint(name, f"one of {', '.join(allowed)}"),
                )
        if self.hide_share + self.reveal_share > 1.0:
            raise InvalidOption(
                "'hide_share' and 'reveal_share' must not exceed 1 together. "
                f"Got {self.hide_share} and {self.reveal_share}",
                hint="they are shares of the same queries, such as 0.1 and 0.1",
            )
        if self.links_minutes and (self.minutes is None or self.links_minutes >= self.minutes):
            length = f"{self.epochs:g} epochs" if self.minutes is None else f"{self.minutes:g} minutes"
            raise InvalidOption(
                f"'links_minutes' must be less than the minutes of the run. Got {self.links_minutes:g} of {length}",
                hint="--minutes 60 --links-minutes 10 trains a link predictor for 10 minutes, then the model for 50",
            )


_CHOICES = {
    "clock": ("wall", "processor"),
    "answers": ("one", "all"),
    "softmax": ("full", "sampled", "auto"),
    "optimizer": ("adamw", "adagrad"),
    "precision": ("auto", "single"),
}

_RULES: tuple[tuple[str, Callable[[Any], bool], str, str], ...] = (
    (
        "minutes epochs learning_rate clip checkpoint_minutes rank_timeout",
        lambda value: value > 0,
        "be above 0",
        "a number above 0",
    ),
    (
        "batch_tokens batch_queries validations validation_queries set_queries triple_answers negatives",
        lambda value: value >= 1,
        "be at least 1",
        "a whole number from 1 up",
    ),
    (
        "triples paths dags warmup_steps weight_decay patience threads seed most_answers links_minutes",
        lambda value: not value < 0,  # nan is refused below, as not finite
        "not be negative",
        "a number from 0 up",
    ),
    ("seed", lambda value: value <= MOST_SEED, f"be at most {MOST_SEED:,}", f"a whole number from 0 to {MOST_SEED}"),
    (
        "threads",
        lambda value: value <= MOST_THREADS,
        f"be at most {MOST_THREADS:,}",
        f"a whole number from 0 to {MOST_THREADS}",
    ),
    ("inverse_share hide_share reveal_share", lambda value: 0 <= value <= 1, "be in [0, 1]", "a share from 0 to 1"),
    ("label_smoothing average", lambda value: 0 <= value < 1, "be in [0, 1)", "a share from 0 to below 1"),
    (
        "minutes links_minutes epochs learning_rate weight_decay clip checkpoint_minutes rank_timeout",
        isfinite,
        "be a finite number",
        "a finite number",
    ),
)
"""Names of settings, what their values must fulfil, and how error and hint say so."""

_OPTIONS = ("minutes", "links_minutes", "epochs", "seed", "threads", "softmax", "negatives")
"""Settings that are options of ``biqe train``; the others are given with -O."""


def _hint(name: str, takes: str) -> str:
    """How a setting is given, and what values it takes."""
    spelt = f"--{name.replace('_', '-')}" if name in _OPTIONS else f"-O {name}=VALUE"
    default = next(item.default for item in fields(TrainConfig) if item.name == name)
    return f"{spelt} takes {takes}" + (f"; the default is {default}" if default is not None else "")
