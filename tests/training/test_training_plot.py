"""The curves of a run: what is in them, and that nothing fails where they cannot be drawn."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from biqe.links.knowledge import Record
from biqe.training.plot import draw, draw_probabilities

STEPS = [{"event": "steps", "seconds": 60.0 * n, "loss": 9.0 / (n + 1)} for n in range(5)]


def run_of(folder, events):
    return SimpleNamespace(folder=folder, record={"model": "biqe"}, trace=lambda: events)


@pytest.mark.parametrize("metric", ["mrr", "auc"])
def test_curves_name_their_metric_and_the_run(tmp_path, metric):
    folder = tmp_path / "cq $x^2$ <b>"
    folder.mkdir()
    draw(run_of(folder, [*STEPS, {"event": "validation", "seconds": 200.0, metric: 0.25}]))
    root = ET.fromstring((folder / "run.svg").read_text("utf-8"))
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"biqe, cq $x^2$ <b>", "training loss", "minutes"} <= set(words)
    assert any(word.startswith(f"validation {metric.upper()} ") for word in words)
    assert "nothing yet" not in words


def test_a_run_without_events_has_empty_curves(tmp_path):
    draw(run_of(tmp_path, []))
    assert (tmp_path / "run.svg").read_text("utf-8").count("nothing yet") == 2


def test_without_matplotlib_there_is_no_picture_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw(run_of(tmp_path, STEPS))
    assert not list(tmp_path.iterdir())


def test_probabilities_are_drawn_bin_by_bin(tmp_path):
    bins = [[0, 0.0, 0.0], [40, 0.15, 0.1], *[[0, 0.0, 0.0]] * 7, [2, 0.95, 1.0]]
    record = Record(30, 60, 0.5, 0.6, 0.7, 0.55, 0.1, 0.2, 0.05, calibrated=True, bins=bins)
    draw_probabilities(run_of(tmp_path, []), record)
    root = ET.fromstring((tmp_path / "probabilities.svg").read_text("utf-8"))
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"links of held-out questions", "expected calibration error 0.050"} <= words
    assert {"share true", "mean probability", "probability", "links"} <= words


def test_scores_are_not_drawn_as_probabilities(tmp_path):
    draw_probabilities(run_of(tmp_path, []), Record(3, 6, 0, 0, 0, 0, 0, 0, 0, calibrated=False))
    assert not list(tmp_path.iterdir())
