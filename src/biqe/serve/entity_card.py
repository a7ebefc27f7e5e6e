"""The card of an entity: what it is, its facts, and questions about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from biqe.answer.result import ShownNames
from biqe.answer.terms import TermTable
from biqe.graph.index import Index
from biqe.graph.knowledge_graph import Graph
from biqe.graph.search import local_name
from biqe.query.bind import find_entity
from biqe.query.scan import abbreviated, in_query
from biqe.serve import schemas as out
from biqe.serve.example_questions import Questions
from biqe.serve.views import entity_value, prefixed

MOST_VALUES = 200
"""Texts, numbers and dates that are looked up."""
LISTED = 12
"""Entities that are listed for each relation, unless one relation alone is asked for."""
QUESTIONS = 4


def card(
    graph: Graph, name: str, prefixes: Mapping[str, str], relation: str | None, limit: int | None
) -> out.EntityOut:
    """The facts of the entity that ``name`` means, by relation, the rarest relations first: they say most about it.
    With ``relation``, only those of it, ``limit`` each."""
    vocabulary = graph.vocabulary
    entity = find_entity(name, vocabulary)
    ask = Questions(graph, prefixes)
    names = ShownNames(vocabulary, prefixes)

    def shown(other: int) -> out.Value:
        return prefixed(entity_value(other, vocabulary), names)

    frequency = np.bincount(graph.triples[:, 1], minlength=graph.relation_count)
    sides = sorted(_sides(graph.index, entity), key=lambda side: (side[1], frequency[side[0]], side[0]))
    groups = [
        out.FactGroup(
            relation=vocabulary.relations[number],
            label=local_name(vocabulary.relations[number]),
            term=in_query(vocabulary.relations, number, prefixes),
            inverse=is_inverse,
            count=len(others),
            values=[shown(other) for other in others[: limit or LISTED].tolist()],
        )
        for number, is_inverse, others in sides
        if relation is None or vocabulary.relations[number] == relation
    ]
    # One question in each direction, then the rest of them.
    into = sorted(((len(others), number) for number, is_inverse, others in sides if is_inverse), reverse=True)
    who = (ask.who(number, entity) for _, number in into)
    whom = (
        ask.whom(entity, number) for number, is_inverse, _ in sides if not is_inverse and number != ask.type_relation
    )
    value = shown(entity)
    return out.EntityOut(
        value=value.model_copy(update={"term": value.term and in_query(vocabulary.entities, entity, prefixes)}),
        classes=[shown(each) for each in ask.classes(entity)],
        count=sum(len(others) for *_, others in sides),
        facts=groups,
        questions=[] if relation is not None else list(islice(chain(islice(who, QUESTIONS // 2), whom), QUESTIONS)),
    )


def with_values(
    shown: out.EntityOut, found: TermTable, prefixes: Mapping[str, str], relation: str | None, limit: int | None
) -> out.EntityOut:
    """The card with texts, numbers and dates, which are in rows ``?p ?o``, between what the entity says of others and
    what others say of it."""
    values: dict[str, list[out.Value]] = {}
    for row in found:
        term = row.terms["o"]
        label = row.labels["o"]
        if term is not None and term.kind == "literal" and label != shown.value.label:
            values.setdefault(str(row["p"]), []).append(out.Value(id=None, name=None, iri=None, label=label, term=None))
    groups = [
        out.FactGroup(
            relation=name,
            label=local_name(name),
            term=abbreviated(name.replace(" ", "_"), prefixes),
            inverse=False,
            count=len(texts),
            values=texts[: limit or LISTED],
        )
        for name, texts in sorted(values.items(), key=lambda each: (len(each[1]), each[0]))
        if relation is None or name == relation
    ]
    ahead = sum(not group.inverse for group in shown.facts)
    return shown.model_copy(
        update={
            "facts": [*shown.facts[:ahead], *groups, *shown.facts[ahead:]],
            "count": shown.count + sum(map(len, values.values())),
        }
    )


def _sides(index: Index, entity: int) -> Iterator[tuple[int, bool, NDArray[np.int32]]]:
    """Each relation that an entity has, whether the entity is its object, and who is at the other end."""
    for is_inverse, offsets, relations, others in (
        (False, index.out_offsets, index.out_relations, index.out_objects),
        (True, index.in_offsets, index.in_relations, index.in_subjects),
    ):
        own = slice(int(offsets[entity]), int(offsets[entity + 1]))
        numbers, starts = np.unique(relations[own], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(others[own], starts)[1:], strict=True):
            yield number, is_inverse, part
