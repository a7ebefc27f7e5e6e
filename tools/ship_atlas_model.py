"""Put the best model of a run on the atlas into the package, in half precision.

    biqe train atlas SETTINGS --out build/atlas-run && python tools/ship_atlas_model.py build/atlas-run

`make atlas-model` does both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biqe import atlas
from biqe.links.knowledge import save as save_knowledge
from biqe.models import store

LARGEST_BYTES = 4_500_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the run's model, check that it is one of the atlas, write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="run folder")
    options = parser.parse_args(arguments)
    loaded = store.load(options.run / "model")
    splits = atlas.load()
    if loaded.manifest["graph_fingerprint"] != splits.fingerprint:
        print(f"{options.run} was not trained on the atlas as it is now", file=sys.stderr)
        return 2
    store.save(
        loaded.model,
        atlas.model_path(),
        vocabulary=splits.vocabulary,
        graph_fingerprint=splits.fingerprint,
        trained=loaded.manifest["trained"],
        half=True,
    )
    knowledge: Any = getattr(loaded.model, "knowledge", None)
    if knowledge is not None:
        save_knowledge(knowledge, atlas.model_path())
    size = sum(path.stat().st_size for path in atlas.model_path().iterdir())
    print(f"{atlas.model_path().name}: {size:,} bytes, {loaded.manifest['trained']}")
    return 0 if size <= LARGEST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
