"""What is outside the subset of SPARQL that biqe predicts, and what a text that uses it is told.

SPARQL has many clauses that biqe does not predict. A word of one of them is refused by name, with what to write
instead; so is a literal, a function or a path sign. What a word may be depends on where it stands: its zone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from biqe.errors import SparqlSyntax

if TYPE_CHECKING:
    from biqe.query.scan import Word, Words

SUPPORTED = (
    "supported are SELECT, ASK, COUNT, triple patterns, FILTER, VALUES, UNION, MINUS, ORDER BY, LIMIT and OFFSET; "
    "--mode known takes all of SPARQL 1.1; see docs/concepts/sparql.md"
)
OUTSIDE = "outside the supported subset"
"""Part of every message about something that SPARQL has and biqe does not predict."""
PATTERNS = "a query is SELECT ?x WHERE { subject relation object . ... }; see docs/concepts/sparql.md"

MAX_PATTERNS = 256
MAX_BRANCHES = 32
"""Conjunctions that UNION may come to, once every combination of sides is written out."""
MAX_REGEX = 1_000
"""Characters of a regular expression."""

TERMS = frozenset({"iri", "string", "variable", "blank", "name", "number"})
"""Kinds of words that stand for a term by themselves."""
TOP, GROUP, EXPRESSION, VALUES, HEAD, ORDER = "top", "group", "expression", "values", "head", "order"
"""Zones: outside of all brackets; patterns between braces; a FILTER; a VALUES block; COUNT in SELECT; ORDER BY."""

FUNCTIONS = "regex, contains, strstarts, strends, str and isIRI"
_TOP_WORDS = frozenset("SELECT DISTINCT WHERE ASK LIMIT OFFSET PREFIX BASE ORDER BY ASC DESC VALUES".split())
_WORDS = _TOP_WORDS.union(
    "FILTER UNION MINUS EXISTS REGEX STR CONTAINS STRSTARTS STRENDS ISIRI ISURI IN NOT UNDEF COUNT DISTINCT AS".split()
)
"""Keywords of the subset."""

_REFUSED = {
    "OPTIONAL": "ask two queries, with and without the optional patterns",
    "EXISTS": "write the patterns beside the others; NOT EXISTS stands as a FILTER of its own",
    "BIND": "use the value where the variable stands",
    "GRAPH": "a graph here is one set of triples; drop it",
    "SERVICE": "only this graph is asked; drop it",
    "FROM": "only this graph is asked; drop it",
    "REDUCED": "use DISTINCT; rows never come twice here",
    "GROUP": "ask one COUNT for each value, or ask for the rows and group them afterwards",
    "HAVING": "ask for the rows and group them afterwards",
    "CONSTRUCT": "use SELECT",
    "DESCRIBE": "use SELECT with a pattern for each relation",
    **dict.fromkeys(
        ("SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"), "ask for the rows; COUNT is the one aggregate here"
    ),
    **dict.fromkeys(
        ("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH", "USING"),
        "a graph is not changed by a query; import the new triples",
    ),
}
_PATH_SIGNS = {
    "|": "write { ?x :p ?y } UNION { ?x :q ?y }",
    "!": "name the relation",
    "*": "write one pattern for each length of the path, joined by UNION",
    "+": "write one pattern for each length of the path, joined by UNION",
    "?": "write { ... } UNION { ... }, with and without the relation",
}
_NAME_REST = re.compile(r"[^\s<>\"{}|^`\\;]+")
_TO_ESCAPE = re.compile(r"[~!$&'()*+,;=/?#@]")
"""Characters that a prefixed name may have after a backslash only."""


def shown(text: str) -> str:
    """A piece of the query as an error shows it: quoted, and cut where it is long."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def explain(words: Words, before: Word, zone: str) -> SparqlSyntax:
    """What is wrong with the next of ``words``, which the grammar does not allow after ``before``."""
    word, after = words.word, words.following
    if zone == ORDER and _is_operand(word):
        return words.outside(word, "an expression in ORDER BY", "order by a variable, as in ORDER BY DESC(?x)")
    if before.kind == "name" and before.start + len(before.text) == word.start and word.text[:1] in ("'", "(", "&"):
        return _name_cut_short(words, before)
    if word.kind == "keyword":
        found = _keyword(words, zone)
        if found is not None:
            return found
    elif word.kind == "unclosed":
        return words.error(word, "this string is not closed", SUPPORTED)
    elif word.kind in ("string", "tag", "number"):
        return _literal(words, zone)
    elif word.kind == "sign":
        if word.text in "+-" and after.kind == "number":
            return _literal(words, zone)
        if zone == EXPRESSION and word.text in "+-*/":
            return words.outside(word, "arithmetic", "entities have names, not numbers")
        if word.text == "<" and after.kind != "end":
            return words.error(
                word,
                "this '<' begins no name: a name in <...> has no blank and none of < \" { } | ^ ` \\",
                "write %20 for a blank, as in <New%20York>, or :New_York",
            )
        if zone == GROUP and word.text in _PATH_SIGNS:
            return words.outside(word, f"the path sign {word.text!r}", _PATH_SIGNS[word.text])
    words.scanned.refuse_brackets(last=word)
    if word.kind == "end":
        return words.error(word, "the query ends too early", PATTERNS)
    is_third_or_more = word.kind in TERMS and zone == GROUP and before.text not in "{}.;"
    hint = f"patterns are parted by '.'; {PATTERNS}" if is_third_or_more else PATTERNS
    return words.error(word, f"{shown(word.text)} is not expected here", hint)


