"""A map of a piece of the atlas as SVG, to look at what geometry made of it.

Rivers in the graph are blue, lines left out grey; a dot is a city, filled if it stands on a river, with a short line
to each of its rivers.
"""

from __future__ import annotations

from html import escape

import shapely
from shapely.geometry import Point, box
from shapely.geometry.base import BaseGeometry

from atlas.countries import Country
from atlas.places import Place
from atlas.rivers import River

EUROPE = (-5.0, 43.0, 24.0, 55.0)
"""West, south, east, north."""
SCALE = 48.0
STRETCH = 1.53
"""A degree of latitude over a degree of longitude at 49 degrees north."""


def europe(
    rivers: list[River], countries: list[Country], places: list[Place], on_river: list[tuple[int, int]], kept: set[str]
) -> str:
    """SVG text. ``on_river`` are pairs of places and rivers; ``kept`` the names of rivers in the graph."""
    west, south, east, north = EUROPE
    frame = box(*EUROPE)
    width, height = (east - west) * SCALE, (north - south) * SCALE * STRETCH

    def at(x: float, y: float) -> str:
        return f"{(x - west) * SCALE:.1f},{(north - y) * SCALE * STRETCH:.1f}"

    def lines(geometry: BaseGeometry, style: str) -> list[str]:
        clipped = shapely.simplify(shapely.intersection(geometry, frame), 0.02)
        parts = [part for part in shapely.get_parts(clipped) if part.geom_type == "LineString"]
        return [f'<polyline points="{" ".join(at(*p) for p in part.coords)}" {style}/>' for part in parts]

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fdfcf8"/>',
    ]
    for country in countries:
        if country.polygon.intersects(frame):
            out += lines(country.polygon.boundary, 'fill="none" stroke="#c9c2b4" stroke-width="0.8"')
    for river in rivers:
        colour = "#2f74c0" if river.name in kept else "#b5b5b5"
        out += lines(river.line, f'fill="none" stroke="{colour}" stroke-width="{2.6 - 0.2 * min(river.rank, 9):.1f}"')
        part = shapely.intersection(river.line, frame)
        if river.name in kept and part.length > 1.0:
            middle = shapely.line_interpolate_point(max(shapely.get_parts(part), key=lambda p: p.length), 0.5, True)
            x, y = at(middle.x, middle.y).split(",")
            out.append(
                f'<text x="{x}" y="{y}" font-size="9" fill="#1d4f86" font-style="italic">{escape(river.name)}</text>'
            )
    standing: dict[int, list[int]] = {}
    for city, number in on_river:
        standing.setdefault(city, []).append(number)
    for number, place in enumerate(places):
        if not frame.contains(place.point) or (number not in standing and place.population < 200_000):
            continue
        for other in standing.get(number, []):
            foot = shapely.get_point(shapely.shortest_line(place.point, rivers[other].line), 1)
            out += lines(shapely.linestrings([place.point.coords[0], foot.coords[0]]), 'stroke="#c0392b"')
        out.append(_dot(place.point, place.name, at, filled=number in standing))
    return "\n".join([*out, "</svg>", ""])


def _dot(point: Point, name: str, at, *, filled: bool) -> str:  # type: ignore[no-untyped-def]
    x, y = at(point.x, point.y).split(",")
    fill = "#c0392b" if filled else "#ffffff"
    circle = f'<circle cx="{x}" cy="{y}" r="2.2" fill="{fill}" stroke="#555" stroke-width="0.5"/>'
    return (
        f'{circle}<text x="{float(x) + 3:.1f}" y="{float(y) - 2:.1f}" font-size="7" fill="#333">{escape(name)}</text>'
    )
