"""Opening graphs, models and runs, and asking them; with a small model of random weights on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import biqe
from biqe.errors import InvalidOption, SparqlSyntax, UnknownName, UnreadableFile, UnsupportedQuery, VocabularyMismatch
from biqe.exact.filters import Filters
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.models.biqe import BiQE, Config

NAMES = ["Rhine", "Elbe", "Cologne", "Bonn", "Dresden", "Germany", "France"]
TRAIN = [(0, 0, 5), (0, 0, 6), (1, 0, 5), (2, 1, 0), (4, 1, 1)]
VALID = [(3, 1, 0)]
QUESTION = "SELECT ?river ?city WHERE { ?river :flows_through :Germany . ?city :located_on ?river }"


def _splits(names=NAMES) -> Splits:
    vocabulary = Vocabulary(names, ["flows_through", "located_on"], {3: "Bonn am Rhein"})
    return Splits(vocabulary, as_triples(TRAIN), as_triples(VALID))


def _save_model(folder: Path, splits: Splits, **options) -> None:
    torch.manual_seed(0)
    config = Config(width=16, layers=1, heads=2, feed_forward=16, **options)
    model = BiQE(config, len(splits.vocabulary.entities), len(splits.vocabulary.relations))
    store.save(model, folder, vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A graph folder ``kg`` and a run folder ``run`` with a model of random weights."""
    root = tmp_path_factory.mktemp("world")
    splits = _splits()
    graph_folder.save(splits, root / "kg")
    (root / "run").mkdir()
    record = {"graph": {"name": "kg", "path": str(root / "kg"), "fingerprint": splits.fingerprint}}
    (root / "run" / "run.json").write_text(json.dumps(record))
    _save_model(root / "run" / "model", splits)
    return root


def test_a_run_gives_known_then_predicted(world):
    answers = biqe.open(world / "run").ask(QUESTION, top=5)
    assert [(row.river, row.city) for row in answers if row.status == "known"] == [
        ("Elbe", "Dresden"),
        ("Rhine", "Bonn"),
        ("Rhine", "Cologne"),
    ]
    assert answers.model == "biqe"
    assert answers.predicted_count == 5
    assert all(row.missing for row in answers[3:])
    assert all(0 < row.probability < 1 for row in answers[3:])
    assert 0 < answers.seconds < 60


def test_probabilities_of_all_tuples_sum_to_one(world):
    answers = biqe.open(world / "run").ask(QUESTION, mode="predicted", top=49, width=49)
    kept = biqe.open(world / "run", known="train").ask(QUESTION, mode="predicted", top=49, width=49)
    # The rows that are left out as known are all that is missing from 1.
    assert len(answers) == 46 and len(kept) == 47
    total = sum(row.probability for row in kept)
    bonn = next(row for row in kept if (row.river, row.city) == ("Rhine", "Bonn"))
    assert sum(row.probability for row in answers) == pytest.approx(total - bonn.probability, rel=1e-5)
    assert total < 1.0


@pytest.mark.parametrize("known", ["complete", "train"])
def test_what_counts_as_known(world, known):
    kb = biqe.open(world / "kg", known=known)
    cities = [row.city for row in kb.ask("SELECT ?city { ?city :located_on :Rhine }")]
    assert cities == (["Bonn", "Cologne"] if known == "complete" else ["Cologne"])


def test_the_graph_says_what_counts_as_known(world, tmp_path):
    graph_folder.save(_splits(), tmp_path / "kg", extra={"known": "train"})
    assert biqe.open(tmp_path / "kg").known == "train"
    assert biqe.open(tmp_path / "kg", known="complete").known == "complete"
    assert biqe.open(world / "kg").known == "complete"
    with pytest.raises(InvalidOption, match="'known' must be one of complete, train. Got 'test'"):
        biqe.open(tmp_path / "kg", known="test")


def test_a_graph_alone_answers_what_is_known_and_refuses_to_predict(world):
    kb = biqe.open(world / "kg")
    answers = kb.ask(QUESTION)
    assert (answers.known_count, answers.predicted_count, answers.model) == (3, 0, None)
    with pytest.raises(InvalidOption, match="a graph without a model") as caught:
        kb.ask(QUESTION, mode="predicted")
    assert "biqe train" in caught.value.hint


def test_a_model_folder_needs_its_graph(world):
    with pytest.raises(InvalidOption, match="a model without its graph") as caught:
        biqe.open(world / "run" / "model")
    assert "--graph" in caught.value.hint
    answers = biqe.open(world / "run" / "model", graph=world / "kg").ask(QUESTION, top=1)
    assert answers.predicted_count == 1


def test_a_graph_that_was_moved(world, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"graph": {"path": str(tmp_path / "gone")}}))
    with pytest.raises(UnreadableFile, match="no longer at .*gone") as caught:
        biqe.open(run)
    assert "--graph DIR" in caught.value.hint
    assert biqe.open(run, graph=world / "kg").ask(QUESTION, mode="known").known_count == 3


def test_a_graph_beside_the_run(world, tmp_path):
    graph_folder.save(_splits(), tmp_path / "kg")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"graph": {"path": "../kg"}}))
    assert biqe.open(tmp_path / "run").ask(QUESTION, mode="known").known_count == 3


def test_another_graph_is_refused_even_for_known_answers(world, tmp_path):
    graph_folder.save(_splits([*NAMES[:-1], "Poland"]), tmp_path / "other")
    with pytest.raises(VocabularyMismatch, match="knows 7 entities .* built from different files"):
        biqe.open(world / "run", graph=tmp_path / "other")


def test_more_facts_about_the_same_names_are_welcome(world, tmp_path):
    splits = _splits()
    graph_folder.save(Splits(splits.vocabulary, as_triples([*TRAIN, *VALID, (4, 1, 0)])), tmp_path / "grown")
    answers = biqe.open(world / "run", graph=tmp_path / "grown").ask("SELECT ?c { ?c :located_on :Rhine }", top=1)
    assert answers.known_count == 3
    assert answers.predicted_count == 1


