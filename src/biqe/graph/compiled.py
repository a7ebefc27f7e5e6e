"""A decorator for compiled kernels, which are cached on disk where possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` with these options and a cache.

    numba caches compiled code beside the source, in the user's cache folder, or in NUMBA_CACHE_DIR, and raises where it
    can write to none of them, as in a read-only container. There, each process compiles anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate
