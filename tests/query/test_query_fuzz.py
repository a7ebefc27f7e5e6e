"""Hostile and broken text: always a query or an error of ours, never a traceback, never more than a second."""

from __future__ import annotations

import contextlib
import random
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import BiqeError, SparqlSyntax
from biqe.exact.filters import Filters
from biqe.exact.store import ExactStore
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import bind_question
from biqe.query.dag import analyse, count_paths, orient
from biqe.query.scan import MAX_CHARACTERS
from biqe.query.shapes import shape_of
from biqe.query.sparql import parse_question

TOWN = Vocabulary(["a", "b", "Köln", "New York"], ["p", "q", "rdf:type"], {2: "Cologne", 3: "New York"})

SEEDS = (
    "SELECT ?x ?y WHERE { ?x :p :a, :b . ?y :q ?x }",
    "SELECT * { :New_York :p ?x . ?x a <b> . { ?x :q/^:p :Cologne ; (:p) [] } } LIMIT 5",
    "PREFIX ex: <http://ex.org/> BASE <http://b/> SELECT DISTINCT * { ?x ex:p/^:q [ a :b ; :p _:c ] } LIMIT 10 # end",
    "SELECT ?x { ?x :p ?y OPTIONAL { ?y :q ?z } FILTER(?x != ?y && regex(?z, 'a.b\\\\'c', \"i\")) } ORDER BY DESC(?x)",
    "SELECT (COUNT(?x) AS ?n) { { ?x :p 5.0e1 } UNION { VALUES ?x { <New%20York> } } } GROUP BY ?x HAVING(?n > 3)",
    "ASK { SERVICE <http://s> { :Köln !(:p|^:q)* '''long''s'''@de-DE , \"1\"^^<int> , true } }",
    "SELECT * { { ?x :p (1 ?y (:a)) } MINUS { GRAPH ?g { $x ?p \\u00e9 } } }",
    'SELECT ?x { { ?x :p :a } UNION { ?x :q ?y . FILTER(?y IN (:a, <b>) || !(str(?y) < "k")) } } ORDER BY ?x OFFSET 1',
    "ASK { VALUES (?x ?y) { (:a UNDEF) (:b :a) } ?x :p ?y FILTER regex(?x, '(a+)+b', \"i\") }",
    "SELECT (COUNT(DISTINCT ?x) AS ?n) { ?x :p ?y FILTER(?x NOT IN (:a) && contains(?y, 'o') && isIRI(?y)) }",
)
SUPPORTED = (*SEEDS[:3], *SEEDS[-3:])
PIECES = (
    *"{}()[]<>.,;:|/^*+?!=&#@'\"\\-_ \t\n\r\0\x1f\x7f",
    "'''",
    '"""',
    "^^",
    "\\u",
    "\\U0010FFFF",
    "\\uD800",
    "\ud800",
    "SELECT",
    "select",
    "ASK",
    "VALUES",
    "ORDER BY",
    "COUNT(*)",
    "regex(",
    "STR(",
    "IN",
    "NOT",
    "UNDEF",
    "&&",
    "||",
    "!=",
    "WHERE",
    "FILTER",
    "a",
    "A",
    "PREFIX",
    "BASE",
    "LIMIT",
    "DISTINCT",
    "OFFSET",
    "UNION",
    "true",
    "?x",
    "$y",
    ":p",
    "ex:p",
    "_:b",
    "<p>",
    "<http://[>",
    "%ff",
    "%41",
    "0",
    "1e9",
    ".5",
    "٣",
    "é",
    "\u00a0",
    "\u2028",
    "\ufeff",
    "日本",
    "😀",
    "\u0301",
)


def check(text: str) -> str:
    """'query' or the name of the error; anything else fails the test.

    Time is that of this thread, so that a busy machine fails no test.
    """
    start = time.thread_time()
    try:
        question = parse_question(text)
        outcome = "query"
    except SparqlSyntax as error:
        outcome = "SparqlSyntax"
        assert error.message and (error.line is None) == (error.column is None)
        if error.line is not None:
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            assert 1 <= error.line <= len(lines)
            assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        str(error).encode()  # can be printed
    seconds = time.thread_time() - start
    assert seconds < 1, f"{seconds:.2f} s: {text[:200]!r}"
    if outcome == "query":
        # Written out, a query has more brackets, and its unions all their sides: it may be too long to be read.
        written = str(question)
        assert len(written) > 3_000 or "%" in written or parse_question(written) == question
        try:
            bound = bind_question(question, TOWN)
            for branch in bound.branches:
                Filters(branch.filters, Graph(TOWN, as_triples([(0, 0, 1)])))
        except BiqeError as error:
            str(error).encode()
            return type(error).__name__
        for branch in bound.branches:
            shape_of(branch.query)
            dag = analyse(orient(branch.wide, len(TOWN.relations)))
            if dag.is_acyclic:
                assert count_paths(dag) >= 1
    return outcome


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    parse_question(SEEDS[-2])  # loading pyarrow, for its regular expression, is not part of the time of a query


