"""Labels of entities, and files of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import BadLine
from biqe.graph.read import read_graph
from biqe.graph.vocabulary import Labels


@given(st.dictionaries(st.integers(0, 50), st.text().filter(str.isprintable)))
def test_labels_are_a_mapping(labels: dict[int, str]) -> None:
    held = Labels.of(labels)
    assert dict(held) == labels
    assert dict(held.items()) == labels
    assert list(held.values()) == [labels[entity] for entity in sorted(labels)]
    assert len(held) == len(labels)
    for entity in (-1, 51, 2**40):
        assert held.get(entity) is None


File = Callable[[str, str | bytes], Path]


def test_a_labels_file_may_be_empty(file: File) -> None:
    folder = file("g/facts.tsv", "a\tr\tb\n").parent
    file("g/labels.tsv", "")
    assert len(read_graph([folder]).vocabulary.labels) == 0
    assert len(read_graph([folder], labels="/dev/null").vocabulary.labels) == 0


@pytest.mark.parametrize("content", ["a\n", "a\tb\tc\td\n", "\tb\n"])
def test_bad_labels(file: File, content: str) -> None:
    with pytest.raises(BadLine, match="line 2: a label line has 2 or 3 columns"):
        read_graph([file("g.tsv", "a\tr\tb\n")], labels=file("labels.tsv", "x\ty\n" + content))
