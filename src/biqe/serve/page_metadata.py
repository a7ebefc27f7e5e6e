"""What the page shows without an answer: counts, completions, and the query drawn as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, SparqlSyntax
from biqe.exact.store import Cut, Rewritten
from biqe.graph.knowledge_graph import Graph
from biqe.graph.search import find, local_name
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind_question, entities_called, relation_called
from biqe.query.question import ASK, Branch, Entity, Question, Variable, divided, written
from biqe.query.scan import in_query, name_in, scan
from biqe.query.sparql import parse_question
from biqe.serve import federate
from biqe.serve import schemas as out
from biqe.serve.error_response import over_http
from biqe.serve.example_questions import Questions
from biqe.serve.live.versions import Used

if TYPE_CHECKING:
    from biqe.query.question import Question

FITTING = 5
"""So many times more entities than wanted are looked through for those that a relation leads to."""

# Completions


def completions(
    text: str,
    kind: str,
    limit: int,
    prefixes: Mapping[str, str],
    graph: Graph,
    used: Used | None = None,
    after: str = "",
    before: str = "",
) -> list[out.Completion]:
    """Completions of a word by name or label. ``used`` restricts them to names that are in a triple. The word stands
    ``after`` and ``before`` these of the query: the entities that a relation there has as objects, or as subjects, come
    first, and of relations those that are usual for the subject."""
    vocabulary = graph.vocabulary
    if kind == "prefix":
        known = {"": "", **prefixes}
        begun = text.rstrip(":")
        return [
            out.Completion(insert=f"{name}:", label=f"{name}:", kind="prefix", detail=iri)
            for name, iri in sorted(known.items())
            if name.startswith(begun)
        ][:limit]
    begun = text.partition(":")[2] if ":" in text and not text.startswith("<") else text.lstrip("<")
    if kind == "relation":
        found = _relations(begun.casefold(), vocabulary, None if used is None else used[1])
        usual = _usual(graph, after, prefixes)
        if usual is not None:
            found.sort(key=lambda relation: -usual[relation])
        return [_completion("relation", id_, vocabulary, prefixes) for id_ in found[:limit]]
    counts = _fitting(graph, after, 2, prefixes) if after else _fitting(graph, before, 0, prefixes)
    if not begun.strip():
        # Those that most links of the relation have there.
        often = [] if counts is None else np.argsort(-counts, kind="stable")[:limit].tolist()
        chosen = [entity for entity in often if counts is not None and counts[entity]]
    else:
        unused = 0 if used is None else int((~used[0]).sum())
        most = limit + unused if counts is None else FITTING * limit + unused
        # An underscore may stand for a blank.
        spellings = dict.fromkeys((begun, begun.replace("_", " ")))
        chosen = list(dict.fromkeys(each.entity for text in spellings for each in find(vocabulary, text, limit=most)))
        if counts is not None:
            chosen.sort(key=lambda entity: counts[entity] == 0)
    shown = [entity for entity in chosen if used is None or used[0][entity]][:limit]
    return [_completion("entity", entity, vocabulary, prefixes) for entity in shown]


def _fitting(graph: Graph, word: str, side: int, prefixes: Mapping[str, str]) -> NDArray[np.int64] | None:
    """(E,) how many links of a relation each entity is the subject (0) or the object (2) of; None where the graph does
    not have the relation."""
    relation = relation_called(name_in(word, prefixes), graph.vocabulary) if word else None
    if relation is None:
        return None
    triples = graph.triples
    return np.bincount(triples[triples[:, 1] == relation, side], minlength=graph.entity_count)


def _usual(graph: Graph, word: str, prefixes: Mapping[str, str]) -> NDArray[np.int64] | None:
    """(R,) how usual each relation is for a subject: those that it has, then those of entities with its classes."""
    called = entities_called(name_in(word, prefixes), graph.vocabulary) if word[:1] not in ("?", "$", "") else []
    if len(called) != 1:
        return None
    triples, count = graph.triples, graph.relation_count
    ask = Questions(graph, prefixes)
    peers = [graph.subjects(ask.type_relation or 0, each) for each in ask.classes(called[0])]
    usual = np.bincount(triples[np.isin(triples[:, 0], np.concatenate([[], *peers])), 1], minlength=count)
    return usual + len(triples) * (np.bincount(triples[triples[:, 0] == called[0], 1], minlength=count) > 0)


def _completion(
    kind: Literal["entity", "relation"], id_: int, vocabulary: Vocabulary, prefixes: Mapping[str, str]
) -> out.Completion:
    names = vocabulary.entities if kind == "entity" else vocabulary.relations
    label = vocabulary.label(id_) if kind == "entity" else local_name(names[id_])
    detail = "" if label == names[id_] else names[id_]
    return out.Completion(insert=in_query(names, id_, prefixes), label=label, kind=kind, detail=detail)


def _relations(folded: str, vocabulary: Vocabulary, used: NDArray[np.bool_] | None) -> list[int]:
    """Relations whose name begins with the text, then those that contain it. An underscore fits a blank."""
    ranked = []
    wanted = folded.replace("_", " ")
    for number, name in enumerate(vocabulary.relations):
        if used is not None and not used[number]:
            continue
        forms = [form.casefold().replace("_", " ") for form in (local_name(name), name)]
        if any(wanted in form for form in forms):
            ranked.append((not any(form.startswith(wanted) for form in forms), number))
    return [number for _, number in sorted(ranked)]


# The graph


def graph_metadata(
    graph: Graph,
    name: str,
    prefixes: Mapping[str, str],
    version: int | str | None,
    live: bool,
    used: Used | None = None,
    shown: Sequence[out.Example] = (),
) -> out.GraphOut:
    """Counts, relations with their frequencies, and the example queries to show."""
    counts = np.bincount(graph.triples[:, 1], minlength=graph.relation_count)  # (R,)
    relations = [
        out.RelationOut(name=relation, label=local_name(relation), count=int(counts[number]))
        for number, relation in enumerate(graph.vocabulary.relations)
        if used is None or used[1][number]
    ]
    return out.GraphOut(
        name=Path(name).name,
        entities=graph.entity_count if used is None else int(used[0].sum()),
        relations=sorted(relations, key=lambda relation: -relation.count),
        triples=len(graph.triples),
        prefixes=dict(prefixes),
        examples=list(shown),
        version=version,
        live=live,
    )


# A query that is being typed


def parsed(
    text: str,
    prefixes: Mapping[str, str] | None,
    vocabulary: Vocabulary,
    of_literals: Callable[[str], bool] = lambda relation: False,
) -> out.ParseOut:
    """The query as a graph, or its errors with line and column. ``of_literals`` tells whether a relation leads to
    literals alone."""
    try:
        question = parse_question(text, prefixes=prefixes, wide=True)
    except BiqeError as error:
        known_only = is_sparql(text, prefixes, vocabulary)
        empty = out.Drawing(nodes=[], edges=[])
        return out.ParseOut(graph=empty, targets=[], errors=[_problem(error)], known_only=known_only)
    problems = []
    try:
        parts = divided(question, of_literals)
        if all(part.is_plain for part in parts):
            bind_question(question, vocabulary)
        for part in parts:
            links = tuple(each for each in part.links.patterns if isinstance(each.relation, str))
            if links and not part.is_plain:
                bind_question(Question(ASK, (), (Branch(links),)), vocabulary)
    except BiqeError as error:  # an unknown name; the query can be drawn all the same
        problems.append(_problem(error))
    targets = [str(name) for name in question.targets]
    return out.ParseOut(graph=_drawing(question, vocabulary), targets=targets, errors=problems, known_only=False)


def is_sparql(text: str, prefixes: Mapping[str, str] | None, vocabulary: Vocabulary) -> bool:
    """Whether the exact store can parse a query that is outside the subset."""
    from pyoxigraph import Store

    try:
        cuts = [cut for block in federate.blocks(text) for cut in block.cuts(None)]
        Store().query(Rewritten(text, prefixes or {}, vocabulary, [*cuts, *_filter_all(text)]).text)
    except (BiqeError, SyntaxError, OSError, ValueError, RuntimeError):
        return False
    return True


def _filter_all(text: str) -> Iterator[Cut]:
    """FILTER(false) at the head of the query's group, so that the query is parsed but not evaluated.

    Without it, a few VALUES lists would keep even an empty store busy for days.
    """
    words, depth, opened = scan(text).words, 0, 0
    template = next((at for at, word in enumerate(words) if word.text.upper() == "CONSTRUCT"), None)
    has_template = template is not None and template + 1 < len(words) and words[template + 1].text == "{"
    for word in words:
        if word.kind == "sign" and word.text in "{([":
            opened += word.text == "{" and depth == 0
            if word.text == "{" and depth == 0 and opened == 1 + has_template:
                yield Cut(word.start, word.start + 1, "{ FILTER(false) ")
                return
            depth += 1
        elif word.kind == "sign" and word.text in "})]":
            depth -= 1


def _problem(error: BiqeError) -> out.Problem:
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    message = error.message
    if isinstance(error, SparqlSyntax) and line is not None:
        message = message.removeprefix(f"line {line}, column {column}: ")
    return out.Problem(message=over_http(message) or "", hint=over_http(error.hint), line=line, column=column)


def _drawing(question: Question, vocabulary: Vocabulary) -> out.Drawing:
    nodes: dict[str, out.GraphNode] = {}
    edges: list[out.GraphEdge] = []
    for number, branch in enumerate(question.branches):
        # The branches of a UNION share the target variables only.
        mark = f"/{number}" if len(question.branches) > 1 else ""
        for pattern in branch.patterns:
            ends = []
            for term in (pattern.subject, pattern.object):
                is_target = term in question.targets
                kind = "target" if is_target else "hidden" if isinstance(term, Variable) else "entity"
                label = _shown(term.name, vocabulary) if isinstance(term, Entity) else str(term)
                key = str(term) if is_target else f"{term}{mark}"
                named = written(term.name) if isinstance(term, Entity) else label
                name = term.name if isinstance(term, Entity) else None
                node = out.GraphNode(id=key, label=label, kind=kind, name=name, term=named)  # type: ignore[arg-type]
                nodes.setdefault(key, node)
                ends.append(key)
            relation = pattern.relation
            label = str(relation) if isinstance(relation, Variable) else local_name(relation)
            edges.append(out.GraphEdge(source=ends[0], target=ends[1], label=label))
    return out.Drawing(nodes=list(nodes.values()), edges=edges)


def _shown(name: str, vocabulary: Vocabulary) -> str:
    """The label of an entity, or the last part of a name."""
    entity = vocabulary.entities.find(name)
    return (entity is not None and vocabulary.labels.get(entity)) or local_name(name)