def mutated(rng: random.Random, seeds: tuple[str, ...]) -> str:
    """A query with characters and words taken out, put in, doubled and swapped, or spliced with another."""
    text = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, to = sorted(rng.choices(range(len(text) + 1), k=2))
        to = min(to, at + rng.choice((1, 3, 20)))
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:to] + text[at:to] * rng.choice((1, 2, 50)) + text[to:]
        elif kind == 3:
            text = text[:at] + rng.choice(PIECES) + text[to:]
        else:
            other = rng.choice(SEEDS)
            text = text[:at] + other[rng.randrange(len(other)) :]
    return text


def test_mutated_queries() -> None:
    rng = random.Random(20210211)
    outcomes: dict[str, int] = {}
    for _ in range(6_000):
        outcome = check(mutated(rng, SUPPORTED if rng.random() < 0.5 else SEEDS))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    # The mutations are neither all harmless nor all fatal, or they would test one side only.
    assert outcomes["SparqlSyntax"] > 1_000 and outcomes["query"] > 100 and outcomes["UnknownName"] > 100, outcomes


def test_the_exact_store_refuses_in_our_words() -> None:
    """All of SPARQL goes to the store's own parser: whatever it says comes back as an error of ours."""
    rng = random.Random(11)
    store = ExactStore(Graph(TOWN, as_triples([(0, 0, 1), (2, 1, 3)])))
    store.query("ASK { ?x ?y ?z }")
    outcomes: dict[str, int] = {}
    for _ in range(1_500):
        text = mutated(rng, SEEDS)
        start = time.thread_time()
        try:
            store.query(text, max_rows=100)
            outcome = "answered"
        except BiqeError as error:
            str(error).encode()
            outcome = type(error).__name__
        assert time.thread_time() - start < 1, text[:200]
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["answered"] > 50 and outcomes["SparqlSyntax"] > 50, outcomes
    for name in ("nested filters", "nested groups", "nested inversions", "braces", "many negations", "one comment"):
        with contextlib.suppress(BiqeError):
            store.query(HOSTILE[name])


def test_words_in_any_order() -> None:
    rng = random.Random(7)
    for _ in range(4_000):
        inner = rng.choice(("", " ")).join(rng.choices(PIECES, k=rng.randrange(12)))
        check(inner if rng.random() < 0.3 else f"SELECT ?x {{ ?x :p ?y . {inner} }}")


@given(st.text(max_size=80))
@settings(max_examples=300)
def test_any_text(text: str) -> None:
    check(text)