def test_a_run_without_a_model_yet(world, tmp_path):
    (tmp_path / "run.json").write_text((world / "run" / "run.json").read_text())
    kb = biqe.open(tmp_path)
    assert kb.ask(QUESTION, mode="known").known_count == 3
    with pytest.raises(UnreadableFile, match="has no model yet") as caught:
        kb.ask(QUESTION)
    assert "--mode known" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", '{"graph": null}', '{"graph": {"path": 3}}', "{"])
def test_a_damaged_run_file(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UnreadableFile, match=r"run.json is damaged"):
        biqe.open(tmp_path)


def test_names_that_nobody_knows(world, tmp_path):
    with pytest.raises(UnknownName, match="neither a folder nor an embedded graph"):
        biqe.open(tmp_path / "nowhere")
    with pytest.raises(UnreadableFile, match="is not a graph folder"):
        biqe.open(tmp_path)
    kb = biqe.open(world / "run")
    with pytest.raises(UnknownName, match="Germny") as caught:
        kb.ask("SELECT ?r { ?r :flows_through :Germny }")
    assert "Germany" in caught.value.hint
    with pytest.raises(SparqlSyntax):
        kb.ask("SELECT")


def test_parts_that_nothing_joins_are_answered_together(world):
    kb = biqe.open(world / "run")
    apart = "SELECT ?a ?b { ?a :flows_through :Germany . ?b :located_on :Elbe }"
    answers = kb.ask(apart, top=4)
    assert answers.known_count == 2 and answers.predicted_count == 4
    single = {row.x: row.probability for row in kb.ask("SELECT ?x { ?x :flows_through :Germany }", top=7)}
    other = {row.x: row.probability for row in kb.ask("SELECT ?x { ?x :located_on :Elbe }", top=7)}
    for row in answers[2:]:
        assert row.probability == pytest.approx(single[row.a] * other[row.b], rel=1e-5)
        assert row.missing


def test_a_query_that_the_model_cannot_read(world):
    kb = biqe.open(world / "run")
    loop = "SELECT ?a { ?a :flows_through ?a }"
    with pytest.raises(UnsupportedQuery, match="this query has a cycle") as caught:
        kb.ask(loop, mode="predicted")
    assert "known mode" in caught.value.hint
    answers = kb.ask(loop)
    assert answers.known_count == answers.predicted_count == 0
    assert "from the graph alone" in answers.note and "this query has a cycle" in answers.note


def test_a_cycle_with_something_to_hold_on_to(world):
    answers = biqe.open(world / "run").ask("SELECT ?a ?b { ?a :flows_through ?b . ?b :located_on ?a }", top=5)
    assert answers.predicted_count == 5
    assert all(row.missing and 0 < row.probability < 1 for row in answers)


def test_filters_unions_counts_and_asks(world):
    kb = biqe.open(world / "run")
    filtered = kb.ask("SELECT ?c { ?c :located_on ?r FILTER(?r = :Rhine && ?c != :Bonn) }", top=9)
    assert [row.c for row in filtered if row.status == "known"] == ["Cologne"]
    assert "Bonn" not in {row.c for row in filtered} and filtered.predicted_count == 5
    union = kb.ask("SELECT ?c { { ?c :located_on :Rhine } UNION { ?c :located_on :Elbe } } ORDER BY DESC(?c)", top=3)
    assert [row.c for row in union if row.status == "known"] == ["Dresden", "Cologne", "Bonn"]
    assert len({row.c for row in union}) == len(union) == 6
    counted = kb.ask("SELECT (COUNT(*) AS ?n) { ?c :located_on :Rhine }")
    assert [row.status for row in counted] == ["known", "predicted"]
    rows = kb.ask("SELECT ?c { ?c :located_on :Rhine }", top=99)
    assert counted[0].n == 2
    assert counted[1].n == pytest.approx(sum(row.probability for row in rows if row.status == "predicted"), rel=1e-5)
    assert kb.ask("ASK { :Bonn :located_on :Rhine }").holds
    asked = kb.ask("ASK { :Bonn :located_on :Elbe }")
    assert not asked.holds and len(asked) == 1
    link = asked[0].missing[0]
    assert str(link) == "Bonn located_on Elbe" and asked[0].probability == pytest.approx(link.probability)


def test_a_row_is_explained(world):
    kb = biqe.open(world / "run")
    answers = kb.ask(QUESTION, top=1)
    for row in (answers[0], answers[3]):
        why = kb.explain(row, views=["witness"])
        assert why.status == row.status
        assert why.row == row.values
        assert why.to_text().strip()


def test_a_first_answer_loads_no_compiler(world):
    """torch brings one that takes longer to load than all the rest; see models/store.py."""
    program = (
        "import sys, biqe; answers = biqe.open(sys.argv[1]).ask(sys.argv[2], top=1); assert answers.predicted_count; "
        "print([name for name in ('torch._dynamo', 'numba', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(world / "run"), QUESTION], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_many_threads_ask_as_one_does(world):
    texts = [
        QUESTION,
        "SELECT ?c { ?c :located_on ?r . ?r :flows_through :France }",
        "SELECT ?c { ?c :located_on ?r VALUES ?r { :Rhine :Elbe } }",
        "SELECT ?a ?b { ?a :located_on :Rhine . ?b :flows_through :Germany }",
    ]

    def told(kb, text):
        return [(row.ids, round(row.probability, 6), [link[:3] for link in row.missing]) for row in kb.ask(text)]

    alone = biqe.open(world / "run")
    expected = [told(alone, text) for text in texts]
    shared = biqe.open(world / "run")  # the first question of many threads at once has to load the model, too
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: told(shared, text), texts * 8))
    assert found == expected * 8


def test_the_share_that_is_explained_is_the_probability_that_was_listed(world):
    kb = biqe.open(world / "run")
    answers = kb.ask(QUESTION, mode="predicted", top=5, width=49)
    for row in answers:
        why = kb.explain(row, views=["counterfactual"])
        assert why.share == pytest.approx(row.probability, rel=1e-5)


@pytest.mark.parametrize(
    "conditions",
    [
        "FILTER(?river != :Rhine)",
        "FILTER(?river != :Rhine) FILTER(?country != :Germany)",
        "FILTER(str(?river) < str(?country))",  # two hidden variables at once: no list of entities says it
    ],
)
def test_a_row_is_explained_by_what_passes_its_filters(world, conditions):
    kb = biqe.open(world / "run")
    pattern = "?city :located_on ?river . ?river :flows_through ?country"
    sides = (f"{pattern} {conditions}", f"{{ {pattern} {conditions} }} UNION {{ {pattern} FILTER(?river = :Rhine) }}")
    for body in sides:
        answers = kb.ask(f"SELECT ?city {{ {body} }}", top=7)
        assert len(answers) >= 5
        for row in answers:
            explained = kb.explain(row, views=["witness"]).to_json()["witness"]
            hidden, side = explained["hidden"], answers.branch_of(row)
            judged = Filters(side.filters, kb.graph).passes(
                {name: np.array([kb.vocabulary.entity_id(entity)]) for name, entity in hidden.items()}, 1
            )
            assert judged.all(), (body, row, hidden)
            missing = {
                (link["subject"], link["relation"], link["object"]) for link in explained["links"] if not link["stored"]
            }
            assert {link[:3] for link in row.missing} == missing


