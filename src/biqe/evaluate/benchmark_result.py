"""How a benchmark ends: its figures as one JSON object, in a file where that is wanted, and on its last line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def tell(result: Mapping[str, Any], out: Path | None) -> None:
    """Write ``result`` to the file ``out``, if there is one, and print it."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=4) + "\n", encoding="utf-8")
    print(json.dumps(result))
