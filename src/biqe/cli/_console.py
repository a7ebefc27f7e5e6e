"""Output of commands: results on standard output, progress and notes on standard error.

Markup is off: a name such as ``[draft]`` or ``:rhine:`` is printed as it is, not as a style or an emoji. Colour is used
only on a terminal, and never if NO_COLOR is set.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

LEAST_WIDTH = 40
"""Columns that a line has at least, whatever COLUMNS says: rich prints nothing at all where it is 0."""
_columns = os.environ.get("COLUMNS", "")
_width = max(int(_columns), LEAST_WIDTH) if _columns.isdecimal() else None

out = Console(width=_width, markup=False, emoji=False, highlight=False)
"""Results: standard output, wrapped at the terminal's width, or at 80 columns where there is no terminal."""
err = Console(width=_width, stderr=True, markup=False, emoji=False, highlight=False)
"""Progress and notes: standard error."""


def print_json(value: object) -> None:
    """Print ``value`` as one JSON document on standard output.

    numpy scalars and arrays, dataclasses, paths, sets and tuples are written as their plain JSON counterparts;
    NaN and the infinities, which JSON does not have, as null.
    """
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    json.dump(plain(value), sys.stdout, indent=2, ensure_ascii=encoding != "utf8", allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """``value`` with dicts, lists, strings, numbers, booleans and None only.

    >>> plain({"ranks": (1, 2), "mrr": float("nan")})
    {'ranks': [1, 2], 'mrr': None}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, and torch tensors
        return plain(value.tolist())
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    left: Sequence[int] = (0,),
    console: Console | None = None,
) -> None:
    """Print a plain table that fits the terminal (80 columns where there is none).

    Columns in ``left`` are aligned left and wrapped when space is short; all others are numbers, aligned right.
    Floats are shown with three digits, integers with thousands separators. An empty line follows.
    """
    view = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for number, header in enumerate(headers):
        if number in left:
            view.add_column(header, justify="left", overflow="fold")
        else:
            view.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        view.add_row(*map(_cell, row))
    console = console or out
    console.print(view)
    console.print()


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, Integral):  # numpy's integers too
        return f"{int(value):,}"
    if isinstance(value, Real):
        return f"{float(value):.3f}" if math.isfinite(value) else "-"
    return str(value)


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Advance(Protocol):
    """Called with the units done since the last call, and optionally a short note such as the current loss."""

    def __call__(self, done: float = 1, *, note: str = "") -> None: ...


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Advance]:
    """Show progress on standard error while the block runs; ``total`` is None if it is not known.

    On a terminal this is a bar; elsewhere a line every 15 seconds, so that logs stay short, and one at the end.
    """
    with _bar(description, total) if err.is_terminal else _lines(description, total) as advance:
        yield advance


def so_far(advance: Advance) -> Callable[[int, int], None]:
    """What is called with the numbers of units that are done and that there are, and moves a progress display on."""
    before = 0

    def show(done: int, total: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return show


@contextmanager
def _bar(description: str, total: float | None) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=err, transient=False) as display:
        task = display.add_task(description, total=total, note="")

        def advance(done: float = 1, *, note: str = "") -> None:
            display.advance(task, done)
            if note:
                display.update(task, note=note)

        yield advance


LINE_EVERY = 15.0
"""Seconds between two plain progress lines."""


@contextmanager
def _lines(description: str, total: float | None) -> Iterator[Advance]:
    start = last = time.monotonic()
    count: float = 0
    remark = ""

    def line() -> str:
        of = f" of {total:,.10g}" if total is not None else ""
        return f"{description}: {count:,.10g}{of}, {time.monotonic() - start:.1f} s{', ' + remark if remark else ''}"

    def advance(done: float = 1, *, note: str = "") -> None:
        nonlocal count, last, remark
        count += done
        remark = note or remark
        if time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            print(line(), file=sys.stderr, flush=True)

    yield advance
    print(line(), file=sys.stderr, flush=True)
