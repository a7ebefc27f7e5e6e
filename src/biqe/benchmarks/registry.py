"""Benchmarks by name: what there is, whether its files are at hand, and how to open it.

    >>> from biqe import benchmarks
    >>> "fb15k237-q2b" in benchmarks.names()
    True
    >>> opened = benchmarks.open("fb15k237-q2b")           # doctest: +SKIP
    >>> opened.queries("valid").of_shape("2i")             # doctest: +SKIP

A new benchmark is one more entry in ``_entries``.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from biqe.benchmarks._entries import ENTRIES, Entry
from biqe.benchmarks.opened import Facts, OpenBenchmark
from biqe.benchmarks.places import data_folder
from biqe.errors import InvalidOption, UnknownName
from biqe.graph.knowledge_graph import Splits


def names() -> list[str]:
    """Names of all benchmarks, in the order of the paper's tables."""
    return list(ENTRIES)


def describe(name: str, *, data: str | Path | None = None) -> Facts:
    """What the benchmark ``name`` is, and whether its files are in the data folder."""
    entry = _entry(name)
    return Facts(
        name=name,
        protocol=entry.protocol,
        summary=entry.summary,
        source=entry.source,
        graph=entry.graph,
        sizes=dict(entry.sizes),
        licence=entry.licence,
        files=entry.files,
        how=entry.how,
        at_hand=not entry.missing(data_folder(data)),
    )


def missing(name: str, *, data: str | Path | None = None) -> list[Path]:
    """The files that the benchmark ``name`` cannot be opened without and that the data folder lacks, by their places in
    it."""
    return _entry(name).missing(data_folder(data))


def open(  # noqa: A001 - read as benchmarks.open
    name: str, *, data: str | Path | None = None, splits: Splits | None = None, seed: int = 0
) -> OpenBenchmark:
    """The benchmark ``name`` from the data folder.

    With ``splits`` the questions are bound to that graph instead of one imported for the purpose: it must hold the
    same names, and for mined and typed sets be the same graph. ``seed`` is that of what is mined or sampled here.
    """
    if seed < 0:
        raise InvalidOption(f"seed must be 0 or more. Got {seed}")
    return _entry(name).open(name, data_folder(data), splits, seed)


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        close = get_close_matches(name, ENTRIES, n=1)
        raise UnknownName(
            f"there is no benchmark {name!r}; there are {', '.join(ENTRIES)}",
            hint=f"did you mean {close[0]!r}?" if close else None,
        )
    return ENTRIES[name]
