"""What of SPARQL is outside the subset, found by its words before the parser runs.

To support one more clause, take its keyword out of ``_REFUSED``, join its production in ``sparql._grammar`` and
translate its node in ``sparql._Translation``.
"""

from __future__ import annotations

import re

from biqe.errors import SparqlSyntax
from biqe.query.scan import Scan, Word

MAX_CHARACTERS = 100_000
MAX_WORDS = 1_500
"""Room for the most patterns and a long prologue; the parser takes up to a third of a millisecond a word."""
MAX_PATTERNS = 256
MAX_DEPTH = 8
"""Brackets within brackets. The parser is recursive and Python's stack is not endless."""

SUPPORTED = "SELECT (DISTINCT), triple patterns, PREFIX, BASE and LIMIT are supported; see docs/concepts/sparql.md"
PATTERNS = "a query is SELECT ?x WHERE { subject relation object . ... }; see docs/concepts/sparql.md"

_ALLOWED = frozenset({"SELECT", "DISTINCT", "WHERE", "LIMIT", "PREFIX", "BASE", "A"})

_REFUSED = {
    "OPTIONAL": "ask two queries, with and without the optional patterns",
    "UNION": "ask one query for each side",
    "FILTER": "say what is wanted as triple patterns",
    "MINUS": "absence is not predicted; drop it",
    "BIND": "use the value where the variable stands",
    "VALUES": "ask one query for each value",
    "GRAPH": "a graph here is one set of triples; drop it",
    "SERVICE": "only this graph is asked; drop it",
    "FROM": "only this graph is asked; drop it",
    "REDUCED": "use DISTINCT; rows never come twice here",
    "GROUP": "ask for the rows and group them afterwards",
    "HAVING": "ask for the rows and group them afterwards",
    "ORDER": "known rows come first, then predicted ones by probability",
    "OFFSET": "use a larger LIMIT and skip the first rows",
    "ASK": "use SELECT with a variable",
    "CONSTRUCT": "use SELECT",
    "DESCRIBE": "use SELECT with a pattern for each relation",
    **dict.fromkeys(
        ("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH", "USING"),
        "a graph is not changed by a query; import the new triples",
    ),
}

_PATH_SIGNS = {
    "|": "ask one query for each relation",
    "!": "name the relation",
    "*": "ask one query for each length of the path",
    "+": "ask one query for each length of the path",
    "?": "ask two queries, with and without the relation",
}

_CLOSING = {"{": "}", "(": ")", "[": "]"}


_SURROGATE = re.compile("[\ud800-\udfff]")


def syntax_error(scanned: Scan, offset: int, message: str, *, hint: str | None = None) -> SparqlSyntax:
    """The error that points at ``offset`` of the scanned text."""
    line, column = scanned.place(offset)
    return SparqlSyntax(message, line=line, column=column, hint=hint)


def refuse_oversized(text: str) -> None:
    """SparqlSyntax for a text that is longer than any query has reason to be."""
    if len(text) > MAX_CHARACTERS:
        raise SparqlSyntax(
            f"the query has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", hint="ask a smaller query"
        )


def refuse_unsupported(scanned: Scan) -> None:
    """SparqlSyntax for the first word that the subset does not have, and for brackets that do not match."""
    broken = _SURROGATE.search(scanned.text)
    if broken is not None:
        raise syntax_error(scanned, broken.start(), "this is half of a character (a surrogate)", hint="write UTF-8")
    if len(scanned.words) > MAX_WORDS:
        raise syntax_error(
            scanned,
            scanned.words[MAX_WORDS].start,
            f"the query has {len(scanned.words):,} words; at most {MAX_WORDS:,} are read",
            hint="ask a smaller query",
        )
    if not scanned.words:
        raise SparqlSyntax("the query is empty", line=1, column=1, hint=PATTERNS)
    open_: list[Word] = []
    for at, word in enumerate(scanned.words):
        before = scanned.words[at - 1] if at else None
        after = scanned.words[at + 1] if at + 1 < len(scanned.words) else None
        if word.kind == "keyword":
            _keyword(scanned, word, depth=len(open_))
        elif word.kind == "unclosed":
            raise syntax_error(scanned, word.start, "this string is not closed", hint=SUPPORTED)
        elif word.kind in ("string", "tag") or (word.kind == "number" and not _is_limit(before)):
            raise _literal(scanned, word)
        elif word.kind == "number" and len(word.text) > 18:
            raise syntax_error(scanned, word.start, "LIMIT is larger than any result", hint="leave it out")
        elif word.kind == "sign":
            _bracket(scanned, word, open_)
            _sign(scanned, word, before, after, depth=len(open_))
    if open_:
        raise syntax_error(scanned, open_[-1].start, f"{open_[-1].text!r} is not closed", hint=PATTERNS)


