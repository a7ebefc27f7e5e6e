"""Why a row is an answer: three views of it, in words, in numbers and as a picture.

asking.py          what a model says about one row of a query
witness.py         stored triples and missing links that together make the row
attention.py       which parts of the query each unknown looked at
counterfactual.py  how the row's probability changes when the query, or what the model may use, changes
compose.py         explain(): the views together
parts.py           what an explanation is made of
explanation.py     Explanation: what a user gets
text.py            the explanation in 80 columns
layout.py          where the nodes and the links of a query stand in a picture
drawing.py         boxes, lines and words, as SVG or PNG
picture.py         the explanation as a picture
words.py           names as they may be shown
"""

from biqe.explain.compose import explain
from biqe.explain.explanation import Explanation
from biqe.explain.parts import VIEWS

__all__ = ["VIEWS", "Explanation", "explain"]
