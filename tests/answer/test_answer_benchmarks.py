"""The benchmarks of asking, on a toy: they run, select what they are told to, and write what they print."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from biqe.evaluate import Cq, evaluate
from biqe.evaluate.scoring import sample
from biqe.knowledge_base import open as open_knowledge_base
from biqe.mine import folder as set_folder
from biqe.models import store
from biqe.models.cqd import CQD
from biqe.models.cqd import Config as CqdConfig
from biqe.models.hybrid import Config as HybridConfig
from biqe.models.hybrid import Hybrid

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch, capsys):
    def run(name: str, *arguments: object) -> tuple[dict, str]:
        """The JSON object of the last line, and the lines before it."""
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        module.main()
        *lines, last = capsys.readouterr().out.splitlines()
        return json.loads(last), "\n".join(lines)

    return run


def test_queries_known_in_part_have_some_links_in_training_and_lack_some(bench, run, monkeypatch):
    found, shown = bench("joint_tuples", "--run", run / "run", "--some-missing", 12, "--ways", "product,beam")
    assert found["model_config"]["mask_average"] == "hidden"
    assert found["set"] is None and 0 < found["queries"] <= found["some_missing"] == 12 and "beam - product" in shown
    spec = importlib.util.spec_from_file_location("joint_tuples", BENCHMARKS / "joint_tuples.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    splits = open_knowledge_base(run / "run").splits
    train, both = ({tuple(row) for row in splits[name].triples.tolist()} for name in ("train", "complete"))
    queries = module.some_missing(splits, 12, 0)
    assert len(queries) == found["queries"]
    for number, query in enumerate(queries):
        gold = queries.gold[queries.node_offsets[number] : queries.node_offsets[number + 1]].tolist()
        links = [(gold[s], r, gold[o]) for s, r, o in query.edges]
        assert set(links) <= both and 0 < len([link for link in links if link in train]) < len(links)


def test_whole_tuples_by_number_of_targets(bench, run, tmp_path):
    options = ("--run", run / "run", "--set", run / "set", "--ways", "product,beam", "--count", 30)
    everything, _ = bench("joint_tuples", *options)
    found = {}
    for targets in (2, 3):
        place = tmp_path / "results" / f"{targets}.json"
        found[targets], shown = bench("joint_tuples", *options, "--targets", targets, "--out", place)
        assert json.loads(place.read_text()) == found[targets]
        assert list(found[targets]["queries_by_targets"]) == [str(targets)]
        assert f"MRR, {targets} targets" in shown
        assert found[targets]["metrics"] == found[targets]["ways"]["beam"]["metrics"]
    for targets, part in found.items():
        assert part["queries"] == everything["queries_by_targets"][str(targets)] > 0
        for way in ("product", "beam"):
            own = everything["ways"][way]["by_targets"][str(targets)]["mrr"]
            assert part["ways"][way]["metrics"]["mrr"] == pytest.approx(own, abs=1e-6)
    with pytest.raises(SystemExit, match="no such queries with 9 targets"):
        bench("joint_tuples", *options, "--targets", 9)


def test_whole_tuples_with_known_links_sure_and_not_beside_cqd_both_ways(bench, run, tmp_path):
    base = open_knowledge_base(run / "run")
    torch.manual_seed(0)
    links = CQD(CqdConfig(rank=4, spread=0.5), 30, 3)
    model = Hybrid(HybridConfig(width=16, layers=1, heads=2, feed_forward=16, rank=4), 30, 3)
    model.start_from(links)
    for name, made in (("model", model), ("cqd", links)):
        store.save(made, tmp_path / name, vocabulary=base.vocabulary, graph_fingerprint=base.splits.fingerprint)
    options = ("--run", tmp_path / "model", "--graph", run / "kg", "--some-missing", 30, "--ways", "product,links")
    sure, shown = bench("joint_tuples", *options, "--cqd", tmp_path / "cqd")
    unsure, _ = bench("joint_tuples", *options, "--known", "off", "--cqd", tmp_path / "cqd")
    assert sure["model_config"]["known"] == "one" and unsure["model_config"]["known"] == "off"
    assert "cqd, known - product" in shown and list(sure["ways"]) == ["product", "links", "cqd", "cqd, known"]
    mrr = {name: way["metrics"]["mrr"] for name, way in sure["ways"].items()}
    # Predictor and encoder know nothing, so that what the graph holds is all there is to go by.
    assert mrr["links"] > unsure["ways"]["links"]["metrics"]["mrr"] and mrr["cqd, known"] > mrr["cqd"]


def test_a_search_is_measured_by_weight_and_by_beam(bench, run, tmp_path):
    base, place = open_knowledge_base(run / "run"), tmp_path / "model"
    torch.manual_seed(0)
    model = Hybrid(HybridConfig(width=16, layers=1, heads=2, feed_forward=16, rank=4), 30, 3)
    model.start_from(CQD(CqdConfig(rank=4, spread=0.5), 30, 3))
    store.save(model, place, vocabulary=base.vocabulary, graph_fingerprint=base.splits.fingerprint)
    options = ("--graph", run / "kg", "--set", run / "set", "--limit", 20, "--weights", "0,1", "--beams", "1,8,30")
    found, shown = bench("link_search", "--run", place, *options, "--out", tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == found
    assert [(row["search"], row["search_beam"]) for row in found["rows"]] == [(0, None), (1, 1), (1, 8), (1, 30)]
    model.eval().use_graph(base.splits["train"])
    queries = sample(set_folder.load(run / "set", vocabulary=base.vocabulary)["valid"], 20)
    for row in found["rows"]:
        solved = model.solving(search=row["search"], search_beam=row["search_beam"] or 8)
        assert row["mrr"]["split"] == evaluate(solved, queries, Cq("split")).value("mrr") and row["ms"] > 0
    assert len({row["mrr"]["split"] for row in found["rows"]}) >= 3
    with pytest.raises(SystemExit, match="is no hybrid"):
        bench("link_search", "--run", run / "run", "--set", run / "set")


def test_products_are_measured_by_number_of_rows(bench, tmp_path):
    options = ("--entities", 50, "--width", 8, "--repeats", 1, "--out", tmp_path / "result.json")
    found, shown = bench("entity_products", *options)
    assert json.loads((tmp_path / "result.json").read_text()) == found
    assert all(row["plain"] > 0 and row["ours"] > 0 for row in found["rows"].values())
    assert found["ratio"] == found["rows"]["8"]["ratio"] and "a chunk of the loss" in shown
