"""How the kernels of this room are compiled: once, kept on disk, without the interpreter's lock."""

from __future__ import annotations

from numba import njit

kernel = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]
"""For functions that allocate nothing. Without reference counts on the arrays that they are handed they run twice
as fast; whoever calls them holds the arrays."""

allocating_kernel = njit(cache=True, nogil=True, error_model="numpy")
"""For functions that make arrays."""
