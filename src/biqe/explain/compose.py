"""An explanation of one row: its facts, the reasons for those that are missing, and the views that were asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.explain.attention import attend
from biqe.explain.counterfactual import Asked, reason_of, vary, with_graph
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
from biqe.explain.reasons import reasons, stated, why
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.words import HELD
from biqe.graph.words import probability as shown
from biqe.predict.evidence import Evidence, EvidenceSearch, IdLink, Masks
from biqe.predict.predictor import Predictor
from biqe.query.bound import HIDDEN as HIDDEN_NODE
from biqe.query.bound import TARGET, BoundQuery, forward

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

ENCODER_SHARE = (
    "This is the share that the encoder by itself gives the row; the probability above is that of its missing facts."
)


def explain(
    model: QueryModel | Predictor | None,
    graph: Graph,
    query: BoundQuery,
    row: Mapping[int, int],
    vocabulary: Vocabulary,
    *,
    views: Sequence[str] = (WITNESS,),
    probability: float | None = None,
    link_probabilities: Mapping[IdLink, float] | None = None,
    allowed: Masks | None = None,
    evidence: Evidence | None = None,
    asked: BoundQuery | None = None,
    permitted: Masks | None = None,
    remark: str = "",
    against: Sequence[tuple[Sequence[IdLink], float]] = (),
) -> Explanation:
    """Why ``row`` answers ``query``.

    ``query`` is the bound query as the user wrote it, ``row`` the entity of each of its target nodes, ``graph`` the
    triples that count as known. Without a model there is a witness and nothing else. The views ``attention`` and
    ``counterfactual`` are about a model that reads the whole question, and are made only if they are asked for.
    ``probability`` is what the row was given when it was asked for; left out, its share where that is worked out, else
    the probabilities of its missing links, multiplied.
    ``allowed`` are the entities that hidden variables may be, as (E,) masks by node, where the query has conditions on
    them. A view that the model cannot give is skipped with a sentence; a row that does not fit the query is refused.

    Of a row that was answered, ``evidence`` is what it was found to rest on, ``link_probabilities`` how probable its
    missing links are, and ``asked`` the question that the model was put: the same nodes and patterns, with hidden
    variables as further targets perhaps, or targets as constants; ``permitted`` are the entities that conditions leave
    its targets. ``remark`` is a sentence on why the row's probability is not its share. ``against`` are links that must
    not hold all together, and how probable it is that they do.

    >>> from biqe.graph.triples import as_triples
    >>> town = Vocabulary(["Rhine", "Bonn"], ["located_on"])
    >>> query = BoundQuery((-1, 0), ((0, 0, 1),), (0,), ("city", ""))
    >>> found = explain(None, Graph(town, as_triples([(1, 0, 0)])), query, {0: 1}, town)
    >>> found.status, found.witness.links
    ('known', (Link(pattern=0, is_stored=True, probability=1.0),))
    """
    row = {int(node): int(entity) for node, entity in row.items()}
    predictor = model if model is None or isinstance(model, Predictor) else Predictor(model)
    _check(predictor, graph, query, row, vocabulary, views)
    for node, mask in (allowed or {}).items():
        if not 0 <= node < len(query.nodes) or query.nodes[node] != HIDDEN_NODE or mask.shape != (graph.entity_count,):
            raise InvalidOption(
                f"'allowed' must have masks of {graph.entity_count:,} entities for hidden variables. Got one of shape "
                f"{mask.shape} for node {node}"
            )
    if probability is not None and not 0.0 <= probability <= 1.0:
        raise InvalidOption(f"the probability of a row must be in [0, 1]. Got {probability}")
    asked = query if asked is None else asked
    if (len(asked.nodes), asked.edges) != (len(query.nodes), query.edges):
        raise InvalidOption("the question as it was asked must have the nodes and patterns of the query")
    predictor = None if predictor is None else with_graph(predictor, graph)
    said = dict(link_probabilities or {})
    if evidence is None:
        values = [row[node] for node in query.targets]
        (evidence,), found = EvidenceSearch(graph, query, allowed).find([values], predictor)
        said = {**found, **said}
    chances = _chances(evidence, predictor, graph, said)
    made: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    if predictor is None:
        reason = "there is no model, so there is nothing to ask."
        skipped = {view: reason for view in (ATTENTION, COUNTERFACTUAL) if view in views}
    else:
        if ATTENTION in views:
            try:
                made[ATTENTION] = attend(predictor, asked)
            except UnsupportedQuery as error:
                skipped[ATTENTION] = _sentence(reason_of(error))
        if predictor.links is not None:
            remark = remark or ENCODER_SHARE
        if COUNTERFACTUAL in views:
            put = Asked(predictor.encoder_alone(), graph, asked, evidence, chances, permitted or {})
            try:
                made[COUNTERFACTUAL] = vary(put)
            except UnsupportedQuery as error:
                skipped[COUNTERFACTUAL] = _sentence(reason_of(error))
    if WITNESS in views:
        links = enumerate(zip(evidence.stored, chances, strict=True))
        made[WITNESS] = Witness(tuple(Link(number, *link) for number, link in links), evidence.is_complete)
    missing = {
        link: chance
        for link, stored, chance in zip(evidence.links, evidence.stored, chances, strict=True)
        if not stored
    }
    is_known = not missing
    sentence = why(predictor, vocabulary, missing) if not is_known else HELD
    if against:
        told = (
            f"{' and '.join(f'“{stated(vocabulary, link)}”' for link in links)} (probability {shown(chance)})"
            for links, chance in against
        )
        sentence = f"{sentence}; counts against it: {', '.join(told)}"
    if probability is None and COUNTERFACTUAL in made and not is_known:
        probability = made[COUNTERFACTUAL].share
    return Explanation(
        sentence=sentence,
        reasons=() if predictor is None else tuple(reasons(predictor, vocabulary, missing)),
        model=None if predictor is None else predictor.name,
        nodes=_nodes(query, evidence, vocabulary),
        patterns=_patterns(query, vocabulary),
        targets=query.targets,
        status=KNOWN if is_known else PREDICTED,
        probability=_product(chances) if probability is None else float(probability),
        depths=depths(query, graph.relation_count),
        skipped=skipped,
        remark=remark,
        **made,
    )


def _chances(
    evidence: Evidence, predictor: Predictor | None, graph: Graph, said: dict[IdLink, float]
) -> tuple[float | None, ...]:
    """For each pattern: 1 where its link is stored, the model's probability where it is missing, None where nobody can
    say."""
    new = [link for link in evidence.missing if link.is_closed and link not in said]
    if predictor is not None and new:
        try:
            said.update(zip(new, predictor.link_probabilities(new), strict=True))
        except UnsupportedQuery:
            pass  # a model that cannot read a single link has no opinion on it
    return tuple(
        1.0 if is_stored else said.get(link) for link, is_stored in zip(evidence.links, evidence.stored, strict=True)
    )


def _product(chances: Sequence[float | None]) -> float | None:
    """What the links make together; None where nobody can say."""
    known = [chance for chance in chances if chance is not None]
    return math.prod(known) if len(known) == len(chances) else None


def _check(
    predictor: Predictor | None,
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
    if predictor is not None:
        counts["model"] = predictor.entity_count, predictor.model.relation_count
    if len(set(counts.values())) > 1:
        shown = "; ".join(f"the {name} has {e:,} entities and {r:,} relations" for name, (e, r) in counts.items())
        raise VocabularyMismatch(
            f"graph, vocabulary and model belong to different graphs: {shown}", hint="take them from one knowledge base"
        )


def _nodes(query: BoundQuery, found: Evidence, vocabulary: Vocabulary) -> tuple[Node, ...]:
    nodes = []
    counts = {ASKED: 0, HIDDEN: 0}
    for number, (value, entity) in enumerate(zip(query.nodes, found.nodes, strict=True)):
        name = label = None
        if entity >= 0:
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
    edges = (forward(edge, count) for edge in query.edges)
    return tuple(Pattern(subject, vocabulary.relations[relation], object_) for subject, relation, object_ in edges)


def _sentence(message: str) -> str:
    """A reason as a sentence that goes on after a colon."""
    return message.rstrip(".") + "."
