"""Why a row is an answer: in a sentence, in words and numbers, and as a picture.

reasons.py         what speaks for a missing link and against it: rules, kinds, rivals; why(): the sentence
attention.py       on request: which parts of the query each unknown looked at
counterfactual.py  on request: how the row's share changes when the query, or what the model may use, changes
compose.py         explain(): all of it together
parts.py           what an explanation is made of
explanation.py     Explanation: what a user gets
text.py            the explanation in 80 columns
graph_layout.py    where the nodes and the links of a query stand in a picture
picture.py         the explanation as a picture
"""

from biqe.explain.compose import explain
from biqe.explain.explanation import Explanation
from biqe.explain.parts import VIEWS
from biqe.explain.reasons import why

__all__ = ["VIEWS", "Explanation", "explain", "why"]
