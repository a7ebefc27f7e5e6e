"""From names to ids: a query of the text becomes a query of the graph.

A name is looked up as it stands, then with blanks for underscores or %20, then, for entities, as a label, then as a
further label such as one of another language. An unknown name is refused with similar ones as suggestions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from biqe.errors import AmbiguousName, UnknownName, UnsupportedQuery
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, Edge
from biqe.query.nearest import WORSE, local_part, nearest
from biqe.query.question import (
    ASK,
    COUNT,
    Absent,
    Branch,
    Condition,
    Entity,
    Literal,
    NameOf,
    Operand,
    Order,
    Query,
    Question,
    Term,
    Variable,
    is_absolute,
    map_operands,
    variables,
)

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
"""IRI that ``a`` stands for in a pattern."""
TYPE_NAMES = ("rdf:type", "a", "type")
"""Names of the same relation in graphs whose names are no IRIs."""

_SHOWN = 5
"""Candidates listed for an ambiguous name."""


@dataclass(frozen=True)
class BoundBranch:
    """One conjunction of a question."""

    query: BoundQuery
    """The patterns; the selected variables are the targets."""
    wide: BoundQuery
    """The same query with the hidden variables of conditions as further targets, so that its rows can be filtered."""
    filters: tuple[Condition, ...] = ()
    """Conditions on the variables, with entities named as in the graph."""

    @property
    def is_plain(self) -> bool:
        """Whether every match is a row: there are no conditions."""
        return not self.filters


@dataclass(frozen=True)
class BoundQuestion:
    """A question over the ids of one vocabulary."""

    form: str
    columns: tuple[str, ...]
    """Names of the selected variables."""
    branches: tuple[BoundBranch, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    counted_as: str = ""


def bind_question(question: Question, vocabulary: Vocabulary) -> BoundQuestion:
    """The question over the ids of ``vocabulary``. Refused: what ``bind`` refuses, in patterns and in conditions."""
    # LIMIT of a plain conjunctive query is known to the query itself, so that no more rows than that are looked for.
    plain = question.conjunctive
    limit = plain.limit if plain is not None else None
    branches = tuple(_branch(question, branch, vocabulary, limit) for branch in question.branches)
    return BoundQuestion(
        question.form,
        tuple(target.name for target in question.targets),
        branches,
        question.order,
        question.limit,
        question.offset,
        question.counted_as.name if question.counted_as else "",
    )


def _branch(question: Question, branch: Branch, vocabulary: Vocabulary, limit: int | None) -> BoundBranch:
    targets = question.targets
    if question.form == COUNT and not targets:
        targets = branch.variables
    closed = question.form == ASK or not targets
    query = bind(Query(targets, branch.patterns, limit), vocabulary, closed=closed)
    filters = tuple(_resolved(condition, vocabulary) for condition in branch.filters)
    judged = [variable for condition in filters for variable in variables(condition) if variable not in targets]
    if not judged:
        return BoundBranch(query, query, filters)
    wide = bind(Query((*targets, *dict.fromkeys(judged)), branch.patterns), vocabulary)
    return BoundBranch(query, wide, filters)


def _resolved(condition: Condition, vocabulary: Vocabulary) -> Condition:
    """The condition with every entity spelt as the graph spells it; UnknownName for one that it does not have."""
    if isinstance(condition, Absent):
        negated_part(condition, vocabulary)
        return condition

    def spelt(operand: Operand) -> Operand:
        term = operand.term if isinstance(operand, NameOf) else operand
        if not isinstance(term, Entity):
            return operand
        entity = Entity(vocabulary.entities[find_entity(term.name, vocabulary)])
        return NameOf(entity) if isinstance(operand, NameOf) else entity

    return map_operands(condition, spelt)


def negated_part(condition: Absent, vocabulary: Vocabulary) -> BoundQuery:
    """The patterns of a condition as a query of their own, whose targets are the variables that they share."""
    return bind(Query(condition.shared, condition.patterns), vocabulary, closed=not condition.shared)


def bind(query: Query, vocabulary: Vocabulary, *, closed: bool = False) -> BoundQuery:
    """The query over the ids of ``vocabulary``: one node a constant, one node a variable, one edge a pattern.

    Nodes are numbered in order of appearance, subject before object; a pattern said twice is one edge. Refused: a
    name that is not in the graph or fits several entities, a query without pattern or variable, a target that
    occurs in no pattern. ``closed`` is for ASK, which selects nothing and may have no variable.

    >>> from biqe.query.sparql import parse
    >>> town = Vocabulary(["Rhine", "Bonn"], ["located_on"])
    >>> bind(parse("SELECT ?city WHERE { ?city :located_on :Rhine }"), town)
    BoundQuery(nodes=(-1, 0), edges=((0, 0, 1),), targets=(0,), names=('city', ''), limit=None, negated=())
    """
    _refuse_incomplete(query, closed)
    nodes: list[int] = []
    names: list[str] = []
    numbers: dict[Variable | int, int] = {}
    targets = set(query.targets)

    def node_of(term: Term) -> int:
        if isinstance(term, Literal):
            raise UnsupportedQuery(
                f"{term} is a literal, and models predict entities", hint="ask in mode both or known"
            )
        # Two names of one entity are one constant, so constants are told apart by id.
        key = term if isinstance(term, Variable) else find_entity(term.name, vocabulary)
        if key not in numbers:
            numbers[key] = len(nodes)
            if isinstance(key, Variable):
                nodes.append(TARGET if key in targets else HIDDEN)
                names.append(key.name)
            else:
                nodes.append(key)
                names.append("")
        return numbers[key]

    edges: dict[Edge, None] = {}
    for pattern in query.patterns:
        subject = node_of(pattern.subject)
        if isinstance(pattern.relation, Variable):
            raise UnsupportedQuery(f"{pattern.relation} stands for a relation", hint="ask in mode both or known")
        relation = find_relation(pattern.relation, vocabulary)
        edges[subject, relation, node_of(pattern.object)] = None
    bound_targets = tuple(dict.fromkeys(numbers[target] for target in query.targets))
    return BoundQuery(tuple(nodes), tuple(edges), bound_targets, tuple(names), query.limit)


def _refuse_incomplete(query: Query, closed: bool) -> None:
    if not query.patterns:
        raise UnsupportedQuery("the query has no triple pattern", hint="say what is known: { ?x :relation :name }")
    if closed:
        return
    if not query.variables:
        raise UnsupportedQuery(
            "the query has no variable, so there is nothing to find", hint="replace one name by a variable such as ?x"
        )
    if not query.targets:
        raise UnsupportedQuery(
            "the query selects no variable", hint=f"select one of {', '.join(map(str, query.variables))}"
        )
    for target in query.targets:
        if target not in query.variables:
            raise UnsupportedQuery(
                f"{target} is selected but occurs in no pattern",
                hint=f"the patterns have {', '.join(map(str, query.variables))}",
            )


def find_entity(name: str, vocabulary: Vocabulary) -> int:
    """Id of the one entity that ``name`` means: its name, a spelling of its name, or its label."""
    ids = entities_called(name, vocabulary)
    if len(ids) > 1:
        raise _ambiguous(name, ids, vocabulary)
    if ids:
        return ids[0]
    raise UnknownName(
        f"entity {_quoted(name)} is not in this graph ({len(vocabulary.entities):,} entities)",
        hint=_entity_hint(name, vocabulary),
    )


def entities_called(name: str, vocabulary: Vocabulary) -> list[int]:
    """Ids of the entities that ``name`` may mean: the one of that name, or all whose label it is; maybe none."""
    for spelling in spellings(name):
        id_ = vocabulary.entities.find(spelling)
        if id_ is not None:
            return [id_]
    for labels in _labels(vocabulary):
        for is_folded in (False, True):
            for spelling in spellings(name, local_part(name) if is_absolute(name) else name):
                ids = labels.folded.get(spelling.casefold()) if is_folded else labels.exact.get(spelling)
                if ids is not None:
                    return ids if isinstance(ids, list) else [ids]
    return []


def find_relation(name: str, vocabulary: Vocabulary) -> int:
    """Id of the relation called ``name``, or a spelling of it."""
    id_ = relation_called(name, vocabulary)
    if id_ is not None:
        return id_
    raise UnknownName(
        f"relation {_quoted(name)} is not in this graph ({len(vocabulary.relations):,} relations)",
        hint=_relation_hint(name, vocabulary),
    )


def relation_called(name: str, vocabulary: Vocabulary) -> int | None:
    """As ``find_relation``; None where there is none."""
    called = (*spellings(name), *(TYPE_NAMES if name == RDF_TYPE else ()))
    return next((id_ for spelling in called if (id_ := vocabulary.relations.find(spelling)) is not None), None)


def spellings(*names: str) -> Iterator[str]:
    """Each name as it stands, without percent codes, and with blanks for underscores and the reverse."""
    seen: set[str] = set()
    for name in names:
        for spelling in (name, unquote(name), unquote(name).replace("_", " "), unquote(name).replace(" ", "_")):
            if spelling not in seen:
                seen.add(spelling)
                yield spelling


class _Labels:
    """Entities by label. Each part is made when first needed, which takes seconds for millions of labels."""

    def __init__(self, pairs: Collection[tuple[int, str]]) -> None:
        self._pairs = pairs

    @cached_property
    def exact(self) -> dict[str, int | list[int]]:
        return _by_key((label, id_) for id_, label in self._pairs)

    @cached_property
    def folded(self) -> dict[str, int | list[int]]:
        return _by_key((label.casefold(), id_) for id_, label in self._pairs)

    @cached_property
    def names(self) -> Names:
        """The labels, for looking up similar ones."""
        return Names.of(label for _, label in self._pairs)

    @cached_property
    def ids(self) -> list[int]:
        """Entity of each of ``names``."""
        return [id_ for id_, _ in self._pairs]


def _by_key(rows: Iterable[tuple[str, int]]) -> dict[str, int | list[int]]:
    """The id of each key, or the list of them where there are several; a million lists of one would be slow."""
    found: dict[str, int | list[int]] = {}
    for key, id_ in rows:
        earlier = found.setdefault(key, id_)
        if isinstance(earlier, list):
            earlier.append(id_)
        elif earlier != id_:
            found[key] = [earlier, id_]
    return found


_LABELS: WeakKeyDictionary[Vocabulary, tuple[_Labels, _Labels]] = WeakKeyDictionary()


def _labels(vocabulary: Vocabulary) -> tuple[_Labels, _Labels]:
    """The labels that are shown, and the further ones, which are looked up only after these."""
    if vocabulary not in _LABELS:
        _LABELS[vocabulary] = _Labels(vocabulary.labels.items()), _Labels(vocabulary.aliases)
    return _LABELS[vocabulary]


def _ambiguous(name: str, ids: list[int], vocabulary: Vocabulary) -> AmbiguousName:
    shown = ", ".join(repr(vocabulary.entities[id_]) for id_ in ids[:_SHOWN])
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return AmbiguousName(
        f"{_quoted(name)} is the label of {len(ids):,} entities: {shown}{more}", hint="use the name of the one you mean"
    )


def _entity_hint(name: str, vocabulary: Vocabulary) -> str | None:
    if vocabulary.relations.find(name) is not None:
        return f"{_quoted(name)} is a relation; a pattern is: subject relation object"
    likely = [(score, id_, repr(vocabulary.entities[id_])) for score, id_ in nearest(vocabulary.entities, name)]
    for labels in _labels(vocabulary):
        for score, row in nearest(labels.names, local_part(name).replace("_", " ")):
            id_ = labels.ids[row]
            likely.append((score, id_, f"{vocabulary.entities[id_]!r} ({labels.names[row]})"))
    best = max((score for score, _, _ in likely), default=0.0)
    near = [(score, id_, shown) for score, id_, shown in likely if best - score <= WORSE]
    # An entity that is like the name by its own name and by its label is one proposal, and the better of the two.
    shown_of: dict[int, str] = {}
    for _, id_, shown in sorted(near, key=lambda item: -item[0]):
        shown_of.setdefault(id_, shown)
    return _did_you_mean(list(shown_of.values())) or "look it up with find: any part of the name, in any case"


def _relation_hint(name: str, vocabulary: Vocabulary) -> str:
    if vocabulary.entities.find(name) is not None:
        return f"{_quoted(name)} is an entity; a pattern is: subject relation object"
    likely = [repr(vocabulary.relations[id_]) for _, id_ in nearest(vocabulary.relations, name)]
    return _did_you_mean(likely) or f"relations are: {_some(vocabulary.relations)}"


def _did_you_mean(likely: list[str]) -> str | None:
    unique = list(dict.fromkeys(likely))[:3]
    if not unique:
        return None
    *first, last = unique
    return f"did you mean {', '.join(first)}{' or ' if first else ''}{last}?"


def _some(names: Names) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown}, and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


def _quoted(name: str) -> str:
    """A name as an error shows it: one line, not endless."""
    return repr(name if len(name) <= 120 else f"{name[:117]}...")
