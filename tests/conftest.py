"""What all tests share: quiet, small and repeatable runs, and the benchmark graphs where they are present."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Before numpy and torch are imported: tests run side by side, so each keeps to one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["COLUMNS"] = "80"
os.environ.pop("BIQE_DEBUG", None)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("BIQE_DATA") or ROOT.parent / "shared" / "data")

# Compilation by numba makes the first example of a property slow, on a busy machine any of them.
settings.register_profile(
    "biqe", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("biqe")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def benchmark_data() -> Callable[[str], Path]:
    """Function from a data set's folder name to its folder; skips the test where it is absent."""

    def folder(name: str) -> Path:
        if not (DATA / name).is_dir():
            pytest.skip(f"benchmark data {name} is absent; set BIQE_DATA to the folder that holds it")
        return DATA / name

    return folder
