"""Lengths and distances on the globe in kilometres, exact enough for cut-offs of a few kilometres.

Coordinates are degrees, longitude first. Near one latitude a degree of longitude shrinks by its cosine, so a
geometry stretched by that factor can be measured flat.
"""

from __future__ import annotations

import math

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

KM_PER_DEGREE = 111.195


def flat(geometry: BaseGeometry, latitude: float) -> BaseGeometry:
    """``geometry`` in kilometres, true to scale near ``latitude``."""
    scale = np.array([KM_PER_DEGREE * math.cos(math.radians(latitude)), KM_PER_DEGREE])
    return shapely.transform(geometry, lambda points: points * scale)


def distance_km(a: BaseGeometry, b: BaseGeometry, latitude: float) -> float:
    """Distance of two geometries near ``latitude``."""
    return float(flat(a, latitude).distance(flat(b, latitude)))


def length_km(line: BaseGeometry) -> float:
    """Length of a line or of several."""
    total = 0.0
    for part in shapely.get_parts(line):
        if part.geom_type != "LineString":
            continue
        points = shapely.get_coordinates(part)
        step = np.diff(points, axis=0)
        middle = np.radians((points[1:, 1] + points[:-1, 1]) / 2)
        total += float(np.hypot(step[:, 0] * np.cos(middle), step[:, 1]).sum()) * KM_PER_DEGREE
    return total


def degrees_around(kilometres: float, latitude: float) -> float:
    """A span in degrees that surely covers ``kilometres`` in every direction at ``latitude``."""
    return kilometres / KM_PER_DEGREE / max(math.cos(math.radians(latitude)), 0.05)
