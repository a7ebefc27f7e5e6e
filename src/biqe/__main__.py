"""The program ``biqe``, also as ``python -m biqe``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; a Ctrl-C while it is being loaded ends it silently."""
    try:
        from biqe.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
