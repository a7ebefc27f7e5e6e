"""What masks attend to: the share of attention on elements that no path through a mask passes, over many queries; and
the attention of one query token by token, with names.

Paper: section "Analysis" puts that share at 30.4 percent on average. Models that pass messages along the edges of a
query cannot use such elements at all.

A token stands for an element of the query: a node, or an edge (its relation token). For a mask of node v

    itself        the node v, on whichever path its mask stands
    ancestor      a node from which v can be reached; an edge that ends in v or in an ancestor of v
    descendant    a node that can be reached from v; an edge that starts in v or in a descendant of v
    outside       everything else

The share of a mask is the attention on its outside tokens, the attention of each head summing to 1 over all tokens of
the query. It is averaged over heads, over layers and over all masks, each with the same weight; a target on three
paths has three masks. Nothing is outside of a tail or of an intersection behind which only the tail lies, so their
masks bring the mean down; ``outside_where_any`` leaves out masks that have nothing outside. ``uniform`` is the
share that a model would have that looks at all tokens alike: attention beyond chance is what exceeds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import EmptyResult, UnsupportedQuery
from biqe.evaluate.pictures import BLUE, HEAT, ORANGE, SOFT, Page, text_width
from biqe.evaluate.report import plain
from biqe.evaluate.scoring import Skipped, at_rest, batches, by_reason, nothing_ranked, supported
from biqe.graph.vocabulary import Vocabulary
from biqe.models._contract import trace
from biqe.models._device import device_of, on_device
from biqe.query.bound import TARGET, BoundQuery, QuerySet
from biqe.query.dag import analyse
from biqe.query.tokens import TokenTable, tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biqe.models._contract import QueryModel, Trace

BATCH_QUERIES = 64
"""Queries traced in one go: attention of all layers and heads is held for them."""


@dataclass(frozen=True)
class AttentionShares:
    """Attention of masks on elements that are neither their ancestors nor their descendants, from 0 to 1."""

    model: str
    outside: float
    """Over all masks: the figure to compare with the paper's .304."""
    outside_where_any: float
    """Over masks that have something outside; 0 where none has."""
    uniform: float
    """What equal attention to all tokens would give, over all masks."""
    uniform_where_any: float
    by_layer: tuple[float, ...]
    by_head: tuple[tuple[float, ...], ...]
    """By layer, then by head."""
    by_position: dict[str, float]
    """By position of the mask's node: tail, intersection, branch."""
    masks: int
    masks_with_outside: int
    masks_by_position: dict[str, int]
    queries: int
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "attention", **plain(self), "published": 0.304}


def attention_shares(model: QueryModel, queries: QuerySet) -> AttentionShares:
    """How much attention the masks of ``queries`` pay outside of their ancestors and descendants.

    Needs a model that can show its attention over tokens (``HasAttention``); others refuse. Queries that the model
    does not support are counted.
    """
    rows, refused = supported(model, queries, strict=False)
    if len(rows) == 0:
        raise nothing_ranked(len(queries), by_reason(refused), "traced")
    asked = queries.take(rows)
    shares: list[NDArray[np.float64]] = []  # (masks, layers, heads) of each query
    uniform: list[NDArray[np.float64]] = []  # (masks,)
    positions: list[str] = []
    with at_rest(model):
        encoded = model.encode(asked)
        for part in batches(np.asarray(encoded.sizes), np.ones(len(asked), np.int64), BATCH_QUERIES):
            traced = trace(model, on_device(encoded.batch(part), device_of(model)))
            for place, row in enumerate(part.tolist()):
                query = asked[row]
                elements, masks = token_elements(traced, place)
                if len(masks) == 0:
                    continue
                outside = non_ancestors(query)[elements[masks]][:, elements]  # (masks, tokens)
                weights = torch.stack([layer[place].cpu() for layer in traced.attention])  # (layers, H, T, T)
                weights = weights[:, :, torch.from_numpy(masks), : len(elements)]  # padding left out
                found = torch.einsum("lhmt,mt->mlh", weights.double(), torch.from_numpy(outside).double())
                shares.append(found.numpy())
                uniform.append(outside.mean(axis=1))
                roles = dict(zip(query.targets, analyse(query).roles, strict=True))
                positions += [roles[node] for node in elements[masks].tolist()]
    if not shares:
        raise EmptyResult(f"none of {len(rows):,} queries has a mask")
    share, even = np.concatenate(shares), np.concatenate(uniform)
    of_mask, some = share.mean(axis=(1, 2)), even > 0
    members = {name: np.array(positions) == name for name in dict.fromkeys(positions)}
    return AttentionShares(
        model=model.name,
        outside=float(of_mask.mean()),
        outside_where_any=float(of_mask[some].mean()) if some.any() else 0.0,
        uniform=float(even.mean()),
        uniform_where_any=float(even[some].mean()) if some.any() else 0.0,
        by_layer=tuple(share.mean(axis=(0, 2)).tolist()),
        by_head=tuple(tuple(heads) for heads in share.mean(axis=0).tolist()),
        by_position={name: float(of_mask[of].mean()) for name, of in members.items()},
        masks=len(of_mask),
        masks_with_outside=int(some.sum()),
        masks_by_position={name: int(of.sum()) for name, of in members.items()},
        queries=len(rows),
        skipped=by_reason(refused),
    )


