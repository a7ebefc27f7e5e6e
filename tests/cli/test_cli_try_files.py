"""``biqe try``: a stranger's file to found facts, and the page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from tests.films import write_csv

from biqe.cli import main


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A folder in which the films were tried, and what was printed."""
    here = tmp_path_factory.mktemp("tried")
    write_csv(here / "films.csv")
    with open(here / "films.csv", "ab") as file:
        file.write("Réné,directed_by\nRéné,born_in,C1\n".encode("latin-1"))
    done = subprocess.run(
        [sys.executable, "-m", "biqe", "try", "films.csv", "--minutes", "0.1", "--no-page"],
        cwd=here,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return here, done.stdout


def test_it_tells_what_it_understood_and_found(tried):
    here, said = tried
    assert "header line of films.csv: Subject, Property, Value" in said
    assert "1  lines that cannot be read, left out" in said and "2  lines in another encoding than UTF-8" in said
    assert ":directed_by" in said and "<- a hidden fact" in said
    assert "biqe suggest runs/films --review" in said
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(r"^0\.\d\d\d  \S", said.partition("Facts that your files may be missing")[2], re.MULTILINE)


def test_the_same_files_are_not_trained_on_again(tried, monkeypatch, capsys):
    here, _ = tried
    monkeypatch.chdir(here)
    assert main(["try", "films.csv", "--no-page"]) == 0
    assert "was trained on these facts before" in capsys.readouterr().out
    assert sorted(os.listdir("kg")) == ["films"]


def test_the_page_is_served_until_ctrl_c(tried):
    here, _ = tried
    environment = {**os.environ, "XDG_STATE_HOME": str(here / "state"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "biqe", "try", "films.csv"]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = next(found[1] for line in process.stdout if (found := re.match(r"  page\s+(\S+)", line)))
            with urllib.request.urlopen(address) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode in (0, 130)


def test_a_port_that_cannot_be_is_refused_before_anything_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("a,r,b\n")
    assert main(["try", "a.csv", "--port", "99999"]) == 2
    assert "--port" in capsys.readouterr().err and os.listdir() == ["a.csv"]


def test_a_file_of_broken_lines_is_refused_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_text("a\tb\tc\n" + "x\n" * 20)
    assert main(["try", "bad.tsv", "--no-page"]) == 2
    assert "lines cannot be read" in capsys.readouterr().err
    assert not list((tmp_path / "kg").iterdir())


def test_outputs_have_names_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my towns.tsv").write_text(
        "".join(f"a{n}\tnear\ta{(n + step) % 9}\n" for n in range(9) for step in (1, 2))
    )
    assert main(["import", "my towns.tsv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "kg/my-towns"
    assert main(["mine", "kg/my-towns", "--paths", "5", "--dags", "5"]) == 0
    assert (tmp_path / "sets" / "my-towns").is_dir()
    tiny = [*"--model cqd --epochs 1 -O rank=4 --threads 1".split()]
    for name in ("my-towns", "my-towns-2"):
        assert main(["train", "kg/my-towns", *tiny]) == 0
        assert (tmp_path / "runs" / name / "run.json").is_file()