# Several models


@pytest.fixture(scope="module")
def several(world, tmp_path_factory):
    """A folder with two models: ``wide`` reads patterns either way, ``plain`` as they are written."""
    root = tmp_path_factory.mktemp("several")
    _save_model(root / "models" / "wide", _splits())
    _save_model(root / "models" / "plain", _splits(), inverses=False)
    return root


def _report(value, **shapes):
    def summary(figure):
        return {"metrics": {"realistic": {"mrr": figure}}}

    return {
        "protocol": "cq",
        "notes": {"split": "valid"},
        "overall": summary(value),
        "by_kind": {},
        "by_shape": {shape: summary(figure) for shape, figure in shapes.items()},
    }


def test_the_model_that_was_best_on_queries_of_the_shape(world, several, tmp_path):
    from biqe.knowledge_base.model_selection import write_selection

    write_selection(several, {"wide": _report(0.3, **{"1p": 0.2, "2p": 0.5}), "plain": _report(0.2, **{"1p": 0.6})})
    kb = biqe.open(several, graph=world / "kg")
    assert set(kb.models) == {"wide", "plain"} and kb.model_folder == several / "models" / "wide"
    simple, chain = "SELECT ?c { ?c :located_on :Rhine }", QUESTION.replace("?river ?city", "?city", 1)
    assert kb.ask(simple, model="auto", top=1).model == "plain"
    answers = kb.ask(simple, top=1)
    assert answers.model == "plain", "with a selection, auto is the default"
    assert "\nmodel plain: mrr 0.600 on validation queries of shape 1p\n" in str(answers)
    assert kb.ask(chain, top=1).model == "wide"
    assert kb.ask(simple, model="wide", top=1).model == "wide"
    with pytest.raises(UnknownName, match="has no model 'other'; it has") as caught:
        kb.ask(simple, model="other")
    assert "--model auto" in caught.value.hint
    assert "models plain, wide" in repr(kb)


def test_falling_back_on_a_model_that_can_read_the_query(world, several, monkeypatch):
    kb = biqe.open(several, graph=world / "kg")
    best = kb.predictor_of("plain").model
    monkeypatch.setattr(type(best), "supports", _refusing(best, type(best).supports))
    answers = kb.ask("SELECT ?c { ?c :located_on :Rhine }", model="auto", top=1)
    assert answers.model == "wide"
    assert "\nmodel wide: instead of 1 that cannot read this query\n" in str(answers)
    with pytest.raises(UnsupportedQuery, match="not today"):
        kb.ask("SELECT ?c { ?c :located_on :Rhine }", model="plain", top=1, mode="predicted")


def _refusing(model, supports):
    from biqe.models._contract import Support

    return lambda self, query, strict=True: Support(False, "not today") if self is model else supports(self, query)


def test_models_without_their_graph(several):
    with pytest.raises(InvalidOption, match="holds models without their graph"):
        biqe.open(several)


def test_a_selection_that_is_damaged(world, several, tmp_path):
    import shutil

    shutil.copytree(several, tmp_path / "copy")
    (tmp_path / "copy" / "selection.json").write_text("[]")
    with pytest.raises(UnreadableFile, match="no selection of models"):
        biqe.open(tmp_path / "copy", graph=world / "kg")


def test_a_model_that_reads_patterns_as_written(tmp_path, world):
    _save_model(tmp_path / "model", _splits(), inverses=False)
    answers = biqe.open(tmp_path / "model", graph=world / "kg").ask(QUESTION, top=3)
    assert answers.predicted_count == 3
    assert not biqe.open(tmp_path / "model", graph=world / "kg").predictor.inverses


def test_options_are_checked_before_anything_is_loaded(world):
    with pytest.raises(InvalidOption, match="'mode' must be one of"):
        biqe.open(world / "run").ask("not even SPARQL", mode="all")


def test_known_answers_need_no_torch(world):
    script = (
        "import sys, biqe\n"
        f"rows = biqe.open({str(world / 'run')!r}).ask({QUESTION!r}, mode='known')\n"
        "assert len(rows) == 3 and str(rows[0])\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr


def test_repr(world):
    assert "7 entities, 2 relations" in repr(biqe.open(world / "kg"))
