"""The likeliest links that a whole graph misses: overall, by relation, by entity.

likeliest.py    finds the missing links with the largest calibrated probability
suggester.py    Suggester: what a user asks, and what a user gets
export.py       suggestions as TSV, Turtle, RDF 1.2 and JSON
rejections.py   links that somebody has rejected
"""

from biqe.suggest.suggester import Suggester, Suggestion, Suggestions

__all__ = ["Suggester", "Suggestion", "Suggestions"]
