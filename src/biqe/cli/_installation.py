"""The checks of ``biqe doctor``: each says what it found, whether that is all right, and what to do if not."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

WELL, NOTE, BAD = "ok", "note", "bad"
LEAST_PYTHON = (3, 11)
NEEDED = ("torch", "numpy", "numba", "pyarrow", "pyoxigraph", "safetensors", "rich", "typer")
EXTRAS = {
    "serve": (("fastapi", "uvicorn", "orjson", "structlog", "prometheus_client"), "biqe serve"),
    "telemetry": (("opentelemetry.sdk",), "traces of a server's requests"),
}
"""Packages of each extra, and what it is for."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: str
    """ok, note (it works, but could be better) or bad."""
    found: str
    hint: str = ""


def checks() -> Iterator[Check]:
    """Run all checks. One that raises an error is reported as bad."""
    looks: tuple[Callable[[], Check], ...] = (
        _python,
        _packages,
        _extras,
        _cores,
        _rate,
        _memory,
        _allocator,
        _kernels,
        _data,
        _atlas,
        _disk,
    )
    for look in looks:
        try:
            yield look()
        except Exception as error:
            yield Check(look.__name__.strip("_"), BAD, f"{type(error).__name__}: {error}")


def _python() -> Check:
    state = WELL if sys.version_info[:2] >= LEAST_PYTHON else BAD
    hint = "" if state == WELL else f"biqe needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer"
    return Check("python", state, f"{platform.python_version()} on {platform.system()} {platform.machine()}", hint)


def _packages() -> Check:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", BAD, f"missing: {', '.join(missing)}", "pip install biqe")
    return Check("packages", WELL, ", ".join(found))


def _extras() -> Check:
    there, absent = [], []
    for extra, (packages, purpose) in EXTRAS.items():
        if all(_is_there(package) for package in packages):
            there.append(extra)
        else:
            absent.append(f"'biqe[{extra}]' for {purpose}")
    hint = f"pip install {', '.join(absent)}" if absent else ""
    return Check("extras", NOTE if absent else WELL, ", ".join(there) or "none", hint)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a part of a package that is not there at all
        return False


def _cores() -> Check:
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    found = f"{allowed} cores, {threads} threads for matrix products"
    if threads < allowed:
        return Check("threads", NOTE, found, "training sets --threads itself; asking uses OMP_NUM_THREADS")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > allowed + 0.5:
        hint = "other programs use the cores; everything will take longer than it could"
        return Check("threads", NOTE, f"{found}, load {load:.1f}", hint)
    return Check("threads", WELL, found)


def _rate() -> Check:
    from biqe.train.plan import measured_rate

    return Check("speed", WELL, f"{measured_rate() / 1e9:,.0f} GFLOP/s in matrix products, just now")


def _memory() -> Check:
    free = available_bytes()
    if free is None:
        return Check("memory", NOTE, "the system does not say how much is free")
    hint = "" if free > 4 << 30 else "small graphs fit; see what yours needs with: biqe doctor GRAPH --plan"
    return Check("memory", WELL if free > 4 << 30 else NOTE, f"{free / 2**30:.1f} GiB available", hint)


def available_bytes() -> int | None:
    """Memory available to a new program; None if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(facts["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in facts else None


def _allocator() -> Check:
    from biqe.evaluate.machine import allocator

    found = allocator()
    if found != "system":
        return Check("allocator", WELL, found)
    hint = "training asks it to keep freed memory; tcmalloc by LD_PRELOAD is a little faster still"
    return Check("allocator", WELL, "the system's", hint)


def _kernels() -> Check:
    """numba keeps compiled kernels beside the package, or in NUMBA_CACHE_DIR."""
    import biqe

    place = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(biqe.__file__).parent)
    if os.access(place, os.W_OK):
        return Check("kernels", WELL, "compiled once and kept")
    hint = "set NUMBA_CACHE_DIR to a folder that you may write to, or every start compiles them again"
    return Check("kernels", NOTE, "cannot be kept where the package is installed", hint)


def _data() -> Check:
    from biqe.benchmarks.storage import data_folder

    place = data_folder()
    if place.is_dir():
        folders = sorted(path.name for path in place.iterdir() if path.is_dir())
        return Check("benchmark data", WELL, f"{', '.join(folders) or 'nothing'} in the data folder")
    hint = "only benchmarks need it: name the folder in BIQE_DATA; see what there is with: biqe benchmarks"
    return Check("benchmark data", NOTE, "no data folder", hint)


def _atlas() -> Check:
    from biqe import atlas
    from biqe.graph import folder

    folder.verify(atlas.path())
    splits = atlas.load()
    entities, triples = len(splits.vocabulary.entities), len(splits.train) + len(splits.valid) + len(splits.test)
    there = (atlas.model_path() / "weights.safetensors").is_file()
    hint = "" if there else "the package was installed without its model; install it again"
    return Check("atlas", WELL if there else BAD, f"{entities:,} entities, {triples:,} triples, all files intact", hint)


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    hint = "" if free > 2 << 30 else "runs keep two checkpoints; free some space"
    return Check("disk", WELL if free > 2 << 30 else NOTE, f"{free / 2**30:,.0f} GiB free here", hint)
