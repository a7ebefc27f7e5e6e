"""The probability of a link: one number from either end, fitted on held-out facts, safe to store."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from biqe.errors import UnreadableFile
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.links import probability
from biqe.links.complex import ComplEx
from biqe.links.fit import calibration_error, fit, reliability
from biqe.links.knowledge import FILE, load, save
from biqe.links.probability import LOOP, LinkProbability

PEOPLE, CITIES, COUNTRIES = 120, 12, 3
LIVES, IN, CITIZEN = range(3)
ENTITIES = PEOPLE + CITIES + COUNTRIES


def graph_of(triples, entities=ENTITIES, relations=3) -> Graph:
    names = [Names.of([f"{kind}{n:04}" for n in range(size)]) for kind, size in (("e", entities), ("r", relations))]
    return Graph(Vocabulary(*names), as_triples(sorted(triples)))


@pytest.fixture(scope="module")
def town():
    """People live in a city and are citizens of its country; 30 of the citizenships are hidden."""
    rng = np.random.default_rng(0)
    city = rng.integers(PEOPLE, PEOPLE + CITIES, PEOPLE)
    country = PEOPLE + CITIES + np.arange(CITIES) % COUNTRIES
    facts = [(p, LIVES, int(city[p])) for p in range(PEOPLE)]
    facts += [(PEOPLE + c, IN, int(country[c])) for c in range(CITIES)]
    citizens = [(p, CITIZEN, int(country[city[p] - PEOPLE])) for p in range(PEOPLE)]
    hidden = citizens[::4]
    return graph_of([*facts, *(fact for fact in citizens if fact not in hidden)]), np.array(hidden)


@pytest.fixture(scope="module")
def predictor(town):
    torch.manual_seed(0)
    return ComplEx(4, ENTITIES, 3, 0.1).requires_grad_(False)


@pytest.fixture(scope="module")
def knowledge(town, predictor):
    return fit(predictor, *town)


def test_hidden_facts_are_found_by_rules_and_kinds_and_said_to_be_likely(town, predictor, knowledge):
    graph, hidden = town
    record = knowledge.record
    assert record.calibrated and record.facts == len(hidden) and record.questions == 2 * len(hidden)
    links = LinkProbability(knowledge, predictor, graph)
    right = np.exp(links.of(*hidden.T))
    wrong = np.exp(
        links.of(hidden[:, 0], hidden[:, 1], PEOPLE + CITIES + (hidden[:, 2] - PEOPLE - CITIES + 1) % COUNTRIES)
    )
    assert (right > wrong).all() and right.mean() > 0.5 > 3 * wrong.mean()
    rows = links.to_all(*(torch.from_numpy(column) for column in (hidden[:, 0], hidden[:, 1])))
    assert (rows.argmax(1).numpy() == hidden[:, 2]).all()
    fired = links.reasons(*hidden[0].tolist())
    assert fired[0].path == (LIVES, IN) and fired[0].hits > 0.7 * fired[0].pairs


def test_facts_that_are_missing_beside_those_held_out_are_probable_too():
    """Everybody knows everybody in a group of twelve. Of the facts that the graph lacks, a third is held out."""
    rng = np.random.default_rng(0)
    facts = [(a, 0, b) for a in range(96) for b in range(96) if a != b and a // 12 == b // 12]
    missing = rng.permutation(len(facts))[:300]
    graph = graph_of([fact for number, fact in enumerate(facts) if number not in set(missing.tolist())], 96, 1)
    hidden = np.array(facts)[missing]
    links = LinkProbability(fit(None, graph, hidden[:100], further=200), None, graph)
    assert np.exp(links.of(*hidden[100:].T)).mean() > 0.8, "less than half if these count as wrong"


def test_one_number_from_both_ends_and_by_both_roads(town, predictor, knowledge):
    graph, _ = town
    links = LinkProbability(knowledge, predictor, graph, certain=False)
    rng = np.random.default_rng(1)
    s, r, o = rng.integers(0, ENTITIES, 200), rng.integers(0, 3, 200), rng.integers(0, ENTITIES, 200)
    there, back = links.of(s, r, o), links.of(o, r + 3, s)
    assert np.allclose(there, back, atol=1e-5)
    rows = links.to_all(torch.from_numpy(s), torch.from_numpy(r)).numpy()
    assert np.allclose(rows[np.arange(200), o], there, atol=1e-5)
    # In one call, in many, and again from what is remembered.
    alone = torch.cat([links.to_all(torch.tensor([h]), torch.tensor([d])) for h, d in zip(s, r, strict=True)])
    assert np.allclose(alone.numpy(), rows, atol=1e-5)


def test_stored_links_are_certain_and_loops_are_not_believed(town, predictor, knowledge):
    graph, _ = town
    links = LinkProbability(knowledge, predictor, graph)
    s, r, o = graph.triples.T.astype(np.int64)
    assert (links.of(s, r, o) == 0).all()
    rows = links.to_all(torch.from_numpy(s), torch.from_numpy(r)).numpy()
    assert (rows[np.arange(len(s)), o] == 0).all() and (rows <= 0).all()
    assert (links.believing(False).of(s, r, o) < 0).all()
    assert (links.of(s, r, s) == LOOP).all()


def test_a_person_who_came_after_training_is_spoken_of(town, predictor, knowledge):
    graph, _ = town
    new = ENTITIES
    grown = graph_of([*map(tuple, graph.triples.tolist()), (new, LIVES, PEOPLE)], ENTITIES + 1, 4)
    links = LinkProbability(knowledge, predictor, grown)
    country = PEOPLE + CITIES
    right, wrong = np.exp(links.of(np.full(2, new), np.full(2, CITIZEN), np.array([country, country + 1])))
    assert right > 3 * wrong
    assert np.allclose(links.of([country], [CITIZEN + 4], [new]), np.log(right), atol=1e-5)
    assert np.exp(links.of([new], [3], [country]))[0] < 1e-5, "a relation that nobody has seen"


def test_with_few_held_out_facts_there_are_scores(town, predictor):
    graph, hidden = town
    knowledge = fit(predictor, graph, hidden[:5])
    assert not knowledge.record.calibrated and knowledge.record.facts == 5
    assert np.isfinite(LinkProbability(knowledge, predictor, graph).of(*hidden.T)).all()


@pytest.mark.parametrize("triples", [[], [(0, 0, 1)], [(n, 0, 9) for n in range(9)], [(0, 0, 0), (1, 1, 1)]])
def test_poor_graphs_are_no_reason_to_fail(triples):
    graph = graph_of(triples, 10, 3)
    knowledge = fit(None, graph, np.array(triples[:1], np.int64).reshape(-1, 3))
    links = LinkProbability(knowledge, None, graph)
    assert torch.isfinite(links.to_all(torch.arange(10), torch.arange(10) % 6)).all()


def test_saved_and_loaded_it_says_the_same(town, predictor, knowledge, tmp_path):
    graph, hidden = town
    assert load(tmp_path) is None
    save(knowledge, tmp_path)
    loaded = load(tmp_path)
    assert loaded.record == knowledge.record
    one, two = (LinkProbability(each, predictor, graph).of(*hidden.T) for each in (knowledge, loaded))
    assert np.array_equal(one, two)


def test_a_damaged_file_is_refused(knowledge, tmp_path):
    save(knowledge, tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[: len(whole) // 2], whole.replace(b'"biqe-links', b'"biqe-other')):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableFile):
            load(tmp_path)
    path.write_bytes(whole)
    arrays = load_file(path)
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    for name, change in (
        ("rules.bodies", lambda array: array + 100),
        ("rules.relations", lambda array: array[::-1]),
        ("kinds.together", lambda array: array[:-1]),
        ("normalisers", lambda array: array * np.float32(np.nan)),
        ("weigher.linear.weight", lambda array: array[:, :3]),
        ("curve", lambda array: array * np.float32(np.inf)),
    ):
        save_file({**arrays, name: np.ascontiguousarray(change(arrays[name]))}, path, metadata)
        with pytest.raises(UnreadableFile, match="damaged"):
            load(tmp_path)
    head = json.dumps(json.loads(metadata["biqe"]) | {"relations": 10**9})
    save_file(arrays, path, {"biqe": head})
    with pytest.raises(UnreadableFile, match="not of 1,000,000,000 relations"):
        load(tmp_path)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("nowhere")):
        path.unlink()
        make(path)
        with pytest.raises(UnreadableFile):
            load(tmp_path)


def test_the_calibration_error_is_a_mean_distance():
    assert calibration_error(reliability(np.array([0.25] * 4), np.array([1.0, 0, 0, 0]))) == 0
    rng = np.random.default_rng(0)
    said = rng.random(100_000)
    true = rng.random(len(said)) < said
    assert calibration_error(reliability(said, true)) < 0.01 < 0.4 < calibration_error(reliability(1 - said, true))
    bins = reliability(said, true)
    by_hand = sum(abs(said[own].sum() - true[own].sum()) for own in ((said * 10).astype(int) == b for b in range(10)))
    assert calibration_error(bins) == pytest.approx(by_hand / len(said))
    assert sum(count for count, _, _ in bins) == len(said)


def test_what_is_remembered_is_bounded(town, predictor, knowledge, monkeypatch):
    monkeypatch.setattr(probability, "CACHE_BYTES", 5 * 4 * ENTITIES)
    graph, _ = town
    small, large = LinkProbability(knowledge, predictor, graph), None
    monkeypatch.undo()
    large = LinkProbability(dataclasses.replace(knowledge), predictor, graph)
    heads = torch.from_numpy(np.random.default_rng(2).integers(0, ENTITIES, 60))
    for part in heads.split(7):
        assert torch.allclose(small.to_all(part, part % 6), large.to_all(part, part % 6), atol=1e-5)
