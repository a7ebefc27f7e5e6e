"""Where long work can be told to stop.

Whoever answers for many callers runs each question with a check of its own; exact answers and model calls look at it
now and then. Without one, nothing is checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_own = threading.local()


@contextmanager
def checked_by(check: Callable[[], None] | None) -> Iterator[None]:
    """In this thread, and within this block, ``checkpoint`` calls ``check``, which raises where work is to stop; with
    None, work goes to its end."""
    before = getattr(_own, "check", None)
    _own.check = check
    try:
        yield
    finally:
        _own.check = before


def checkpoint() -> None:
    """Called where work may stop: nothing is half done here."""
    check = getattr(_own, "check", None)
    if check is not None:
        check()
