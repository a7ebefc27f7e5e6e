"""The three views of one row, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.explain import witness
from biqe.explain.asking import Asker, LinkProbabilities
from biqe.explain.attention import attend
from biqe.explain.counterfactual import Asked, told, vary
from biqe.explain.explanation import Explanation
from biqe.explain.graph_layout import depths
from biqe.explain.parts import (
    ASKED,
    ATTENTION,
    CONSTANT,
    COUNTERFACTUAL,
    HIDDEN,
    KNOWN,
    PREDICTED,
    VIEWS,
    WITNESS,
    Link,
    Node,
    Pattern,
    Witness,
)
from biqe.explain.search import Allowed, Evidence
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import HIDDEN as HIDDEN_NODE
from biqe.query.bound import TARGET, BoundQuery

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel


def explain(
    model: QueryModel | None,
    graph: Graph,
    query: BoundQuery,
    row: Mapping[int, int],
    vocabulary: Vocabulary,
    *,
    views: Sequence[str] = VIEWS,
    probability: float | None = None,
    link_probabilities: LinkProbabilities | None = None,
    allowed: Allowed | None = None,
    evidence: Evidence | None = None,
    asked: BoundQuery | None = None,
    permitted: Allowed | None = None,
    remark: str = "",
) -> Explanation:
    """Why ``row`` answers ``query``.

    ``query`` is the bound query as the user wrote it, ``row`` the entity of each of its target nodes, ``graph`` the
    triples that count as known. Without a model there is a witness and nothing else. ``probability`` is what the row
    was given when it was asked for, and ``link_probabilities`` says how probable single links are, both calibrated
    perhaps; left out, they are the model's shares. ``allowed`` are the entities that hidden variables may be, as (E,)
    masks by node, where the query has conditions on them. A view that the model cannot give is skipped with a sentence;
    a row that does not fit the query is refused.

    Of a row that was answered, ``evidence`` is what it was found to rest on, and ``asked`` the question that the model
    was put: the same nodes and patterns, with hidden variables as further targets perhaps, or targets as constants;
    ``permitted`` are the entities that conditions leave its targets. ``remark`` is a sentence on why the row's
    probability is not its share.

    >>> from biqe.graph.triples import as_triples
    >>> town = Vocabulary(["Rhine", "Bonn"], ["located_on"])
    >>> query = BoundQuery((-1, 0), ((0, 0, 1),), (0,), ("city", ""))
    >>> why = explain(None, Graph(town, as_triples([(1, 0, 0)])), query, {0: 1}, town, views=["witness"])
    >>> why.status, why.witness.links
    ('known', (Link(pattern=0, is_stored=True, probability=1.0),))
    """
    row = {int(node): int(entity) for node, entity in row.items()}
    _check(model, graph, query, row, vocabulary, views)
    for node, mask in (allowed or {}).items():
        if not 0 <= node < len(query.nodes) or query.nodes[node] != HIDDEN_NODE or mask.shape != (graph.entity_count,):
            raise InvalidOption(
                f"'allowed' must have masks of {graph.entity_count:,} entities for hidden variables. Got one of shape "
                f"{mask.shape} for node {node}"
            )
    if probability is not None and not 0.0 <= probability <= 1.0:
        raise InvalidOption(f"the probability of a row must be in [0, 1]. Got {probability}")
    asker = None if model is None else told(Asker(model, link_probabilities), graph)
    found = witness.find(graph, query, row, asker, allowed, evidence)
    asked = query if asked is None else asked
    if (len(asked.nodes), asked.edges) != (len(query.nodes), query.edges):
        raise InvalidOption("the question as it was asked must have the nodes and patterns of the query")
    values = {node: found.nodes[node] for node in asked.targets}
    made: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    share = None
    if asker is None:
        reason = "there is no model, so there is nothing to ask."
        skipped = {view: reason for view in (ATTENTION, COUNTERFACTUAL) if view in views}
    else:
        if ATTENTION in views:
            try:
                made[ATTENTION] = attend(asker, asked)
            except UnsupportedQuery as error:
                skipped[ATTENTION] = _sentence(error.message)
        try:
            if COUNTERFACTUAL in views:
                made[COUNTERFACTUAL] = vary(asker, graph, asked, values, found, permitted)
                share = made[COUNTERFACTUAL].share
            else:
                share = Asked(asker, graph, asked, values, found, permitted or {}).share()
        except UnsupportedQuery as error:
            if COUNTERFACTUAL in views:
                skipped[COUNTERFACTUAL] = _sentence(error.message)
    if WITNESS in views:
        links = enumerate(zip(found.stored, found.probabilities, strict=True))
        made[WITNESS] = Witness(tuple(Link(number, *link) for number, link in links), found.is_complete)
    return Explanation(
        model=None if model is None else model.name,
        nodes=_nodes(query, found, vocabulary),
        patterns=_patterns(query, vocabulary),
        targets=query.targets,
        status=KNOWN if all(found.stored) else PREDICTED,
        probability=share if probability is None else float(probability),
        share=share,
        depths=depths(query, graph.relation_count),
        skipped=skipped,
        remark=remark,
        **made,
    )


def _check(
    model: QueryModel | None,
    graph: Graph,
    query: BoundQuery,
    row: Mapping[int, int],
    vocabulary: Vocabulary,
    views: Sequence[str],
) -> None:
    for view in views:
        if view not in VIEWS:
            raise InvalidOption(f"a view must be one of {', '.join(VIEWS)}. Got {view!r}")
    if isinstance(views, str) or not views:
        raise InvalidOption(f"'views' must be a list of one or more of {', '.join(VIEWS)}. Got {views!r}")
    if set(row) != set(query.targets):
        raise InvalidOption(
            f"a row to explain must have an entity for each of the target nodes {sorted(query.targets)}. "
            f"Got nodes {sorted(row)}"
        )
    for entity in row.values():
        if not 0 <= entity < graph.entity_count:
            raise InvalidOption(f"entity ids of a row must be in [0, {graph.entity_count:,}). Got {entity}")
    counts = {"graph": (graph.entity_count, graph.relation_count)}
    counts["vocabulary"] = len(vocabulary.entities), len(vocabulary.relations)
    if model is not None:
        counts["model"] = model.entity_count, model.relation_count
    if len(set(counts.values())) > 1:
        shown = "; ".join(f"the {name} has {e:,} entities and {r:,} relations" for name, (e, r) in counts.items())
        raise VocabularyMismatch(
            f"graph, vocabulary and model belong to different graphs: {shown}", hint="take them from one knowledge base"
        )


def _nodes(query: BoundQuery, found: witness.Found, vocabulary: Vocabulary) -> tuple[Node, ...]:
    nodes = []
    counts = {ASKED: 0, HIDDEN: 0}
    for number, (value, entity) in enumerate(zip(query.nodes, found.nodes, strict=True)):
        name = label = None
        if entity != witness.NOBODY:
            name, label = vocabulary.entities[entity], vocabulary.label(entity)
        if value >= 0:
            nodes.append(Node(CONSTANT, str(label), name, label))
            continue
        kind = ASKED if value == TARGET else HIDDEN
        counts[kind] += 1
        own = query.names[number] if query.names else ""
        # Mined queries have no names.
        nodes.append(Node(kind, f"?{own or ('' if kind == ASKED else 'h') + str(counts[kind])}", name, label))
    return tuple(nodes)


def _patterns(query: BoundQuery, vocabulary: Vocabulary) -> tuple[Pattern, ...]:
    count = len(vocabulary.relations)
    edges = (witness.forward(edge, count) for edge in query.edges)
    return tuple(Pattern(subject, vocabulary.relations[relation], object_) for subject, relation, object_ in edges)


def _sentence(message: str) -> str:
    """A reason as a sentence that goes on after a colon."""
    return message.rstrip(".") + "."