def _is_limit(word: Word | None) -> bool:
    return word is not None and word.text.upper() in ("LIMIT", "OFFSET")


def _keyword(scanned: Scan, word: Word, depth: int) -> None:
    upper = word.text.upper()
    if upper in ("TRUE", "FALSE"):
        raise _literal(scanned, word)
    if upper == "SELECT" and depth:
        raise _outside(scanned, word, "a SELECT within braces", "write its patterns in the outer query")
    if upper == "DISTINCT" and depth:
        raise _outside(scanned, word, "DISTINCT within braces", "rows never come twice here; drop it")
    if upper in _REFUSED:
        raise _outside(scanned, word, upper, _REFUSED[upper])
    if upper not in _ALLOWED or word.text == "A":
        text = word.text if len(word.text) <= 40 else f"{word.text[:37]}..."
        raise syntax_error(
            scanned,
            word.start,
            f"{text!r} is neither a name nor a word of the supported subset",
            hint=f"write :{text} or <{text}> if it is a name, ?{text} if it is a variable; {SUPPORTED}",
        )


def _literal(scanned: Scan, word: Word) -> SparqlSyntax:
    what = "a number" if word.kind in ("number", "sign") else "a literal"
    return _outside(scanned, word, what, "patterns join entities; write an entity's name as :name or <name>")


def _bracket(scanned: Scan, word: Word, open_: list[Word]) -> None:
    """Keep the stack of open brackets."""
    if word.text in _CLOSING:
        open_.append(word)
        if len(open_) > MAX_DEPTH:
            raise syntax_error(
                scanned,
                word.start,
                f"brackets are nested more than {MAX_DEPTH} deep",
                hint="give the inner nodes variables and write flat patterns",
            )
    elif word.text in _CLOSING.values():
        if not open_:
            raise syntax_error(scanned, word.start, f"{word.text!r} closes nothing", hint=PATTERNS)
        last = open_.pop()
        if _CLOSING[last.text] != word.text:
            line, column = scanned.place(last.start)
            raise syntax_error(
                scanned,
                word.start,
                f"{word.text!r} does not close the {last.text!r} of line {line}, column {column}",
                hint=PATTERNS,
            )


def _sign(scanned: Scan, word: Word, before: Word | None, after: Word | None, depth: int) -> None:
    if word.text in "+-" and after is not None and after.kind == "number":
        raise _literal(scanned, word)
    if word.text == "<" and after is not None:
        raise syntax_error(
            scanned,
            word.start,
            "this '<' begins no name: a name in <...> has no blank and none of < \" { } | ^ ` \\",
            hint="write %20 for a blank, as in <New%20York>, or :New_York",
        )
    if depth == 1 and word.text == "(" and not _in_group(scanned, word):
        raise _outside(scanned, word, "an expression in SELECT", "select variables alone")
    if depth and word.text in _PATH_SIGNS:
        raise _outside(scanned, word, f"the path sign {word.text!r}", _PATH_SIGNS[word.text])


def _in_group(scanned: Scan, word: Word) -> bool:
    return "{" in scanned.text[: word.start]


def _outside(scanned: Scan, word: Word, what: str, instead: str) -> SparqlSyntax:
    message = f"{what} is outside the supported subset"
    return syntax_error(scanned, word.start, message, hint=f"{instead}; {SUPPORTED}")
