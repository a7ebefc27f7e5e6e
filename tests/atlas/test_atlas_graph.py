"""The embedded graph: what it holds, that it is well formed, and that the held-out facts leak nothing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from biqe import atlas
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.search import find
from biqe.graph.triples import contains

FACTS = Path(__file__).with_name("facts.tsv")

Fact = tuple[str, str, str]

SCHEMA = {
    "borders": ({"Country", "Territory"}, {"Country", "Territory"}),
    "capital_of": ({"City"}, {"Country", "Territory"}),
    "flows_into": ({"River"}, {"River", "Sea", "Lake"}),
    "flows_through": ({"River"}, {"Country", "Territory"}),
    "has_coast_on": ({"Country", "Territory"}, {"Sea"}),
    "in_region": ({"City"}, {"Region"}),
    "located_in": ({"City"}, {"Country", "Territory"}),
    "located_on": ({"City"}, {"River"}),
    "near": ({"City"}, {"City"}),
    "on_continent": ({"Country", "Territory"}, {"Continent"}),
    "on_lake": ({"City"}, {"Lake"}),
    "on_sea": ({"City"}, {"Sea"}),
    "outlet_of": ({"River"}, {"Lake"}),
    "region_of": ({"Region"}, {"Country", "Territory"}),
    "regional_capital_of": ({"City"}, {"Region"}),
}
CLASSES = {"City", "Continent", "Country", "Lake", "Region", "River", "Sea", "Territory"}
SYMMETRIC = {"borders", "near"}
HELD_OUT = {"borders", "flows_into", "flows_through", "in_region", "located_in", "located_on", "near", "on_sea"}


def by_name(splits: Splits, part: str) -> set[Fact]:
    entities, relations = list(splits.vocabulary.entities), list(splits.vocabulary.relations)
    return {(entities[s], relations[r], entities[o]) for s, r, o in splits[part].triples.tolist()}


@pytest.fixture(scope="module")
def splits() -> Splits:
    return atlas.load()


@pytest.fixture(scope="module")
def parts(splits: Splits) -> dict[str, set[Fact]]:
    return {part: by_name(splits, part) for part in ("train", "valid", "test", "complete")}


@pytest.fixture(scope="module")
def kinds(parts: dict[str, set[Fact]]) -> dict[str, str]:
    return {subject: object_ for subject, relation, object_ in parts["complete"] if relation == "type"}


def reviewed() -> list[tuple[bool, Fact]]:
    rows = [line.split("\t") for line in FACTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert rows[0] == ["truth", "subject", "relation", "object"]
    return [({"true": True, "false": False}[row[0]], (row[1], row[2], row[3])) for row in rows[1:]]


def test_facts_from_general_knowledge(parts: dict[str, set[Fact]]) -> None:
    complete = parts["complete"]
    assert [fact for truth, fact in reviewed() if truth and fact not in complete] == []
    assert [fact for truth, fact in reviewed() if not truth and fact in complete] == []


def test_the_sample_is_large_and_names_only_what_is_there(splits: Splits) -> None:
    sample = reviewed()
    assert len(sample) == len({fact for _, fact in sample})
    assert sum(truth for truth, _ in sample) >= 150 and sum(not truth for truth, _ in sample) >= 50
    # A false fact about an entity that does not exist would test nothing.
    names = set(splits.vocabulary.entities)
    assert {name for _, (s, _, o) in sample for name in (s, o)} - names == set()
    assert {relation for _, (_, relation, _) in sample} <= set(splits.vocabulary.relations)


def test_subjects_and_objects_have_the_types_of_their_relation(
    parts: dict[str, set[Fact]], kinds: dict[str, str]
) -> None:
    wrong = []
    for subject, relation, object_ in parts["complete"]:
        if relation == "type":
            fits = subject not in CLASSES and object_ in CLASSES
        else:
            subjects, objects = SCHEMA[relation]
            fits = kinds[subject] in subjects and kinds[object_] in objects
        if not fits:
            wrong.append((subject, relation, object_))
    assert wrong == []


def test_every_entity_has_one_type(splits: Splits, parts: dict[str, set[Fact]]) -> None:
    counts = Counter(subject for subject, relation, _ in parts["complete"] if relation == "type")
    assert set(counts) == set(splits.vocabulary.entities) - CLASSES
    assert set(counts.values()) == {1}


def test_relations_with_one_object_have_one(parts: dict[str, set[Fact]], kinds: dict[str, str]) -> None:
    for relation, kind in {"located_in": "City", "on_continent": None, "region_of": "Region"}.items():
        counts = Counter(subject for subject, other, _ in parts["complete"] if other == relation)
        assert set(counts.values()) == {1}
        if kind is not None:
            assert set(counts) == {name for name, of in kinds.items() if of == kind}


def test_every_country_has_a_continent(parts: dict[str, set[Fact]], kinds: dict[str, str]) -> None:
    placed = {subject for subject, relation, _ in parts["complete"] if relation == "on_continent"}
    assert {name for name, kind in kinds.items() if kind in ("Country", "Territory")} == placed


def test_a_capital_lies_in_its_country_and_a_region_in_the_country_of_its_cities(parts: dict[str, set[Fact]]) -> None:
    country = {s: o for s, relation, o in parts["complete"] if relation == "located_in"}
    region = {s: o for s, relation, o in parts["complete"] if relation == "region_of"}
    facts = parts["complete"]
    assert all(country[s] == o for s, relation, o in facts if relation == "capital_of")
    assert all(country[s] == region[o] for s, relation, o in facts if relation == "in_region")
    assert all((s, "in_region", o) in facts for s, relation, o in facts if relation == "regional_capital_of")


def test_no_entity_twice_under_accents_case_or_signs(splits: Splits) -> None:
    def bare(name: str) -> str:
        letters = unicodedata.normalize("NFKD", name)
        return re.sub(r"[\W_]", "", "".join(c for c in letters if not unicodedata.combining(c))).casefold()

    names = list(splits.vocabulary.entities)
    twins = [name for name, count in Counter(map(bare, names)).items() if count > 1]
    assert twins == []


def test_names_can_be_written_after_a_colon(splits: Splits) -> None:
    vocabulary = splits.vocabulary
    for name in (*vocabulary.entities, *vocabulary.relations):
        assert re.fullmatch(r"\w(?:[\w-]*\w)?", name), name
    for entity in range(len(vocabulary.entities)):
        label = vocabulary.label(entity)
        assert "_" not in label and "?" not in label and "  " not in label, label


def test_plain_names_belong_to_what_people_mean(kinds: dict[str, str]) -> None:
    expected = {
        "Germany": "Country",
        "France": "Country",
        "United_States": "Country",
        "Niger": "Country",
        "Jordan": "Country",
        "Rhine": "River",
        "Moselle": "River",
        "Danube": "River",
        "Zambezi": "River",
        "Niger_River": "River",
        "Mississippi": "River",
        "Paris": "City",
        "London": "City",
        "New_York": "City",
        "Ottawa": "City",
        "Luxembourg_City": "City",
        "Europe": "Continent",
        "North_Sea": "Sea",
        "Lake_Constance": None,
    }
    assert {name: kinds.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("other", "name"), [("Donau", "Danube"), ("Rhein", "Rhine"), ("tajo", "Tagus"), ("Holland", "Netherlands")]
)
def test_entities_are_found_by_their_other_names(splits: Splits, other: str, name: str) -> None:
    assert find(splits.vocabulary, other)[0].name == name


def test_no_other_name_is_that_of_another_entity(splits: Splits) -> None:
    vocabulary = splits.vocabulary
    shown = {vocabulary.label(entity) for entity in range(len(vocabulary.entities))} | set(vocabulary.entities)
    assert vocabulary.aliases and not [other for _, other in vocabulary.aliases if other in shown]


def test_symmetric_relations_hold_both_ways_within_each_part(parts: dict[str, set[Fact]]) -> None:
    for part in parts.values():
        assert all((o, r, s) in part and s != o for s, r, o in part if r in SYMMETRIC)


def test_rivers_flow_into_one_another_without_circles(parts: dict[str, set[Fact]], kinds: dict[str, str]) -> None:
    into = defaultdict(set)
    for subject, relation, object_ in parts["complete"]:
        if relation == "flows_into" and kinds[object_] == "River":
            into[subject].add(object_)
    for river in list(into):
        seen, edge = set(), {river}
        while edge:
            edge = {target for name in edge for target in into[name]} - seen
            assert river not in edge, river
            seen |= edge


def test_parts_are_disjoint_and_entities_and_relations_are_all_in_train(splits: Splits) -> None:
    for a, b in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not contains(splits[a].triples, splits[b].triples).any()
    train = splits["train"].triples
    assert set(train[:, [0, 2]].ravel().tolist()) == set(range(len(splits.vocabulary.entities)))
    assert set(train[:, 1].tolist()) == set(range(len(splits.vocabulary.relations)))


def test_held_out_facts_follow_the_policy(parts: dict[str, set[Fact]]) -> None:
    train = parts["train"]
    spoken_of = Counter(name for s, relation, o in train if relation != "type" for name in (s, o))
    cities = Counter(o for _, relation, o in train if relation == "located_on")
    for part in ("valid", "test"):
        assert {relation for _, relation, _ in parts[part]} == HELD_OUT
        for subject, relation, object_ in parts[part]:
            assert spoken_of[subject] >= 3 and spoken_of[object_] >= 3, (subject, relation, object_)
            assert relation != "located_on" or cities[object_] >= 2, (subject, object_)
        share = len(parts[part]) / len(parts["complete"])
        assert 0.04 <= share <= 0.06


def test_the_demo_has_something_to_predict(parts: dict[str, set[Fact]]) -> None:
    for city in ("Bonn", "Mainz"):
        assert (city, "located_on", "Rhine") in parts["test"]
        # Its neighbours tell: most of the nearest cities stand on the Rhine, in train.
        near = {o for s, relation, o in parts["train"] if s == city and relation == "near"}
        assert any((other, "located_on", "Rhine") in parts["train"] for other in near)
    for river in ("Rhine", "Moselle", "Saar"):
        assert {(river, "flows_through", country) for country in ("Germany", "France")} <= parts["train"]


def test_the_graph_hangs_together(splits: Splits) -> None:
    neighbours = defaultdict(set)
    relations = splits.vocabulary.relations
    type_ = splits.vocabulary.relation_id("type")
    for s, r, o in splits["train"].triples.tolist():
        if r != type_:  # types would join anything
            neighbours[s].add(o)
            neighbours[o].add(s)
    start = splits.vocabulary.entity_id("Rhine")
    seen, edge = {start}, {start}
    while edge:
        edge = {other for name in edge for other in neighbours[name]} - seen
        seen |= edge
    assert len(relations) == len(SCHEMA) + 1
    assert seen == set(neighbours)


def test_size_and_kind() -> None:
    files = [file for file in atlas.path().iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1_000_000
    counts = json.loads((atlas.path() / "manifest.json").read_text(encoding="utf-8"))["triples"]
    assert 20_000 <= sum(counts.values()) <= 40_000


def test_manifest_agrees_with_the_data(splits: Splits) -> None:
    manifest = folder.load_manifest(atlas.path())
    assert manifest["fingerprint"] == splits.fingerprint
    folder.load(atlas.path(), verify=True)


def test_provenance_names_source_package_and_licence() -> None:
    source = folder.load_manifest(atlas.path())["source"]
    assert source["known"] == "train"
    for entry in source["provenance"]:
        assert all(entry[key] for key in ("data", "from", "package", "licence"))
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in source["files"].values())
    assert source["cut_offs_km"]["located_on"] > 0
    text = (atlas.path().parent / "PROVENANCE.md").read_text(encoding="utf-8")
    for entry in source["provenance"]:
        assert entry["package"].split()[0] in text
