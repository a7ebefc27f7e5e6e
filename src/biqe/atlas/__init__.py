"""The embedded graph: real rivers, cities and countries, with a small trained model.

    >>> from biqe import atlas
    >>> splits = atlas.load()
    >>> splits.vocabulary.entity_id("Rhine") >= 0
    True

What it holds, where it comes from and how it was checked is told in docs/atlas.md and in PROVENANCE.md beside this
file; ``tools/build_atlas.py`` builds it. Some facts are held out of train, so that there is something to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits

__all__ = ["QUESTIONS", "load", "model_path", "path"]

_HERE = Path(__file__).parent

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "rivers-germany-france": (
            "SELECT ?river ?city WHERE { ?river :flows_through :Germany, :France . ?city :located_on ?river }"
        ),
        "cities-on-the-rhine": "SELECT ?city WHERE { ?city :located_on :Rhine }",
        "rivers-of-austria": "SELECT ?river WHERE { ?river :flows_through :Austria }",
        "tributaries-of-the-danube": (
            "SELECT ?river ?country WHERE { ?river :flows_into :Danube . ?river :flows_through ?country }"
        ),
        "neighbours-sharing-a-river": (
            "SELECT ?river ?country WHERE { ?river :flows_through :Brazil . ?river :flows_through ?country . "
            "?country :borders :Brazil }"
        ),
        "river-of-bonn": "SELECT ?river WHERE { :Bonn :located_on ?river }",
        "cities-upstream-of-the-black-sea": (
            "SELECT ?river ?city WHERE { ?river :flows_into :Black_Sea . ?city :located_on ?river }"
        ),
        "capitals-on-rivers-of-africa": (
            "SELECT ?city ?river WHERE { ?country :on_continent :Africa . ?city :capital_of ?country . "
            "?city :located_on ?river }"
        ),
    }
)
"""Questions that docs and demo ask, by name. The first is the paper's own."""


def path() -> Path:
    """The graph folder."""
    return _HERE / "graph"


def load() -> Splits:
    """The graph: train, and the facts held out as valid and test; memory-mapped."""
    return folder.load(path())


def model_path() -> Path:
    """The folder of the model that ships with the graph."""
    return _HERE / "model"
