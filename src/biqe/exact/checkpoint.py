"""Cancellation of long work.

A server runs each question under ``checked_by`` with a function that raises when the question must stop. Exact answers
and model calls run that function from time to time through ``checkpoint``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_own = threading.local()


@contextmanager
def checked_by(check: Callable[[], None] | None) -> Iterator[None]:
    """Within this block, and in this thread only, ``checkpoint`` calls ``check``. With None nothing is checked."""
    before = getattr(_own, "check", None)
    _own.check = check
    try:
        yield
    finally:
        _own.check = before


def checkpoint() -> None:
    """Run the current check, if any. Called at places where stopping leaves nothing half done."""
    check = getattr(_own, "check", None)
    if check is not None:
        check()
