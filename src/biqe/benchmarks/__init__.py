"""Other people's questions: readers of released query sets.

``read_release`` reads the CQ and Paths sets of the paper's authors, ``write_release`` writes sets of ours in
the same format.
"""

from biqe.benchmarks._cq_release import Release, read_release
from biqe.benchmarks._cq_writer import write_release

__all__ = ["Release", "read_release", "write_release"]
