"""Other people's questions: readers of released query sets.

``read_release`` reads the CQ and Paths sets of the paper's authors, ``write_release`` writes sets of ours in
the same format.
"""

from biqe.benchmarks._cq_release import FILTER_GRAPHS, Release, read_release, release_kind
from biqe.benchmarks._cq_writer import write_release

__all__ = ["FILTER_GRAPHS", "Release", "read_release", "release_kind", "write_release"]
