"""A graph of films as a stranger might bring it: about 400 entities with structure to find, made by seed.

Directors keep to a genre, a studio and a circle of actors; studios and people belong to a country; the language of a
film follows its country; people live where they were born or near a studio. ``kind_of`` tells what an entity is, which
the graph itself nowhere says.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

COUNTRIES = "France Japan Brazil Canada Denmark India Kenya Mexico".split()
LANGUAGES = "French Japanese Portuguese English Danish Hindi Swahili Spanish".split()
GENRES = "Comedy Drama Thriller Western Musical Horror Romance".split()
FILMS, DIRECTORS, ACTORS, STUDIOS, CITIES = 150, 30, 110, 16, 32
KINDS = {"F": "film", "D": "director", "A": "actor", "S": "studio", "C": "city"}
ENDS = {
    "directed_by": ("film", "director"),
    "starring": ("film", "actor"),
    "genre": ("film", "genre"),
    "country": ("film", "country"),
    "language": ("film", "language"),
    "produced_by": ("film", "studio"),
    "studio_in": ("studio", "country"),
    "born_in": ("person", "city"),
    "lives_in": ("person", "city"),
    "city_in": ("city", "country"),
    "works_with": ("director", "actor"),
}
"""What each relation joins; a person is a director or an actor."""


def kind_of(name: str) -> str:
    """What an entity is."""
    for names, kind in ((COUNTRIES, "country"), (LANGUAGES, "language"), (GENRES, "genre")):
        if name in names:
            return kind
    return KINDS[name[0]]


def fits(name: str, kind: str) -> bool:
    """Whether an entity is of a kind."""
    own = kind_of(name)
    return own == kind or (kind == "person" and own in ("director", "actor"))


def films(seed: int = 0) -> list[tuple[str, str, str]]:
    """The facts, each once."""
    rng = np.random.default_rng(seed)
    home = {f"C{n}": n % len(COUNTRIES) for n in range(CITIES)}
    studio = {f"S{n}": n % len(COUNTRIES) for n in range(STUDIOS)}
    facts = {(city, "city_in", COUNTRIES[country]) for city, country in home.items()}
    facts |= {(name, "studio_in", COUNTRIES[country]) for name, country in studio.items()}

    def settle(person: str, country: int) -> None:
        cities = [city for city, own in home.items() if own == country]
        born = cities[rng.integers(len(cities))]
        facts.add((person, "born_in", born))
        facts.add((person, "lives_in", born if rng.random() < 0.7 else cities[rng.integers(len(cities))]))

    actors = {f"A{n}": n % len(COUNTRIES) for n in range(ACTORS)}
    for actor, country in actors.items():
        settle(actor, country)
    circle, style, house = {}, {}, {}
    for n in range(DIRECTORS):
        director, country = f"D{n}", n % len(COUNTRIES)
        settle(director, country)
        near = [actor for actor, own in actors.items() if own == country]
        circle[director] = [near[i] for i in rng.permutation(len(near))[:6]]
        style[director] = GENRES[rng.integers(len(GENRES))]
        house[director] = [name for name, own in studio.items() if own == country][rng.integers(2)]
        facts |= {(director, "works_with", actor) for actor in circle[director][:4]}
    for n in range(FILMS):
        film, director = f"F{n}", f"D{rng.integers(DIRECTORS)}"
        country = studio[house[director]]
        facts.add((film, "directed_by", director))
        facts.add((film, "produced_by", house[director]))
        facts.add((film, "country", COUNTRIES[country]))
        facts.add((film, "language", LANGUAGES[country if rng.random() < 0.9 else 3]))
        facts.add((film, "genre", style[director] if rng.random() < 0.8 else GENRES[rng.integers(len(GENRES))]))
        cast = [circle[director][i] for i in rng.permutation(6)[:2]]
        facts |= {(film, "starring", actor) for actor in [*cast, f"A{rng.integers(ACTORS)}"]}
    return sorted(facts)


def write_csv(path: Path, seed: int = 0) -> Path:
    """The facts as a CSV file with a header."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Subject", "Property", "Value"])
        writer.writerows(films(seed))
    return path


def impossible(name: str, kind: str, facts: list[tuple[str, str, str]]) -> bool:
    """Whether what the graph holds about an entity shows that it is not of a kind."""
    shown = {ENDS[relation][end] for s, relation, o in facts for end, one in ((0, s), (1, o)) if one == name}
    people = {"person", "director", "actor"}
    return any(own != kind and not ({own, kind} <= people and "person" in (own, kind)) for own in shown)
