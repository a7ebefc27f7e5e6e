"""``biqe doctor`` as a user meets it: what it prints, and its exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from biqe import atlas
from biqe.cli import doctor as module
from biqe.cli import main
from biqe.cli.doctor import BAD, NOTE, WELL, checks


@pytest.fixture
def doctor(capsys):
    """Function from words to exit code, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["doctor", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_the_installation_is_well_and_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "biqe", "doctor", "--json"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert found["well"] and states["python"] == states["packages"] == states["atlas"] == WELL
    assert "Traceback" not in done.stderr


def test_what_is_wrong_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(module, "NEEDED", ("numpy", "no-such-package"))
    monkeypatch.setattr(module, "LEAST_PYTHON", (9, 0))
    monkeypatch.setitem(module.EXTRAS, "none", (("no_such_module.part",), "nothing"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc")

    def fails():
        raise RuntimeError("broken")

    monkeypatch.setattr(module, "_rate", fails)
    found = {check.name: check for check in checks()}
    assert found["python"].state == BAD and "9.0" in found["python"].hint
    assert found["packages"].state == BAD and "no-such-package" in found["packages"].found
    assert found["extras"].state == NOTE and "biqe[none]" in found["extras"].hint
    assert found["fails"].state == BAD and "broken" in found["fails"].found
    assert found["memory"].state in (WELL, NOTE)


def test_a_damaged_graph_is_found(tmp_path, doctor):
    shutil.copytree(atlas.path(), tmp_path / "graph")
    assert "is intact" in doctor(tmp_path / "graph")[1]
    path = tmp_path / "graph" / "train.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    code, _, errors = doctor(tmp_path / "graph")
    assert code == 2 and "train.npy is damaged" in " ".join(errors.split())


def test_a_plan_for_people_and_for_programs(doctor):
    code, text, _ = doctor("atlas", "--plan", "--width", "64", "-O", "heads=4")
    assert code == 0
    assert "It fits" in text and "running average" in text and "one process" in text
    one = json.loads(doctor("atlas", "--plan", "--json")[1])
    many = json.loads(doctor("atlas", "--plan", "--json", "--ranks", "4", "--shard-entities")[1])
    alike = json.loads(doctor("atlas", "--plan", "--json", "--ranks", "4", "-O", "shard_entities=yes")[1])
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
        (["atlas", "--plan", "--model", "gqe", "--softmax", "sampled"], "no softmax over entities"),
        (["atlas", "--plan", "--width", "64", "-O", "width=32"], "'width' is given twice"),
        (["atlas", "--plan", "-O", "minutes=1", "-O", "epochs=1"], "either 'minutes' or 'epochs'"),
        (["atlas", "--ranks", "4", "--model", "gqe"], "--model, --ranks are for --plan only"),
    ],
)
def test_refusals_are_one_paragraph(words, message, doctor):
    code, _, errors = doctor(*words)
    assert code == 2 and "\n\n" not in errors
    assert message in " ".join(errors.split())
