"""What an explanation is made of: the query's nodes and patterns, and the witness that fills them."""

from __future__ import annotations

from dataclasses import dataclass

WITNESS, ATTENTION, COUNTERFACTUAL = "witness", "attention", "counterfactual"
VIEWS = (WITNESS, ATTENTION, COUNTERFACTUAL)
CONSTANT, ASKED, HIDDEN = "constant", "target", "hidden"
KNOWN, PREDICTED = "known", "predicted"


@dataclass(frozen=True)
class Node:
    """A constant or a variable of the query, and the entity that stands there."""

    kind: str
    """``constant``, ``target`` (asked for) or ``hidden``."""
    word: str
    """How the query writes it: ``?city``, or what to show for the constant."""
    entity: str | None
    """Name of the entity: the constant itself, the row's value, or the witness for a hidden variable."""
    label: str | None
    """What to show for the entity."""


@dataclass(frozen=True)
class Pattern:
    """A triple pattern of the query, as a stored triple would be written."""

    subject: int
    """Number of the node."""
    relation: str
    object: int


@dataclass(frozen=True)
class Link:
    """A pattern filled with the row's entities."""

    pattern: int
    """Number of the pattern, from 0."""
    is_stored: bool
    """Whether the graph holds it; else it is missing."""
    probability: float | None
    """1 where it is stored; the model's for this link alone where it is missing; None where nobody can say."""


@dataclass(frozen=True)
class Witness:
    """The facts that together make the row: one link for each pattern of the query, in its order."""

    links: tuple[Link, ...]
    is_complete: bool
    """Whether no other choice of the hidden variables can be better."""

    @property
    def missing(self) -> tuple[Link, ...]:
        """The links that the graph does not hold."""
        return tuple(link for link in self.links if not link.is_stored)
