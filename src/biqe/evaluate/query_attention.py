"""Attention of the masks of one query, in words: the data behind a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import UnsupportedQuery
from biqe.evaluate.outside import outside_elements, token_columns
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import at_rest
from biqe.graph.vocabulary import Vocabulary
from biqe.models._contract import trace
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import QuerySet
from biqe.query.tokens import MASK, RELATION, tokens

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


@dataclass(frozen=True)
class QueryAttention:
    """Attention of the masks of one query, with names: the data of a picture."""

    model: str
    patterns: tuple[str, ...]
    """The query written out, one triple pattern a line."""
    words: tuple[str, ...]
    """(T,) what to show for each token; masks are ``?x`` and the like."""
    kinds: tuple[str, ...]
    """(T,) mask, entity or relation."""
    paths: tuple[int, ...]
    """(T,) number of the token's path; each path is written tail first."""
    targets: tuple[str, ...]
    """(V,) names of the targets."""
    weights: NDArray[np.float64]
    """(layers, heads, V, T) attention; that of a target with several masks is their mean. Sums to 1 over tokens."""
    outside: NDArray[np.bool_]
    """(V, T) tokens that are neither ancestors nor descendants of the target."""
    predictions: tuple[tuple[tuple[str, float], ...], ...]
    """For each target the first few entities and their probabilities."""

    def mean(self, layer: int | None = None, head: int | None = None) -> NDArray[np.float64]:
        """(V, T) attention averaged over all layers and heads, or of one of them."""
        weights = self.weights if layer is None else self.weights[[layer]]
        return (weights if head is None else weights[:, [head]]).mean(axis=(0, 1))

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "query-attention", **plain(self)}


def query_attention(
    model: QueryModel, query: BoundQuery, vocabulary: Vocabulary | None = None, *, top: int = 3
) -> QueryAttention:
    """What the masks of one query look at, in words, and what the model predicts there."""
    support = model.supports(query, strict=False)
    if not support.yes:
        raise UnsupportedQuery(support.reason, hint=support.hint)
    with at_rest(model):
        traced = trace(model, model.encoder(QuerySet.of([query])))
    columns = token_columns(traced, 0)
    found = tokens(query)
    names = _target_names(query)
    kinds, words = found.kinds, []
    for kind, id_, element in zip(kinds, found.ids, found.elements, strict=True):
        if kind == MASK:
            words.append(names[element])
        else:
            words.append(_relation(id_, vocabulary) if kind == RELATION else _entity(id_, vocabulary))
    nodes = sorted(query.targets)
    looked = np.stack([layer[0].double().numpy() for layer in traced.attention])  # (layers, H, T, T)
    masks = [np.flatnonzero(columns["elements"] == node) for node in nodes]
    weights = np.stack([looked[:, :, places].mean(axis=2) for places in masks], axis=2)[..., : len(found)]
    best = traced.scores.double().exp().topk(min(top, traced.scores.shape[1]), dim=1)
    return QueryAttention(
        model=model.name,
        patterns=tuple(_patterns(query, names, vocabulary)),
        words=tuple(words),
        kinds=tuple(kinds),
        paths=tuple(found.paths),
        targets=tuple(names[node] for node in nodes),
        weights=weights,
        outside=outside_elements(query)[nodes][:, columns["elements"]],
        predictions=tuple(
            tuple((_entity(entity, vocabulary), float(chance)) for entity, chance in zip(row, chances, strict=True))
            for row, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )


def _target_names(query: BoundQuery) -> dict[int, str]:
    """``?name`` of each variable; without names ``?1``, ``?2``, ... for targets and ``?h1``, ... for hidden ones."""
    named: dict[int, str] = {}
    counts = {True: 0, False: 0}
    for node, value in enumerate(query.nodes):
        if value < 0:
            is_target = value == TARGET
            counts[is_target] += 1
            own = query.names[node] if query.names else ""
            named[node] = f"?{own or ('' if is_target else 'h') + str(counts[is_target])}"
    return named


def _patterns(query: BoundQuery, names: dict[int, str], vocabulary: Vocabulary | None) -> Sequence[str]:
    def node(number: int) -> str:
        return names[number] if number in names else _entity(query.nodes[number], vocabulary)

    return [f"{node(s)}  {_relation(r, vocabulary)}  {node(o)}" for s, r, o in query.edges]


def _entity(entity: int, vocabulary: Vocabulary | None) -> str:
    return f"entity {entity}" if vocabulary is None else vocabulary.label(entity)


def _relation(relation: int, vocabulary: Vocabulary | None) -> str:
    if vocabulary is None:
        return f"relation {relation}"
    count = len(vocabulary.relations)
    return vocabulary.relations[relation % count] + (" (inverse)" if relation >= count else "")
