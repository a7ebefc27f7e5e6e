"""Names and labels of entities: plain, unique whatever the accents or case, and usable in SPARQL after a colon.

A label is for people (``St. Louis``, ``Alexandria, Louisiana``); a name is the label with underscores and without
signs that SPARQL would want escaped (``St_Louis``, ``Alexandria_Louisiana``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from atlas import tables
from atlas.places import plain

LOCAL_NAME = re.compile(r"\w(?:[\w-]*\w)?")
"""What follows the colon in SPARQL without escapes; a little narrower than the standard allows."""


class Names:
    """Names already given, and the labels that belong to them."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self._taken: set[str] = set()

    def give(self, labels: Iterable[str]) -> str:
        """Name for the first of ``labels`` that is still free; the build stops if none is."""
        tried = []
        for label in labels:
            name = _name(label)
            key = plain(name).replace(" ", "")  # El Dorado and Eldorado would be mistaken for each other
            if key not in self._taken:
                self._taken.add(key)
                self.labels[name] = label
                return name
            tried.append(label)
        raise SystemExit(f"no free name among {', '.join(tried)}")


def other_names(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name of an entity and a further name that people look for it by; the build stops at one that is another's."""
    named = {label: name for name, label in labels.items()}
    for row in tables.read("other_names.tsv"):
        if row["name"] not in named:
            raise SystemExit(f"other_names.tsv: the graph has no {row['name']}")
        for other in row["other"].split(", "):
            if other in named:
                raise SystemExit(f"other_names.tsv: {other}, of {row['name']}, is an entity of its own")
            yield named[row["name"]], other


def _name(label: str) -> str:
    """``label`` as a SPARQL local name."""
    name = re.sub(r"[\s_]+", "_", re.sub(r"[^\w\s-]", "", label.replace("/", " "))).strip("_-")
    if not LOCAL_NAME.fullmatch(name):
        raise SystemExit(f"label {label!r} makes no usable name")
    return name
