"""A process that writes to a live graph, one update after the other, and tells what was acknowledged. Run by tests."""

from __future__ import annotations

import sys

from biqe.serve.live import Changes, LiveConfig, LiveGraph, Statement


def main(folder: str, name: str, count: int, compact_records: int) -> None:
    live = LiveGraph(folder, config=LiveConfig(compact_records=compact_records))
    for number in range(count):
        changes = [Changes(inserted=(Statement(f"{name}{number}", "r", "a"), Statement(f"{name}{number}", "s", "b")))]
        if number:
            changes.append(Changes(deleted=(Statement(f"{name}{number - 1}", "s", "b"),)))
        receipt = live.apply(changes)
        # Only now may anybody count on it.
        print(number, receipt.version, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
