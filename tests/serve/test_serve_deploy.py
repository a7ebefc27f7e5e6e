"""The files in deploy/: what they start exists, and runs as nobody in particular."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from biqe.cli import main


@pytest.fixture
def options(capsys) -> set[str]:
    assert main(["serve", "--help"]) == 0
    return set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_the_unit_starts_what_there_is(root, options):
    unit = (root / "deploy" / "biqe.service").read_text("utf-8")
    [command] = re.findall(r"^ExecStart=\S+/biqe serve (.*)$", unit, re.MULTILINE)
    assert set(re.findall(r"--[a-z-]+", command)) <= options
    for needed in ("DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n"):
        assert needed in unit
    # No section has a line that systemd would not read as a setting.
    for line in unit.splitlines():
        assert not line or re.match(r"(#|\[\w+\]$|[A-Z]\w+=)", line), line


def test_systemd_finds_nothing_wrong(root, tmp_path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (root / "deploy" / "biqe.service").read_text("utf-8").replace("/opt/biqe/bin/biqe", "/bin/true")
    (tmp_path / "biqe.service").write_text(unit)
    done = subprocess.run([verify, "verify", tmp_path / "biqe.service"], capture_output=True, text=True)
    assert "biqe.service" not in done.stderr, done.stderr


def test_the_image_runs_as_a_user_without_rights(root, options):
    lines = (root / "deploy" / "Dockerfile").read_text("utf-8").splitlines()
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM")) :]
    users = [line.split()[1] for line in last_stage if line.startswith("USER")]
    assert users == ["biqe"]
    started = [json.loads(line.split(maxsplit=1)[1]) for line in last_stage if line.startswith(("ENTRYPOINT", "CMD"))]
    assert started[0] == ["biqe", "serve"]
    assert {word for word in started[1] if word.startswith("--")} <= options
    assert "--token-file" in started[1]
    copied = [word for line in lines if line.startswith("COPY p") for word in line.split()[1:-1]]
    assert copied and all((root / name).exists() for name in copied)
