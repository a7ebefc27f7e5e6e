"""How a question is answered: the options of asking."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from biqe.errors import InvalidOption
from biqe.predict.config import JOINT, TOP, WIDTH, Joint

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
    """How rows of several variables are found: links (a search over the model's links), beam (one variable after the
    other) or product (each variable by itself). None: as when the model was calibrated; without a calibration, links
    for models that have links, else beam."""
    width: int = WIDTH
    """Partial rows that the beam keeps after each variable."""
    coverage: float | None = None
    """Predicted rows as an answer set: as many rows, whatever ``top`` says, as it takes for the missing answer to be
    among them with this frequency. Needs a calibrated model."""
    injective: bool = False
    """Whether no entity may stand twice in a predicted row."""
    links: bool = True
    """Whether the model is asked about the missing links of predicted rows. Without it the same rows are found in less
    time, and links have no probability."""

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