FILL = 99_000
HOSTILE = {
    "braces": "{" * FILL,
    "open groups": "SELECT ?x " + "{" * 900,
    "open brackets": "SELECT ?x { ?x :p " + "[ :p " * 400,
    "nested groups": "SELECT ?x " + "{" * 500 + " ?x :p ?y " + "}" * 500,
    "nested paths": "SELECT ?x { ?x " + "(" * 500 + ":p" + ")" * 500 + " ?y }",
    "nested inversions": "SELECT ?x { ?x " + "^" * 900 + ":p ?y }",
    "nested filters": "SELECT ?x { FILTER" + "(" * 500 + "1" + ")" * 500 + " }",
    "collections": "SELECT ?x { ?x :p " + "(" * 7 + "?y " * 800 + ")" * 7 + " }",
    "semicolons": "SELECT ?x { ?x :p ?y " + ";" * 1_400 + " }",
    "long path": "SELECT ?x { ?x " + "/".join([":p"] * 700) + " ?y }",
    "path times objects": "SELECT ?x { ?x " + "/".join([":p"] * 350) + " " + ",".join(["?y"] * 350) + " }",
    "blank nodes": "SELECT ?x { ?x :p " + ", ".join(["[ :p ?y ]"] * 240) + " }",
    "selected": "SELECT " + "?x " * 1_400 + "{ ?x :p ?y }",
    "prefixes": "PREFIX a: <b> " * 450 + "SELECT ?x { ?x :p ?y }",
    "long name": f"SELECT ?x {{ ?x :p :{'a' * FILL} }}",
    "long unknown word": f"SELECT ?x {{ ?x :p {'a' * FILL} }}",
    "long iri": f"SELECT ?x {{ ?x :p <{'a' * FILL}> }}",
    "long prefix": f"SELECT ?x {{ ?x :p {'a' * FILL}:b }}",
    "long variable": f"SELECT ?{'x' * 49_000} {{ ?{'x' * 49_000} :p ?y }}",
    "percent codes": f"SELECT ?x {{ ?x :p :{'%41' * 33_000} }}",
    "escapes": "\\u0020" * 16_000,
    "half escapes": "\\u" * 49_000,
    "dots": f"SELECT ?x {{ ?x :p :a{'.' * FILL} }}",
    "dotted words": "a." * 49_000,
    "dotted name": f"SELECT ?x {{ ?x :p :{'a.' * 49_000} }}",
    "dotted blank": f"SELECT ?x {{ ?x :p _:{'a.' * 49_000} }}",
    "open strings": "'\\" * 49_000,
    "quotes": "'" * FILL,
    "double quotes": '"' * (FILL - 1),
    "long open string": "'''" + "''a" * 32_000,
    "less than": "<" * FILL,
    "open iris": "<a" * 49_000,
    "comments": "#\n" * 49_000 + "SELECT ?x { ?x :p ?y }",
    "one comment": "SELECT ?x { ?x :p ?y } #" + "x" * FILL,
    "line ends": "\r\n" * 49_000 + "SELECT ?x { ?x :p ?y OPTIONAL",
    "digits": "SELECT ?x { ?x :p ?y } LIMIT " + "9" * FILL,
    "exponents": "1e" * 49_000,
    "nulls": "\0" * FILL,
    "tags": "@a-" * 33_000,
    "long base": f"BASE <http://{'a/' * 40_000}> SELECT ?x {{ ?x <{'../' * 3_000}> ?y }}",
    "many negations": "SELECT ?x { ?x :p ?y FILTER(" + "!" * 1_400 + "(?x = ?y)) }",
    "long disjunction": "SELECT ?x { ?x :p ?y FILTER(" + " || ".join(["?x = :a"] * 360) + ") }",
    "long list": "SELECT ?x { ?x :p ?y FILTER(?x IN (" + ", ".join([":a"] * 700) + ")) }",
    "many values": "SELECT ?x { ?x :p ?y VALUES ?x { " + ":a " * 1_400 + "} }",
    "many filters": "SELECT ?x { ?x :p ?y " + "FILTER(?x != ?y) " * 180 + "}",
    "nested conditions": "SELECT ?x { ?x :p ?y FILTER" + "(!" * 7 + "(?x = ?y" + ")" * 8 + " }",
    "unions in a row": "SELECT ?x { " + " UNION ".join(["{ ?x :p :a }"] * 200) + " }",
    "unions that multiply": "SELECT ?x { " + "{ ?x :p :a } UNION { ?x :q :a } " * 90 + " }",
    "unions within": "SELECT ?x " + "{ { ?x :p :a } UNION " * 7 + "{ ?x :p :b }" + "}" * 7,
    "catastrophic regex": "SELECT ?x { ?x :p ?y FILTER regex(?x, '" + "(a+)+" * 30 + "$') }",
    "regex that explodes": "SELECT ?x { ?x :p ?y FILTER regex(?x, '((a{1,100}){1,100}){1,100}') }",
    "long regex": "SELECT ?x { ?x :p ?y FILTER regex(?x, '" + "a" * 90_000 + "') }",
    "many counts": "SELECT " + "(COUNT(*) AS ?n) " * 180 + "{ ?x :p ?y }",
    "many order keys": "SELECT ?x { ?x :p ?y } ORDER BY " + "DESC(?x) " * 360,
    "too long": "x" * (MAX_CHARACTERS + 1),
    "far too long": "x" * 50_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str) -> None:
    check(HOSTILE[name])


def test_no_recursion_limit_was_moved() -> None:
    before = sys.getrecursionlimit()
    for name in ("nested paths", "nested groups", "collections"):
        check(HOSTILE[name])
    assert sys.getrecursionlimit() == before
