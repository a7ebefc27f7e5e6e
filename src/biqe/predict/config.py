"""How a question is answered: the options of asking. Imports nothing heavy, for the command line shows them."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from biqe.errors import InvalidOption

LINKS, BEAM, PRODUCT = "links", "beam", "product"
JOINT = (LINKS, BEAM, PRODUCT)
"""Ways to find rows of several targets; joint.py describes them."""
WIDTH = 20
"""Partial rows that a search keeps after each target, by default."""
TOP = 20
"""Predicted rows that are listed, by default."""


@dataclass(frozen=True)
class Joint:
    """How rows of several targets are found."""

    decode: str = BEAM
    """links, beam or product."""
    width: int = WIDTH
    """Partial rows that are kept after each target."""
    injective: bool = False
    """Whether the entities of a row must all be different."""

    def __post_init__(self) -> None:
        if self.decode not in JOINT:
            raise InvalidOption(f"'decode' must be one of {', '.join(JOINT)}. Got {self.decode!r}")
        if self.width < 1:
            raise InvalidOption(f"'width' must be at least 1. Got {self.width}")


MODES = ("both", "known", "predicted")


@dataclass(frozen=True)
class AskConfig:
    """How a question is answered."""

    mode: str = MODES[0]
    """Rows wanted: known (held by the graph), predicted (not held, but likely), or both."""
    top: int = TOP
    """Predicted rows, at most."""
    min_probability: float = 0.0
    """Predicted rows below this probability are left out."""
    joint: str | None = None
    """How rows of several variables are found by a model without calibrated probabilities of links: links (the model's
    own search over links), beam (one variable after the other) or product (each variable by itself). None: links for
    models that have some, else beam. Calibrated links are always searched."""
    width: int = WIDTH
    """Partial rows that the beam keeps after each variable."""
    coverage: float | None = None
    """Predicted rows as an answer set: as many rows, whatever ``top`` says, as it takes for a missing answer to be
    among them with this frequency. Needs calibrated probabilities of links."""
    injective: bool = False
    """Whether no entity may stand twice in a predicted row."""
    links: bool = True
    """Whether a model without calibrated probabilities of links is asked about the missing links of predicted rows.
    Without it the same rows are found in less time, and links have no probability."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidOption(f"'mode' must be one of {', '.join(MODES)}. Got {self.mode!r}")
        if self.joint is not None and self.joint not in JOINT:
            raise InvalidOption(f"'joint' must be one of {', '.join(JOINT)}. Got {self.joint!r}")
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

    def joint_of(self, default: str) -> Joint:
        """How rows are found, by ``default`` where nothing is said."""
        return Joint(self.joint or default, self.width, self.injective)
