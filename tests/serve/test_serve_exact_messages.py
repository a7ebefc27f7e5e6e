"""What goes between the server and the processes of the exact store arrives as it was sent, and runs nothing."""

from __future__ import annotations

import json
import pickle

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BiqeError, Busy, RequestRefused, SparqlSyntax, UnsupportedQuery
from biqe.exact.store import Cut, Solutions, Term
from biqe.serve.exact_messages import read_answer, read_question, write_answer, write_error, write_fault, write_question
from biqe.serve.live.changes import Changes, Statement, Text
from biqe.serve.live.upload import Upload, UploadedStatements
from biqe.serve.results import Document

TERMS = st.one_of(st.none(), st.builds(Term, st.sampled_from(["uri", "literal"]), st.text(max_size=3)))


@given(st.integers(0, 3).flatmap(lambda width: st.lists(st.tuples(*[TERMS] * width), max_size=6)), st.booleans())
def test_rows_come_out_of_another_process_as_they_went_in(rows, complete):
    found = Solutions(("a", "b", "c")[: len(rows[0]) if rows else 2], tuple(rows), complete)
    assert read_answer(write_answer(found)) == found
    assert read_answer(write_answer(complete)) is complete
    document = Document(b"a\n\x00\xff{}\nb", len(rows), complete)
    assert read_answer(write_answer(document)) == document


@pytest.mark.parametrize(
    "error",
    [
        SparqlSyntax("no", line=2, column=5, hint="yes"),
        Busy("full", retry_after=7),
        UnsupportedQuery("not this"),
        RequestRefused("too large", status=413, headers={"A": "b"}),
    ],
)
def test_an_error_comes_out_of_another_process_as_it_went_in(error):
    with pytest.raises(type(error)) as caught:
        read_answer(write_error(error))
    assert vars(caught.value) == vars(error) and str(caught.value) == str(error)
    assert caught.value.args == error.args


def test_a_question_goes_into_another_process_as_it_is():
    changes = Changes((Statement("a", "r", "b"),), (Statement("a", "r", Text("\u00e4", None, "de")),))
    options = {"prefixes": {"": "urn:"}, "max_rows": 5, "cuts": [Cut(1, 2, "x")], "after": [changes]}
    text = 'SELECT * { ?s ?p "\ud83d" }'  # half of a character, which the parser is to refuse, not the messenger
    assert read_question(write_question(text, options, 1.5)) == (text, options, 1.5)
    upload = Upload(b"a\n\x00\xff", "turtle")
    assert read_question(write_question(upload, {}, 1.5)) == (upload, {}, 1.5)


def test_statements_of_an_upload_come_out_of_another_process_as_they_went_in():
    found = UploadedStatements(
        (Statement("a", "r", "b\n"), Statement("_:x", "r", Text("\u00e4", None, "de"))), True, {"named_graph": 1}
    )
    assert read_answer(write_answer(found)) == found


def test_triples_come_out_of_another_process_as_they_went_in():
    text = """CONSTRUCT { ?s <x:p> "a\\nb"@de , 5 , _:b } { VALUES ?s { <x:a> <x:b> } }"""
    found = list(pyoxigraph.Store().query(text))
    assert len(found) == 6 and set(read_answer(write_answer(found))) == set(found)


def test_a_process_of_the_exact_store_sends_nothing_that_runs():
    with pytest.raises(ValueError, match="JSON|utf-8|Expecting"):
        read_answer(pickle.dumps(print))


def test_a_fault_is_an_error_of_the_server():
    with pytest.raises(RequestRefused, match="failed: Traceback") as caught:
        read_answer(write_fault("Traceback"))
    assert caught.value.status == 500


def test_an_error_that_is_none_of_ours_is_not_raised():
    message = json.dumps({"kind": "error", "name": "Mapping", "says": {"message": "no", "hint": None}}).encode()
    with pytest.raises(BiqeError, match="no") as caught:
        read_answer(message)
    assert type(caught.value) is BiqeError
