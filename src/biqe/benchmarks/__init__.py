"""Other people's questions, and questions made like theirs: benchmarks by name, readers of released query sets.

``names``, ``describe``, ``missing`` and ``open`` are the way to a benchmark. ``read_release`` reads the CQ and Paths
sets of the paper's authors. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biqe.benchmarks.cq_release import FILTER_GRAPHS, Release, read_release, release_kind
    from biqe.benchmarks.registry import Facts, OpenBenchmark, describe, missing, names, open
    from biqe.benchmarks.shaped import ShapedQueries

__all__ = [
    "FILTER_GRAPHS",
    "Facts",
    "OpenBenchmark",
    "Release",
    "ShapedQueries",
    "describe",
    "missing",
    "names",
    "open",
    "read_release",
    "release_kind",
]

_HOMES = {
    **dict.fromkeys(("FILTER_GRAPHS", "Release", "read_release", "release_kind"), "biqe.benchmarks.cq_release"),
    **dict.fromkeys(("Facts", "OpenBenchmark", "describe", "missing", "names", "open"), "biqe.benchmarks.registry"),
    "ShapedQueries": "biqe.benchmarks.shaped",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'biqe.benchmarks' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
