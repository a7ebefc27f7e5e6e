"""Names of a query text: what they stand for, and how they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.query.question import Entity
from biqe.query.scan import abbreviated
from biqe.query.sparql import parse

PREFIXES = {"": "http://ex.org/", "w": "http://w.org/#", "deep": "http://ex.org/a/"}


@pytest.mark.parametrize(
    ("name", "prefixes", "text"),
    [
        ("http://ex.org/Bonn", PREFIXES, ":Bonn"),
        ("http://w.org/#Q1", PREFIXES, "w:Q1"),
        ("http://ex.org/a/b", PREFIXES, "deep:b"),
        ("http://ex.org/a/b/c", PREFIXES, "<http://ex.org/a/b/c>"),
        ("http://other.org/x", PREFIXES, "<http://other.org/x>"),
        ("Ein Café", {"": ""}, "<Ein%20Café>"),
        ("Café", {"": ""}, ":Café"),
        ("Côte_d'Ivoire", {"": ""}, "<Côte_d'Ivoire>"),
        ("m²", {"": ""}, "<m²>"),
        ("a.b", {"": ""}, ":a.b"),
        ("a.", {"": ""}, "<a.>"),
        ("%41", {"": ""}, "<%2541>"),
    ],
)
def test_names_are_short_where_a_prefix_allows_it(name: str, prefixes: dict[str, str], text: str) -> None:
    assert abbreviated(name, prefixes) == text


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=8))
def test_what_is_written_is_read_as_the_same_name(name: str) -> None:
    text = abbreviated(name, {"": ""})
    (pattern,) = parse(f"SELECT ?x {{ ?x :p {text} }}").patterns
    assert pattern.object == Entity(name) or text.startswith("<")  # absolute IRIs keep their percent codes
