"""What a word of a query may become: keywords, prefixes, and names of the graph, by name or by label.

The shell and the page offer these while a query is being typed. Nothing is read but the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from biqe.graph.search import find, local_name
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.query.ast import is_absolute, written
from biqe.query.scan import scan

KEYWORDS = (
    "SELECT DISTINCT WHERE ASK COUNT AS FILTER REGEX CONTAINS STRSTARTS STRENDS STR ISIRI IN NOT VALUES UNION "
    "ORDER BY ASC DESC LIMIT OFFSET PREFIX BASE"
).split()
_LOCAL = re.compile(r"[\w][\w\-]*(?:\.[\w\-]+)*")


def complete(
    word: str, vocabulary: Vocabulary, prefixes: Mapping[str, str] | None = None, limit: int = 50
) -> list[str]:
    """Ways to finish ``word``, the nearest first: each is text that a query may hold.

    ``:Rh`` is finished with names of the graph, relations first, then entities whose name or label begins so;
    ``wd:Q1`` with names of that namespace; ``<http://...`` with names that are IRIs; a bare word with keywords.

    >>> town = Vocabulary(["Rhine", "New York", "Bonn"], ["located_on", "rises_in"], {2: "Rheinstadt"})
    >>> complete(":r", town)
    [':rises_in', ':Rhine', ':Bonn']
    >>> complete(":new", town), complete("sel", town)
    (['<New%20York>'], ['SELECT'])
    """
    prefixes = {"": "", **(prefixes or {})}
    if word.startswith("<"):
        found = _names(vocabulary, word[1:], "", limit)
        return list(dict.fromkeys(written(name) for name in found))[:limit]
    prefix, colon, begun = word.partition(":")
    if colon and prefix in prefixes:
        namespace = prefixes[prefix] if is_absolute(prefixes[prefix]) else ""
        found = _names(vocabulary, begun, namespace, limit)
        return list(dict.fromkeys(_short(name, prefix, namespace) for name in found))[:limit]
    words = [keyword for keyword in KEYWORDS if word and keyword.startswith(word.upper())]
    return words + [f"{name}:" for name in sorted(prefixes) if name and word and name.startswith(word)]


def _names(vocabulary: Vocabulary, begun: str, namespace: str, limit: int) -> Iterator[str]:
    """Relations, then entities, of the namespace, whose local name or label begins so, whatever its capitals."""
    folded = begun.casefold()
    for name in _starting(vocabulary.relations, namespace):
        if _begins(name, namespace, folded):
            yield name
    if not begun:
        return  # every entity of the graph would fit
    count = 0
    # Names that contain the text are found at once; those that begin with it come first among them.
    for entity in find(vocabulary, begun, limit=4 * limit):
        starts = _begins(entity.name, namespace, folded) or entity.label.casefold().startswith(folded)
        if entity.name.startswith(namespace) and starts:
            yield entity.name
            count += 1
            if count == limit:
                return


def _starting(names: Names, namespace: str) -> Iterator[str]:
    return (name for name in names if name.startswith(namespace))


def _begins(name: str, namespace: str, folded: str) -> bool:
    return any(form.casefold().startswith(folded) for form in (name[len(namespace) :], local_name(name)))


def _short(name: str, prefix: str, namespace: str) -> str:
    local = name[len(namespace) :]
    return f"{prefix}:{local}" if _LOCAL.fullmatch(local) else written(name)


def is_finished(text: str) -> bool:
    """Whether a query that is typed line by line has come to an end: every bracket is closed, and one was open.

    >>> is_finished("SELECT ?x {"), is_finished("SELECT ?x { ?x :p 'a }' }"), is_finished("SELECT ?x")
    (False, True, False)
    """
    depth, seen = 0, False
    for word in scan(text).words:
        if word.text == "{" and word.kind == "sign":
            depth += 1
            seen = True
        elif word.text == "}" and word.kind == "sign":
            depth -= 1
    return seen and depth <= 0
