"""Why a row is an answer: three views of it, in words, in numbers and as a picture.

attention.py       which parts of the query each unknown looked at
counterfactual.py  how the row's probability changes when the query, or what the model may use, changes
compose.py         explain(): the views together
parts.py           what an explanation is made of
explanation.py     Explanation: what a user gets
text.py            the explanation in 80 columns
graph_layout.py    where the nodes and the links of a query stand in a picture
picture.py         the explanation as a picture
words.py           names as they may be shown
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biqe.explain.compose import explain
    from biqe.explain.explanation import Explanation
    from biqe.explain.parts import VIEWS

__all__ = ["VIEWS", "Explanation", "explain"]


def __getattr__(name: str) -> Any:
    # Answering needs words.py alone, and pictures take long to load.
    if name not in __all__:
        raise AttributeError(f"module 'biqe.explain' has no attribute {name!r}")
    from biqe.explain import compose, explanation, parts

    found = {"VIEWS": parts.VIEWS, "Explanation": explanation.Explanation, "explain": compose.explain}
    globals().update(found)
    return found[name]
