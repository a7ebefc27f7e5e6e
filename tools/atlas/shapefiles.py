"""Shapefiles out of memory: records with geometry. The source is in Windows-1252, as its letters show."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import shapefile
from shapely.geometry import shape
from shapely.geometry.base import BaseGeometry


def read(shapes: bytes, table: bytes) -> Iterator[tuple[dict[str, Any], BaseGeometry]]:
    """Records and geometries, in the order of the file."""
    with shapefile.Reader(shp=io.BytesIO(shapes), dbf=io.BytesIO(table), encoding="cp1252") as reader:
        for item in reader.iterShapeRecords():
            yield item.record.as_dict(), shape(item.shape.__geo_interface__)
