"""What the C allocator does with freed memory, and how much memory the process holds.

A training step frees and asks again for the same large blocks. glibc gives such blocks back to the system and
has them faulted in page by page the next time, which costs more than many of the computations on them. Telling
it to keep them is one call; with tcmalloc preloaded the call changes nothing.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc refuses more


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks of up to 32 MiB for reuse; whether it agreed."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_ARENA_MAX, 1)
        and mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    )


class FreedMemory:
    """Returns free pages to the system once the process has grown by ``ROOM`` bytes.

    Kept blocks of many sizes leave gaps that nothing fits into. Returning them after every step would have them faulted
    in again in the next.
    """

    ROOM = 832 << 20
    """How many bytes the process may grow beyond its size after the last release."""

    def __init__(self) -> None:
        self._ceiling = resident_bytes() + self.ROOM

    def stepped(self) -> None:
        """After a step: release if the process has grown too much."""
        if resident_bytes() > self._ceiling:
            self.release()

    def release(self) -> None:
        """Give free pages back to the system now."""
        if sys.platform.startswith("linux"):
            try:
                ctypes.CDLL(None).malloc_trim(0)
            except (OSError, AttributeError):
                return
        self._ceiling = resident_bytes() + self.ROOM


def resident_bytes() -> int:
    """Resident size of this process now; 0 if the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
