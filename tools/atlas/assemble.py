"""All facts of the atlas, by name: selection, names, relations, corrections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from atlas import relations, tables
from atlas.countries import Country
from atlas.naming import Names
from atlas.places import Place, plain
from atlas.rivers import River
from atlas.water import Water

Fact = tuple[str, str, str]

CITY_POPULATION = 200_000
"""A city is in the graph if it has this many inhabitants, stands on a river, or is the capital of a country.
A correction that puts a smaller one on a river brings it in too."""
RIVER_FACTS = 3
"""A river is in the graph if this many facts speak of it; less would be noise that nothing can be learnt from."""
REGION_CITIES = 3
"""A region is in the graph if this many of the cities lie in it."""
ENTITY_FACTS = 2
"""In the end an entity other than a country needs this many facts besides its type."""
ON_SEA_KM, ON_LAKE_KM = 10.0, 8.0
"""A city is on a sea or lake if its point is this close to the shore."""

_REGION_NAMES_FIRST = {"United States", "Canada", "Australia", "Brazil", "Mexico"}
"""Countries so large that a second Springfield is told apart by its region, not its country."""


@dataclass
class Atlas:
    """Facts and labels, with a record of what was left out."""

    facts: set[Fact]
    labels: dict[str, str]
    left_out: dict[str, int] = field(default_factory=dict)


def assemble(rivers: list[River], countries: list[Country], places: list[Place], water: Water, arcs: list) -> Atlas:
    """The whole atlas."""
    aliases = {row["source"]: row["name"] for row in tables.read("country_aliases.tsv")}
    country_of = [aliases.get(place.country, place.country) for place in places]
    unknown = set(country_of) - {country.name for country in countries}
    if unknown:
        raise SystemExit(f"places lie in unknown countries: {', '.join(sorted(unknown))}")

    on_river = relations.located_on(places, rivers)
    standing = {place for place, _ in on_river}
    added = {plain(row["subject"]) for row in tables.read("corrections.tsv") if row["change"] == "add"}
    kept = [
        number
        for number, place in enumerate(places)
        if number in standing
        or place.capital == "country"
        or place.population >= CITY_POPULATION
        or plain(place.name) in added
    ]
    through = relations.flows_through(rivers, countries)
    into = _mouths(rivers, water)
    outlets = [(row["river"], row["lake"]) for row in tables.read("outlets.tsv")]
    mentions = Counter(river for river, _ in through) + Counter(river for _, river in on_river)
    index = {river.name: number for number, river in enumerate(rivers)}
    for river, target in into:
        mentions[river] += 1
        if target in index:
            mentions[index[target]] += 1
    kept_rivers = [number for number in range(len(rivers)) if mentions[number] >= RIVER_FACTS]

    names = Names()
    facts: set[Fact] = set()
    for kind in ("Continent", "Country", "Territory", "Sea", "Lake", "Region", "River", "City"):
        names.give([kind])

    def entity(labels: list[str], kind: str) -> str:
        name = names.give(labels)
        facts.add((name, "type", kind))
        return name

    continents = {c: entity([c], "Continent") for c in sorted({country.continent for country in countries})}
    country_names = [entity([country.name], country.kind) for country in countries]
    by_country = {country.name: name for country, name in zip(countries, country_names, strict=True)}
    seas = {sea: entity([sea], "Sea") for sea in water.seas}
    lakes = {lake: entity([lake], "Lake") for lake in water.lakes}
    # Large cities keep their name before rivers, rivers before towns: Ottawa is the city, Zambezi the river.
    cities: dict[int, str] = {}
    river_names: dict[int, str] = {}
    plain_holder: dict[str, str] = {}

    def name_city(number: int) -> None:
        place, country = places[number], country_of[number]
        same_country = plain_holder.get(plain(place.name)) == country
        plain_holder.setdefault(plain(place.name), country)
        cities[number] = entity(_city_labels(place, country, by_region_first=same_country), "City")

    large = {n for n in kept if places[n].population >= CITY_POPULATION or places[n].capital == "country"}
    rivers_first = [n for n in kept_rivers if rivers[n].name.endswith("River")]
    for number in rivers_first:
        river_names[number] = entity([rivers[number].name], "River")
    for number in kept:
        if number in large:
            name_city(number)
    for number in kept_rivers:
        if number not in river_names:
            river_names[number] = entity([rivers[number].name, f"{rivers[number].name} River"], "River")
    for number in kept:
        if number not in large:
            name_city(number)
    regions = _regions(places, country_of, kept)
    region_names = {key: entity([key[0], f"{key[0]} Region", f"{key[0]}, {key[1]}"], "Region") for key in regions}

    for country, name in zip(countries, country_names, strict=True):
        facts.add((name, "on_continent", continents[country.continent]))
        facts |= {(name, "has_coast_on", seas[sea]) for sea in water.coasts(country.polygon)}
    facts |= {(country_names[a], "borders", country_names[b]) for a, b in relations.borders(countries, arcs)}
    facts |= {(river_names[r], "flows_through", country_names[c]) for r, c in through if r in river_names}
    facts |= {(cities[p], "located_on", river_names[r]) for p, r in on_river if r in river_names}
    waters = {**seas, **lakes, **{rivers[n].name: name for n, name in river_names.items()}}
    for river, target in into:
        if river in river_names and target in waters:
            facts.add((river_names[river], "flows_into", waters[target]))
    for outlet, lake in outlets:
        if index[outlet] in river_names:
            facts.add((river_names[index[outlet]], "outlet_of", lakes[lake]))
    for number, name in cities.items():
        facts.add((name, "located_in", by_country[country_of[number]]))
        key = places[number].region, country_of[number]
        if key in region_names:
            facts.add((name, "in_region", region_names[key]))
            if places[number].capital == "region":
                facts.add((name, "regional_capital_of", region_names[key]))
        if places[number].capital == "country":
            facts.add((name, "capital_of", by_country[country_of[number]]))
        if sea := water.sea_at(places[number].point, ON_SEA_KM):
            facts.add((name, "on_sea", seas[sea]))
        if shore := water.lake_at(places[number].point, ON_LAKE_KM):
            facts.add((name, "on_lake", lakes[shore]))
    facts |= {(name, "region_of", by_country[country]) for (_, country), name in region_names.items()}
    chosen = sorted(cities)
    facts |= {(cities[chosen[a]], "near", cities[chosen[b]]) for a, b in relations.near([places[n] for n in chosen])}

    labels = dict(names.labels)
    _correct(facts, labels)
    facts = _without_lonely_entities(facts)
    used = {entity for subject, _, object_ in facts for entity in (subject, object_)}
    return Atlas(
        facts,
        {name: label for name, label in labels.items() if name in used},
        {"places": len(places) - len(kept), "rivers": len(rivers) - len(kept_rivers)},
    )


def _mouths(rivers: list[River], water: Water) -> list[tuple[int, str]]:
    """Pairs (river, name of the river, lake or sea it flows into)."""
    index = {river.name: number for number, river in enumerate(rivers)}
    outlets = {(row["river"], row["lake"]) for row in tables.read("outlets.tsv")}
    reviewed = [(row["river"], row["into"]) for row in tables.read("confluences.tsv")]
    lost = {name for pair in (*reviewed, *outlets) for name in pair} - set(index) - set(water.lakes)
    if lost:
        raise SystemExit(f"confluences.tsv or outlets.tsv: unknown {', '.join(sorted(lost))}")
    settled = {frozenset(pair) for pair in reviewed}
    found = {(index[river], into) for river, into in reviewed}
    for one, other in relations.confluences(rivers):
        if frozenset((rivers[one].name, rivers[other].name)) not in settled:
            found.add((one, rivers[other].name))
    joined = {index[river] for river, _ in reviewed}
    for number, river in enumerate(rivers):
        for end in relations.ends(river.line):
            lake = water.lake_at(end, relations.MOUTH_KM)
            if lake is not None and (river.name, lake) not in outlets:
                found.add((number, lake))
            sea = water.sea_at(end, relations.MOUTH_KM)
            if sea is not None and number not in joined:
                found.add((number, sea))
    return sorted(found)


def _city_labels(place: Place, country: str, *, by_region_first: bool) -> list[str]:
    by_country, by_region = f"{place.name}, {country}", f"{place.name}, {place.region}"
    by_region_first = (by_region_first or country in _REGION_NAMES_FIRST) and plain(place.region) != plain(place.name)
    second = [by_region, by_country] if by_region_first else [by_country, by_region]
    return [place.name, *(label for label in second if place.region or label != by_region)]


def _regions(places: list[Place], country_of: list[str], kept: list[int]) -> list[tuple[str, str]]:
    counts = Counter((places[number].region, country_of[number]) for number in kept if places[number].region)
    return sorted(key for key, count in counts.items() if count >= REGION_CITIES)


def _correct(facts: set[Fact], labels: dict[str, str]) -> None:
    """Apply ``corrections.tsv``; lines that change nothing or name nobody stop the build."""
    idle = []
    for row in tables.read("corrections.tsv"):
        fact = row["subject"], row["relation"], row["object"]
        if row["change"] == "add" and row["relation"] == "type":
            labels.setdefault(row["subject"], row["subject"].replace("_", " "))
        known = fact[0] in labels and fact[2] in labels
        if row["change"] == "add" and known and fact not in facts:
            facts.add(fact)
        elif row["change"] == "remove" and fact in facts:
            # Without its type an entity is gone, with all that was said of it.
            whole = row["relation"] == "type"
            facts -= {other for other in facts if other == fact or (whole and fact[0] in (other[0], other[2]))}
        else:
            idle.append(" ".join((row["change"], *fact)))
    if idle:
        raise SystemExit("corrections.tsv: these lines change nothing or name nobody:\n  " + "\n  ".join(idle))


def _without_lonely_entities(facts: set[Fact]) -> set[Fact]:
    """``facts`` without entities that fewer than ENTITY_FACTS facts speak of, until none is left; countries stay."""
    countries = {subject for subject, relation, object_ in facts if relation == "type" and object_ == "Country"}
    while True:
        counts = Counter(
            name for subject, relation, object_ in facts if relation != "type" for name in (subject, object_)
        )
        lonely = {fact[0] for fact in facts if counts[fact[0]] < ENTITY_FACTS} - countries
        lonely |= {fact[2] for fact in facts if fact[1] != "type" and counts[fact[2]] < ENTITY_FACTS} - countries
        if not lonely:
            return facts
        facts = {fact for fact in facts if fact[0] not in lonely and fact[2] not in lonely}
