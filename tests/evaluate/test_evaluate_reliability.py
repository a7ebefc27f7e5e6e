"""Reliability and calibration error against sums by hand."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.errors import EmptyResult, InvalidOption
from biqe.evaluate import pictures
from biqe.evaluate.reliability import diagrams, reliability


def test_the_error_by_hand():
    probabilities = np.array([0.1, 0.3, 0.6, 0.8, 0.9, 1.0])
    true = np.array([False, True, True, True, False, True])
    found = reliability(probabilities, true, bins=2)
    # Below a half: promised 0.2, kept 0.5. Above: promised 0.825, kept 0.75.
    assert found.counts.tolist() == [2, 4]
    assert found.promised.tolist() == pytest.approx([0.2, 0.825])
    assert found.kept.tolist() == pytest.approx([0.5, 0.75])
    assert found.error == pytest.approx((2 * 0.3 + 4 * 0.075) / 6)
    assert found.brier == pytest.approx(np.mean([0.01, 0.49, 0.16, 0.04, 0.81, 0.0]))
    assert (found.rows, found.true_share) == (6, pytest.approx(4 / 6))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 20))
def test_the_error_is_the_mean_over_rows_of_their_bins_difference(rows, bins):
    probabilities = np.array([probability for probability, _ in rows])
    true = np.array([is_true for _, is_true in rows])
    found = reliability(probabilities, true, bins=bins)
    gathered: dict[int, list[int]] = {}
    for number, probability in enumerate(probabilities.tolist()):
        gathered.setdefault(min(int(probability * bins), bins - 1), []).append(number)
    expected = sum(abs(sum(probabilities[n] - true[n] for n in members)) for members in gathered.values()) / len(rows)
    assert found.error == pytest.approx(expected, abs=1e-9)
    assert 0 <= found.error <= 1
    assert found.rows == len(rows)


def test_a_true_forecaster_has_no_error_and_a_liar_has():
    rng = np.random.default_rng(0)
    probabilities = rng.random(200_000)
    true = rng.random(len(probabilities)) < probabilities
    assert reliability(probabilities, true).error < 0.01
    assert reliability(1 - probabilities, true).error > 0.4


def test_the_picture_holds_every_bin_and_is_xml():
    found = reliability(np.array([0.05, 0.95, 0.96]), np.array([False, True, True]), bins=10)
    svg = pictures.render(lambda: diagrams({"before": found, "after <&> $x$": found}), "svg", "reliability")
    root = ET.fromstring(svg)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "after <&> $x$" in words
    assert words.count(f"ECE {found.error:.3f}, 3 rows") == 2
    # Two bins of each diagram have rows: their mean probabilities are orange lines.
    lines = [
        path
        for path in root.iter("{http://www.w3.org/2000/svg}path")
        if f"stroke: {pictures.ORANGE}" in path.get("style", "")
    ]
    assert len(lines) == 2 * 2 + 1  # and the legend
    assert json.loads(json.dumps(found.to_json()))["rows"] == 3


@pytest.mark.parametrize(
    ("probabilities", "true", "bins", "error"),
    [
        ([], [], 5, EmptyResult),
        ([0.5], [True], 0, InvalidOption),
        ([0.5], [True, False], 5, InvalidOption),
        ([1.5], [True], 5, InvalidOption),
        ([float("nan")], [True], 5, InvalidOption),
    ],
)
def test_bad_rows_are_refused(probabilities, true, bins, error):
    with pytest.raises(error):
        reliability(np.array(probabilities), np.array(true, bool), bins=bins)
