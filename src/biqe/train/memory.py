"""What the C allocator does with freed memory, and how much the process uses.

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


def release_fragments() -> None:
    """Give free pages back. Kept blocks of many sizes leave ever more gaps that fit nothing, so a long run does
    this now and then; the next step faults a few pages in again."""
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):
            return


def allocator() -> str:
    """Name of the allocator in this process: tcmalloc, jemalloc, mimalloc, or the system's."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return "system"
    return next((name for name in ("tcmalloc", "jemalloc", "mimalloc") if name in maps), "system")


def resident_bytes() -> int:
    """Resident size of this process now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def peak_resident_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
