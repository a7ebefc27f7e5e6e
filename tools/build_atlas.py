"""Build the embedded graph from its sources.

    apt-get download libmagics++-data      # into DIR
    npm pack world-atlas@2.0.2             # into DIR
    python tools/build_atlas.py --sources DIR --out src/biqe/atlas/graph

The result depends on the sources and on the tables in tools/atlas only: a second run gives the same fingerprint.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from atlas import assemble, countries, held_out, naming, places, relations, rivers, sources
from atlas.water import Water
from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary

PROVENANCE = [
    {
        "data": "rivers, lakes, coasts, populated places",
        "from": "Natural Earth 1:10m (versions 2.0.0 to 3.0.1), as shipped in the Debian package libmagics++-data",
        "package": "libmagics++-data 4.13.0-1",
        "licence": "public domain",
    },
    {
        "data": "countries and their borders",
        "from": "Natural Earth 1:10m (version 4.1.0), as TopoJSON in the npm package world-atlas",
        "package": "world-atlas 2.0.2",
        "licence": "ISC (package), public domain (data)",
    },
    {
        "data": "names, continents, seas, confluences, corrections",
        "from": "tables in tools/atlas, written for biqe",
        "package": "biqe",
        "licence": "Apache-2.0",
    },
]


def build(source_folder: Path) -> tuple[Splits, dict]:
    """The atlas as splits, and what its manifest says about it."""
    contents = sources.read(source_folder)
    all_rivers, dropped = rivers.read(contents["rivers.shp"], contents["rivers.dbf"])
    atlas = assemble.assemble(
        all_rivers,
        countries.read(contents["countries.json"]),
        places.read(contents["places.shp"], contents["places.dbf"]),
        Water(contents["water.shp"], contents["water.dbf"]),
        countries.outline_arcs(contents["countries.json"]),
    )
    splits = encode(atlas)
    extra = {
        "title": "atlas: rivers, cities and countries",
        "provenance": PROVENANCE,
        "files": {path: digest for _, path, digest in sources.FILES.values()},
        "cut_offs_km": {
            "located_on": relations.ON_RIVER_KM,
            "located_on, cities above 500,000": relations.BIG_CITY_ON_RIVER_KM,
            "flows_through, inside": relations.INSIDE_KM,
            "flows_through, along a border": relations.BORDER_KM,
            "flows_into, confluence": relations.JOIN_KM,
            "flows_into, mouth": relations.MOUTH_KM,
            "near": relations.NEAR_KM,
            "on_sea": assemble.ON_SEA_KM,
            "on_lake": assemble.ON_LAKE_KM,
        },
        # What counts as known when the atlas is asked: the held-out facts are there to be predicted.
        "known": "train",
        "held_out": {"shares": held_out.SHARES, "seed": held_out.SEED},
        "left_out": {**atlas.left_out, "lines of rivers": len(dropped)},
    }
    return splits, extra


def encode(atlas: assemble.Atlas) -> Splits:
    """Ids in alphabetical order of names."""
    parts = held_out.split(atlas.facts)
    entities = sorted({name for subject, _, object_ in atlas.facts for name in (subject, object_)})
    relation_names = sorted({relation for _, relation, _ in atlas.facts})
    entity, relation = ({name: id_ for id_, name in enumerate(names)} for names in (entities, relation_names))
    labels = {entity[name]: label for name, label in sorted(atlas.labels.items()) if label != name}
    aliases = [(entity[name], other) for name, other in naming.other_names(atlas.labels)]
    arrays = {
        part: as_triples([(entity[s], relation[r], entity[o]) for s, r, o in sorted(facts)])
        for part, facts in parts.items()
    }
    vocabulary = Vocabulary(entities, relation_names, labels, aliases=aliases)
    return Splits(vocabulary, arrays["train"], arrays["valid"], arrays["test"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder with the two packages")
    parser.add_argument("--out", type=Path, required=True, help="graph folder to write; an older one is replaced")
    options = parser.parse_args()
    splits, extra = build(options.sources)
    manifest = folder.save(splits, options.out, extra=extra, force=True)
    names = splits.vocabulary.relations
    for part in ("train", "valid", "test"):
        counts = Counter(names[relation] for relation in splits[part].triples[:, 1].tolist())
        print(f"{part}: {sum(counts.values()):,} triples:", ", ".join(f"{k} {v:,}" for k, v in sorted(counts.items())))
    print(f"{len(splits.vocabulary.entities):,} entities; fingerprint {manifest['fingerprint']}")


if __name__ == "__main__":
    main()
