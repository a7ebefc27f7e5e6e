"""The machine that a figure was made on: processor, threads, allocator, memory. No time means anything without it.

``write_result`` is how the scripts in ``benchmarks/`` end.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """What decides speed and memory in this process, as it is now."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "allocator": allocator(),
        "peak_resident_mib": peak_resident_bytes() >> 20,
    }


def processor() -> str:
    """Name of the processor, or its kind where the system tells no more."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def allocator() -> str:
    """Name of the allocator in this process: tcmalloc, jemalloc, mimalloc, or the system's."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return "system"
    return next((name for name in ("tcmalloc", "jemalloc", "mimalloc") if name in maps), "system")


def peak_resident_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a figure."""
    return {"python": platform.python_version(), **{name: _version(name) for name in ("biqe", "torch", "numpy")}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that was never installed
        return "unknown"


def write_result(result: Mapping[str, Any], out: Path | None) -> None:
    """Print a benchmark's figures as one JSON object; with ``out``, write them to that file as well."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=4) + "\n", encoding="utf-8")
    print(json.dumps(result))
