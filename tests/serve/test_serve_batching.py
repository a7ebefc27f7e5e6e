"""Model calls made together: the same answers, fewer calls, and a share for everybody."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import biqe
from biqe import atlas
from biqe.answer.answers import Answers
from biqe.errors import TookTooLong
from biqe.models import store
from biqe.models.cqd import CQD
from biqe.models.cqd import Config as CqdConfig
from biqe.models.hybrid import Config as HybridConfig
from biqe.models.hybrid import Hybrid
from biqe.query.bound import TARGET, BoundQuery, QuerySet
from biqe.serve.batching import PADDED, PAIRS, QUANTUM, QUERIES, ModelQueue, by_length, shares
from biqe.serve.config import EngineConfig
from biqe.serve.engine import Engine
from biqe.serve.gil_scheduler import GilScheduler
from biqe.serve.lanes import Deadline

QUESTIONS = [
    ("SELECT ?c WHERE { ?c :located_on :Rhine }", {}),
    ("SELECT ?c WHERE { ?c :located_on :Danube }", {"top": 3}),
    ("SELECT ?r ?c WHERE { ?r :flows_through :Germany . ?c :located_on ?r }", {}),
    ("SELECT ?r ?c WHERE { ?r :flows_through :France . ?c :located_on ?r }", {"joint": "product"}),
    ("SELECT ?r ?c WHERE { ?r :flows_through :Austria . ?c :located_on ?r }", {"joint": "beam", "width": 7}),
    ("SELECT ?c WHERE { ?r :flows_through :Germany . ?c :located_on ?r }", {}),
    ("SELECT ?c WHERE { ?c :located_on ?r . ?r :flows_into :North_Sea . ?c :near :Bonn }", {"mode": "predicted"}),
    ("SELECT ?a ?b WHERE { ?a :borders ?b . ?b :borders :Germany FILTER(?a != :France) }", {"top": 5}),
    ("SELECT ?x WHERE { { ?x :near :Leeds } UNION { ?x :near :Verona } }", {}),
    ("ASK { :Heidelberg :located_on :Main }", {}),
    ("SELECT (COUNT(?x) AS ?n) WHERE { ?x :located_in :Germany . ?x :near :Leipzig }", {}),
    ("SELECT ?x WHERE { ?x :borders :Germany . ?x :borders :France . :Germany :borders ?x }", {}),
    ("SELECT ?x WHERE { ?x :located_on :Rhine }", {"mode": "known"}),
]


@pytest.fixture(scope="module")
def kb():
    return biqe.open("atlas")


@pytest.fixture(scope="module")
def alone(kb):
    return [said(kb.ask(text, **options)) for text, options in QUESTIONS]


def said(answer):
    """What an answer says, without the time that it took: words, and numbers. Rows that only rounding puts in order
    stand in the order of their entities."""
    if isinstance(answer, Answers):
        rows = sorted(answer, key=lambda row: (row.status, -round(row.probability, 6), str(row.ids)))
        links = [link for row in rows for link in row.missing]
        names = [(link.subject, link.relation, link.object) for link in links]
        numbers = [part.probability for part in (*rows, *links)]
        return [(row.ids, row.status) for row in rows] + names, numbers
    return answer.statuses, [float(term.value) for row in answer.terms for term in row]


def same(one, other):
    return one[0] == other[0] and np.allclose(one[1], other[1], atol=1e-6, rtol=0)


@pytest.fixture(scope="module", params=[0.0, 0.5], ids=["links for rows", "links everywhere"])
def kb_with_links(request, tmp_path_factory):
    """The atlas under a model of random weights that has a link predictor inside, of random weights too."""
    splits, place = atlas.load(), tmp_path_factory.mktemp("links") / "model"
    size = len(splits.vocabulary.entities), len(splits.vocabulary.relations)
    torch.manual_seed(0)
    config = HybridConfig(width=32, layers=2, heads=2, feed_forward=64, rank=8, search=request.param)
    model = Hybrid(config, *size)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    model.start_from(CQD(CqdConfig(rank=8, spread=0.5), *size))
    store.save(model, place, vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)
    return biqe.open(place, graph=atlas.path())


def asked(kb, numbers, **options):
    """Answers to these questions, all at once, and the facts of the engine."""

    async def run():
        engine = Engine(kb, EngineConfig(**options))
        try:
            found = await asyncio.gather(*(engine.ask(QUESTIONS[n][0], **QUESTIONS[n][1]) for n in numbers))
            return [said(answer) for answer in found], engine.stats
        finally:
            await engine.stop()

    return asyncio.run(run())


@settings(max_examples=12)
@given(numbers=st.lists(st.integers(0, len(QUESTIONS) - 1), min_size=1, max_size=14), threads=st.integers(1, 12))
def test_answers_are_those_of_asking_alone(kb, alone, numbers, threads):
    found, _ = asked(kb, numbers, threads=threads)
    for number, answer in zip(numbers, found, strict=True):
        assert same(alone[number], answer), QUESTIONS[number]


def test_rows_by_links_are_those_of_asking_alone(kb_with_links):
    """Such rows come from the model's own search, beside the queue that scores go through."""
    numbers = [number for number, (_, options) in enumerate(QUESTIONS) if "joint" not in options]
    alone = [said(kb_with_links.ask(text, **options)) for text, options in (QUESTIONS[n] for n in numbers)]
    assert kb_with_links.ask(QUESTIONS[2][0]).to_json() != kb_with_links.ask(QUESTIONS[2][0], joint="beam").to_json()
    for threads in (1, len(numbers)):
        found, _ = asked(kb_with_links, numbers, threads=threads)
        for number, one, other in zip(numbers, alone, found, strict=True):
            assert same(one, other), QUESTIONS[number]


