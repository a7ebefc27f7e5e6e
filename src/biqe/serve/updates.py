"""Updates of a live graph, so that one with a long WHERE part does not hold up the others.

Updates are made one at a time. A WHERE part may take seconds; it is evaluated while others write, on the version that
the graph has then, and its result is used if the graph still has that version when the turn of the update comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from biqe.serve.live.update import Ask, update_steps

if TYPE_CHECKING:
    from biqe.serve.live.changes import Changes, Receipt
    from biqe.serve.live.live_graph import LiveGraph
    from biqe.serve.live.upload import UploadedStatements


@dataclass
class Evaluated:
    """What the WHERE parts of an update found, one after the other, in one version of the graph."""

    version: int = -1
    found: list[Any] = field(default_factory=list)


def evaluate(live: LiveGraph, text: str, ask: Ask) -> Evaluated:
    """The WHERE parts of an update in the present version of the graph, which is not changed."""
    view = live.snapshot()
    evaluated = Evaluated(view.version)

    def noted(steps: Sequence[Changes], query: str) -> Any:
        evaluated.found.append(list(ask(steps, query)))
        return evaluated.found[-1]

    entities = view.vocabulary.entities
    update_steps(text, view, live.prefixes, lambda name: entities.find(name) is not None, noted)
    return evaluated


def apply(live: LiveGraph, update: str | UploadedStatements, evaluated: Evaluated, ask: Ask) -> Receipt:
    """Make an update. ``ask`` evaluates its WHERE parts, unless ``evaluated`` is still true of the graph."""
    place = 0

    def found(steps: Sequence[Changes], query: str) -> Any:
        # Nothing else can write now, and nothing has written since, if the version is the same: so ``evaluated`` was
        # read from the same graph, and the parts of the update come in the same order.
        nonlocal place
        if live.version != evaluated.version:
            return ask(steps, query)
        place += 1
        return evaluated.found[place - 1]

    return live.apply(update, ask=found)
