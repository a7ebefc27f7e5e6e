"""The tokens that a transformer reads: the paper's encoding, one query at a time, as the reference.

Paper: section "The Bidirectional Query Encoder". Targets become [MASK], hidden variables are dropped, each path is
written tail first, and positions restart at 0 on every path. ``token_table.py`` does the same for many queries at
once, in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery
from biqe.query.dag import PATH_CAP, paths

MASK, ENTITY, RELATION = "mask", "entity", "relation"


@dataclass(frozen=True)
class Tokens:
    """Tokens of one query, path after path; all columns have one value a token."""

    kinds: tuple[str, ...]
    """MASK, ENTITY or RELATION."""
    ids: tuple[int, ...]
    """Entity id, relation id (inverses from R on), or TARGET for a mask."""
    positions: tuple[int, ...]
    """Place on the path, counted in tokens from its end."""
    paths: tuple[int, ...]
    """Number of the path."""
    elements: tuple[int, ...]
    """What the token stands for: a node of the query, or number of nodes + edge. Shared by the tokens of a node
    or an edge that lies on several paths."""
    words: tuple[str, ...]
    """How to show the token."""

    def __len__(self) -> int:
        return len(self.kinds)

    def __str__(self) -> str:
        shown: dict[int, list[str]] = defaultdict(list)
        for word, position, path in zip(self.words, self.positions, self.paths, strict=True):
            shown[path].append(f"{word}@{position}")
        return " | ".join(" ".join(shown[path]) for path in sorted(shown))

    @property
    def twins(self) -> tuple[tuple[int, ...], ...]:
        """Groups of targets whose masks stand at the same positions.

        Under the paper's encoding such targets get identical outputs: mask and position are all that the model
        knows about a target. Targets are given as nodes.
        """
        places: dict[int, list[int]] = defaultdict(list)
        for kind, position, element in zip(self.kinds, self.positions, self.elements, strict=True):
            if kind == MASK:
                places[element].append(position)
        groups: dict[tuple[tuple[int, float], ...], list[int]] = defaultdict(list)
        for node, positions in sorted(places.items()):
            # Outputs of a target's masks are averaged, so shares count, not numbers.
            shares = tuple((place, positions.count(place) / len(positions)) for place in sorted(set(positions)))
            groups[shares].append(node)
        return tuple(tuple(nodes) for nodes in groups.values() if len(nodes) > 1)


def tokens(query: BoundQuery, *, vocabulary: Vocabulary | None = None, cap: int = PATH_CAP) -> Tokens:
    """Tokens of all root-to-leaf paths, in the order of ``paths``. Refuses what ``paths`` refuses.

    With a vocabulary, entities and relations are shown by name, else by id.

    >>> from biqe.graph.vocabulary import Vocabulary
    >>> from biqe.query.bind import bind
    >>> from biqe.query.sparql import parse
    >>> town = Vocabulary(["e"], ["r1", "r2", "r3"])
    >>> query = bind(parse("SELECT ?x ?y WHERE { :e :r1 ?h . ?h :r2 ?x . ?x :r3 ?y }"), town)
    >>> str(tokens(query, vocabulary=town))
    '[MASK y]@0 r3@1 [MASK x]@2 r2@3 r1@4 e@5'
    """
    rows: list[tuple[str, int, int, int, int, str]] = []
    for number, path in enumerate(paths(query, cap=cap)):
        position = 0
        for step in range(len(path.nodes) - 1, -1, -1):
            node = path.nodes[step]
            value = query.nodes[node]
            if value != HIDDEN:
                kind = MASK if value == TARGET else ENTITY
                rows.append((kind, value, position, number, node, _node_word(query, node, vocabulary)))
                position += 1
            if step > 0:
                edge = path.edges[step - 1]
                relation = query.edges[edge][1]
                element = len(query.nodes) + edge
                rows.append((RELATION, relation, position, number, element, _relation_word(relation, vocabulary)))
                position += 1
    if not rows:  # hidden variables alone, without an edge
        return Tokens((), (), (), (), (), ())
    return Tokens(*zip(*rows, strict=True))  # type: ignore[arg-type]


def _node_word(query: BoundQuery, node: int, vocabulary: Vocabulary | None) -> str:
    value = query.nodes[node]
    if value == TARGET:
        return f"[MASK {query.names[node]}]" if query.names else f"[MASK {node}]"
    return f"e{value}" if vocabulary is None else vocabulary.entities[value]


def _relation_word(relation: int, vocabulary: Vocabulary | None) -> str:
    if vocabulary is None:
        return f"r{relation}"
    count = len(vocabulary.relations)
    return vocabulary.relations[relation % count] + ("⁻¹" if relation >= count else "")
