"""``python -m biqe`` is the command ``biqe``."""

import sys

from biqe.cli import main

sys.exit(main())
