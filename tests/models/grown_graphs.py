"""A small vocabulary that has grown, graphs over it, and every model over either."""

from __future__ import annotations

import torch

from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import _catalogue
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import QuerySet

OLD = Vocabulary([f"e{n}" for n in range(12)], ["r0", "r1", "r2"])
GROWN = Vocabulary([*OLD.entities, "new0", "new1"], [*OLD.relations, "new_relation"])
SHUFFLED = Vocabulary(
    ["new0", *(OLD.entities[n] for n in (5, 3, 0, 1, 2, 4, 11, 10, 9, 8, 7, 6)), "new1"],
    ["r2", "new_relation", "r0", "r1"],
)
SMALL = {
    "biqe": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16},
    "hybrid": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "rank": 3},
    "gqe": {"width": 8},
    "query2box": {"width": 8},
    "mpqe": {"width": 8, "layers": 1},
    "tractor": {"components": 6},
    "cqd": {"rank": 4},
}
MODELS = sorted(SMALL)


def build(name: str, vocabulary: Vocabulary, seed: int = 0, **options: object):
    torch.manual_seed(seed)
    sizes = len(vocabulary.entities), len(vocabulary.relations)
    return _catalogue.build(name, {**SMALL[name], **options}, *sizes).eval()


def graph_over(vocabulary: Vocabulary) -> Graph:
    def triple(s: str, r: str, o: str) -> tuple[int, int, int]:
        return vocabulary.entity_id(s), vocabulary.relation_id(r), vocabulary.entity_id(o)

    rows = [triple(f"e{n}", f"r{n % 3}", f"e{(n + 1) % 12}") for n in range(12)]
    rows += [triple("e1", "r0", "e5"), triple("e2", "r0", "e5")]
    if vocabulary.entities.find("new0") is not None:
        rows += [triple("new0", "r0", "e5"), triple("new0", "new_relation", "e7")]
    return Graph(vocabulary, as_triples(rows))


def asked(vocabulary: Vocabulary) -> QuerySet:
    """Two questions in names: r1 from e3, and the inverse of r2 from e4."""
    count = len(vocabulary.relations)
    forward = BoundQuery((vocabulary.entity_id("e3"), TARGET), ((0, vocabulary.relation_id("r1"), 1),), (1,))
    backward = BoundQuery((vocabulary.entity_id("e4"), TARGET), ((0, vocabulary.relation_id("r2") + count, 1),), (1,))
    return QuerySet.of([forward, backward])
