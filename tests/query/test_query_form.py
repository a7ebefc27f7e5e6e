"""Texts of one form share one tree; what a text says does not depend on it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import SparqlSyntax
from biqe.query import form
from biqe.query.form import Form
from biqe.query.grammar import grammar
from biqe.query.names import QueryNames
from biqe.query.scan import scan
from biqe.query.sparql import parse_question
from biqe.query.translate import Translation

PREFIXES = {"": "http://ex.org/", "w": "http://w.org/e"}
TEXTS = (
    "SELECT ?x { ?x :on <Rhine> }",
    "SELECT ?x { ?x :on :Rhine . ?x :on <http://ex.org/Rhine> }",
    "SELECT ?x{?x:on<Rhine>.?x<in>w:3}",
    "BASE <http://b.org/> PREFIX p: <q#> SELECT ?x { ?x p:on <a>, p:b-c, p:d.e ; <#f> :g%20h }",
    "PREFIX s: <urn:biqe:slot:> SELECT ?x { ?x s:1 <urn:biqe:slot:1> . ?x <urn:biqe:slot:0> s:one }",
    "SELECT ?x { ?x a :City . ?x :on/^:from :Rhine FILTER(?x != :Bonn && ?x NOT IN (:a, <b>)) }",
    "SELECT ?x { ?x :on ?y } VALUES (?x ?y) { (:a UNDEF) (<UNDEF> w:b) }",
    "SELECT ?x { ?x :on ?y FILTER(STR(?y) = 'urn:biqe:slot:0' || regex(STR(?x), '<a>')) }",
    "SELECT ?x { { ?x :on :a } UNION { ?x :on <a> } } ORDER BY ?x LIMIT 3",
    "SELECT ?x { [] :on ?x . ?x :in [ :of :b ] # <c> :d\n }",
    "ASK { :a :p <b> }",
    "SELECT (COUNT(DISTINCT ?x) AS ?n) { ?x :p :\\u0041 }",
)


def read_directly(text: str):
    """The question that ``text`` says when it is read with its names in it."""
    scanned = scan(text)
    prologue, tree = grammar().parse_string(scanned.text, parse_all=True)
    names = QueryNames.of(prologue, PREFIXES, scanned, Form(scanned.text, ()))
    return Translation(scanned, names).question(tree)


@pytest.mark.parametrize("text", TEXTS)
def test_names_are_put_back(text):
    if "<UNDEF>" in text:  # read directly, rdflib's tree does not tell it from UNDEF
        found = str(parse_question(text, prefixes=PREFIXES))
        assert "<http://ex.org/UNDEF>" in found and "<http://w.org/eb>" in found
    elif "urn:biqe:slot" in text and "PREFIX" in text:
        assert str(parse_question(text, prefixes=PREFIXES)) == (
            "SELECT ?x WHERE { ?x <urn:biqe:slot:1> <urn:biqe:slot:1> . ?x <urn:biqe:slot:0> <urn:biqe:slot:one> }"
        )
    else:
        assert parse_question(text, prefixes=PREFIXES) == read_directly(text)


local = st.text("abZ_09-.%:é", max_size=6)
word = st.one_of(local.map(":{}".format), local.map("w:{}".format), local.map("<{}>".format), st.just("?x"))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(word, word, word), min_size=1, max_size=3))
def test_any_names(patterns):
    text = f"SELECT * {{ {' . '.join(map(' '.join, patterns))} }}"

    def outcome(read):
        try:
            return read()
        except SparqlSyntax as error:
            return str(error)
        except Exception:
            return "not read"

    found, expected = outcome(lambda: parse_question(text, prefixes=PREFIXES)), outcome(lambda: read_directly(text))
    # What cannot be read is reported by whoever called the parser, which read_directly leaves out.
    assert found == expected or (expected == "not read" and isinstance(found, str))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (COUNT(<urn:biqe:slot:99>) AS ?n) { ?x :p ?y }",
        "SELECT (COUNT(<urn:biqe:slot:abc>) AS ?n) { ?x :p ?y }",
        "SELECT (COUNT(<\\u0075rn:biqe:slot:0>) AS ?n) { ?x :p ?y }",
        "SELECT ?x { ?x <urn:biqe:slot:9> ?y FILTER(?x<?y&&?y>?x) }",
        "BASE <urn:biqe:slot:> SELECT ?x { ?x <9> ?y . ?x :a <> }",
    ],
)
def test_texts_that_name_slots_mean_what_they_say(text):
    try:
        found = str(parse_question(text, prefixes=PREFIXES))
    except SparqlSyntax as error:
        found = str(error)
    assert "slot:" in found or "entities have no order" in found
    assert "<p>" not in found and "ex.org/p" not in found


def test_what_cannot_be_read_is_tried_once_as_a_form():
    form._remembered.cache_clear()
    for number in range(5):
        with pytest.raises(SparqlSyntax, match="column 23"):
            parse_question(f"SELECT ?x {{ ?x :p{number} :q :r }}", prefixes=PREFIXES)
    assert form._remembered.cache_info().misses == 1


def test_texts_of_one_form_are_read_once(monkeypatch):
    form._remembered.cache_clear()
    for number in range(20):
        question = parse_question(f"SELECT ?x {{ ?x :p{number} <e{number}> . <f> :q ?x }}", prefixes=PREFIXES)
        assert f"<http://ex.org/p{number}> <http://ex.org/e{number}>" in str(question)
    assert form._remembered.cache_info().misses == 1


def test_an_error_stands_at_its_place():
    parse_question("SELECT ?x { ?x :p :q }", prefixes=PREFIXES)
    with pytest.raises(SparqlSyntax, match=r"line 2, column 8"):
        parse_question("SELECT ?x {\n ?x :p ) :q }", prefixes=PREFIXES)
    with pytest.raises(SparqlSyntax, match=r"column 19: prefix 'z:' is not declared"):
        parse_question("SELECT ?x { ?x :p z:q }", prefixes=PREFIXES)
