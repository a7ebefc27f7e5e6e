"""The wheel holds all it needs: built, installed into a clean environment, it answers from an empty folder.

The environment is a new venv with the wheel installed by pip. Its third-party dependencies are those of the
environment that runs the tests, added as one search path: a second copy of torch would prove nothing more and take
minutes. The checkout is not on that path, and the test makes sure of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BIQE", "VIRTUAL_ENV"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, root, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The ``bin`` folder of a clean environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=folder,
    )
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A path in a .pth file is searched for packages; .pth files inside it, such as the checkout's, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_the_wheel_holds_the_package_and_nothing_else(wheel, root):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert all(re.fullmatch(r"biqe|biqe-[\w.]+\.dist-info", top) for top in tops)
    sources = {str(path.relative_to(root / "src")) for path in (root / "src" / "biqe").rglob("*.py")}
    assert sources <= set(names)
    page = {str(path.relative_to(root / "src")) for path in (root / "src/biqe/serve/page").rglob("*.*")}
    assert "biqe/serve/page/index.html" in page and page <= set(names)
    assert "biqe/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    assert wheel.stat().st_size < 16 * 2**20


def test_every_dependency_is_declared(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = {
        line.split()[1].split(">")[0].split(";")[0]
        for line in archive.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    }
    assert required == {
        "numba",
        "numpy",
        "pyarrow",
        "pyoxigraph",
        "rich",
        "safetensors",
        "torch",
        "typer",
    }


def test_it_answers_the_atlas_from_an_empty_folder(installed, root, tmp_path):
    where = run(installed / "python", "-c", "import biqe; print(biqe.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)
    assert not Path(where).is_relative_to(root)

    query = "SELECT ?city WHERE { ?city :located_on :Rhine }"
    answer = json.loads(run(installed / "biqe", "ask", "atlas", query, "--json", cwd=tmp_path))
    assert "Cologne" in json.dumps(answer)
    assert list(tmp_path.iterdir()) == []


def test_python_users_get_the_same_package(installed, tmp_path):
    code = (
        "import biqe\n"
        "rows = list(biqe.open('atlas').ask('SELECT ?river WHERE { ?river :flows_through :Germany, :France }'))\n"
        "assert rows\n"
    )
    run(installed / "python", "-c", code, cwd=tmp_path)
