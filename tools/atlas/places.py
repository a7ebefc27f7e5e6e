"""Cities: the source's populated places under reviewed names, each with its country, region and rank."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from shapely.geometry import Point

from atlas import geodesy, shapefiles, tables

SAME_PLACE_KM = 15.0
"""Two entries of one name closer than this are one place, entered twice."""


@dataclass(frozen=True)
class Place:
    """One city or town."""

    name: str
    country: str
    """The source's name of the country, or the graph's where ``place_names.tsv`` corrects it."""
    region: str
    """First-level division as the source spells it; empty where it has none or lost its letters."""
    point: Point
    population: int
    capital: str
    """``country``, ``region`` or ``""``: of what it is the capital."""


_CAPITALS = {"Admin-0 capital": "country", "Admin-1 capital": "region"}
_NOT_CITIES = {"Scientific station", "Historic place"}


def read(shapes: bytes, table: bytes) -> list[Place]:
    """Places, largest population first."""
    regions = {row["source"]: row["name"] for row in tables.read("region_names.tsv")}
    renamed = {(row["country"], row["source"]): row for row in tables.read("place_names.tsv")}
    used = set()
    places: list[Place] = []
    for record, point in shapefiles.read(shapes, table):
        if record["featurecla"] in _NOT_CITIES or record["adm0name"] == "Antarctica":
            continue
        key = record["adm0name"], record["name"]
        row = renamed.get(key, {"name": _accented(record), "belongs": "*"})
        used.add(key)
        if row["name"] == "-":
            continue
        country = record["adm0name"] if row["belongs"] == "*" else row["belongs"]
        capital = _CAPITALS.get(record["featurecla"], "")
        region = _region(record["adm1name"]) if row["belongs"] == "*" else ""
        region = regions.get(region, region)
        places.append(Place(row["name"], country, region, point, int(record["pop_max"]), capital))
    unused = [" ".join(key) for key in renamed if key not in used]
    if unused:
        raise SystemExit(f"place_names.tsv: no place of the source for {', '.join(unused)}")
    places.sort(key=lambda place: (-place.population, place.name, place.country))
    return _distinct(places)


def plain(text: str) -> str:
    """``text`` in lower case without accents and signs, for comparing names.

    >>> plain("São Tomé")
    'sao tome'
    """
    letters = unicodedata.normalize("NFKD", text).replace("ł", "l").replace("Ł", "L").replace("ı", "i")
    kept = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[^\w ]|_", " ", kept).lower().split())


def _accented(record: dict[str, str]) -> str:
    """The name, with the accents of an alternative spelling of the same name where the source gives one."""
    for other in re.split(r"[|/]", f"{record['namealt']}|{record['namepar']}"):
        if other != record["name"] and plain(other) == plain(record["name"]) and not other.isascii():
            return other
    return str(record["name"])


def _region(name: str) -> str:
    """Letters outside Windows-1252 became question marks in the source; such a name is of no use."""
    return "" if "?" in name or "[" in name else name.replace("`", "").strip()


def _distinct(places: list[Place]) -> list[Place]:
    """``places`` without second entries of one place."""
    kept: dict[str, list[Place]] = {}
    for place in places:
        same = kept.setdefault(plain(place.name), [])
        if not any(geodesy.distance_km(place.point, other.point, place.point.y) < SAME_PLACE_KM for other in same):
            same.append(place)
    return sorted((place for same in kept.values() for place in same), key=lambda p: (-p.population, p.name, p.country))
