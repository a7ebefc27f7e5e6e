"""The size of a query is counted before it is parsed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import RequestRefused
from biqe.query.scan import scan
from biqe.serve import query_checks
from biqe.serve.config import Limits


@given(st.text(alphabet="{}()[].;,/?x:p*+|'\"# \na<>", max_size=200))
def test_measuring_never_fails(text):
    scanned = scan(text)
    assert 0 <= query_checks.count_patterns(scanned) <= len(scanned.words)
    assert 0 <= query_checks.count_long_paths(scanned) <= len(scanned.words)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT * {}", 0),
        ("SELECT * { ?s ?p ?o }", 1),
        ("SELECT * { ?s ?p ?o . }", 1),
        ("SELECT * { ?s a ?o ; :p ?x , ?y }", 3),
        ("SELECT * { { ?s ?p ?o } UNION { ?a ?b ?c . ?d ?e ?f } OPTIONAL { ?x ?y ?z } }", 4),
        ("SELECT * { ?s :a/:b ?o FILTER(?o > 1.5 && ?o < 3) }", 2),
    ],
)
def test_patterns_are_counted(query, count):
    assert query_checks.count_patterns(scan(query)) == count


def test_what_is_refused_names_its_number():
    with pytest.raises(RequestRefused, match="65 triple patterns; at most 64") as refused:
        query_checks.refuse_oversized("SELECT * {" + " ?s ?p ?o ." * 65 + "}", Limits())
    assert refused.value.status == 413
