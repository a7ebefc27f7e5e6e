"""Kernels are compiled, and kept on disk where that is possible."""

from __future__ import annotations

import pytest
from numba.core.caching import _CacheLocator

from biqe.exact.plan import compiled


def twice(number: int) -> int:
    return 2 * number


def test_a_kernel_is_kept_on_disk() -> None:
    kernel = compiled(nogil=True)(twice)
    assert (kernel(21), kernel.targetoptions["nogil"]) == (42, True)
    assert kernel.stats.cache_path


def test_where_nothing_can_be_written_a_kernel_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    for locator in _CacheLocator.__subclasses__():
        monkeypatch.setattr(locator, "ensure_cache_path", refuse)
    kernel = compiled(nogil=True)(twice)
    assert kernel(21) == 42
    assert not kernel.stats.cache_path
