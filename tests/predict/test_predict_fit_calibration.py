"""Calibration recovers known distortions, keeps the order of rows, and answer sets hold what they state."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import biqe
from biqe.errors import EmptyResult, InvalidOption, UnreadableFile
from biqe.evaluate.reliability import reliability
from biqe.exact.answers import tuples
from biqe.predict import calibration
from biqe.predict.calibration import Calibration, Thresholds
from biqe.predict.config import JOINT, Joint
from biqe.predict.fit_calibration import (
    LISTED,
    ListedQueries,
    by_group,
    calibrate,
    fit,
    fit_thresholds,
    halves,
    in_set,
    isotonic,
    list_rows,
    validation_questions,
)
from biqe.predict.predictor import Predictor
from biqe.predict.probability import of_rows
from biqe.query.bound import TARGET, BoundQuery
from biqe.query.queryset import QuerySet


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def drawn(seed, rows, slope=1.0, best=0.0, known=0.0, bias=(0.0, 0.0, 0.0), lone=0.0, lone_best=0.0):
    """Rows that are true with a probability that follows from their share as a calibration says."""
    rng = np.random.default_rng(seed)
    first = -rng.exponential(2, rows)
    scores = first - rng.exponential(2, rows)
    count, targets = rng.integers(0, 50, rows) * rng.integers(0, 2, rows), rng.integers(1, 4, rows)
    logits = slope * scores + best * first + known * np.log1p(count) + np.array(bias)[targets - 1]
    chance = sigmoid(logits + (count == 0) * (lone + lone_best * first))
    return scores, first, count, targets, rng.random(rows) < chance, chance


def test_a_known_temperature_is_recovered():
    temperature = 0.4
    *columns, true, _ = drawn(0, 60_000, slope=1 / temperature, bias=(4.0, 4.0, 4.0))
    found = fit(*columns, true)
    assert 1 / found.slope == pytest.approx(temperature, rel=0.05)
    assert found.best == pytest.approx(0.0, abs=0.15)
    assert found.known == pytest.approx(0.0, abs=0.1)
    assert found.lone == pytest.approx(0.0, abs=0.3)
    assert found.bias == pytest.approx((4.0, 4.0, 4.0), abs=0.4)


def test_probabilities_of_other_rows_are_what_they_say():
    options = {"slope": 0.7, "best": -0.5, "known": 0.8, "bias": (0.5, 0.0, -1.0), "lone": 1.0, "lone_best": 0.4}
    *columns, true, _ = drawn(1, 40_000, **options)
    found = fit(*columns, true)
    scores, first, count, targets, true, chance = drawn(2, 20_000, **options)
    said = np.array(
        [
            of_rows(np.array([best, score]), found, targets=int(size), known=int(number))[1]
            for score, best, number, size in zip(scores, first, count, targets, strict=True)
        ]
    )
    assert np.abs(said - chance).mean() < 0.02
    assert reliability(said, true).error < 0.02
    assert reliability(np.exp(scores), true).error > 0.1
    for members in by_group(targets).values():
        assert reliability(said[members], true[members]).error < 0.03


@given(
    st.lists(st.floats(-50, 0), min_size=1, max_size=30), st.integers(0, 5000), st.integers(1, 6), st.integers(0, 20)
)
@settings(max_examples=60)
def test_the_order_of_rows_stays(scores, known, targets, seed):
    *columns, true, _ = drawn(seed, 400, slope=0.5, bias=(1.0, 0.0, -1.0))
    found = fit(*columns, true)
    ordered = np.sort(np.array(scores))[::-1]
    said = of_rows(ordered, found, targets=targets, known=known)
    assert (np.diff(said) <= 1e-12).all()  # equal scores, in other lanes of the processor, differ by rounding
    assert ((said > 0) & (said < 1)).all()


@pytest.mark.parametrize("truth", [np.zeros(100, bool), np.ones(100, bool), np.arange(100) % 7 == 0])
def test_degenerate_rows_give_a_calibration_all_the_same(truth):
    scores = np.linspace(-5, 0, 100)
    found = fit(scores, np.zeros(100), np.zeros(100, int), np.ones(100, int), truth)
    said = of_rows(scores[::-1], found, targets=1, known=0)
    assert abs(said.mean() - truth.mean()) < 0.05
    assert found.slope >= 0


def test_larger_shares_that_are_less_often_true_do_not_turn_the_list_round():
    scores = np.linspace(-5, 0, 1000)
    true = np.random.default_rng(0).random(1000) < sigmoid(-scores - 2)
    found = fit(scores, np.zeros(1000), np.zeros(1000, int), np.ones(1000, int), true)
    assert found.slope == 0.0
    assert np.ptp(of_rows(scores[::-1], found, targets=1, known=0)) == 0.0


def test_without_calibration_probabilities_are_shares():
    np.testing.assert_allclose(of_rows(np.log([0.5, 0.25]), None, targets=1, known=3), [0.5, 0.25])
    assert of_rows(np.zeros(0), fit(*drawn(0, 100)[:5]), targets=1, known=0).shape == (0,)


def test_rows_that_do_not_fit_together_are_refused():
    with pytest.raises(InvalidOption, match="every row"):
        fit(np.zeros(2), np.zeros(2), np.zeros(2, int), np.ones(1, int), np.ones(2, bool))
    with pytest.raises(EmptyResult):
        fit(np.zeros(0), np.zeros(0), np.zeros(0, int), np.zeros(0, int), np.zeros(0, bool))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 5)), min_size=1, max_size=7))
def test_isotonic_is_the_nearest_that_never_falls(pairs):
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    found = isotonic(values, weights)
    assert (np.diff(found) >= -1e-12).all()
    cost = weights @ (found - values) ** 2
    # The min-max formula of isotonic regression, by enumeration of all runs.
    expected = [
        max(
            min(np.average(values[a : b + 1], weights=weights[a : b + 1]) for b in range(i, len(values)))
            for a in range(i + 1)
        )
        for i in range(len(values))
    ]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert cost <= weights @ (np.full(len(values), np.average(values, weights=weights)) - values) ** 2 + 1e-9


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "biqe-model", "trained": {"step": 1}}')
    return tmp_path


@pytest.fixture
def some() -> Calibration:
    sets = fit_thresholds(np.array([-1.0, -2.0, -3.0, -np.inf]), np.array([1, 1, 1, 2]))
    return replace(fit(*drawn(3, 500)[:5]), sets=sets, decode="product", top=7, report={"ece_after": {"all": 0.01}})


def test_what_is_saved_is_loaded(folder, some):
    assert calibration.load(folder) is None
    place = calibration.save(some, folder)
    assert place == folder / "calibration.json"
    assert calibration.load(folder) == some
    assert sorted(path.name for path in folder.iterdir()) == ["calibration.json", "manifest.json"]


def test_a_calibration_belongs_to_its_weights(folder, some):
    calibration.save(some, folder)
    (folder / "manifest.json").write_text('{"format": "biqe-model", "trained": {"step": 2}}')
    with pytest.raises(UnreadableFile, match="other weights") as caught:
        calibration.load(folder)
    assert "biqe calibrate" in caught.value.hint
    for damage in (None, "[]", "{"):
        if damage is not None:
            (folder / "manifest.json").write_text(damage)
        with pytest.raises(UnreadableFile, match="not a model folder"):
            calibration.save(some, folder if damage else folder / "elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "other"},
        {"slope": -1.0},
        {"slope": None},
        {"lone": "x"},
        {"bias": [1.0]},
        {"curve": {"logits": [], "probabilities": []}},
        {"curve": {"logits": [0.0, 1.0], "probabilities": [0.9, 0.1]}},
        {"curve": {"logits": [0.0], "probabilities": [1.5]}},
        {"curve": {"logits": [0.0], "probabilities": [float("nan")]}},
        {"sets": {}},
        {"sets": {"coverages": [0.5], "thresholds": {}, "queries": {}}},
        {"report": 3},
    ],
)
def test_a_damaged_file_is_an_error_and_no_guess(folder, some, change):
    place = calibration.save(some, folder)
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with pytest.raises(UnreadableFile, match=r"calibration\.json") as caught:
        calibration.load(folder)
    assert "delete" in caught.value.hint


@given(
    st.binary(max_size=60)
    | st.sampled_from([b"", b"[]", b"null", b"{}", b'{"format": "biqe-calibration"}', b"[" * 9000])
)
@settings(max_examples=40)
def test_no_bytes_make_it_fail_otherwise(tmp_path_factory, junk):
    folder = tmp_path_factory.mktemp("model")
    (folder / "manifest.json").write_text("{}")
    (folder / "calibration.json").write_bytes(junk)
    with pytest.raises(UnreadableFile):
        calibration.load(folder)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_answer_sets_hold_what_they_state(coverage):
    # Scores of the answer are drawn alike for queries that are fitted on and queries that are not.
    rng = np.random.default_rng(0)
    held, repeats, n = 0.0, 400, 99
    for _ in range(repeats):
        scores = rng.normal(size=2 * n)
        sets = fit_thresholds(scores[:n], np.ones(n, int))
        held += in_set(scores[n:], sets.threshold(coverage, 1)).mean() / repeats
    # Exactly c where (1 - c)(n + 1) is whole; 400 repeats leave a standard error below 0.004.
    assert abs(held - coverage) < 0.012


def test_a_threshold_is_the_kth_smallest_score():
    scores = np.arange(1, 20, dtype=float)  # n + 1 = 20, so 10 of 100 are k = 2
    sets = fit_thresholds(scores, np.ones(19, int))
    assert sets.threshold(0.9, 1) == 2.0
    assert sets.threshold(0.895, 1) == 2.0  # rounded up to the next that is kept
    assert in_set(scores, 2.0).sum() == 18


def test_coverage_that_cannot_be_stated_is_refused():
    scores = np.array([-np.inf] * 30 + [-1.0] * 70)
    sets = fit_thresholds(scores, np.ones(100, int))
    assert sets.threshold(0.6, 1) == -1.0
    with pytest.raises(InvalidOption, match=r"coverage of 0\.9") as caught:
        sets.threshold(0.9, 1)
    assert "0.6" in caught.value.hint
    for coverage, targets in ((0.999, 1), (0.9, 2), (0.0, 1), (1.0, 1)):
        with pytest.raises(InvalidOption):
            sets.threshold(coverage, targets)
    with pytest.raises(InvalidOption, match="each query"):
        fit_thresholds(np.zeros(2), np.ones(3, int))


def test_many_targets_share_a_group():
    sets = fit_thresholds(np.full(50, -2.0), np.array([3, 4, 5, 6, 7] * 10))
    assert sets.threshold(0.5, 9) == -2.0
    assert Thresholds.from_json(json.loads(json.dumps(sets.to_json()))) == sets


CHAIN = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
LINK = BoundQuery((1, TARGET), ((0, 1, 1),), (1,))


@pytest.fixture
def town(toy):
    """A graph of 6 entities whose training part lacks every third triple."""
    rng = np.random.default_rng(5)
    triples = sorted({tuple(map(int, rng.integers([6, 2, 6]))) for _ in range(40)})
    # Both graphs must have one vocabulary: the same names.
    return toy.graph_of([t for n, t in enumerate(triples) if n % 3], 6, 2), toy.graph_of(triples, 6, 2)


@pytest.mark.parametrize("way", JOINT)
def test_listed_rows_are_those_that_training_lacks_and_their_truth_is_the_complete_graphs(toy, town, way):
    known, complete = town
    asked = []
    for query in (CHAIN, LINK, replace(CHAIN, nodes=(3, TARGET, TARGET))):
        rows = tuples(complete, query)
        asked += [(query, row) for row in rows.tolist()]
    model = toy.random_model(0, 6, 2)
    listed = list_rows(Predictor(model), asked, known, complete, joint=Joint(way, width=36), top=36)
    assert len(asked) > 3
    for number, (query, gold) in enumerate(asked):
        stored = set(map(tuple, tuples(known, query).tolist()))
        truth = set(map(tuple, tuples(complete, query).tolist()))
        chosen = listed.query == number
        size = 6 ** len(query.targets) - len(stored)
        assert (chosen.sum(), listed.known[number]) == (size, len(stored))
        assert listed.true[chosen].sum() == len(truth - stored)
        assert listed.in_training[number] == (tuple(gold) in stored) == (listed.gold_scores[number] == -np.inf)
        assert listed.scores[number].tolist() == listed.log_probabilities[chosen].tolist()
        assert listed.targets[number] == len(query.targets)
        assert listed.is_first[chosen].tolist() == [True] + [False] * (size - 1)
        if way == "beam":  # the true rows' shares by enumeration
            shares = model.every_tuple(query)
            expected = sorted(shares[row] for row in truth - stored)
            np.testing.assert_allclose(
                sorted(np.exp(listed.log_probabilities[chosen & listed.true])), expected, rtol=1e-4
            )
    assert LISTED >= 36


def test_what_a_model_refuses_is_left_out(toy, town):
    model = toy.random_model(0, 6, 2, refuses="no")
    with pytest.raises(EmptyResult, match="supports none of 1 queries"):
        list_rows(Predictor(model), [(LINK, [0])], *town)
    with pytest.raises(InvalidOption, match="Got 0"):
        list_rows(Predictor(toy.random_model(0, 6, 2)), [(LINK, [0])], *town, top=0)


def synthetic(queries: int, seed: int = 0) -> ListedQueries:
    """Queries whose rows are true with known chances, far from their shares."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, 5, queries)
    scores, true, gold = [], [], []
    for _ in range(queries):
        own = np.sort(-rng.exponential(3, 10))[::-1]
        scores.append(own)
        true.append(rng.random(10) < sigmoid(1.5 * own + 3))
        gold.append(own[rng.integers(10)])
    return ListedQueries(
        targets,
        np.zeros(queries, np.int64),
        np.array(gold),
        np.zeros(queries, bool),
        tuple(scores),
        np.repeat(np.arange(queries), 10),
        np.concatenate(scores),
        np.concatenate(true),
    )


