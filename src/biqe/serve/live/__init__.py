"""A graph that changes while it is served.

update, upload    what somebody wants changed, in the graph's names          SPARQL Update, files
  │
live_graph        one folder, many processes: takes turns, appends, follows
  ├── generations a base on disk that is never changed, and a new one at times
  ├── journal     what changed since, record by record
  │
history           the versions that a process has met
  ├── state       which statements there are, and the ids of their names
  ├── overlay     a graph out of the one before
  └── rdf         one pyoxigraph store, moved from version to version
  │
view              one version, which stays what it is

>>> live = LiveGraph("kg/live", base=splits)                                # doctest: +SKIP
>>> live.apply("INSERT DATA { :Bonn :located_on :Rhine }").version          # doctest: +SKIP
1
>>> view = live.snapshot(); view.graph, view.vocabulary, view.store          # doctest: +SKIP
"""

from biqe.serve.live.changes import Changes, Receipt, Statement, Text
from biqe.serve.live.generations import is_live_folder
from biqe.serve.live.live_graph import LiveConfig, LiveGraph
from biqe.serve.live.update import Update
from biqe.serve.live.upload import Upload
from biqe.serve.live.view import View

__all__ = [
    "Changes",
    "LiveConfig",
    "LiveGraph",
    "Receipt",
    "Statement",
    "Text",
    "Update",
    "Upload",
    "View",
    "is_live_folder",
]
