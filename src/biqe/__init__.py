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
    from biqe.errors import BiqeError
    from biqe.graph.knowledge_graph import Graph, Splits
    from biqe.knowledge_base import KnowledgeBase, open
    from biqe.models import load as load_model
    from biqe.query.bound import QuerySet
    from biqe.query.question import Query
    from biqe.query.sparql import parse

__all__ = [
    "BiqeError",
    "Graph",
    "KnowledgeBase",
    "Query",
    "QuerySet",
    "Splits",
    "__version__",
    "load_model",
    "open",
    "parse",
]

_HOMES = {
    "BiqeError": "biqe.errors:BiqeError",
    "Graph": "biqe.graph.knowledge_graph:Graph",
    "KnowledgeBase": "biqe.knowledge_base:KnowledgeBase",
    "Query": "biqe.query.question:Query",
    "QuerySet": "biqe.query.bound:QuerySet",
    "Splits": "biqe.graph.knowledge_graph:Splits",
    "load_model": "biqe.models:load",
    "open": "biqe.knowledge_base:open",
    "parse": "biqe.query.sparql:parse",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'biqe' has no attribute {name!r}")
    module, attribute = _HOMES[name].split(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
