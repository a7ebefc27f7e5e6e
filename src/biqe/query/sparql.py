"""SPARQL text to a Question: the subset that biqe answers, read by rdflib's grammar.

Terminals, triple patterns and clauses are rdflib's own productions; ``grammar`` joins those that are supported, and
``translate`` turns their tree into names. What SPARQL has and biqe does not is refused before the parser runs, at its
place in the text; so the parser only ever sees text whose size and depth are bounded.

docs/concepts/sparql.md describes the subset.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from biqe.errors import SparqlSyntax
from biqe.query.ast import Query
from biqe.query.form import Form
from biqe.query.grammar import PARSING, filter_clause, grammar, order_clause
from biqe.query.names import PLAIN, QueryNames
from biqe.query.question import Question
from biqe.query.scan import TERMS, Scan, Word, scan
from biqe.query.subset import PATTERNS, refuse_oversized, refuse_unsupported, shown, syntax_error
from biqe.query.translate import Translation

__all__ = ["PLAIN", "parse", "parse_question"]

REMEMBERED = 256
"""Texts that need not be parsed when they are asked again."""
REMEMBERED_LENGTH = 5_000
"""Characters of the longest of them."""


def parse_question(text: str, *, prefixes: Mapping[str, str] | None = None) -> Question:
    """The question that a text says. Any text that is no question of the subset is a SparqlSyntax, with its place.

    ``prefixes`` are those of the graph. The empty prefix always has a meaning: where the graph gives it none,
    ``:Rhine`` and ``<Rhine>`` are the plain name 'Rhine', with %20 and the like decoded.

    >>> print(parse_question("SELECT ?x { { ?x :on :Rhine } UNION { ?x :on :Main } FILTER(?x != :Bonn) }"))
    SELECT ?x WHERE { { ?x <on> <Rhine> FILTER(?x != <Bonn>) } UNION { ?x <on> <Main> FILTER(?x != <Bonn>) } }
    >>> parse_question("SELECT ?x WHERE { ?x :p ?y OPTIONAL { ?y :q ?z } }")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    biqe.errors.SparqlSyntax: line 1, column 28: OPTIONAL is outside the supported subset
    hint: ask two queries, with and without the optional patterns; supported are SELECT, ...
    """
    refuse_oversized(text)
    if len(text) > REMEMBERED_LENGTH:
        return _parsed(text, tuple((prefixes or {}).items()))
    return _remembered(text, tuple((prefixes or {}).items()))


def _parsed(text: str, prefixes: tuple[tuple[str, str], ...]) -> Question:
    scanned = scan(text)
    refuse_unsupported(scanned)
    form, (prologue, tree) = _tree(scanned)
    names = QueryNames.of(prologue, dict(prefixes), scanned, form)
    return Translation(scanned, names).question(tree)


_remembered = lru_cache(maxsize=REMEMBERED)(_parsed)
"""Questions are not changed once they are made, so those who ask the same text share one."""


def parse(text: str, *, prefixes: Mapping[str, str] | None = None) -> Query:
    """The conjunctive query that a text says: SELECT over triple patterns, without conditions and alternatives.

    >>> print(parse("SELECT ?city { ?river :flows_through :Germany, :France . ?city :on ?river }"))
    SELECT ?city WHERE { ?river <flows_through> <Germany> . ?river <flows_through> <France> . ?city <on> ?river }
    """
    question = parse_question(text, prefixes=prefixes)
    query = question.conjunctive
    if query is None:
        raise SparqlSyntax(
            "this is more than one conjunctive query: parse reads SELECT over triple patterns with LIMIT",
            hint="parse_question of biqe.query.sparql reads FILTER, VALUES, UNION, ORDER BY, OFFSET, COUNT and ASK",
        )
    return query


def _tree(scanned: Scan) -> tuple[Form, tuple[Any, Any]]:
    """rdflib's tree, prologue and query, of the text or of its form."""
    from pyparsing import ParseBaseException

    form = Form.of(scanned)
    found = form.tree()
    if found is not None:
        return form, found
    # The text itself says where it goes wrong.
    try:
        with PARSING:
            prologue, query = grammar().parse_string(scanned.text, parse_all=True)
        return Form.plain(scanned), (prologue, query)
    except ParseBaseException as error:
        with PARSING:
            offset = _farther(scanned, error.loc)
        _unexpected(scanned, offset)
    except Exception as error:
        # The parser is not ours: whatever it raises on odd text is, for the user, text that cannot be read.
        raise SparqlSyntax(
            f"the query cannot be read ({type(error).__name__})", hint="write it in shorter, simpler patterns"
        ) from error


def _farther(scanned: Scan, offset: int) -> int:
    """Where a pattern goes wrong, if one begins at ``offset``.

    The grammar tries a pattern and, when it fails, goes back to its beginning and asks for a closing brace. To
    point at the word that is wrong, the pattern is read once more on its own.
    """
    from pyparsing import ParseBaseException
    from rdflib.plugins.sparql import parser as sparql

    word = scanned.word_at(offset)
    if word is None or word.text == ".":
        return offset
    clauses = {"FILTER": filter_clause(), "VALUES": sparql.InlineData, "ORDER": order_clause()}
    if word.kind == "keyword" and word.text.upper() not in clauses:
        following = scanned.words[scanned.words.index(word) + 1 :][:1]
        if not following:
            return len(scanned.text)
        is_number = word.text.upper() not in ("LIMIT", "OFFSET") or following[0].text.isdecimal()
        return offset if is_number else following[0].start
    if word.kind != "keyword" and not _may_begin(scanned, word):
        return offset
    clause = clauses.get(word.text.upper(), sparql.TriplesSameSubjectPath)
    try:
        clause.copy().parse_with_tabs().parse_string(scanned.text[word.start :])
    except ParseBaseException as error:
        return word.start + error.loc
    except Exception:
        return offset  # the first error stands; it is the one to report
    return offset


def _may_begin(scanned: Scan, word: Word) -> bool:
    """Whether a pattern, or its second half after ';', may begin with ``word``."""
    at = scanned.words.index(word)
    return at > 0 and scanned.words[at - 1].text in "{}.;"


def _unexpected(scanned: Scan, offset: int) -> NoReturn:
    word = scanned.word_at(offset)
    if word is None:
        raise syntax_error(scanned, len(scanned.text.rstrip()), "the query ends too early", hint=PATTERNS)
    is_third_or_more = word.kind in TERMS and "{" in scanned.text[: word.start] and not _may_begin(scanned, word)
    raise syntax_error(
        scanned,
        word.start,
        f"{shown(word.text)} is not expected here",
        hint=f"patterns are parted by '.'; {PATTERNS}" if is_third_or_more else PATTERNS,
    )
