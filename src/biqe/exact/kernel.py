"""Decorators for the compiled kernels of this room: cached on disk, run without the interpreter's lock."""

from __future__ import annotations

from biqe.graph.compiled import compiled

kernel = compiled(nogil=True, error_model="numpy", _nrt=False)
"""For functions that allocate nothing. They do not count references to their array arguments, which makes them twice
as fast; the caller must keep the arrays alive."""

allocating_kernel = compiled(nogil=True, error_model="numpy")
"""For functions that make arrays."""
