"""Looking entities and relations up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnknownName
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.search import find, find_relations, fold, local_name
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Labels, Vocabulary
from biqe.query.bind import find_entity


def test_exact_then_prefix_then_part() -> None:
    vocabulary = Vocabulary(["Old Rhine", "Rhineland", "q5", "RHINE", "Main"], ["r"], {2: "Rhine", 4: "a Rhine arm"})
    found = find(vocabulary, " rhine ")
    assert [item.name for item in found] == ["q5", "RHINE", "Rhineland", "Old Rhine", "Main"]
    assert [item.label for item in found][:2] == ["Rhine", "RHINE"]
    assert len(find(vocabulary, "rhine", 2)) == 2
    assert find(vocabulary, "Oder") == []


def test_an_iri_counts_by_its_local_name() -> None:
    vocabulary = Vocabulary(["http://e/Rhineland", "http://rhine.org/x", "http://e/Rhine"], ["r"])
    assert [item.entity for item in find(vocabulary, "rhine")] == [2, 0, 1]
    assert local_name("http://e/a#b") == "b"


def test_case_and_accents_do_not_matter() -> None:
    vocabulary = Vocabulary(["Ein Café", "Lodz", "Cafeteria"], ["sur_le_Rhône", "Spielt in", "r"], {1: "Łódź"})
    assert [item.name for item in find(vocabulary, "cafe")] == ["Cafeteria", "Ein Café"]
    assert [item.name for item in find(vocabulary, "CAFÉ")] == ["Cafeteria", "Ein Café"]
    assert [item.entity for item in find(vocabulary, "ódz")] == [1]
    assert find_relations(vocabulary, "sur le rhone") == find_relations(vocabulary, "RHÔNE") == [0]
    assert find_relations(vocabulary, "spielt_in") == [1]
    assert find_relations(vocabulary, "nothing") == []
    with pytest.raises(InvalidOption):
        find_relations(vocabulary, " ")


@pytest.mark.parametrize(("text", "limit"), [("", 10), ("  ", 10), ("x", 0)])
def test_nothing_to_look_for(text: str, limit: int) -> None:
    with pytest.raises(InvalidOption):
        find(Vocabulary(["x"], ["r"]), text, limit)


LETTERS = st.text("aAbßKſkéÉİ", min_size=1, max_size=4)


@given(st.lists(LETTERS, min_size=1, max_size=8), st.dictionaries(st.integers(0, 7), LETTERS), LETTERS, st.booleans())
def test_same_as_looking_at_every_name(names: list[str], labels: dict[int, str], text: str, packed: bool) -> None:
    labels = {entity: label for entity, label in labels.items() if entity < len(names)}
    vocabulary = Vocabulary(names, ["r"], Labels.of(labels) if packed else labels)
    wanted = fold(text)

    def rank(entity: int) -> tuple[int, int] | None:
        forms = [form for form in (names[entity], labels.get(entity)) if form is not None and wanted in fold(form)]
        ranks = [
            (0 if fold(form) == wanted else 1 if fold(form).startswith(wanted) else 2, len(form)) for form in forms
        ]
        return min(ranks, default=None)

    expected = sorted((rank(entity), entity) for entity in range(len(names)) if rank(entity) is not None)
    assert [item.entity for item in find(vocabulary, text, 100)] == [entity for _, entity in expected]


NAMES = ["http://ex.org/v#Rhine", "http://ex.org/v#Q2", "http://ex.org/v#Q3"]


@pytest.mark.parametrize("stored", [False, True])
def test_further_labels_lead_to_the_entity_and_are_not_shown(tmp_path: Path, stored: bool) -> None:
    vocabulary = Vocabulary(
        NAMES, ["r"], {0: "Rhine", 1: "Elbe", 2: "Rhin"}, None, [(0, "Rhein"), (0, "Rhin"), (1, "Labe")]
    )
    if stored:
        folder.save(Splits(vocabulary, as_triples([(0, 0, 1)])), tmp_path / "g")
        vocabulary = folder.load(tmp_path / "g").vocabulary
    assert find(vocabulary, "rhein") == [(0, NAMES[0], "Rhine")]
    assert find_entity("Rhein", vocabulary) == find_entity("rhein", vocabulary) == 0
    assert find_entity("Labe", vocabulary) == 1
    # What is the label of one entity is not made ambiguous by a further label of another.
    assert find_entity("Rhin", vocabulary) == 2
    with pytest.raises(UnknownName) as caught:
        find_entity("Labee", vocabulary)
    assert caught.value.hint == f"did you mean '{NAMES[1]}' (Labe)?"


def test_an_entity_is_proposed_once() -> None:
    vocabulary = Vocabulary(NAMES, ["r"], {0: "Rhine", 1: "Elbe"})
    with pytest.raises(UnknownName) as caught:
        find_entity("http://ex.org/v#Rhime", vocabulary)
    assert (caught.value.hint or "").count(NAMES[0]) == 1
