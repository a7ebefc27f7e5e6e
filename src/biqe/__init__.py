"""Ask a knowledge graph a SPARQL query; get the answers it holds and the answers it is missing.

    >>> import biqe
    >>> kb = biqe.open("atlas")
    >>> answers = kb.ask("SELECT ?city WHERE { ?city :located_on :Rhine }")

Names are imported on first use, so that ``import biqe`` is instant and torch is loaded only by what needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from biqe.answer.answers import Answers, Link, Row
    from biqe.answer.terms import TermTable
    from biqe.errors import BiqeError
    from biqe.explain.explanation import Explanation
    from biqe.graph.knowledge_graph import Graph, Splits
    from biqe.knowledge_base import KnowledgeBase, open
    from biqe.knowledge_base.listing import Finds, Schema
    from biqe.knowledge_base.training import train
    from biqe.models import load as load_model
    from biqe.query.bound import QuerySet
    from biqe.query.question import Query
    from biqe.query.sparql import parse
    from biqe.suggest.suggester import Suggestion, Suggestions

__all__ = [
    "Answers",
    "BiqeError",
    "Explanation",
    "Finds",
    "Graph",
    "KnowledgeBase",
    "Link",
    "Query",
    "QuerySet",
    "Row",
    "Schema",
    "Splits",
    "Suggestion",
    "Suggestions",
    "TermTable",
    "__version__",
    "load_model",
    "open",
    "parse",
    "train",
]

_HOMES = {
    "Answers": "biqe.answer.answers:Answers",
    "BiqeError": "biqe.errors:BiqeError",
    "Explanation": "biqe.explain.explanation:Explanation",
    "Finds": "biqe.knowledge_base.listing:Finds",
    "Graph": "biqe.graph.knowledge_graph:Graph",
    "KnowledgeBase": "biqe.knowledge_base:KnowledgeBase",
    "Link": "biqe.answer.answers:Link",
    "Query": "biqe.query.question:Query",
    "QuerySet": "biqe.query.bound:QuerySet",
    "Row": "biqe.answer.answers:Row",
    "Schema": "biqe.knowledge_base.listing:Schema",
    "Splits": "biqe.graph.knowledge_graph:Splits",
    "Suggestion": "biqe.suggest.suggester:Suggestion",
    "Suggestions": "biqe.suggest.suggester:Suggestions",
    "TermTable": "biqe.answer.terms:TermTable",
    "load_model": "biqe.models:load",
    "open": "biqe.knowledge_base:open",
    "parse": "biqe.query.sparql:parse",
    "train": "biqe.knowledge_base.training:train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'biqe' has no attribute {name!r}")
    module, attribute = _HOMES[name].split(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
