"""What the page shows without an answer: counts, completions, example queries, and the query drawn as it is typed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from biqe.errors import BiqeError, SparqlSyntax
from biqe.exact.store import Cut, Rewritten
from biqe.graph.knowledge_graph import Graph
from biqe.graph.search import find, local_name
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind_question
from biqe.query.question import Entity, Variable, written
from biqe.query.scan import scan
from biqe.query.sparql import parse_question
from biqe.serve import federate
from biqe.serve import schemas as out
from biqe.serve.error_response import over_http
from biqe.serve.live.versions import Used

if TYPE_CHECKING:
    from biqe.links.probability import LinkProbability
    from biqe.query.question import Question

EXAMPLES = 6
JUDGED = 16
"""Relations and objects of which the most likely questions are made."""
LISTED = 5
"""Predicted rows by which questions are compared."""
_Link = tuple[int, int]
"""A relation and its object."""
FITTING = 5
"""So many times more entities than wanted are looked through for those that a relation leads to."""

# Completions


def completions(
    text: str,
    kind: str,
    limit: int,
    prefixes: Mapping[str, str] | None,
    graph: Graph,
    used: Used | None = None,
    after: str = "",
) -> list[out.Completion]:
    """Completions of a word by name or label. ``used`` restricts them to names that are in a triple. ``after`` is the
    relation, as the query writes it, whose object is wanted: entities that it leads to come first."""
    vocabulary = graph.vocabulary
    if kind == "prefix":
        known = {"": "", **(prefixes or {})}
        begun = text.rstrip(":")
        return [
            out.Completion(insert=f"{name}:", label=f"{name}:", kind="prefix", detail=iri)
            for name, iri in sorted(known.items())
            if name.startswith(begun)
        ][:limit]
    begun = text.partition(":")[2] if ":" in text and not text.startswith("<") else text.lstrip("<")
    if kind == "relation":
        found = _relations(begun.casefold(), vocabulary, None if used is None else used[1])
        return [_completion("relation", name, local_name(name), prefixes) for name in found[:limit]]
    counts = _objects(graph, after, prefixes)
    if not begun.strip():
        # Those that the relation leads to most often.
        often = [] if counts is None else np.argsort(-counts, kind="stable")[:limit].tolist()
        chosen = [entity for entity in often if counts is not None and counts[entity]]
    else:
        unused = 0 if used is None else int((~used[0]).sum())
        most = limit + unused if counts is None else FITTING * limit + unused
        chosen = [entry.entity for entry in find(vocabulary, begun, limit=most)]
        if counts is not None:
            chosen.sort(key=lambda entity: counts[entity] == 0)
    shown = [entity for entity in chosen if used is None or used[0][entity]][:limit]
    return [_completion("entity", vocabulary.entities[entity], vocabulary.label(entity), prefixes) for entity in shown]


def _objects(graph: Graph, relation: str, prefixes: Mapping[str, str] | None) -> NDArray[np.int64] | None:
    """(E,) how often a relation leads to each entity; None where the graph does not have the relation."""
    for number, name in enumerate(graph.vocabulary.relations if relation else ()):
        if relation in (short(name, prefixes), written(name)):
            triples = graph.triples
            return np.bincount(triples[triples[:, 1] == number, 2], minlength=graph.entity_count)
    return None


def _completion(
    kind: Literal["entity", "relation"], name: str, label: str, prefixes: Mapping[str, str] | None
) -> out.Completion:
    detail = "" if label == name else name
    return out.Completion(insert=short(name, prefixes), label=label, kind=kind, detail=detail)


def _relations(folded: str, vocabulary: Vocabulary, used: NDArray[np.bool_] | None) -> list[str]:
    """Relations whose name begins with the text, then those that contain it."""
    ranked = []
    for number, name in enumerate(vocabulary.relations):
        if used is not None and not used[number]:
            continue
        forms = (local_name(name).casefold(), name.casefold())
        if any(folded in form for form in forms):
            ranked.append((not any(form.startswith(folded) for form in forms), name))
    return [name for _, name in sorted(ranked, key=lambda entry: entry[0])]


def short(name: str, prefixes: Mapping[str, str] | None) -> str:
    """A name as a query writes it, with a prefix if possible."""
    for prefix, namespace in sorted((prefixes or {"": ""}).items(), key=lambda item: -len(item[1])):
        if name.startswith(namespace):
            local = name[len(namespace) :]
            if local and all(part.isalnum() or part in "_-" for part in local) and not local.startswith("-"):
                return f"{prefix}:{local}"
    return written(name)


# The graph


def graph_metadata(
    graph: Graph,
    name: str,
    prefixes: Mapping[str, str] | None,
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
        prefixes=dict(prefixes or {}),
        examples=list(shown),
        version=version,
        live=live,
    )


PAPER = (
    (
        "Cities on rivers that flow through Germany and France",
        "SELECT ?river ?city WHERE {\n  ?river :flows_through :Germany, :France .\n  ?city :located_on ?river\n}",
    ),
    ("Cities on the Rhine", "SELECT ?city WHERE { ?city :located_on :Rhine }"),
)
"""Examples for graphs with the names of the paper's question."""


def examples(graph: Graph, prefixes: Mapping[str, str] | None, links: LinkProbability | None) -> list[out.Example]:
    """Queries that this graph has answers to; the page opens with the first. With ``links``, those whose predictions
    are most probable come first, after those of the paper."""
    return list(islice(_examples(graph, prefixes or {"": ""}, links), EXAMPLES))


