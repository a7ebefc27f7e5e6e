"""Checks of a query's text before it is parsed: its size, its prefixes, and that it is not an update."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from biqe.errors import RequestRefused
from biqe.query.question import is_absolute
from biqe.query.scan import MAX_WORDS, STANDARD, Scan, Word, scan
from biqe.query.subset import shown
from biqe.serve.config import Limits

CHANGES = frozenset("INSERT DELETE LOAD CLEAR DROP CREATE ADD MOVE COPY WITH".split())
"""Keywords that begin an update."""
FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_SEPARATORS = frozenset(".;,/")
_LOCAL_ESCAPE = re.compile(r"\\(.)")


@dataclass
class Prologue:
    """PREFIX and BASE declarations at the head of a text."""

    prefixes: dict[str, str] = field(default_factory=dict)
    base: str = ""
    end: int = 0
    """Index of the first word after them."""

    @classmethod
    def of(cls, words: Sequence[Word]) -> Prologue:
        """The declarations that a text begins with.

        >>> words = scan("PREFIX p: <urn:biqe:> ASK { SERVICE p:predict { ?x :on :Rhine } }").words
        >>> Prologue.of(words).iri(words[6])
        'urn:biqe:predict'
        """
        found = cls()
        while (count := declaration(words[found.end : found.end + 3])) > 0:
            iri = found._absolute(words[found.end + count - 1].text[1:-1])
            if count == 2:
                found.base = iri
            else:
                found.prefixes[words[found.end + 1].text[:-1]] = iri
            found.end += count
        return found

    def iri(self, word: Word) -> str | None:
        """The IRI of a word; None if it is none, or its prefix is not declared."""
        if word.kind == "iri":
            return self._absolute(word.text[1:-1])
        prefix, _, local = word.text.partition(":")
        if word.kind != "name" or prefix not in self.prefixes:
            return None
        return self.prefixes[prefix] + _LOCAL_ESCAPE.sub(r"\1", local)

    def _absolute(self, iri: str) -> str:
        # Relative IRIs are appended to the base, as in all queries. (Resolving them would only matter for web
        # addresses, and no IRI that is looked for here is one.)
        return iri if is_absolute(iri) else self.base + iri


def declaration(words: Sequence[Word]) -> int:
    """Number of words of the PREFIX or BASE declaration that ``words`` begins with; 0 if it begins with none."""
    kinds = [word.kind for word in words[:3]]
    if kinds == ["keyword", "name", "iri"] and words[0].text.upper() == "PREFIX" and words[1].text.endswith(":"):
        return 3
    return 2 if kinds[:2] == ["keyword", "iri"] and words[0].text.upper() == "BASE" else 0


def form_of(text: str) -> str | None:
    """SELECT, ASK, CONSTRUCT or DESCRIBE, whichever comes first; None if none does."""
    keywords = (word.text.upper() for word in scan(text).words if word.kind == "keyword")
    return next((keyword for keyword in keywords if keyword in FORMS), None)


def count_patterns(scanned: Scan) -> int:
    """Upper bound on the triple patterns of a text: one after each ``{ . ; ,`` in braces, and one per path step.

    >>> count_patterns(scan("SELECT * { ?x :p ?y, ?z ; :q/:r ?w . ?w :s 'a. b' } LIMIT 3"))
    5
    """
    count = depth = brackets = 0
    fresh = False
    for word in scanned.words:
        sign = word.text if word.kind == "sign" else ""
        if sign in ("{", "}"):
            depth += 1 if sign == "{" else -1
            fresh = True
        elif sign in ("(", ")"):
            brackets += 1 if sign == "(" else -1
        elif sign in _SEPARATORS and depth > 0 and (brackets == 0 or sign == "/"):
            fresh = True
        elif fresh and (word.text == "a" or (depth > 0 and word.kind != "keyword")):
            count += 1
            fresh = False
    return count


def count_long_paths(scanned: Scan) -> int:
    """Upper bound on the paths of any length: ``*`` and ``+`` after a relation or a bracket.

    >>> count_long_paths(scan("SELECT (COUNT(*) AS ?n) { ?x :p+ ?y . ?y (:q|^:r)* ?z FILTER(?a + ?b > 2) }"))
    2
    """
    count = 0
    for before, word in zip(scanned.words, scanned.words[1:], strict=False):
        after_relation = before.kind in ("name", "iri") or before.text in (")", "a")
        count += word.kind == "sign" and word.text in "*+" and after_relation
    return count


def refuse_oversized(text: str, limits: Limits) -> None:
    """RequestRefused (413) for a query beyond the limits of one request."""
    if len(text) > limits.query_length:
        raise _too_large(f"{len(text):,} characters; at most {limits.query_length:,} are read")
    scanned = scan(text)
    patterns, paths = count_patterns(scanned), count_long_paths(scanned)
    if patterns > limits.patterns:
        raise _too_large(f"{patterns:,} triple patterns; at most {limits.patterns:,} are answered")
    if paths > limits.paths:
        raise _too_large(f"{paths:,} paths of any length (* or +); at most {limits.paths:,} are answered")


def refuse_long_question(text: str) -> None:
    """RequestRefused (413) for a query, or a predict block, with more words than are parsed for a model.

    The exact store reads longer ones: its parser is faster and can be killed.
    """
    words = len(scan(text).words)
    if words > MAX_WORDS:
        raise _too_large(
            f"{words:,} words; at most {MAX_WORDS:,} are read where a model is asked", "; mode=known reads longer ones"
        )


def _too_large(what: str, hint: str = "") -> RequestRefused:
    return RequestRefused(f"the query has {what}", hint=f"ask a smaller query{hint}", status=413)


def refuse_undeclared(scanned: Scan, prefixes: Mapping[str, str] | None) -> None:
    """SparqlSyntax for the first prefix that neither the text nor the graph (``prefixes``) declares, but for the usual
    ones, which need no declaration."""
    declared = {"", *STANDARD, *(prefixes or {})}
    for at, word in enumerate(scanned.words):
        prefix, colon, _ = word.text.partition(":")
        if word.kind != "name" or prefix in declared:
            continue
        if at and scanned.words[at - 1].text.upper() == "PREFIX":
            declared.add(prefix)
            continue
        raise scanned.error(
            word.start,
            f"prefix {shown(prefix + colon)} is not declared",
            hint=f"declared are {', '.join(f'{name}:' for name in sorted(declared))}; add PREFIX {prefix}: <...>",
        )


def refuse_update_as_query(text: str) -> None:
    """SparqlSyntax for an update that was sent as a query."""
    scanned = scan(text)
    for word in scanned.words[Prologue.of(scanned.words).end :][:1]:
        if word.kind == "keyword" and word.text.upper() in CHANGES:
            raise scanned.error(
                word.start,
                f"{word.text.upper()} is an update, not a query",
                hint="send it by POST to /update, as the field 'update' of a form",
            )
