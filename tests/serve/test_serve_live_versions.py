"""Versions of a live graph: what they answer, and that a model answers over them as far as it knows them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import biqe
from biqe.errors import NotPredictableYet, VocabularyMismatch
from biqe.graph import folder as graph_folder
from biqe.graph.index import build_index
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples, difference, union
from biqe.graph.vocabulary import GrownNames, Names, Vocabulary
from biqe.knowledge_base import KnowledgeBase
from biqe.serve.live import LiveGraph
from biqe.serve.live.overlay import patched

QUESTIONS = (
    "SELECT ?c WHERE { ?c :located_on :Rhine }",
    "SELECT ?c ?r WHERE { ?c :located_on ?r . ?r :flows_through :Germany }",
    "SELECT ?r WHERE { :Rheinstadt :located_on ?r }",
    "SELECT ?a ?b WHERE { ?a :twinned_with ?b }",
    "SELECT ?c WHERE { { ?c :twinned_with :Bonn } UNION { :Bonn :located_on ?c } }",
    "SELECT (COUNT(?c) AS ?n) WHERE { ?c :located_on ?r }",
    "ASK { :Rheinstadt :twinned_with :Bonn }",
    "SELECT ?c WHERE { ?c :located_on :Rhine FILTER(?c != :Rheinstadt) } ORDER BY DESC(?c) LIMIT 5",
    "SELECT ?c (COUNT(?r) AS ?n) WHERE { ?c :located_on ?r } GROUP BY ?c ORDER BY ?c LIMIT 20",
    "SELECT ?x WHERE { :Rheinstadt (:located_on|:twinned_with)+ ?x }",
)


@pytest.fixture(scope="module")
def atlas() -> KnowledgeBase:
    return biqe.open("atlas")


@pytest.fixture
def live(tmp_path, atlas) -> LiveGraph:
    return LiveGraph(tmp_path / "live", atlas.splits, known=atlas.known, prefixes=atlas.prefixes)


NEWS = (
    "INSERT DATA { :Rheinstadt :located_on :Rhine ; :twinned_with :Bonn . :Bonn :located_on :Rhine }",
    "DELETE DATA { :Cologne :located_on :Rhine } ; INSERT DATA { :Cologne :twinned_with :Rheinstadt }",
    "DELETE { ?c :located_on :Elbe } INSERT { ?c :once_on :Elbe } WHERE { ?c :located_on :Elbe }",
)


def test_exact_answers_are_those_of_a_graph_imported_from_scratch(tmp_path, atlas, live):
    for number, update in enumerate(NEWS):
        live.apply(update)
        view = live.snapshot()
        changed = atlas.at(view)
        names, relations = list(view.vocabulary.entities), list(view.vocabulary.relations)
        lines = [f"{names[s]}\t{relations[r]}\t{names[o]}\n" for s, r, o in view.graph.triples.tolist()]
        (tmp_path / f"{number}.tsv").write_text("".join(lines), encoding="utf-8")
        labels = "".join(f"{names[entity]}\t{label}\n" for entity, label in view.vocabulary.labels.items())
        (tmp_path / "labels.tsv").write_text(labels, encoding="utf-8")
        scratch = read_graph([tmp_path / f"{number}.tsv"], labels=tmp_path / "labels.tsv").splits
        imported = KnowledgeBase("scratch", scratch, prefixes=atlas.prefixes)
        for question in QUESTIONS:
            if number == 0 and "twinned" not in question:
                continue
            mine, other = (kb.ask(question, mode="known") for kb in (changed, imported))
            assert [row.values for row in mine] == [row.values for row in other], question
            assert getattr(mine, "holds", None) == getattr(other, "holds", None)


def test_a_version_stays_what_it_is(live, atlas):
    views, answers = [], []
    for update in NEWS:
        view = live.snapshot()
        views.append(view)
        answers.append([view.store.query(text, prefixes=atlas.prefixes) for text in QUESTIONS])
        live.apply(update)
    for view, before in list(zip(views, answers, strict=True))[::-1]:
        assert [view.store.query(text, prefixes=atlas.prefixes) for text in QUESTIONS] == before
    assert [view.version for view in views] == [0, 1, 2]


def test_splits_keep_what_is_held_out_until_somebody_states_it(live, atlas):
    splits = live.snapshot().splits
    assert all((getattr(splits, name) == getattr(atlas.splits, name)).all() for name in ("train", "valid", "test"))
    live.apply(NEWS[0])  # that Bonn lies on the Rhine was held out
    after = live.snapshot().splits
    assert len(after.train) == len(splits.train) + 3
    held_out = len(atlas.splits.valid) + len(atlas.splits.test)
    assert len(after.valid) + len(after.test) == held_out - 1
    live.compact()
    again = LiveGraph(live.folder).snapshot().splits
    assert again.fingerprint == after.fingerprint


def test_names_without_a_triple_are_not_in_use(live, atlas):
    entities, relations = live.snapshot().used
    assert entities.all() and relations.all()
    live.apply(NEWS[0])
    live.apply("DELETE WHERE { :Rheinstadt ?p ?o }")
    for view in (live.snapshot(), (live.compact(), live.snapshot())[1], LiveGraph(live.folder).snapshot()):
        entities, relations = view.used
        assert np.flatnonzero(~entities).tolist() == [view.vocabulary.entity_id("Rheinstadt")]
        assert np.flatnonzero(~relations).tolist() == [view.vocabulary.relations.find("twinned_with")]


def test_what_is_held_out_is_in_use(tmp_path):
    splits = Splits(Vocabulary(["a", "b", "c", "d"], ["r"]), as_triples([[0, 0, 1]]), as_triples([[1, 0, 2]]))
    for known, used in (("train", [True, True, True, False]), ("complete", [True, True, True, False])):
        live = LiveGraph(tmp_path / known, splits, known=known)
        assert live.snapshot().used[0].tolist() == used
        live.apply("DELETE DATA { :b :r :c }")
        assert live.snapshot().used[0].tolist() == (used if known == "train" else [True, True, False, False])


def test_ids_of_old_names_never_change(live, atlas):
    for update in NEWS:
        live.apply(update)
        live.compact()
        vocabulary = live.snapshot().vocabulary
        assert list(vocabulary.entities)[: len(atlas.vocabulary.entities)] == list(atlas.vocabulary.entities)
        assert list(vocabulary.relations)[: len(atlas.vocabulary.relations)] == list(atlas.vocabulary.relations)


def test_a_view_without_changes_predicts_as_the_graph_itself(live, atlas):
    changed = atlas.at(live.snapshot())
    for question in QUESTIONS[:2]:
        assert list(atlas.ask(question, top=5)) == list(changed.ask(question, top=5))


def test_the_model_goes_on_predicting_among_what_it_knows(live, atlas):
    live.apply(NEWS[0])
    changed = atlas.at(live.snapshot())
    before, after = (kb.ask(QUESTIONS[0], mode="predicted", top=40) for kb in (atlas, changed))
    chances = {row.c: row.probability for row in after}
    assert "Rheinstadt" not in chances and "Bonn" not in chances  # both known by now
    shared = [row for row in before if row.c in chances]
    assert len(shared) > 20 and after.note == ""
    # How probable the others are is nearly as it was.
    assert all(chances[row.c] == pytest.approx(row.probability, abs=0.15) for row in shared)
    assert sum(after.marginals["c"].values()) == pytest.approx(1.0, abs=1e-4)


def test_what_came_after_training_is_predicted(live, atlas):
    live.apply(NEWS[0])
    changed = atlas.at(live.snapshot())
    rivers = changed.ask(QUESTIONS[2])
    assert rivers.known[0].r == "Rhine" and rivers.predicted and rivers.note == ""
    country = changed.ask("SELECT ?c WHERE { :Rheinstadt :located_in ?c }", mode="predicted", top=3)
    (verdict,) = changed.ask(f"ASK {{ :Rheinstadt :located_in <{country[0].c}> }}")
    assert verdict.probability == pytest.approx(country[0].probability)


@pytest.mark.parametrize("question", [QUESTIONS[3], QUESTIONS[4], QUESTIONS[6]])
def test_a_question_about_a_new_relation_is_answered_exactly_and_says_so(live, atlas, question):
    live.apply(NEWS[0])
    changed = atlas.at(live.snapshot())
    both = changed.ask(question)
    assert [row.values for row in both] == [row.values for row in changed.ask(question, mode="known")]
    assert both.known_count > 0 and both.predicted_count == 0
    assert "not predictable yet" in both.note and "not predictable yet" in both.to_json()
    with pytest.raises(NotPredictableYet, match="not predictable yet") as caught:
        changed.ask(question, mode="predicted")
    assert "biqe train --continue" in caught.value.hint


def test_relations_that_came_later_do_not_shift_inverses(live, atlas):
    question = "SELECT ?r ?c WHERE { ?r :flows_through :Germany, :France . ?c :located_on ?r }"
    before = atlas.ask(question, mode="predicted", top=5)
    live.apply("INSERT DATA { :Rhine :sung_of_by :Heine }")
    after = atlas.at(live.snapshot()).ask(question, mode="predicted", top=5)
    assert [(row.values, row.status) for row in before] == [(row.values, row.status) for row in after]
    assert [row.probability for row in after] == pytest.approx([row.probability for row in before], rel=1e-4)


def test_rows_over_a_changed_graph_are_explained(live, atlas):
    live.apply(NEWS[0])
    changed = atlas.at(live.snapshot())
    answers = changed.ask(QUESTIONS[0], top=1)
    for row in (next(row for row in answers if row.c == "Rheinstadt"), answers[answers.known_count]):
        explained = changed.explain(row)
        assert row.c in str(explained)


def test_literals_are_answered_in_known_mode(live, atlas):
    live.apply("INSERT DATA { :Bonn :population 330000 . :Cologne :located_on 'a river' }")
    changed = atlas.at(live.snapshot())
    assert [row.n for row in changed.ask("SELECT ?n WHERE { :Bonn :population ?n }", mode="known")] == [330000]
    assert {row.r for row in changed.ask("SELECT ?r WHERE { :Cologne :located_on ?r }", mode="known")} == {
        "Rhine",
        "a river",
    }
    # In the other modes they are among the known rows, and never predicted.
    both = changed.ask("SELECT ?r WHERE { :Cologne :located_on ?r }", top=3)
    known = {row.r for row in both.known}
    assert known == {"Rhine", "a river"} and "a river" not in {row.r for row in both.predicted}


def test_a_grown_graph_folder_opens_with_the_model_of_its_first_part(tmp_path, live, atlas):
    live.apply(NEWS[0])
    graph_folder.save(live.snapshot().splits, tmp_path / "grown", prefixes=live.prefixes, extra={"known": "train"})
    kb = biqe.open(atlas.model_folder, graph=tmp_path / "grown")
    assert kb.ask(QUESTIONS[0], top=3).predicted_count == 3
    other = Splits(Vocabulary(["x", "y"], ["r"]), as_triples([[0, 0, 1]]))
    graph_folder.save(other, tmp_path / "other")
    with pytest.raises(VocabularyMismatch):
        biqe.open(atlas.model_folder, graph=tmp_path / "other")


@st.composite
def graph_and_changes(draw):
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    more, new = draw(st.integers(0, 2)), draw(st.integers(0, 1))

    def rows(e: int, r: int) -> st.SearchStrategy:
        return st.lists(st.tuples(st.integers(0, e - 1), st.integers(0, r - 1), st.integers(0, e - 1)), max_size=15)

    triples = as_triples(draw(rows(entities, relations)))
    inserted = difference(as_triples(draw(rows(entities + more, relations + new))), triples)
    deleted = triples[draw(st.lists(st.booleans(), min_size=len(triples), max_size=len(triples)))]
    return (entities, relations), (entities + more, relations + new), triples, inserted, deleted


@given(graph_and_changes())
@settings(deadline=None)
def test_a_patched_graph_is_the_graph_sorted_anew(case):
    before, after, triples, inserted, deleted = case

    def vocabulary(sizes: tuple[int, int]) -> Vocabulary:
        return Vocabulary([f"e{n}" for n in range(sizes[0])], [f"r{n}" for n in range(sizes[1])])

    graph = Graph(vocabulary(before), triples)
    assert graph.index is not None
    found = patched(graph, vocabulary(after), inserted, deleted)
    wanted = union(difference(triples, deleted), inserted)
    np.testing.assert_array_equal(found.triples, wanted)
    assert "index" in found.__dict__
    for mine, other in zip(found.index, build_index(wanted, *after), strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


@given(st.lists(st.text(), unique=True), st.lists(st.text(), unique=True))
def test_grown_names_are_names_all_in_one(first, second):
    second = [name for name in second if name not in first]
    grown, whole = GrownNames(Names.of(first), Names.of(second)), Names.of(first + second)
    assert list(grown) == list(whole) and len(grown) == len(whole) and grown[:] == whole[:]
    assert [grown.find(name) for name in [*whole, "not there"]] == [whole.find(name) for name in [*whole, "not there"]]
    assert grown.digest() == whole.digest()
    np.testing.assert_array_equal(grown.lookup, whole.lookup)
