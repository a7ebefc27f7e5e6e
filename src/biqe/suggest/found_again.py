"""Questions that show what a model can do: among their likeliest new answers are facts that were hidden from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.exact.answers import checkpoint
from biqe.exact.store import is_blank
from biqe.links.probability import LinkProbability
from biqe.query.scan import in_query

ASKED = 400
"""Hidden facts that are looked for, at most."""
LISTED = 3
"""Places that count as found."""


@dataclass(frozen=True)
class FoundAgain:
    """A question for one end of a link, and the hidden answers that it finds."""

    query: str
    hidden: frozenset[int]
    """Entities that the graph was given, and the model was not."""
    found: int
    """How many of them are among the first LISTED new answers."""


def found_again(
    links: LinkProbability, hidden: NDArray[np.integer], prefixes: Mapping[str, str], count: int, *, seed: int = 0
) -> list[FoundAgain]:
    """The ``count`` best questions, of different relations where possible. ``links`` is over a graph without the
    ``hidden`` facts, (n, 3)."""
    relations = links.graph.relation_count
    asked = hidden[np.random.default_rng(seed).permutation(len(hidden))[:ASKED]].astype(np.int64)
    heads = np.concatenate([asked[:, 0], asked[:, 2]])
    directions = np.concatenate([asked[:, 1], asked[:, 1] + relations])
    names = links.graph.vocabulary.entities
    keys = [key for key in np.unique(np.stack([directions, heads], 1), axis=0).tolist() if not is_blank(names[key[1]])]
    tails: dict[tuple[int, int], set[int]] = {}
    for subject, relation, object_ in hidden.tolist():
        tails.setdefault((relation, subject), set()).add(object_)
        tails.setdefault((relation + relations, object_), set()).add(subject)
    judged: list[tuple[float, int, FoundAgain]] = []
    for direction, head in keys:
        checkpoint()
        with torch.inference_mode():
            row = links.to_all(torch.tensor([head]), torch.tensor([direction]))[0].numpy().copy()
        row[links.walks.of_head(head, direction)] = -np.inf
        first = np.argsort(-row, kind="stable")[:LISTED]
        true = tails[direction, head]
        is_true = np.array([entity in true for entity in first.tolist()])
        if not is_true.any():
            continue
        # Hidden facts that are said to be likely, and come first.
        score = float((np.exp(row[first]) / (1.0 + np.arange(len(first))))[is_true].sum())
        query = _query(links, direction, head, prefixes)
        judged.append((score, direction % relations, FoundAgain(query, frozenset(true), int(is_true.sum()))))
    judged.sort(key=lambda one: (-one[0], one[2].query))
    seen: set[int] = set()
    varied = [one for one in judged if not (one[1] in seen or seen.add(one[1]))]  # type: ignore[func-returns-value]
    return [one for _, _, one in [*varied, *(one for one in judged if one not in varied)][:count]]


def _query(links: LinkProbability, direction: int, head: int, prefixes: Mapping[str, str]) -> str:
    vocabulary, relations = links.graph.vocabulary, links.graph.relation_count
    relation = in_query(vocabulary.relations, direction % relations, prefixes)
    entity = in_query(vocabulary.entities, head, prefixes)
    pattern = f"{entity} {relation} ?x" if direction < relations else f"?x {relation} {entity}"
    return f"SELECT ?x WHERE {{ {pattern} }}"
