"""The toy of tests/predict, with a short way from a query to its answers."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

from biqe.answer.answers import Answers
from biqe.answer.execute import combine
from biqe.graph.knowledge_graph import Graph
from biqe.predict.config import AskConfig
from biqe.predict.predictor import Predictor
from biqe.query.bound import BoundQuery

_place = spec_from_file_location("toy_of_predict", Path(__file__).parents[1] / "predict" / "conftest.py")
_shared = module_from_spec(_place)
_place.loader.exec_module(_shared)
rivers, run, FactorModel = _shared.rivers, _shared.run, _shared.FactorModel


def ask(graph: Graph, query: BoundQuery, model: FactorModel | None, **options) -> Answers:
    """Answers without text, folders or torch models."""
    config = AskConfig(**options)
    predictor = Predictor(model) if model is not None else None
    rows = combine(graph, query, predictor, config)
    return Answers("SELECT …", query, graph, rows, config, predictor.name if predictor else None, "toy", 0.25)


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """The doubles of tests/predict, and ``ask``."""
    shared = ("FactorModel", "random_model", "graph_of", "best_evidence")
    return SimpleNamespace(ask=ask, **{name: getattr(_shared, name) for name in shared})