def _examples(graph: Graph, prefixes: Mapping[str, str], links: LinkProbability | None) -> Iterator[out.Example]:
    vocabulary = graph.vocabulary
    if all(vocabulary.entities.find(name) is not None for name in ("Germany", "France", "Rhine")):
        yield from (out.Example(title=title, query=query) for title, query in PAPER)
    triples = graph.triples
    if not len(triples):
        return
    # The most frequent (relation, object) pairs, except very frequent ones, give questions with several answers.
    pairs = Counter(map(tuple, triples[:: max(1, len(triples) // 20_000), 1:].tolist()))
    middle = [pair for pair, count in pairs.most_common(200) if count <= 50] or list(pairs)
    of_relation: dict[int, list[_Link]] = {}
    for relation, entity in middle:
        of_relation.setdefault(relation, []).append((relation, entity))
    asked: Iterable[tuple[_Link, int | None]] = ((several[0], None) for several in of_relation.values())
    if links is not None:
        rounds = zip_longest(*of_relation.values())
        asked = _likely([pair for some in rounds for pair in some if pair is not None][:JUDGED], links)

    def written_(relation: int) -> tuple[str, str]:
        name = vocabulary.relations[relation]
        return local_name(name).replace("_", " "), short(name, prefixes)

    for (relation, entity), other in asked:
        (title, link), name = written_(relation), short(vocabulary.entities[entity], prefixes)
        title = f"… {title} {vocabulary.label(entity)}"
        if other is None:
            yield out.Example(title=title, query=f"SELECT ?x WHERE {{ ?x {link} {name} }}")
        else:
            more, further = written_(other)
            query = f"SELECT ?x ?y WHERE {{\n  ?x {link} {name} .\n  ?x {further} ?y\n}}"
            yield out.Example(title=f"{title}, and {more} what?", query=query)


def _likely(pairs: list[_Link], links: LinkProbability) -> list[tuple[_Link, int | None]]:
    """Questions whose five likeliest predicted rows are most probable, those first, one of each kind: who else has a
    link; and what another relation leads to from those who have it, where most of them have that relation but some
    lack it."""
    import torch

    count, triples = links.graph.relation_count, links.graph.triples
    asked: list[tuple[_Link, int | None]] = []
    heads: list[tuple[int, int, int]] = []  # number of the question, head, direction
    for relation, entity in pairs:
        heads.append((len(asked), entity, relation + count))
        asked.append(((relation, entity), None))
        subjects = triples[(triples[:, 1] == relation) & (triples[:, 2] == entity), 0]
        uses = np.unique(triples[np.isin(triples[:, 0], subjects)][:, :2], axis=0)  # who has which relation
        having = np.bincount(uses[:, 1], minlength=count)
        having[(2 * having < len(subjects)) | (having == len(subjects))] = len(subjects) + 1
        if having.min() <= len(subjects):
            other = int(having.argmin())
            lacking = np.setdiff1d(subjects, uses[uses[:, 1] == other, 0])[:LISTED]
            heads += [(len(asked), head, other) for head in lacking.tolist()]
            asked.append(((relation, entity), other))
    question, head, direction = np.array(heads).T
    with torch.inference_mode():  # as where questions are answered: rows are remembered from one to the other
        found = links.to_all(torch.from_numpy(head), torch.from_numpy(direction)).numpy()
    rows, stored = links.walks.of_heads(head, direction)
    found[rows, stored] = -np.inf
    likeliest = np.exp(np.sort(found, axis=1)[:, ::-1][:, :LISTED])
    # Of a question with several heads, the best row of each.
    likeliest[[asked[number][1] is not None for number in question], 1:] = 0.0
    scores = np.bincount(question, likeliest.sum(axis=1), len(asked))
    best: dict[tuple[int, int | None], tuple[_Link, int | None]] = {}
    for number in np.argsort(-scores, kind="stable").tolist():
        (relation, _), other = asked[number]
        best.setdefault((relation, other), asked[number])
    return list(best.values())


# A query that is being typed


def parsed(text: str, prefixes: Mapping[str, str] | None, vocabulary: Vocabulary) -> out.ParseOut:
    """The query as a graph, or its errors with line and column."""
    try:
        question = parse_question(text, prefixes=prefixes)
    except BiqeError as error:
        known_only = is_sparql(text, prefixes, vocabulary)
        empty = out.Drawing(nodes=[], edges=[])
        return out.ParseOut(graph=empty, targets=[], errors=[_problem(error)], known_only=known_only)
    problems = []
    try:
        bind_question(question, vocabulary)
    except BiqeError as error:  # an unknown name; the query can be drawn all the same
        problems.append(_problem(error))
    targets = [str(name) for name in question.targets]
    return out.ParseOut(graph=_drawing(question), targets=targets, errors=problems, known_only=False)


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


def _drawing(question: Question) -> out.Drawing:
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
                label = local_name(term.name) if isinstance(term, Entity) else str(term)
                key = str(term) if is_target else f"{term}{mark}"
                named = written(term.name) if isinstance(term, Entity) else label
                node = out.GraphNode(id=key, label=label, kind=kind, term=named)  # type: ignore[arg-type]
                nodes.setdefault(key, node)
                ends.append(key)
            relation = pattern.relation
            label = str(relation) if isinstance(relation, Variable) else local_name(relation)
            edges.append(out.GraphEdge(source=ends[0], target=ends[1], label=label))
    return out.Drawing(nodes=list(nodes.values()), edges=edges)
