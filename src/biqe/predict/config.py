"""How rows of several targets are found: the options. Imports nothing heavy, for the command line shows them."""

from __future__ import annotations

from dataclasses import dataclass

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
