"""Facts computed from geometry. Every cut-off stands here, in kilometres, and is explained in docs/atlas.md."""

from __future__ import annotations

import numpy as np
import shapely
from shapely.geometry import Point
from shapely.geometry.base import BaseGeometry
from shapely.strtree import STRtree

from atlas import geodesy
from atlas.countries import Country
from atlas.places import Place
from atlas.rivers import River

ON_RIVER_KM = 5.0
"""A city stands on a river if its point is this close to the line."""
BIG_CITY = 500_000
BIG_CITY_ON_RIVER_KM = 7.5
"""The same for cities above BIG_CITY inhabitants, whose point may lie far from the bank."""
INSIDE_KM, BORDER_KM, BORDER_DEGREES = 10.0, 15.0, 0.025
"""A river flows through a country with INSIDE_KM of its line inside; a border river with BORDER_KM of it within
about three kilometres (BORDER_DEGREES) and at least BORDER_INSIDE_KM inside, since lines and polygons of the source
do not meet exactly."""
BORDER_INSIDE_KM = 3.0
JOIN_KM = 3.0
"""A river flows into another if its end is this close to the other's line."""
MOUTH_KM = 15.0
"""A river flows into a sea or lake if its end is this close to the coast; deltas and estuaries end the line early."""
NEAR_KM, NEAR_COUNT = 300.0, 5
"""A city is near its NEAR_COUNT nearest cities, up to NEAR_KM away."""
SHARED_BORDER_KM = 0.1
"""Countries border on each other if they share an outline of this length; less is a point."""


def flows_through(rivers: list[River], countries: list[Country]) -> list[tuple[int, int]]:
    """Pairs (river, country)."""
    tree = STRtree([country.polygon for country in countries])
    wide = [shapely.buffer(country.polygon, BORDER_DEGREES) for country in countries]
    for polygon in (*wide, *(country.polygon for country in countries)):
        shapely.prepare(polygon)
    found = []
    for number, river in enumerate(rivers):
        for other in sorted(tree.query(shapely.box(*river.line.bounds)).tolist()):
            if not wide[other].intersects(river.line):
                continue
            inside = geodesy.length_km(shapely.intersection(river.line, countries[other].polygon))
            along = geodesy.length_km(shapely.intersection(river.line, wide[other]))
            short = 0.4 * geodesy.length_km(river.line)  # A river shorter than the cut-offs must still be somewhere.
            if inside >= min(INSIDE_KM, short) or (inside >= min(BORDER_INSIDE_KM, short) and along >= BORDER_KM):
                found.append((number, other))
    return found


def located_on(places: list[Place], rivers: list[River]) -> list[tuple[int, int]]:
    """Pairs (place, river)."""
    tree = STRtree([river.line for river in rivers])
    found = []
    for number, place in enumerate(places):
        cut_off = BIG_CITY_ON_RIVER_KM if place.population >= BIG_CITY else ON_RIVER_KM
        reach = geodesy.degrees_around(cut_off, place.point.y)
        for other in sorted(tree.query(place.point, predicate="dwithin", distance=reach).tolist()):
            if geodesy.distance_km(place.point, rivers[other].line, place.point.y) <= cut_off:
                found.append((number, other))
    return found


def ends(line: BaseGeometry) -> list[Point]:
    """Loose ends of a river's lines: points that end exactly one of them."""
    counts: dict[tuple[float, float], int] = {}
    for part in shapely.get_parts(line):
        for point in (part.coords[0], part.coords[-1]):
            counts[point] = counts.get(point, 0) + 1
    return [Point(point) for point, count in sorted(counts.items()) if count == 1]


def confluences(rivers: list[River]) -> list[tuple[int, int]]:
    """Pairs (river, river it joins): an end of the first lies on the second, away from the second's own ends.

    Where two rivers meet end to end, or a branch leaves its river, geometry cannot tell the direction; such cases
    are in ``corrections.tsv``.
    """
    tree = STRtree([river.line for river in rivers])
    all_ends = [ends(river.line) for river in rivers]
    found = set()
    for number, points in enumerate(all_ends):
        for point in points:
            reach = geodesy.degrees_around(JOIN_KM, point.y)
            for other in sorted(tree.query(point, predicate="dwithin", distance=reach).tolist()):
                if other == number or geodesy.distance_km(point, rivers[other].line, point.y) > JOIN_KM:
                    continue
                if all(geodesy.distance_km(point, end, point.y) > 2 * JOIN_KM for end in all_ends[other]):
                    found.add((number, other))
    return sorted(found)


def end_to_end(rivers: list[River]) -> list[tuple[int, int]]:
    """Pairs of rivers whose ends touch, lower number first; for review only."""
    all_ends = [(number, point) for number, river in enumerate(rivers) for point in ends(river.line)]
    tree = STRtree([point for _, point in all_ends])
    found = set()
    for number, point in all_ends:
        reach = geodesy.degrees_around(JOIN_KM, point.y)
        for other in tree.query(point, predicate="dwithin", distance=reach).tolist():
            if all_ends[other][0] > number:
                found.add((number, all_ends[other][0]))
    return sorted(found)


def near(places: list[Place]) -> list[tuple[int, int]]:
    """Pairs (place, place), both ways, of each place and its nearest ones."""
    angles = np.radians([(place.point.x, place.point.y) for place in places])
    flat = np.cos(angles[:, 1])
    globe = np.column_stack([flat * np.cos(angles[:, 0]), flat * np.sin(angles[:, 0]), np.sin(angles[:, 1])])
    pairs = set()
    for number, point in enumerate(globe):
        # Half the chord of the unit sphere is the sine of half the angle.
        degrees = np.degrees(2 * np.arcsin(np.minimum(np.linalg.norm(globe - point, axis=1) / 2, 1)))
        nearest = np.argsort(degrees, kind="stable")[: NEAR_COUNT + 1]
        for other in nearest[degrees[nearest] * geodesy.KM_PER_DEGREE <= NEAR_KM].tolist():
            if other != number:
                pairs |= {(number, other), (other, number)}
    return sorted(pairs)


def borders(countries: list[Country], arcs: list[BaseGeometry]) -> list[tuple[int, int]]:
    """Pairs (country, country), both ways, that share a piece of outline."""
    pairs = []
    for number, country in enumerate(countries):
        for other in range(number + 1, len(countries)):
            shared = country.arcs & countries[other].arcs
            if shared and sum(geodesy.length_km(arcs[arc]) for arc in sorted(shared)) >= SHARED_BORDER_KM:
                pairs += [(number, other), (other, number)]
    return sorted(pairs)
