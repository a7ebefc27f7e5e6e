"""How a query is answered: the options of asking."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from biqe.errors import InvalidOption

MODES = ("both", "known", "predicted")
JOINT = ("beam", "blended", "linked", "product", "rescored")
"""Ways to find tuples for several targets, the usual one first; joint.py says what they are."""
WIDTH = 20
"""Tuples that a beam keeps after each target, unless told otherwise."""
TOP = 20
"""Predicted rows, at most, unless told otherwise."""


@dataclass(frozen=True)
class AskConfig:
    """How a query is answered."""

    mode: str = MODES[0]
    """Rows wanted: known (held by the graph), predicted (not held, but likely), or both."""
    top: int = TOP
    """Predicted rows, at most."""
    min_probability: float = 0.0
    """Predicted rows below this probability are left out."""
    joint: str | None = None
    """How tuples for several targets are ranked: beam (one target after the other), blended (the same, and what the
    whole query says of each), linked (entities that are likely and links that are true, for models that have links),
    product (all at once) or rescored (the beam's, weighed several ways). None: as when the
    model's probabilities were calibrated, else linked for models that have links, else beam."""
    width: int = WIDTH
    """Tuples that the beam keeps after each target."""
    coverage: float | None = None
    """Predicted rows as an answer set: all rows, whatever ``top`` says, that it takes for the missing answer to be
    among them so often. Needs a calibrated model."""

    injective: bool = False
    """Whether no entity may stand twice in a predicted row."""
    links: bool = True
    """Whether the model is asked about the missing links of predicted rows: which of several witnesses is likeliest,
    and how probable each link is. Without it the same rows are found in less time, and links have no probability."""

    def __post_init__(self) -> None:
        for name, allowed in (("mode", MODES), ("joint", JOINT)):
            if getattr(self, name) not in allowed and (name, self.joint) != ("joint", None):
                raise InvalidOption(f"{name!r} must be one of {', '.join(allowed)}. Got {getattr(self, name)!r}")
        for name in ("top", "width"):
            if not isinstance(getattr(self, name), Integral):
                raise InvalidOption(f"{name!r} must be a whole number. Got {getattr(self, name)!r}")
        if self.top < 0:
            raise InvalidOption(f"'top' must be at least 0. Got {self.top}")
        if self.width < 1:
            raise InvalidOption(f"'width' must be at least 1. Got {self.width}")
        if not 0.0 <= self.min_probability <= 1.0:
            raise InvalidOption(f"'min_probability' must be in [0, 1]. Got {self.min_probability}")
        if self.coverage is not None and not 0.0 < self.coverage < 1.0:
            raise InvalidOption(f"'coverage' must be in (0, 1). Got {self.coverage}")