def test_calibration_is_measured_on_other_queries_than_it_is_fitted_on():
    found = calibrate(synthetic(3000), seed=1, decode="product", top=10)
    assert found.before["all"].error > 0.2
    assert found.after["all"].error < 0.02
    assert found.after["first"].error < 0.04
    assert found.after["all"].rows == 15_000
    assert found.after["first"].rows == 1500
    assert {"1 targets", "2 targets", "3 targets"} <= set(found.after)
    report = found.calibration.report
    assert report["ece_after"]["all"] == found.after["all"].error
    assert report["queries_fitted"] == report["queries_measured"] == 1500
    assert (found.calibration.decode, found.calibration.top) == ("product", 10)
    assert len(report["coverage"]) == 9
    for part in report["coverage"]:
        # Three standard errors of both halves' shares.
        assert abs(part["found"] - part["stated"]) < 3 * np.sqrt(0.5 / part["queries"])
        assert 1 <= part["median_rows"] <= 10
    json.dumps(found.calibration.to_json())


def test_too_few_queries_are_refused():
    with pytest.raises(EmptyResult, match="too few"):
        calibrate(synthetic(1))


def test_halves_are_two_halves():
    for count in (0, 1, 2, 11):
        first, second = halves(count, 3)
        assert sorted([*first, *second]) == list(range(count))
        assert len(first) == count // 2


