"""Prefixes with which a graph's IRIs can be written short in SPARQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from biqe.graph.vocabulary import Names, Vocabulary

_SAMPLE = 100_000


def namespace_of(iri: str) -> str | None:
    """The IRI up to its local name, or None for a blank node or a name that is no IRI.

    >>> namespace_of("http://example.org/geo#Rhine"), namespace_of("urn:isbn:1"), namespace_of("_:b1")
    ('http://example.org/geo#', 'urn:isbn:', None)
    """
    if iri.startswith("_:") or ":" not in iri:
        return None
    end = iri.rfind("#") + 1 or iri.rfind("/") + 1 or iri.rfind(":") + 1
    return iri[:end]


def choose_prefixes(vocabulary: Vocabulary, declared: Mapping[str, str]) -> dict[str, str]:
    """The declared prefixes, and two that the graph itself suggests.

    The default prefix ``""``, where no file declares it, is the namespace that most entities share, so that
    ``:Germany`` can be written. ``rel`` is the namespace that most relations share, where it is another and has
    no prefix yet.
    """
    prefixes = dict(declared)
    if "" not in prefixes:
        prefixes[""] = _most_common(vocabulary.entities) or ""
    relations = _most_common(vocabulary.relations)
    if relations and "rel" not in prefixes and relations not in prefixes.values():
        prefixes["rel"] = relations
    return prefixes


def _most_common(names: Names) -> str | None:
    # A sample spread evenly over the ids is enough to find the largest namespace, and cheap for millions.
    step = max(1, len(names) // _SAMPLE)
    sample = [name for id_ in range(0, len(names), step) if not (name := names[id_]).startswith("_:")]
    found = Counter(namespace_of(name) for name in sample)
    if 2 * found.pop(None, 0) >= len(sample):  # mostly plain names: a colon in a few of them makes no namespace
        return None
    return min(found, key=lambda name: (-found[name], name or ""))
