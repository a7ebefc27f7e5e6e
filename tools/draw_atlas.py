"""Draw a map of Europe as the atlas sees it, to be looked at.

python tools/draw_atlas.py --sources DIR --out build/atlas-europe.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atlas import countries, draw, places, relations, rivers, sources
from biqe import atlas


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder with the two packages")
    parser.add_argument("--out", type=Path, required=True, help="SVG file to write")
    options = parser.parse_args()
    contents = sources.read(options.sources)
    all_rivers, _ = rivers.read(contents["rivers.shp"], contents["rivers.dbf"])
    cities = places.read(contents["places.shp"], contents["places.dbf"])
    vocabulary = atlas.load().vocabulary
    labels = {vocabulary.label(entity).removesuffix(" River") for entity in range(len(vocabulary.entities))}
    kept = {river.name for river in all_rivers if river.name.removesuffix(" River") in labels}
    text = draw.europe(
        all_rivers, countries.read(contents["countries.json"]), cities, relations.located_on(cities, all_rivers), kept
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
