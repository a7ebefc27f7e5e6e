"""A query that is being typed in the shell: completion of words, whether it is finished, clauses added after its end.

Words are completed to keywords, prefixes, and names of the graph, by name or by label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from urllib.parse import unquote

import numpy as np

from biqe.graph.search import find, fold, local_name
from biqe.graph.vocabulary import Aliases, Names, Vocabulary
from biqe.query.question import is_absolute, written
from biqe.query.scan import Word, abbreviated, scan

KEYWORDS = (
    "SELECT DISTINCT WHERE ASK COUNT AS FILTER REGEX CONTAINS STRSTARTS STRENDS STR ISIRI IN NOT VALUES UNION "
    "ORDER BY ASC DESC LIMIT OFFSET PREFIX BASE"
).split()
CLAUSES = ("GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "VALUES")
"""First words of what may follow the closing brace of a query, in an order that SPARQL allows."""
_STEPS = re.compile(r"(?:<[^<>]*>|\\.|[^<\\])*[/|^!=]")
"""A word up to its last sign of a path or comparison; such a sign within an IRI, or escaped, is part of a name."""


def complete(
    word: str, vocabulary: Vocabulary, prefixes: Mapping[str, str] | None = None, limit: int = 50
) -> list[str]:
    """Completions of ``word``, the best first: each is text that a query may hold.

    ``:Rh`` is finished with names of the graph, relations first, then entities of which the name or any label begins
    so; ``wd:Q1`` with names of that namespace; ``<http://...`` with names that are IRIs; a bare word with keywords.
    Of a path, the last step is finished.

    >>> town = Vocabulary(["Rhine", "New York", "Bonn"], ["located_on", "rises_in"], {2: "Rheinstadt"})
    >>> complete(":r", town)
    [':rises_in', ':Rhine', ':Bonn']
    >>> complete(":new", town), complete("sel", town)
    (['<New%20York>'], ['SELECT'])
    >>> complete(":located_on/^:ri", town)
    [':located_on/^:rises_in']
    """

    def names(begun: str, namespace: str) -> Iterator[str]:
        return _names(vocabulary, begun, namespace, limit)

    return _complete(word, names, prefixes)[:limit]


def complete_as_typed(word: str, vocabulary: Vocabulary, prefixes: Mapping[str, str] | None = None) -> list[str]:
    """All completions of ``word`` that begin with it exactly, capitals included.

    >>> town = Vocabulary(["Rhine", "New York", "Bonn"], ["located_on", "rises_in"], {2: "Rheinstadt"})
    >>> complete_as_typed(":R", town), complete_as_typed(":new", town)
    ([':Rhine'], [])
    """

    def names(begun: str, namespace: str) -> Iterator[str]:
        start = (namespace + begun).encode(errors="surrogatepass")
        yield from _beginning(vocabulary.relations, start)
        if begun:  # else every entity of the graph would fit
            yield from _beginning(vocabulary.entities, start)

    return [text for text in _complete(word, names, prefixes) if text.startswith(word)]


def _complete(word: str, names: Callable[[str, str], Iterable[str]], prefixes: Mapping[str, str] | None) -> list[str]:
    """Completions of the word or, where there are none, of the last step of the path that it is."""
    prefixes = {"": "", **(prefixes or {})}
    found = _finished(word, names, prefixes)
    steps = None if found else _STEPS.match(word)
    if steps is None:
        return found
    last = word[steps.end() :]
    if not last.startswith("<") and ":" not in last:
        return []  # no keyword follows such a sign
    return [steps[0] + text for text in _finished(last, names, prefixes)]


def _finished(word: str, names: Callable[[str, str], Iterable[str]], prefixes: Mapping[str, str]) -> list[str]:
    if word.startswith("<"):
        begun = word[1:] if is_absolute(word[1:]) else unquote(word[1:])  # the other way round than ``written``
        return list(dict.fromkeys(map(written, names(begun, ""))))
    prefix, colon, begun = word.partition(":")
    if colon and prefix in prefixes:
        namespace = prefixes[prefix] if is_absolute(prefixes[prefix]) else ""
        return list(dict.fromkeys(abbreviated(name, {prefix: namespace}) for name in names(begun, namespace)))
    words = [keyword for keyword in KEYWORDS if word and keyword.startswith(word.upper())]
    return words + [f"{name}:" for name in sorted(prefixes) if name and word and name.startswith(word)]


def _beginning(names: Names, start: bytes) -> Iterator[str]:
    """The names that begin with these bytes, found in all names at once."""
    ids = np.flatnonzero(np.diff(names.offsets) >= len(start))
    for place, byte in enumerate(start):
        ids = ids[names.blob[names.offsets[ids] + place] == byte]
    return (names[id_] for id_ in ids.tolist())


def _names(vocabulary: Vocabulary, begun: str, namespace: str, limit: int) -> Iterator[str]:
    """Relations, then entities, of the namespace, whose local name or any label begins so, whatever its case
    and accents."""
    folded = fold(begun)
    for name in _starting(vocabulary.relations, namespace):
        if _begins(name, namespace, folded):
            yield name
    if not begun.strip():
        return  # every entity of the graph would fit
    # Names that contain the text are found at once; those that begin with it come first among them.
    found = [entity for entity in find(vocabulary, begun, limit=4 * limit) if entity.name.startswith(namespace)]
    also = _with_alias(vocabulary, [entity.entity for entity in found], folded)
    begin = (
        entity.name
        for entity in found
        if _begins(entity.name, namespace, folded) or fold(entity.label).startswith(folded) or entity.entity in also
    )
    yield from islice(begin, limit)


def _with_alias(vocabulary: Vocabulary, entities: Sequence[int], folded: str) -> set[int]:
    """Those of the entities that a further label of theirs begins so, whatever its capitals."""
    aliases = vocabulary.aliases
    if isinstance(aliases, Aliases):  # there may be millions, so only those of the entities are read
        rows = np.flatnonzero(np.isin(aliases.entities, entities)).tolist()
        pairs: Iterable[tuple[int, str]] = ((int(aliases.entities[row]), aliases.texts[row]) for row in rows)
    else:
        pairs = aliases
    wanted = set(entities)
    return {entity for entity, text in pairs if entity in wanted and fold(text).startswith(folded)}


def _starting(names: Names, namespace: str) -> Iterator[str]:
    return (name for name in names if name.startswith(namespace))


def _begins(name: str, namespace: str, folded: str) -> bool:
    return any(fold(form).startswith(folded) for form in (name[len(namespace) :], local_name(name)))


# The end of a query, and beyond


def is_finished(text: str) -> bool:
    """Whether a query, or a clause, that is typed line by line has come to an end: it could be asked as it stands.

    A query has braces, and all of them are closed; a CONSTRUCT has its pattern too.

    >>> is_finished("SELECT ?x {"), is_finished("SELECT ?x { ?x :p 'a }' }"), is_finished("SELECT ?x")
    (False, True, False)
    >>> is_finished("SELECT ?x { ?x :p ?y } ORDER BY"), is_finished("LIMIT 3")
    (False, True)
    """
    words = scan(text).words
    braces = brackets = groups = 0
    for word in words:
        if word.kind != "sign" or word.text not in "{}()":
            continue
        if word.text in "()":
            brackets += 1 if word.text == "(" else -1
            continue
        braces += 1 if word.text == "{" else -1
        groups += word.text == "}" and braces <= 0
        brackets = 0  # what was left open before is an error, and more lines do not repair it
    if not words or braces > 0 or brackets > 0 or _wants_more(words[-1]):
        return False
    return groups >= (int(words[0].text.upper() == "VALUES") if begins_clause(text) else _groups_of(words))


def _wants_more(word: Word) -> bool:
    return word.kind == "keyword" and word.text.upper() in ("BY", "ASC", "DESC", "WHERE", *CLAUSES)


def _groups_of(words: Sequence[Word]) -> int:
    """Groups in braces that a query has, one within the other counting as one: two for CONSTRUCT { } WHERE { }."""
    kinds = [word.text.upper() for word in words if word.kind == "keyword" or word.text == "{"]
    if "CONSTRUCT" not in kinds:
        return 1
    place = kinds.index("CONSTRUCT") + 1
    return 2 if kinds[place : place + 1] == ["{"] else 1


def begins_clause(text: str) -> bool:
    """Whether ``text`` begins with what follows the closing brace of a query, which no query begins with.

    >>> begins_clause(" limit 3"), begins_clause("SELECT ?limit { }"), begins_clause(":limit")
    (True, False, False)
    """
    words = scan(text).words
    return bool(words) and words[0].kind == "keyword" and words[0].text.upper() in CLAUSES


def with_clauses(query: str, clauses: str) -> str:
    """The query with these clauses in their places after its closing brace. One that it has already is replaced.

    >>> with_clauses("SELECT ?x { ?x :p ?y } LIMIT 3", "ORDER BY ?x")
    'SELECT ?x { ?x :p ?y } ORDER BY ?x LIMIT 3'
    >>> with_clauses("SELECT ?x { ?x :p ?y } LIMIT 3", "LIMIT 5")
    'SELECT ?x { ?x :p ?y } LIMIT 5'
    """
    head, own = _clauses(query)
    _, new = _clauses(clauses)
    both = own | new
    return " ".join([head, *(both[kind] for kind in CLAUSES if kind in both)])


def _clauses(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the clauses of a query, and the clauses by their first words."""
    scanned = scan(text)
    depth, starts = 0, []
    for word in scanned.words:
        if word.kind == "sign" and word.text in "{}()":
            depth += 1 if word.text in "{(" else -1
        elif depth == 0 and word.kind == "keyword" and word.text.upper() in CLAUSES:
            starts.append((word.start, word.text.upper()))
    ends = [*(start for start, _ in starts), len(scanned.text)][1:]
    found = {kind: scanned.text[start:end].strip() for (start, kind), end in zip(starts, ends, strict=True)}
    return scanned.text[: starts[0][0] if starts else None].rstrip(), found
