"""A query that is being typed: drawn as a graph, or its errors at their places. Nothing is answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from biqe.errors import BiqeError, SparqlSyntax
from biqe.exact.store import Cut, Rewritten
from biqe.graph.search import local_name
from biqe.graph.vocabulary import Vocabulary
from biqe.query.ast import Variable, written
from biqe.query.bind_question import bind_question
from biqe.query.scan import scan
from biqe.query.sparql import parse_question
from biqe.serve import federate
from biqe.serve import schemas as out
from biqe.serve.refusal import over_http

if TYPE_CHECKING:
    from biqe.query.question import Question


def parsed(text: str, prefixes: Mapping[str, str] | None, vocabulary: Vocabulary) -> out.ParseOut:
    """The query drawn as a graph, or its errors with their places."""
    try:
        question = parse_question(text, prefixes=prefixes)
    except BiqeError as error:
        known_only = is_sparql(text, prefixes, vocabulary)
        return out.ParseOut(
            graph=out.Drawing(nodes=[], edges=[]), targets=[], errors=[_problem(error)], known_only=known_only
        )
    problems = []
    try:
        bind_question(question, vocabulary)
    except BiqeError as error:  # a name that this graph has not; what is asked can be drawn all the same
        problems.append(_problem(error))
    return out.ParseOut(
        graph=_drawn(question), targets=[str(name) for name in question.targets], errors=problems, known_only=False
    )


def is_sparql(text: str, prefixes: Mapping[str, str] | None, vocabulary: Vocabulary) -> bool:
    """Whether the exact store can read a text that is outside the subset."""
    from pyoxigraph import Store

    try:
        cuts = [cut for block in federate.blocks(text) for cut in block.cuts(None)]
        Store().query(Rewritten(text, prefixes or {}, vocabulary, [*cuts, *_nothing(text)]).text)
    except (BiqeError, SyntaxError, OSError, ValueError, RuntimeError):
        return False
    return True


def _nothing(text: str) -> Iterator[Cut]:
    """FILTER(false) at the head of the query's group: it is read as a whole, and then nothing is left to search.

    Without it, a few lists of values would be enough to keep the store busy for days.
    """
    words, waiting, opened = scan(text).words, 0, 0
    template = next((at for at, word in enumerate(words) if word.text.upper() == "CONSTRUCT"), None)
    has_template = template is not None and template + 1 < len(words) and words[template + 1].text == "{"
    for word in words:
        if word.kind == "sign" and word.text in "{([":
            opened += word.text == "{" and waiting == 0
            if word.text == "{" and waiting == 0 and opened == 1 + has_template:
                yield Cut(word.start, word.start + 1, "{ FILTER(false) ")
                return
            waiting += 1
        elif word.kind == "sign" and word.text in "})]":
            waiting -= 1


def _problem(error: BiqeError) -> out.Problem:
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    message = error.message
    if isinstance(error, SparqlSyntax) and line is not None:
        message = message.removeprefix(f"line {line}, column {column}: ")
    return out.Problem(message=over_http(message) or "", hint=over_http(error.hint), line=line, column=column)


def _drawn(question: Question) -> out.Drawing:
    nodes: dict[str, out.GraphNode] = {}
    edges: list[out.GraphEdge] = []
    for number, branch in enumerate(question.branches):
        # The sides of a UNION share the asked variables only.
        mark = f"/{number}" if len(question.branches) > 1 else ""
        for pattern in branch.patterns:
            ends = []
            for term in (pattern.subject, pattern.object):
                is_target = term in question.targets
                kind = "target" if is_target else "hidden" if isinstance(term, Variable) else "entity"
                label = str(term) if isinstance(term, Variable) else local_name(term.name)
                key = str(term) if is_target else f"{term}{mark}"
                named = label if isinstance(term, Variable) else written(term.name)
                node = out.GraphNode(id=key, label=label, kind=kind, term=named)  # type: ignore[arg-type]
                nodes.setdefault(key, node)
                ends.append(key)
            edges.append(out.GraphEdge(source=ends[0], target=ends[1], label=local_name(pattern.relation)))
    return out.Drawing(nodes=list(nodes.values()), edges=edges)
