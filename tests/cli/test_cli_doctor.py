"""``biqe doctor`` as a user meets it: a process, what it prints, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from biqe import atlas
from biqe.cli import _installation
from biqe.cli._installation import BAD, NOTE, WELL, checks


def doctor(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "biqe", "doctor", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1", **environment},
    )


def test_the_installation_is_well_and_says_so():
    done = doctor("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert found["well"] and states["python"] == states["packages"] == states["atlas"] == WELL
    assert "Traceback" not in done.stderr


def test_what_is_wrong_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(_installation, "NEEDED", ("numpy", "no-such-package"))
    monkeypatch.setattr(_installation, "LEAST_PYTHON", (9, 0))
    monkeypatch.setitem(_installation.EXTRAS, "none", (("no_such_module.part",), "nothing"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc")

    def fails():
        raise RuntimeError("broken")

    monkeypatch.setattr(_installation, "_rate", fails)
    found = {check.name: check for check in checks()}
    assert found["python"].state == BAD and "9.0" in found["python"].hint
    assert found["packages"].state == BAD and "no-such-package" in found["packages"].found
    assert found["extras"].state == NOTE and "biqe[none]" in found["extras"].hint
    assert found["fails"].state == BAD and "broken" in found["fails"].found
    assert found["memory"].state in (WELL, NOTE)


def test_a_damaged_graph_is_found(tmp_path):
    shutil.copytree(atlas.path(), tmp_path / "graph")
    assert "is intact" in doctor(tmp_path / "graph").stdout
    path = tmp_path / "graph" / "train.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = doctor(tmp_path / "graph")
    assert done.returncode == 2 and "train.npy is damaged" in " ".join(done.stderr.split())


def test_a_plan_for_people_and_for_programs():
    done = doctor("atlas", "--plan", "--width", "64", "-O", "heads=4")
    assert done.returncode == 0, done.stderr
    assert "It fits" in done.stdout and "running average" in done.stdout and "one process" in done.stdout
    one = json.loads(doctor("atlas", "--plan", "--json").stdout)
    many = json.loads(doctor("atlas", "--plan", "--json", "--ranks", "4", "--shard-entities").stdout)
    alike = json.loads(doctor("atlas", "--plan", "--json", "--ranks", "4", "-O", "shard_entities=yes").stdout)
    assert alike["shard_entities"] and alike["memory"] == many["memory"]
    assert one["traffic"] == 0 and many["traffic"] > 0
    assert many["memory"]["weights"] < one["memory"]["weights"]
    assert one["total_bytes"] == sum(one["memory"].values()) and one["epoch_hours"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plan"], "needs a graph"),
        (["no-such-folder"], "does not exist"),
        (["atlas", "--plan", "--softmax", "some"], "'softmax' must be"),
        (["atlas", "--plan", "-O", "widht=3"], "did you mean 'width'"),
        (["atlas", "--plan", "--ranks", "0"], "'ranks' must be at least 1"),
        (["atlas", "--plan", "--ranks", "2", "-O", "shard-entities=yes", "--model", "gqe"], "cannot be split"),
        (["atlas", "--plan", "--model", "cqd", "--softmax", "sampled"], "no softmax over entities"),
        (["atlas", "--plan", "--width", "64", "-O", "width=32"], "'width' is given twice"),
        (["atlas", "--plan", "-O", "minutes=1", "-O", "epochs=1"], "either 'minutes' or 'epochs'"),
        (["atlas", "--ranks", "4", "--model", "gqe"], "--model, --ranks are for --plan only"),
    ],
)
def test_refusals_are_one_paragraph(words, message):
    done = doctor(*words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in " ".join(done.stderr.split())
