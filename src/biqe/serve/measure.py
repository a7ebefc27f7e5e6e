"""How large a query is, counted by its words before anything reads it."""

from __future__ import annotations

from biqe.errors import RequestRefused
from biqe.query.scan import Scan, scan
from biqe.query.subset import MAX_WORDS
from biqe.serve.config import Limits

_SEPARATORS = frozenset(".;,/")


def patterns(scanned: Scan) -> int:
    """Triple patterns of a text, at most: a new one after each ``{ . ; ,`` between braces, and each step of a path.

    >>> patterns(scan("SELECT * { ?x :p ?y, ?z ; :q/:r ?w . ?w :s 'a. b' } LIMIT 3"))
    5
    """
    count = depth = brackets = 0
    fresh = False
    for word in scanned.words:
        sign = word.text if word.kind == "sign" else ""
        if sign == "{":
            depth += 1
            fresh = True
        elif sign == "}":
            depth -= 1
            fresh = True
        elif sign in ("(", ")"):
            brackets += 1 if sign == "(" else -1
        elif sign in _SEPARATORS and depth > 0 and (brackets == 0 or sign == "/"):
            fresh = True
        elif fresh and depth > 0 and word.kind != "keyword":
            count += 1
            fresh = False
        elif fresh and word.text == "a":
            count += 1
            fresh = False
    return count


def long_paths(scanned: Scan) -> int:
    """Paths of any length in a text, at most: ``*`` and ``+`` after a relation or a bracket.

    >>> long_paths(scan("SELECT (COUNT(*) AS ?n) { ?x :p+ ?y . ?y (:q|^:r)* ?z FILTER(?a + ?b > 2) }"))
    2
    """
    count = 0
    for before, word in zip(scanned.words, scanned.words[1:], strict=False):
        after_relation = before.kind in ("name", "iri") or before.text in (")", "a")
        if word.kind == "sign" and word.text in "*+" and after_relation:
            count += 1
    return count


def refuse_oversized(text: str, limits: Limits) -> None:
    """RequestRefused (413) for a query that is larger than one request may be."""
    if len(text) > limits.query_length:
        raise RequestRefused(
            f"the query has {len(text):,} characters; at most {limits.query_length:,} are read",
            hint="ask a smaller query",
            status=413,
        )
    scanned = scan(text)
    for what, found, most in (
        ("triple patterns", patterns(scanned), limits.patterns),
        ("paths of any length (* or +)", long_paths(scanned), limits.paths),
    ):
        if found > most:
            raise RequestRefused(
                f"the query has {found:,} {what}; at most {most:,} are answered", hint="ask a smaller query", status=413
            )


def refuse_long_question(text: str) -> None:
    """RequestRefused (413) for a query, or a predict block, with more words than are read for a model.

    The exact store reads longer ones: its parser is faster, and can be killed.
    """
    words = len(scan(text).words)
    if words > MAX_WORDS:
        raise RequestRefused(
            f"the query has {words:,} words; at most {MAX_WORDS:,} are read where a model is asked",
            hint="ask a smaller query; mode=known reads longer ones",
            status=413,
        )
