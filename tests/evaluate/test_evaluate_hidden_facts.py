"""``biqe evaluate RUN``: what a run held out of its training, with the figures that training itself found."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from biqe.cli import main
from biqe.evaluate import Cq, Report, evaluate
from biqe.evaluate.hidden_facts import hidden_facts
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.models import store
from biqe.training import session
from biqe.training.config import TrainConfig
from biqe.training.run import Run


class Silent:
    def stepped(self, fraction, facts): ...

    def validated(self, facts): ...


@pytest.fixture(scope="module")
def trained(tmp_path_factory, dense_splits):
    """Function from a model's name to a short run of it. The graph of biqe has no validation split of its own."""
    place = tmp_path_factory.mktemp("held-out")
    vocabulary, train = dense_splits.vocabulary, np.concatenate([dense_splits.train, dense_splits.valid])
    graph_folder.save(Splits(vocabulary, train), place / "graph-biqe")
    graph_folder.save(dense_splits, place / "graph-hybrid")
    tiny = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32}

    def start(model):
        config = TrainConfig(
            epochs=1, paths=50, dags=50, validation_queries=120, validations=1, warmup_steps=5, threads=1, average=0.0
        )
        run = place / model
        graph = str(place / f"graph-{model}")
        session.start(graph, run, train_config=config, model=model, model_options=tiny, listener=Silent())
        return run

    return start


def reported(run, capsys, *words):
    code = main(["evaluate", str(run), "--threads", "1", *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def test_a_run_with_links_is_told_what_its_training_found(trained, capsys):
    run = trained("hybrid")
    weighed = next(event for event in Run.open(run).trace() if event["event"] == "weighed")
    found = reported(run, capsys)
    assert found == json.loads((run / "reports" / "held-out.json").read_text())
    hidden = found["notes"]["hidden_facts"]
    for name in ("facts", "questions", "hits_1", "hits_3", "hits_10", "mrr", "guess_1"):
        assert hidden[name] == weighed["record"][name]
    assert hidden["calibration_error"] == weighed["record"]["error"]
    shapes = found["notes"]["held_out_shapes"]
    assert {"link", "path"} <= set(shapes) == set(weighed["figures"])
    for shape, way in weighed["chosen"].items():
        assert shapes[shape]["metrics"]["mrr"] == pytest.approx(weighed["figures"][shape][way], abs=1e-6)
    assert set(found["by_missing"]) <= {"0", "1", "2", "3+"} and "1" in found["by_missing"]
    targets = sum(part["targets"] for part in found["by_missing"].values())
    assert targets == found["overall"]["targets"], "every target follows from train and valid"
    table = Report.load(run / "reports" / "held-out.json").to_table()
    assert (
        "hidden facts, both directions" in table
        and "calibrated, expected error" in table
        and "held-out, shape" in table
    )
    assert max(map(len, table.splitlines())) <= 80


def test_a_run_without_links_is_ranked_as_it_was_validated(trained, capsys):
    run = trained("biqe")
    kept = store.load(run / "model").manifest["trained"]
    found = reported(run, capsys)
    assert found["overall"]["metrics"]["realistic"]["mrr"] == pytest.approx(kept["mrr"], abs=1e-6)
    assert found["filter_graph"] == "seen" and found["notes"]["hidden_facts"]["calibration_error"] is None
    few = reported(run, capsys, "--limit", "5")
    assert few["counts"]["queries"] < found["counts"]["queries"] and few["notes"]["limit"] == 5


def test_facts_are_ranked_in_both_directions_against_what_is_not_known(make, dense_splits):
    true = {(s, r): set() for s in range(60) for r in range(8)}
    for s, r, o in np.concatenate([dense_splits.train, dense_splits.valid]).tolist():
        true[s, r].add(o)
        true[o, r + 4].add(s)

    def script(query, target):
        source, (_, relation, _) = query.nodes[0], query.edges[0]
        scores = np.full(60, 0.5)
        scores[[entity for entity in true[source, relation]]] = 1.0
        return scores

    found = hidden_facts(make.Scripted(script, 60, 4), dense_splits)
    assert asdict(found) | {"mrr": 1.0, "hits_1": 1.0} == asdict(found), "true ones do not stand in each other's way"
    assert (found.facts, found.questions) == (len(dense_splits.valid), 2 * len(dense_splits.valid))
    none = hidden_facts(make.Scripted(script, 60, 4, refuse=lambda query: "too hard"), dense_splits)
    assert none is None


def test_what_a_model_folder_held_out_is_not_known(run_folder, tmp_path, capsys):
    run_folder(tmp_path)
    for words, said in (
        ([], "does not say what was held out"),
        (["--split", "test"], "--split is for --set and --release"),
        (["--kind", "dag"], "--kind is for --release only"),
    ):
        assert main(["evaluate", str(tmp_path / "run"), *words]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_filters_by_that_name_are_those_of_the_set(make):
    model = make.Scripted(lambda query, target: np.arange(4.0), 4)
    from biqe.query.bound import QuerySet

    queries = QuerySet.of([make.one_hop(0)])
    queries.gold[queries.target_nodes] = 2
    queries = queries.with_filters(seen=make.sets([[2, 3]]))
    assert evaluate(model, queries, Cq("seen"), bootstrap=0).value("mrr") == 1.0
