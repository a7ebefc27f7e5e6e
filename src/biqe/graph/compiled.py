"""How kernels are compiled: once, and kept on disk where there is a place for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` with these options and a cache.

    numba keeps what it compiled beside the source, in the user's cache folder, or in NUMBA_CACHE_DIR, and refuses to
    work where it may write to none of them, as in a read-only container. Here every start compiles anew then.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate
