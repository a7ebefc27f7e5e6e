"""What completes a word."""

from __future__ import annotations

import numpy as np

from biqe.serve import page_metadata


def offered(kb, text: str, kind: str = "entity", **beside: str) -> list[str]:
    found = page_metadata.completions(text, kind, 10, {"": ""}, kb.graph, **beside)
    return [completion.insert for completion in found]


def test_entities_that_fit_the_relation_beside_them_come_first(atlas_kb):
    graph, names = atlas_kb.graph, atlas_kb.graph.vocabulary
    triples = graph.triples[graph.triples[:, 1] == names.relations.find("located_on")]
    for side, beside in ((2, "after"), (0, "before")):
        often = np.argsort(-np.bincount(triples[:, side], minlength=graph.entity_count), kind="stable")[:10].tolist()
        labels = page_metadata.completions("", "entity", 10, {"": ""}, graph, **{beside: ":located_on"})
        assert [completion.label for completion in labels] == [names.label(entity) for entity in often]
    rivers = {names.entities[entity] for entity in triples[:, 2].tolist()}
    assert offered(atlas_kb, "Dan", after=":located_on")[0].removeprefix(":") in rivers
    assert set(offered(atlas_kb, "Dan")) == set(offered(atlas_kb, "Dan", after="?p"))
    assert offered(atlas_kb, "") == []


def test_relations_that_are_usual_for_the_subject_come_first(atlas_kb):
    graph, names = atlas_kb.graph, atlas_kb.graph.vocabulary
    rhine = names.entities.find("Rhine")
    own = {f":{names.relations[r]}" for r in graph.triples[graph.triples[:, 0] == rhine, 1].tolist()}
    first = offered(atlas_kb, "", "relation", after=":Rhine")
    assert own == set(first[: len(own)])
    for word in ("?x", "", ":no_such", '"text"', "<"):
        assert offered(atlas_kb, "flows", "relation", after=word) == offered(atlas_kb, "flows", "relation")
