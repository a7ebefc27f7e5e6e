"""How a model is trained; what the model is belongs to the model's own Config."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from biqe.errors import InvalidOption

MOST_SEED = 2**63 - 1
"""What torch's generator takes."""
MOST_THREADS = 1024
"""More than any machine has cores; far more of them do not start, and end the program."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run. Either ``minutes`` or ``epochs`` says when it ends."""

    minutes: float | None = None
    """Length of the run in minutes of this machine; the learning rate falls to 0 over them."""
    clock: str = "wall"
    """What ``minutes`` are: of the clock on the wall, or processor, which stands still while other work on the machine
    keeps the run from its cores. On an idle machine they are the same."""
    links_minutes: float = 0.0
    """Of ``minutes``: how many come first and train a link predictor, which the model then begins with (biqe); 0 trains
    none."""
    epochs: float | None = None
    """Length of the run in passes over the training stream; exact to the bit when stopped and resumed."""
    seed: int = 0
    """Of weights, mining, order and dropout."""
    online: bool = True
    """Mine fresh paths and DAGs every epoch (online), or use those of the query set (fixed)."""
    triples: int = 0
    """Triples of an epoch, drawn anew for each, so that a huge graph's need not all be held as queries; 0 takes all."""
    paths: int = 50_000
    """Paths mined for each epoch, when online."""
    dags: int = 50_000
    """DAGs mined for each epoch, when online."""
    inverse_share: float = 0.25
    """Share of the stream that may walk edges against their direction, so that questions asked from either end
    can be answered."""
    answers: str = "one"
    """What a target is to predict: one (the entity that was seen) or all (every answer of the training graph, an
    equal share of the probability for each; questions with equal answers are asked once)."""
    triple_answers: int = 8
    """With answers=one: triples that ask the same are one query with up to so many answers; 1 keeps them apart."""
    most_answers: int = 1000
    """With answers=all: answers kept of one target, drawn anew each epoch; 0 keeps all."""
    set_queries: int = 100_000
    """Of a benchmark's own training queries: how many make an epoch, an equal number of each shape."""
    hide_share: float = 0.1
    """Share of mined queries in which some targets are made hidden (existential) variables."""
    reveal_share: float = 0.1
    """Share of mined queries in which some targets are given, as when answers are filled in one by one."""
    batch_tokens: int = 6000
    """Tokens a step, over all ranks."""
    batch_queries: int = 1200
    """Queries a step, at most, over all ranks."""
    softmax: str = "auto"
    """What a target is compared with: full (all entities), sampled (some, drawn anew each step), or auto, which samples
    where there are 100,000 entities or more and the model can."""
    negatives: int = 8192
    """With softmax=sampled: entities drawn a step."""
    optimizer: str = "adamw"
    """adamw, or adagrad as link predictors are trained with."""
    learning_rate: float = 1e-3
    """Peak rate of the optimiser, after warm-up."""
    warmup_steps: int = 500
    """Steps over which the rate rises from 0."""
    weight_decay: float = 0.01
    """Of all weights but biases, norms and embeddings of positions."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    label_smoothing: float = 0.1
    """Share of the target's probability that is spread over all entities."""
    average: float = 0.999
    """Decay of the running average of the weights that is validated and kept; 0 keeps the weights themselves."""
    validations: int = 10
    """How often the run is validated, evenly spread over it."""
    validation_queries: int = 500
    """Queries used each time, at most; drawn once by seed."""
    patience: int = 0
    """Stop after so many validations without a better one; 0 never stops early."""
    checkpoint_minutes: float = 3.0
    """How often the whole state is written, besides at every validation."""
    threads: int = 0
    """Processor threads of a rank; 0 shares all cores among the ranks of a machine."""
    shard_entities: bool = False
    """Under torchrun: split the entities' embeddings and the softmax over the ranks."""
    rank_timeout: float = 600.0
    """Under torchrun: seconds that a rank waits for the others before it gives up. Validation must be quicker."""

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.epochs is None):
            raise InvalidOption(
                "a run needs either 'minutes' or 'epochs', not both and not neither", hint="for example --minutes 10"
            )
        for name in ("minutes", "epochs", "learning_rate", "clip", "checkpoint_minutes", "rank_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidOption(
                    f"{name!r} must be above 0. Got {value}", hint=_range_hint(name, "a number above 0")
                )
        for name, allowed in (
            ("clock", ("wall", "processor")),
            ("answers", ("one", "all")),
            ("softmax", ("full", "sampled", "auto")),
            ("optimizer", ("adamw", "adagrad")),
        ):
            if getattr(self, name) not in allowed:
                raise InvalidOption(
                    f"{name!r} must be {' or '.join(allowed)}. Got {getattr(self, name)!r}",
                    hint=_range_hint(name, f"one of {', '.join(allowed)}"),
                )
        for name in (
            "batch_tokens",
            "batch_queries",
            "validations",
            "validation_queries",
            "set_queries",
            "triple_answers",
            "negatives",
        ):
            if getattr(self, name) < 1:
                raise InvalidOption(
                    f"{name!r} must be at least 1. Got {getattr(self, name)}",
                    hint=_range_hint(name, "a whole number from 1 up"),
                )
        for name in (
            "triples",
            "paths",
            "dags",
            "warmup_steps",
            "weight_decay",
            "patience",
            "threads",
            "seed",
            "most_answers",
            "links_minutes",
        ):
            if getattr(self, name) < 0:
                raise InvalidOption(
                    f"{name!r} must not be negative. Got {getattr(self, name)}",
                    hint=_range_hint(name, "a number from 0 up"),
                )
        for name, most in (("seed", MOST_SEED), ("threads", MOST_THREADS)):
            if getattr(self, name) > most:
                raise InvalidOption(
                    f"{name!r} must be at most {most:,}. Got {getattr(self, name):,}",
                    hint=_range_hint(name, f"a whole number from 0 to {most}"),
                )
        for name in ("inverse_share", "hide_share", "reveal_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidOption(
                    f"{name!r} must be in [0, 1]. Got {getattr(self, name)}",
                    hint=_range_hint(name, "a share from 0 to 1"),
                )
        for name in ("label_smoothing", "average"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InvalidOption(
                    f"{name!r} must be in [0, 1). Got {getattr(self, name)}",
                    hint=_range_hint(name, "a share from 0 up to, but not, 1"),
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
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float) and not isfinite(value):
                raise InvalidOption(
                    f"{item.name!r} must be a finite number. Got {value}",
                    hint=_range_hint(item.name, "a finite number"),
                )


_OPTIONS = ("minutes", "links_minutes", "epochs", "seed", "threads", "softmax", "negatives")
"""Settings that are options of ``biqe train``; the others are given with -O."""


def _range_hint(name: str, allowed: str) -> str:
    """How a setting is given, and what it may be."""
    spelt = f"--{name.replace('_', '-')}" if name in _OPTIONS else f"-O {name}=VALUE"
    default = next(item.default for item in fields(TrainConfig) if item.name == name)
    return f"{spelt} takes {allowed}" + (f"; the default is {default}" if default is not None else "")
