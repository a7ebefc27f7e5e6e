"""Names like a misspelt one."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from biqe.graph.vocabulary import Names
from biqe.query.nearest import nearest


def test_suggestions_among_hundreds_of_thousands() -> None:
    """Names are thinned out before they are compared; the right one is still found, soon."""
    for namespace in ("", "http://www.wikidata.org/entity/"):
        names = Names.of(
            [f"{namespace}{i * 7919 % 1_000_003:x}-{i:05d}" for i in range(250_000)] + [f"{namespace}Rhône"]
        )
        start = time.thread_time()
        assert nearest(names, f"{namespace}Rhne")[0][1] == 250_000
        assert nearest(names, f"{namespace}rhone")[0][1] == 250_000
        assert nearest(names, names[123_456][:-1] + "x")[0][1] == 123_456
        assert time.thread_time() - start < 3


@given(st.lists(st.text(max_size=6), max_size=5), st.text(max_size=6))
def test_nearest_holds_what_it_promises(words: list[str], wanted: str) -> None:
    found = nearest(Names.of(words), wanted)
    assert len(found) <= 3
    assert found == sorted(found, key=lambda pair: (-pair[0], pair[1]))
    assert all(0.6 <= score <= 1 for score, _ in found)
    if wanted and wanted in words:
        assert found[0][0] == 1
