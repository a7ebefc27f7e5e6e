"""How the kernels of this room are compiled: once, kept on disk, without the interpreter's lock."""

from __future__ import annotations

from biqe.graph.compiled import compiled

kernel = compiled(nogil=True, error_model="numpy", _nrt=False)
"""For functions that allocate nothing. Without reference counts on the arrays that they are handed they run twice
as fast; whoever calls them holds the arrays."""

allocating_kernel = compiled(nogil=True, error_model="numpy")
"""For functions that make arrays."""
