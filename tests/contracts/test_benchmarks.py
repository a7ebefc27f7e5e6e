"""Every registered benchmark: facts for all, and what its data must fulfil where it is at hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from biqe import benchmarks
from biqe.benchmarks import registry
from biqe.benchmarks.anycq import HARD, TupleQuestions
from biqe.benchmarks.download import remote_files
from biqe.benchmarks.opened import OpenBenchmark
from biqe.benchmarks.query2box import benchmark_graph, bind
from biqe.benchmarks.shaped import NEGATIONS
from biqe.exact.answers import answer_sets, tuples
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import union
from biqe.mine.filters import holds
from biqe.query.bound import QuerySet

PUBLISHED = {
    "fb15k237-q2b": {
        "valid": {"1p": 20_101} | dict.fromkeys(("2p", "3p", "2i", "3i", "ip", "pi", "2u", "up"), 5_000),
        "train": dict.fromkeys(("1p", "2p", "3p", "2i", "3i"), 149_689),
    },
    "nell995-q2b": {
        "valid": {"1p": 16_927} | dict.fromkeys(("2p", "3p", "2i", "3i", "ip", "pi", "2u", "up"), 4_000),
        "train": dict.fromkeys(("1p", "2p", "3p", "2i", "3i"), 107_982),
    },
}
"""Numbers of questions by shape, as Query2Box publishes them."""
CANDIDATES = {"fb15k237-q2b": 14_505, "nell995-q2b": 63_361}


@pytest.fixture(scope="module", params=benchmarks.names())
def opened(request, tmp_path_factory) -> OpenBenchmark:
    if not benchmarks.describe(request.param).at_hand:
        pytest.skip(f"the files of {request.param} are not at hand: {benchmarks.describe(request.param).how}")
    patch = pytest.MonkeyPatch()
    request.addfinalizer(patch.undo)
    patch.setenv("BIQE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    return benchmarks.open(request.param)


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_has_facts(name):
    facts = benchmarks.describe(name)
    assert facts.name == name and facts.protocol in ("q2b", "betae", "cq", "bio", "qar")
    for item in fields(facts):
        if item.name != "at_hand":
            assert getattr(facts, item.name), f"{name} does not say its {item.name}"
    for remote in remote_files(name):
        assert remote.place.startswith(tuple(facts.files.replace(" and ", ", ").split(", ")))


def test_the_names_are_those_of_the_tables():
    assert benchmarks.names() == [
        "fb15k237-q2b",
        "nell995-q2b",
        "wn18rr-qa",
        "fb15k237-betae",
        "fb15k-betae",
        "nell995-betae",
        "anycq-fb15k237-qar",
        "anycq-nell-qar",
        "fb15k237-cq",
        "wn18rr-cq",
        "fb15k237-paths",
        "wn18rr-paths",
        "bio",
        "hpo",
    ]


@pytest.mark.data
@pytest.mark.slow
def test_questions_are_as_many_as_published_and_fit_their_graph(opened):
    entities, relations = len(opened.splits.vocabulary.entities), len(opened.splits.vocabulary.relations)
    valid, train = opened.queries("valid"), opened.train_queries()
    if isinstance(valid, TupleQuestions):
        assert len(valid) == {"anycq-fb15k237-qar": 2_400, "anycq-nell-qar": 2_000}[opened.name] and train is None
        return
    for questions in (valid, train) if train is not None else (valid,):
        rows = questions if isinstance(questions, QuerySet) else questions.rows
        assert len(rows) and rows.nodes.max() < entities and rows.edges[:, 1].max() < 2 * relations
    if opened.name in PUBLISHED:
        for split, questions in (("valid", valid), ("train", train)):
            counts = dict(zip(questions.shapes, np.bincount(questions.shape).tolist(), strict=True))
            assert counts == PUBLISHED[opened.name][split]
        assert len(opened.candidates) == CANDIDATES[opened.name]
        assert np.isin(valid.hard.values, opened.candidates).all()
    if opened.protocol == "bio":
        assert len(opened.types) == entities and valid.negatives is not None and valid.hard_negatives is not None
    assert len(opened.fingerprint) == 16
    assert registry.queries_of_today(opened.name) in (None, opened.fingerprint)


@pytest.mark.data
@pytest.mark.slow
def test_no_hard_answer_can_be_derived_from_the_training_graph(opened):
    valid = opened.queries("valid")
    rng = np.random.default_rng(0)
    if isinstance(valid, TupleQuestions):
        hard = valid.take(rng.permutation(np.flatnonzero(valid.kinds == HARD))[:100])
        known = opened.splits["train"]
        # What AnyCQ calls hard has a stored answer in a few cases.
        assert sum(len(tuples(known, query, limit=1)) for query in hard.queries) <= 10
        return
    if isinstance(valid, QuerySet):
        # Mined queries ask what the split's own triples say: every gold entity needs one of them.
        some = valid.take(rng.choice(len(valid), min(200, len(valid)), replace=False))
        new = Graph(opened.splits.vocabulary, union(opened.splits.valid))
        assert holds(answer_sets(new, some), some.gold[some.target_nodes]).all()
        return
    if valid.hard is None:
        return
    some = valid.take(np.sort(rng.choice(len(valid), 600, replace=False)))
    if opened.protocol == "q2b":
        from biqe.benchmarks.storage import data_folder

        graph_name = benchmarks.describe(opened.name).graph
        binding = bind(data_folder() / "q2b" / graph_name, opened.splits.vocabulary)
        train = benchmark_graph(opened.splits, ("train",), binding)
    else:
        train = opened.splits["train"]
    if some.rows.negated is not None:  # what is negated makes answers of its own
        some = some.take(np.flatnonzero(~np.isin(some.shape, [some.shapes.index(name) for name in NEGATIONS])))
    known = answer_sets(train, some.rows)
    for row, question in enumerate(some.owner.tolist()):
        assert not np.isin(some.hard[question], known[row]).any()
    assert (np.diff(some.hard.offsets) > 0).all()
