"""Which facts are kept from training, so that there is something to predict and to check it with.

Facts of the relations in ``SHARES`` are drawn at random; both directions of a symmetric relation go together. A
fact is only held out where the rest can still speak of both its entities: each keeps at least KEEP facts in train
(``type`` aside), and a river keeps at least KEEP_CITIES cities. ``held_out.tsv`` fixes the part of a few facts
whatever the draw, for the demo.
"""

from __future__ import annotations

import numpy as np

from atlas import tables

Fact = tuple[str, str, str]

SHARES = {
    "located_on": 0.08,
    "flows_through": 0.08,
    "flows_into": 0.06,
    "borders": 0.08,
    "located_in": 0.06,
    "in_region": 0.06,
    "near": 0.06,
    "on_sea": 0.06,
}
"""Share of a relation's facts that goes to each of valid and test."""
SYMMETRIC = {"borders", "near"}
KEEP, KEEP_CITIES = 3, 2
SEED = 0


def split(facts: set[Fact]) -> dict[str, set[Fact]]:
    """``facts`` as train, valid and test."""
    train = set(facts)
    parts: dict[str, set[Fact]] = {"valid": set(), "test": set()}
    counts: dict[str, int] = {}
    cities: dict[str, int] = {}
    for subject, relation, object_ in facts:
        if relation != "type":
            counts[subject] = counts.get(subject, 0) + 1
            counts[object_] = counts.get(object_, 0) + 1
        if relation == "located_on":
            cities[object_] = cities.get(object_, 0) + 1

    def move(unit: list[Fact], part: str) -> None:
        for subject, relation, object_ in unit:
            train.remove((subject, relation, object_))
            parts[part].add((subject, relation, object_))
            counts[subject] -= 1
            counts[object_] -= 1
            if relation == "located_on":
                cities[object_] -= 1

    fixed: set[Fact] = set()
    for row in tables.read("held_out.tsv"):
        fact = row["subject"], row["relation"], row["object"]
        if fact not in train:
            raise SystemExit(f"held_out.tsv: {' '.join(fact)} is not a fact of the graph")
        if row["part"] == "train":
            fixed.add(fact)
        else:
            move(_unit(fact), row["part"])
    random = np.random.default_rng(SEED)
    for relation, share in SHARES.items():
        units = sorted({tuple(sorted(_unit(fact))) for fact in train - fixed if fact[1] == relation})
        total = sum(fact[1] == relation for fact in facts)
        for part in parts:
            for place in random.permutation(len(units)).tolist():
                if sum(fact[1] == relation for fact in parts[part]) >= round(share * total):
                    break
                unit = list(units[place])
                if unit[0] in train and _spared(unit, counts, cities):
                    move(unit, part)
    return {"train": train, **parts}


def _unit(fact: Fact) -> list[Fact]:
    """``fact``, with its other direction if its relation is symmetric."""
    subject, relation, object_ = fact
    return [fact, (object_, relation, subject)] if relation in SYMMETRIC else [fact]


def _spared(unit: list[Fact], counts: dict[str, int], cities: dict[str, int]) -> bool:
    subject, relation, object_ = unit[0]
    enough = all(counts[entity] - len(unit) >= KEEP for entity in (subject, object_))
    return enough and (relation != "located_on" or cities[object_] - 1 >= KEEP_CITIES)
