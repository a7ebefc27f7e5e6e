"""The format of an answer follows the Accept header and its weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import RequestRefused
from biqe.serve.requests import choose_format
from biqe.serve.results import ROWS


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*ROWS.values(), "text/*", "application/*", "*/*", "image/png", "application/json"]),
            st.sampled_from(["", ";q=1", ";q=0.5", ";q=0.1", ";q=0", ";q=nonsense", "; q=0.25 ; level=1"]),
        ),
        max_size=5,
    )
)
def test_what_is_chosen_was_accepted(parts):
    header = ", ".join(name + weight for name, weight in parts)
    try:
        chosen = choose_format(header, ROWS)
    except RequestRefused as error:
        assert error.status == 406
        for name, weight in parts:
            assert weight == ";q=0" or name == "image/png" or _shadowed(name, parts)
        return
    assert not parts or any(_covers(name, chosen) and weight != ";q=0" for name, weight in parts)


def _covers(name: str, form: str) -> bool:
    kind = ROWS[form].partition("/")[0]
    return name in (ROWS[form], f"{kind}/*", "*/*") or (form == "json" and name == "application/json")


def _shadowed(name: str, parts) -> bool:
    """Whether all that a range covers is refused by a more specific one."""
    covered = [form for form in ROWS if _covers(name, form)]
    refused = [other for other, weight in parts if weight == ";q=0" and other != name]
    return all(any(_covers(other, form) for other in refused) for form in covered)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "json"),
        ("text/csv;q=0.5, text/tab-separated-values", "tsv"),
        ("application/sparql-results+xml;q=0.9, */*;q=0.1", "xml"),
        ("*/*, application/sparql-results+json;q=0", "xml"),
        ("application/json", "json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "xml"),
        ("TEXT/CSV", "csv"),
    ],
)
def test_weights_decide(accept, chosen):
    assert choose_format(accept, ROWS) == chosen
