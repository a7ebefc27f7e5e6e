"""The sea and the lakes: where a coast lies, and which sea it belongs to."""

from __future__ import annotations

import shapely
from shapely.geometry import MultiPolygon, Point, box
from shapely.geometry.base import BaseGeometry
from shapely.strtree import STRtree

from atlas import geodesy, shapefiles, tables


class Water:
    """Sea coast and lakes, asked by point."""

    def __init__(self, shapes: bytes, table: bytes) -> None:
        wanted = {row["source"]: row["name"] for row in tables.read("lakes.tsv")}
        lakes: dict[str, list[BaseGeometry]] = {}
        sea: list[BaseGeometry] = []
        for record, polygon in shapefiles.read(shapes, table):
            if record["featurecla"] == "Ocean":
                sea.append(polygon)
            elif record["name"] in wanted:
                lakes.setdefault(wanted[record["name"]], []).append(polygon)
        missing = set(wanted.values()) - set(lakes)
        if missing:
            raise SystemExit(f"lakes.tsv: no lake of the source for {', '.join(sorted(missing))}")
        self.lakes = {name: _largest_cluster(parts) for name, parts in sorted(lakes.items())}
        # Short pieces of coast, so that a nearest-piece search does not touch the outline of all oceans.
        self._coast = [
            shapely.linestrings(points[start : start + 65])
            for polygon in sea
            for ring in (line for part in shapely.get_parts(polygon) for line in (part.exterior, *part.interiors))
            for points in [shapely.get_coordinates(ring)]
            for start in range(0, len(points) - 1, 64)
        ]
        self._tree = STRtree(self._coast)
        self._seas = [
            (row["name"], [box(*map(float, numbers.split(","))) for numbers in row["boxes"].split()])
            for row in tables.read("seas.tsv")
        ]

    @property
    def seas(self) -> list[str]:
        """Names of all seas, in alphabetical order."""
        return sorted({name for name, _ in self._seas})

    def sea_at(self, point: Point, within_km: float) -> str | None:
        """The sea whose coast is within ``within_km`` of ``point``, or None."""
        reach = geodesy.degrees_around(within_km, point.y)
        near = self._tree.query(point.buffer(reach), predicate="intersects")
        if not any(geodesy.distance_km(point, self._coast[i], point.y) <= within_km for i in near):
            return None
        return next((name for name, boxes in self._seas if any(b.covers(point) for b in boxes)), None)

    def lake_at(self, point: Point, within_km: float) -> str | None:
        """The nearest lake within ``within_km`` of ``point``, or None."""
        reach = geodesy.degrees_around(within_km, point.y)
        near = [
            (geodesy.distance_km(point, lake, point.y), name)
            for name, lake in self.lakes.items()
            if shapely.dwithin(point, lake, reach)
        ]
        return min(((distance, name) for distance, name in near if distance <= within_km), default=(0, None))[1]

    def coasts(self, outline: BaseGeometry) -> set[str]:
        """Seas along a country: those that hold at least ten corners of its coast."""
        corners = shapely.points(shapely.get_coordinates(outline)[::5])
        pairs = self._tree.query(corners, predicate="dwithin", distance=0.05)
        coastal = [corners[i] for i in sorted(set(pairs[0].tolist()))]
        counts: dict[str, int] = {}
        for point in coastal:
            name = next((name for name, boxes in self._seas if any(b.covers(point) for b in boxes)), None)
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        return {name for name, count in counts.items() if count >= 10}


def _largest_cluster(parts: list[BaseGeometry]) -> MultiPolygon:
    """Polygons near the largest one; a lake elsewhere of the same name is another lake."""
    largest = max(parts, key=lambda part: part.area)
    near = [part for part in parts if shapely.dwithin(part, largest, 1.0)]
    return MultiPolygon([polygon for part in near for polygon in shapely.get_parts(part)])