def non_ancestors(query: BoundQuery) -> NDArray[np.bool_]:
    """(nodes, nodes + edges) whether an element is outside of a node: not itself, no ancestor and no descendant.

    >>> # e0 -> ?1 -> ?3 <- ?2 <- e4: seen from node 1, the other branch is outside, the meeting point is not.
    >>> query = BoundQuery((0, -1, -1, -1, 1), ((0, 0, 1), (1, 0, 3), (2, 0, 3), (4, 0, 2)), (1, 2, 3))
    >>> non_ancestors(query)[1].astype(int).tolist()
    [0, 0, 1, 0, 1, 0, 0, 1, 1]
    """
    dag = analyse(query)
    count = len(query.nodes)
    outside = np.ones((count, count + len(query.edges)), bool)
    for node in range(count):
        before, after = dag.ancestors[node] | {node}, dag.descendants[node] | {node}
        outside[node, sorted(before | after)] = False
        for edge, (subject, _, object_) in enumerate(query.edges):
            if object_ in before or subject in after:
                outside[node, count + edge] = False
    return outside


def token_elements(trace: Trace, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(T,) the element that each token of one query of a batch stands for, and the places of the masks among them."""
    table, rows = getattr(trace.batch, "table", None), getattr(trace.batch, "rows", None)
    if not isinstance(table, TokenTable) or rows is None:
        raise UnsupportedQuery(
            "this model's attention is not over the tokens of a query, so nothing can be said about their share",
            hint="ask a biqe model",
        )
    own = slice(table.offsets[rows[place]], table.offsets[rows[place] + 1])
    return np.asarray(table.elements[own], np.int64), np.flatnonzero(table.targets[own] >= 0)


@dataclass(frozen=True)
class QueryAttention:
    """Attention of the masks of one query, with names: what ``heat_map`` draws."""

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

    def mean(self) -> NDArray[np.float64]:
        """(V, T) attention averaged over all layers and heads."""
        return self.weights.mean(axis=(0, 1))

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, strings and numbers only."""
        return {"format": "biqe-analysis", "analysis": "query-attention", **plain(self)}


def query_attention(
    model: QueryModel, query: BoundQuery, vocabulary: Vocabulary | None = None, *, top: int = 3
) -> QueryAttention:
    """What the masks of one query attend to, with names, and what the model predicts there."""
    support = model.supports(query, strict=False)
    if not support.yes:
        raise UnsupportedQuery(support.reason, hint=support.hint)
    with at_rest(model):
        traced = trace(model, model.encoder(QuerySet.of([query])))
    elements, _ = token_elements(traced, 0)
    found = tokens(query)
    names = _variable_names(query)
    words = [
        names[element] if kind == "mask" else (_relation if kind == "relation" else _entity)(id_, vocabulary)
        for kind, id_, element in zip(found.kinds, found.ids, found.elements, strict=True)
    ]
    nodes = sorted(query.targets)
    weights = np.stack([layer[0].cpu().double().numpy() for layer in traced.attention])  # (layers, H, T, T)
    weights = np.stack([weights[:, :, elements == node].mean(axis=2) for node in nodes], axis=2)  # (layers, H, V, T)
    best = traced.scores.double().exp().topk(min(top, traced.scores.shape[1]), dim=1)
    return QueryAttention(
        model=model.name,
        patterns=tuple(_patterns(query, names, vocabulary)),
        words=tuple(words),
        kinds=tuple(found.kinds),
        paths=tuple(found.paths),
        targets=tuple(names[node] for node in nodes),
        weights=weights[..., : len(found)],
        outside=non_ancestors(query)[nodes][:, elements],
        predictions=tuple(
            tuple((_entity(entity, vocabulary), chance) for entity, chance in zip(entities, chances, strict=True))
            for entities, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )


def _variable_names(query: BoundQuery) -> dict[int, str]:
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


def _patterns(query: BoundQuery, names: Mapping[int, str], vocabulary: Vocabulary | None) -> list[str]:
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


# The attention of one query as a heat map, like the paper's figure "Attention in BiQE"

# A column for each unknown, a row for each token of the query, path after path; the darker a cell, the more attention.
# Above it stands the query, and what the model predicts; below it, what share of the attention goes to tokens that are
# neither ancestors nor descendants of the unknown, which are framed.


LONGEST = 44
"""Characters of a name; longer ones lose their middle."""
MARGIN, LINE, SIZE, ROW, CELL = 24, 18, 12, 24, 76


def heat_map(attention: QueryAttention) -> Figure:
    """The picture of all layers and heads together, to be drawn by ``pictures.render`` or ``pictures.save``."""
    layers, heads = attention.weights.shape[:2]
    weights = attention.mean()  # (V, T)
    names = [shortened(target, 12) for target in attention.targets]
    page = Page()
    y: float = MARGIN + SIZE
    page.text(MARGIN, y, f"What the unknowns look at ({attention.model})", size=15, is_bold=True)
    y += 1.5 * LINE
    page.text(MARGIN, y, "The query", is_bold=True)
    for pattern in attention.patterns:
        y += LINE
        page.text(MARGIN, y, shortened(pattern, 100))
    y += 0.5 * LINE
    for name, best in zip(names, attention.predictions, strict=True):
        y += LINE
        chances = ", ".join(f"{entity} ({100 * p:.0f} %)" for entity, p in best)
        page.text(MARGIN, y, shortened(f"{name} is predicted to be {chances}", 110))
    y = _cells(page, attention, weights, names, y + LINE)

    notes = [
        f"Attention of each unknown to each token; a column adds up to 100 % (mean of {layers} "
        f"layers and {heads} heads).",
        "Framed: tokens that are neither before nor after the unknown in the query.",
    ]
    for name, row, outside in zip(names, weights, attention.outside, strict=True):
        notes.append(f"{name}: {100 * row[outside].sum():.0f} % of its attention goes to framed tokens")
    for note in notes:
        y += LINE
        page.text(MARGIN, y, note, size=11, fill=SOFT)
    return page.figure(MARGIN)


def _cells(page: Page, attention: QueryAttention, weights: np.ndarray, names: list[str], y: float) -> float:
    """Draw the cells from y downwards; where they end."""
    words = [shortened(word) for word in attention.words]
    left = MARGIN + max(text_width(word, SIZE) for word in words) + 2 * SIZE
    strongest = max(float(weights.max()), 1e-9)
    y += ROW
    for column, name in enumerate(names):
        page.text(left + CELL * (column + 0.5), y - 8, name, anchor="center", is_bold=True)
    path = None
    for token, word in enumerate(words):
        if attention.paths[token] != path:
            path = attention.paths[token]
            y += ROW
            page.text(MARGIN, y - 7, f"path {path + 1}, from its end", fill=SOFT)
        page.text(left - SIZE, y + ROW - 8, word, anchor="right", is_bold=attention.kinds[token] == "mask")
        for column in range(len(names)):
            x, weight = left + CELL * column, float(weights[column, token])
            frame = ORANGE if attention.outside[column, token] else None
            strength = 0.04 + (HEAT - 0.04) * weight / strongest
            page.box(x + 3, y + 3, CELL - 6, ROW - 6, fill=BLUE, stroke=frame, line=2, strength=strength)
            page.text(x + CELL / 2, y + ROW - 8, f"{100 * weight:.0f} %", anchor="center", size=11)
        y += ROW
    return y + 0.5 * LINE


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text, without its middle where it is longer than ``longest``.

    >>> shortened("/film/film/release_date_s/film_release_region", 21)
    '/film/film…ase_region'
    """
    if len(text) <= longest:
        return text
    ahead = (longest - 1) // 2
    return f"{text[:ahead]}…{text[len(text) - (longest - 1 - ahead) :]}"
