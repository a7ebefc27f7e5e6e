"""Our own JSON: everything there is, under the graph's own names."""

from __future__ import annotations

from biqe.answer.result import Result, View


def write(result: Result, view: View) -> str:
    """One document."""
    return result.with_known(view.known_rows).to_json() + "\n"
