"""Refuse files above 4 MB: data and models that can be made again do not belong in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 4 * 1024 * 1024


def main(paths: list[str]) -> int:
    """Names of the files that are too large on standard output; 1 if there is any."""
    large = [path for path in map(Path, paths) if path.is_file() and path.stat().st_size > LIMIT]
    for path in large:
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MB, more than {LIMIT // 2**20} MB")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
