"""Looking entities up, and statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import InvalidOption, UnknownName
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.labels import Labels
from biqe.graph.search import find, find_relations, fold, local_name
from biqe.graph.statistics import statistics, unseen_entities
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
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


def test_statistics_of_a_small_graph() -> None:
    vocabulary = Vocabulary(["a", "b", "c", "d", "e"], ["r", "s", "unused"], {0: "A"})
    train = as_triples([(0, 0, 1), (0, 0, 2), (0, 0, 0), (1, 1, 2)])
    found = statistics(Splits(vocabulary, train, as_triples([(0, 0, 3), (0, 0, 1)]), as_triples([(1, 2, 2)])))
    assert (found.entities, found.relations, found.triples, found.labels, found.loops) == (5, 3, 6, 1, 1)
    degrees = found.degrees
    assert (degrees.mean, degrees.median, degrees.most, degrees.most_entity, degrees.isolated) == (2.4, 3.0, 5, 0, 1)
    assert degrees.histogram == [(1, 1, 1), (2, 3, 2), (4, 7, 1)]
    assert [
        (item.name, item.triples, item.subjects, item.objects, item.kind) for item in found.relation_statistics
    ] == [("r", 4, 1, 4, "1-N"), ("s", 1, 1, 1, "1-1"), ("unused", 1, 1, 1, "1-1")]
    assert found.kinds == {"1-1": 2, "1-N": 1, "N-1": 0, "N-N": 0}
    valid, test = found.splits[1], found.splits[2]
    assert (valid.unseen_entities, valid.triples_with_unseen, valid.in_train) == (1, 1, 1)
    assert (test.unseen_relations, test.triples_with_unseen, test.unseen_entities) == (1, 1, 0)


def test_published_counts(benchmark_data, tmp_path: Path) -> None:
    from biqe.graph.read import read_graph

    for name, entities, relations, triples, unseen in (
        ("FB15k-237", 14_541, 237, [272_115, 17_535, 20_466], [8, 29]),
        ("WN18RR", 41_105, 11, [86_835, 3_034, 3_134], [205, 210]),
        ("NELL-995", 63_361, 200, [114_213, 14_324, 14_267], [0, 0]),
    ):
        graph = read_graph([benchmark_data(name)])
        folder.save(graph.splits, tmp_path / name)
        splits = folder.load(tmp_path / name)
        assert (len(splits.vocabulary.entities), len(splits.vocabulary.relations)) == (entities, relations)
        assert [len(splits[split].triples) for split in ("train", "valid", "test")] == triples
        assert [len(unseen_entities(splits, split)) for split in ("valid", "test")] == unseen
        assert graph.counts.duplicates == 0
    labels = folder.load(tmp_path / "FB15k-237").vocabulary.labels
    assert len(labels) == 14_515


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
