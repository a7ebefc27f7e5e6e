"""A graph that changes while it is served.

update, upload    changes that somebody wants: SPARQL Update, files
  │
live_graph        one folder, many processes: writes to the log and follows it
  ├── generations a base on disk that never changes, and a new one at times
  ├── log         every update since, in SQLite
  │
versions          the versions that a process holds: views, and one pyoxigraph store for all of them
  ├── state       the statements of the newest version, and the ids of their names
  └── overlay     a graph made from the one before

copying           back-ups, restored and repaired folders
  └── format_1    folders of an older version of the format

>>> live = LiveGraph("kg/live", base=splits)                                # doctest: +SKIP
>>> live.apply("INSERT DATA { :Bonn :located_on :Rhine }").version          # doctest: +SKIP
1
>>> view = live.snapshot(); view.graph, view.vocabulary, view.store          # doctest: +SKIP
"""

from biqe.serve.live.changes import Changes, Receipt, Statement, Text
from biqe.serve.live.generations import is_live_folder
from biqe.serve.live.live_graph import LiveConfig, LiveGraph
from biqe.serve.live.upload import Upload
from biqe.serve.live.versions import View

__all__ = [
    "Changes",
    "LiveConfig",
    "LiveGraph",
    "Receipt",
    "Statement",
    "Text",
    "Upload",
    "View",
    "is_live_folder",
]
