"""``biqe.train``: a graph to a knowledge base that predicts, stopped or not, with nothing left behind where refused."""

from __future__ import annotations

import os
import random
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import biqe
from biqe.errors import BiqeError, RunFailed
from biqe.knowledge_base import training as room
from biqe.knowledge_base.training import train

QUERY = "SELECT ?who { :a3 :likes ?who }"
LENGTH: dict[str, Any] = {"minutes": 0.05, "threads": 1, "show": False}


@pytest.fixture(scope="module")
def graph() -> biqe.Graph:
    draw = random.Random(0)
    likes = [(f"a{n}", "likes", f"b{(n + step) % 20}") for n in range(160) for step in range(3) if draw.random() < 0.8]
    kinds = [(f"a{n}", "is", "A") for n in range(160)] + [(f"b{n}", "is", "B") for n in range(20)]
    return biqe.Graph.from_triples(likes + kinds)


@pytest.mark.slow
def test_a_graph_in_memory_becomes_a_run_that_opens_again(
    graph: biqe.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    kb = train(graph, **LENGTH)
    assert capsys.readouterr() == ("", "") and torch.get_num_threads() == threads
    assert kb.name == str(Path("runs/graph")) and kb.graph.fingerprint == graph.fingerprint
    answers = kb.ask(QUERY, top=5)
    assert answers.predicted and "likes" in answers.predicted[0].why
    assert list(biqe.open("runs/graph").ask(QUERY, top=5)) == list(answers)
    # A run that was moved brings its graph along.
    Path("runs/graph").rename("elsewhere")
    assert list(biqe.open("elsewhere").ask(QUERY, top=5)) == list(answers)
    with pytest.raises(RunFailed, match="not empty"):
        train(graph, out="elsewhere", **LENGTH)


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_learnt(graph: biqe.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    pressed: list[float] = []

    class Impatient(room.Silent):
        def stepped(self, fraction: float, facts: dict[str, Any]) -> None:
            if not pressed:
                pressed.append(fraction)
                os.kill(os.getpid(), signal.SIGINT)

        def say(self, text: str) -> None:
            said.append(text)

    monkeypatch.setattr("biqe.knowledge_base.training.progress", lambda wanted: Impatient())
    kb = train(graph, out=tmp_path / "run", minutes=20, threads=1)
    assert any("interrupted" in line for line in said)
    answers = kb.ask(QUERY, top=3)
    assert answers.predicted and answers.predicted[0].missing[0].probability is not None
    assert (tmp_path / "run" / "links" / "checkpoints").is_dir(), "biqe train --resume can finish it"


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (3, {}, "takes a Graph"),
        ("no/such/graph", {}, "no/such/graph"),
        (None, {"minutes": 0}, "positive number"),
        (None, {"minutes": float("nan")}, "positive number"),
        (None, {"minutes": "2"}, "positive number"),
        (None, {"model": "nonsense"}, "nonsense"),
        (None, {"threads": -1}, "threads"),
        (None, {"seed": -1}, "seed"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    graph: biqe.Graph, given: Any, options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BiqeError, match=said):
        train(graph if given is None else given, **{**LENGTH, **options})
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


def test_folders_are_numbered_where_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = biqe.Graph.from_triples([("a", "r", "b")])
    (tmp_path / "runs" / "graph").mkdir(parents=True)
    monkeypatch.setattr("biqe.knowledge_base.training._run", lambda graph, folder, *rest: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tiny, **LENGTH)
    assert (tmp_path / "runs" / "graph-2").is_dir()
    (tmp_path / "runs2").write_text("a file")
    monkeypatch.setattr("biqe.knowledge_base.training.RUNS", Path("runs2"))
    with pytest.raises(RunFailed, match="out="):
        train(tiny, **LENGTH)


def test_a_bar_for_each_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"loss": 1.25, "queries_per_second": 10.0}
    assert type(room.progress(False)) is room.Silent
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: type("ZMQInteractiveShell", (), {})()  # type: ignore[attr-defined]
    display = types.ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda html, display_id: handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    for bar in (room.progress(True), room.TerminalBar(), room.Lines()):
        with bar:
            bar.stepped(0.5, facts)
            bar.validated(facts)
            bar.say("<done>")
    assert 'value="0.500"' in shown[0] and "loss 1.250, 10 queries/s" in shown[0]
    assert shown[-1] == "&lt;done&gt;", "the bar goes, what was said stays"
    assert "<done>" in capsys.readouterr().err