def test_validation_questions_are_of_three_kinds_with_their_golds():
    query = BoundQuery((0, TARGET, TARGET), ((0, 0, 1), (1, 1, 2)), (1, 2))
    queries = replace(QuerySet.of([query] * 30), gold=np.tile(np.array([0, 4, 5], np.int32), 30))
    asked = validation_questions(queries, seed=0)
    kinds = [(len(query.edges), len(query.targets)) for query, _ in asked]
    assert sorted(set(kinds)) == [(1, 1), (2, 1), (2, 2)]
    assert all(kinds.count(kind) == 10 for kind in set(kinds))
    for query, gold in asked:
        assert gold in ([4, 5], [4], [5])
        assert len(gold) == len(query.targets)
    without = replace(queries, gold=np.full(90, -1, np.int32))
    assert validation_questions(without) == []


def test_the_command_writes_what_asking_reads(run, capsys):
    from biqe.cli import main

    arguments = ["calibrate", str(run / "run"), "--set", str(run / "set"), "--top", "5", "--joint", "product"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "ECE before" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "calibration.json" in err
    found = calibration.load(run / "run" / "model")
    assert (found.decode, found.top) == ("product", 5)
    assert found.report["queries_fitted"] + found.report["queries_measured"] > 20
    assert (run / "run" / "model" / "calibration.svg").read_text().startswith("<svg")
    picture = run / "elsewhere.svg"
    assert main([*arguments, "--json", "--limit", "30", "--out", str(picture)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["after"]["all"]["error"] == document["report"]["ece_after"]["all"]
    assert picture.is_file()


def test_tuples_are_found_as_when_they_were_calibrated(run, capsys):
    from biqe.cli import main

    assert main(["calibrate", str(run / "run"), "--set", str(run / "set"), "--joint", "product"]) == 0
    capsys.readouterr()
    kb, text = biqe.open(run / "run"), "SELECT ?x ?y { :e0 :r0 ?x . ?x :r1 ?y }"
    usual, product, beam = (kb.ask(text, mode="predicted", joint=way, top=100) for way in (None, "product", "beam"))
    assert [(row.ids, row.probability) for row in usual] == [(row.ids, row.probability) for row in product]
    assert [row.ids for row in usual] != [row.ids for row in beam]  # else the above says nothing
    assert usual.note == product.note == ""
    assert beam.note == "probabilities were calibrated on rows found by product; these are by beam"
    assert beam.to_dict()["note"] == beam.note and f"\nnote: {beam.note}\n" in beam.write("table")
    assert kb.ask("SELECT ?x { :e0 :r0 ?x }", joint="beam").note == ""  # one target: all ways are one
    assert main(["ask", str(run / "run"), text, "--joint", "beam"]) == 0
    assert beam.note in capsys.readouterr().out
    counted = kb.ask("SELECT (COUNT(*) AS ?n) { :e0 :r0 ?x . ?x :r1 ?y }", joint="beam")
    assert json.loads(counted.write("json"))["note"] == beam.note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "test"], "held out"),
        (["--joint", "best"], "--joint must be one of links, beam, product"),
        (["--out", "nowhere/at/all.svg"], "--out nowhere/at/all.svg cannot be written: there is no folder nowhere/at"),
        (["--out", "."], "--out . cannot be written: it is a folder"),
        (["--data", "x"], "--data is for benchmarks"),
    ],
)
def test_the_command_refuses(run, options, message, capsys):
    from biqe.cli import main

    assert main(["calibrate", str(run / "run"), "--set", str(run / "set"), *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert main(["calibrate", str(run / "kg"), "--set", str(run / "set")]) == 2
    assert "without a model" in " ".join(capsys.readouterr().err.split())
    assert main(["calibrate", "atlas", "--set", str(run / "set")]) == 2
    assert "atlas is part of biqe itself" in " ".join(capsys.readouterr().err.split())
