"""Countries and territories from TopoJSON: polygons, kind and continent, named by ``countries.tsv``."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import MultiPolygon, Polygon, box
from shapely.geometry.base import BaseGeometry

from atlas import tables


@dataclass(frozen=True)
class Country:
    """One country or territory."""

    name: str
    kind: str
    """``Country`` or ``Territory``."""
    continent: str
    polygon: MultiPolygon
    arcs: frozenset[int]
    """Numbers of the arcs of its outline; two countries that share an arc share a border."""


def read(content: bytes) -> list[Country]:
    """Countries in alphabetical order. A polygon without a row in ``countries.tsv`` stops the build."""
    topology = json.loads(content)
    arcs = _arcs(topology)
    rows = {row["source"]: row for row in tables.read("countries.tsv")}
    parts: dict[str, list[tuple[MultiPolygon, set[int]]]] = {}
    facts: dict[str, dict[str, str]] = {}
    for geometry in topology["objects"]["countries"]["geometries"]:
        source = geometry["properties"]["name"]
        if source not in rows:
            raise SystemExit(f"country {source!r} is not in countries.tsv")
        row = rows[source]
        if row["name"] == "-":
            continue
        parts.setdefault(row["name"], []).append(_polygon(geometry, arcs))
        facts[row["name"]] = row
    countries = []
    for name, pieces in sorted(parts.items()):
        polygon = MultiPolygon(_polygons(shapely.union_all([piece for piece, _ in pieces])))
        used = frozenset(arc for _, piece in pieces for arc in piece)
        countries.append(Country(name, facts[name]["kind"], facts[name]["continent"], polygon, used))
    return countries


def outline_arcs(content: bytes) -> list[BaseGeometry]:
    """Every arc of the topology as a line, by number."""
    return [shapely.linestrings(arc) for arc in _arcs(json.loads(content))]


def _arcs(topology: dict) -> list[NDArray[np.float64]]:
    """Arcs in degrees. TopoJSON stores steps between points of an integer grid."""
    scale, translate = np.array(topology["transform"]["scale"]), np.array(topology["transform"]["translate"])
    return [np.cumsum(np.array(arc), axis=0) * scale + translate for arc in topology["arcs"]]


def _polygon(geometry: dict, arcs: list[NDArray[np.float64]]) -> tuple[MultiPolygon, set[int]]:
    polygons = [geometry["arcs"]] if geometry["type"] == "Polygon" else geometry["arcs"]
    used = {number if number >= 0 else ~number for polygon in polygons for ring in polygon for number in ring}
    shapes: list[Polygon] = []
    for rings in polygons:
        shell, *holes = (_unwrapped(_ring(ring, arcs)) for ring in rings)
        # Islets smaller than the source's grid have collapsed to a line.
        if len(shell) >= 4:
            polygon = Polygon(shell, [hole for hole in holes if len(hole) >= 4])
            shapes += _polygons(polygon if polygon.is_valid else shapely.make_valid(polygon))
    whole = MultiPolygon([part for shape in shapes for part in _inside_the_map(shape)])
    return MultiPolygon(_polygons(whole if whole.is_valid else shapely.make_valid(whole))), used


def _unwrapped(ring: NDArray[np.float64]) -> NDArray[np.float64]:
    """``ring`` without jumps over the 180th meridian; longitudes may then lie beyond 180 degrees."""
    turns = np.cumsum(np.round(np.diff(ring[:, 0], prepend=ring[0, 0]) / 360))
    return np.column_stack([ring[:, 0] - 360 * turns, ring[:, 1]])


def _inside_the_map(polygon: Polygon) -> list[Polygon]:
    """``polygon`` cut at the 180th meridian, with what lies beyond moved to the other side."""
    if polygon.bounds[0] >= -180 and polygon.bounds[2] <= 180:
        return [polygon]
    parts = []
    for turn in (-360, 0, 360):
        moved = shapely.transform(polygon, lambda points, turn=turn: points + [turn, 0])
        parts += _polygons(shapely.intersection(moved, box(-180, -90, 180, 90)))
    return parts


def _polygons(geometry: BaseGeometry) -> list[Polygon]:
    """All polygons of ``geometry``, which may be a collection of collections."""
    if geometry.geom_type == "Polygon":
        return [geometry]
    return [polygon for part in getattr(geometry, "geoms", ()) for polygon in _polygons(part)]


def _ring(numbers: list[int], arcs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Points of a ring; ~n means arc n backwards, and each arc starts where the last one ended."""
    pieces = [arcs[number] if number >= 0 else arcs[~number][::-1] for number in numbers]
    return np.concatenate([pieces[0], *(piece[1:] for piece in pieces[1:])])