def _is_operand(word: Word) -> bool:
    if word.kind == "keyword":
        return word.text.upper() not in _REFUSED.keys() | _TOP_WORDS
    return word.kind in TERMS - {"variable"} or (word.kind == "sign" and word.text not in "{}()[].,;")


def _keyword(words: Words, zone: str) -> SparqlSyntax | None:
    word, upper = words.word, words.word.text.upper()
    if upper in ("TRUE", "FALSE"):
        return _literal(words, zone)
    if upper == "NOT" and words.following.text.upper() == "EXISTS":
        return words.outside(word, "NOT EXISTS within a condition", _REFUSED["EXISTS"])
    if upper == "SELECT" and zone != TOP:
        return words.outside(word, "a SELECT within braces", "write its patterns in the outer query")
    if upper == "DISTINCT" and zone != TOP:
        return words.outside(word, "DISTINCT within braces", "rows never come twice here; drop it")
    if upper in _REFUSED:
        return words.outside(word, upper, _REFUSED[upper])
    if zone == EXPRESSION:
        return words.outside(word, f"the function or word {shown(word.text)}", f"functions are {FUNCTIONS}")
    if upper in _WORDS:
        # Where the word is one of this zone, its order is wrong, and the general message says so.
        return None if zone in (TOP, ORDER) else words.error(word, f"{upper} is not expected here", SUPPORTED)
    if word.text == "a":
        return None
    text = word.text if len(word.text) <= 40 else f"{word.text[:37]}..."
    return words.error(
        word,
        f"{text!r} is neither a name nor a word of the supported subset",
        f"write :{text} or <{text}> if it is a name, ?{text} if it is a variable; {SUPPORTED}",
    )


def _literal(words: Words, zone: str) -> SparqlSyntax:
    what = "a number" if words.word.kind in ("number", "sign") else "a literal"
    instead = "patterns join entities; write an entity's name as :name or <name>"
    if zone == EXPRESSION:
        instead = 'entities have names, not values; compare names, as in str(?x) = "5"'
    return words.outside(words.word, what, instead)


def _name_cut_short(words: Words, name: Word) -> SparqlSyntax:
    """A prefixed name such as ``:Côte_d'Ivoire`` ends where a character stands that it may have only escaped."""
    end = name.start + len(name.text)
    rest = _NAME_REST.match(words.scanned.text, end)
    tail = rest[0].rstrip(".,") if rest is not None else ""
    if "(" not in tail:  # then a bracket at its end belongs to the query
        tail = tail.rstrip(")")
    whole = name.text + tail
    prefix, _, local = whole.partition(":")
    escaped = name.text + _TO_ESCAPE.sub(r"\\\g<0>", tail)
    either = f"{escaped} or <{local}>" if not prefix else escaped
    return words.error(
        name,
        f"the name {shown(name.text)} ends before {words.scanned.text[end]!r}",
        f"such a character needs a backslash: write {either}",
    )