def test_questions_that_come_together_share_calls(kb_with_links):
    """Of a model without calibrated links; questions by calibrated links ask no encoder, and need no queue."""
    kb = kb_with_links
    numbers = [0, 1, 2, 3, 5, 6] * 2
    apart, facts_apart = asked(kb, numbers, batching=False)
    together, facts = asked(kb, numbers, threads=len(numbers))
    assert all(same(one, other) for one, other in zip(apart, together, strict=True))
    assert facts["model_queries"] == facts_apart["model_queries"]
    assert facts["model_shared"] > 0 and facts_apart["model_shared"] == 0
    assert facts["model_calls"] < facts_apart["model_calls"]
    assert sum(size * calls for size, calls in facts["batch_sizes"].items()) == facts["model_queries"]


@given(lefts=st.lists(st.integers(0, 300), max_size=20), room=st.integers(1, 128))
def test_everyone_gets_a_share(lefts, room):
    taken = shares([SimpleNamespace(left=left) for left in lefts], room)
    counts = {id(job): count for job, count in taken}
    assert sum(counts.values()) == min(room, sum(lefts))
    assert all(0 < count <= job.left for job, count in taken)
    # Nobody gets a second helping while another, earlier in the queue, still wants a first one.
    for job, count in taken:
        for other, got in taken:
            if got < min(other.left, QUANTUM):
                assert count <= QUANTUM + max(0, room - sum(min(left, QUANTUM) for left in lefts))
            assert job.left >= count


@given(sizes=st.lists(st.one_of(st.integers(1, 40), st.integers(1, 1_500)), min_size=1, max_size=64).map(np.array))
def test_calls_are_of_about_one_length(sizes):
    groups = by_length(sizes)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(sizes)))
    for group in groups:
        lengths = sizes[group]
        assert (np.diff(lengths) >= 0).all()
        assert len(group) * lengths[-1] - lengths.sum() <= PADDED
        assert len(group) == 1 or len(group) * lengths[-1] ** 2 <= PAIRS


class CountingModel:
    """Scores are the entity at the first node; calls are written down, and wait for leave where there is a gate."""

    name, entity_count, relation_count = "counting", 50, 3

    def __init__(self, gate=None):
        self.calls, self.gate = [], gate

    def encode(self, queries):
        return SimpleNamespace(sizes=np.full(len(queries), 3), batch=lambda rows: queries.take(rows))

    def scores(self, batch):
        firsts = batch.nodes[batch.node_offsets[:-1]]
        if (firsts == 13).any():
            raise ValueError("this entity breaks the model")
        self.calls.append(firsts.tolist())
        if self.gate is not None:
            self.gate()
        return torch.from_numpy(np.repeat(firsts.astype(np.float32)[:, None], self.entity_count, 1))


def queries(entities):
    return QuerySet.of([BoundQuery((entity, TARGET), ((0, 0, 1),), (1,)) for entity in entities])


def in_threads(queue, scheduler, model, jobs, deadlines=None):
    """What each job gets, a score of each query or its error."""
    found = [None] * len(jobs)

    def ask(number):
        try:
            with scheduler.running():
                deadline = deadlines[number] if deadlines else None
                found[number] = queue.scores(model, queries(jobs[number]), deadline)[:, 0].tolist()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_question_that_breaks_the_model_breaks_no_other():
    scheduler, model = GilScheduler(), CountingModel()
    queue = ModelQueue(scheduler)
    jobs = [[1, 2], [13], [3], [], [4, 13, 5], [6]]
    found = in_threads(queue, scheduler, model, jobs)
    queue.stop()
    assert [found[0], found[2], found[3], found[5]] == [[1, 2], [3], [], [6]]
    assert isinstance(found[1], ValueError) and isinstance(found[4], ValueError)


def test_a_small_question_passes_between_the_parts_of_a_large_one():
    scheduler = GilScheduler()
    large_begun, small_asked = threading.Event(), threading.Event()

    def gate():
        large_begun.set()
        small_asked.wait(10)

    model = CountingModel(gate)
    queue = ModelQueue(scheduler)
    large = [n % 10 for n in range(1_000)]
    found = {}

    def ask(name, entities):
        with scheduler.running():
            found[name] = queue.scores(model, queries(entities))[:, 0].tolist()
            found[f"{name} after"] = len(model.calls)

    first = threading.Thread(target=ask, args=("large", large))
    first.start()
    assert large_begun.wait(10)
    second = threading.Thread(target=ask, args=("small", [20, 21]))
    second.start()
    while queue.length < 2:
        pass
    small_asked.set()
    first.join()
    second.join()
    queue.stop()
    assert found["large"] == large and found["small"] == [20, 21]
    assert found["small after"] <= 4, "it was answered by the next call, whatever the large one still wanted"
    assert found["large after"] >= 1_000 // QUERIES


def test_whoever_has_gone_is_not_asked_for():
    gone = Deadline(0.0)
    scheduler, model = GilScheduler(), CountingModel()
    queue = ModelQueue(scheduler)
    found = in_threads(queue, scheduler, model, [[1], [2], [3]], [None, gone, None])
    queue.stop()
    assert found[0] == [1] and found[2] == [3] and isinstance(found[1], TookTooLong)
    assert 2 not in [entity for call in model.calls for entity in call]
