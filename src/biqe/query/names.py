"""What the names of a query text stand for: prefixes, relative IRIs, and plain names that are no IRIs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urljoin

from biqe.query.ast import is_absolute, written
from biqe.query.scan import Scan, Word, scan
from biqe.query.subset import shown, syntax_error

PLAIN = "urn:biqe:name:"
"""Namespace that stands for names that are no IRIs: ``:Rhine`` is ``<urn:biqe:name:Rhine>`` is the entity 'Rhine'."""

_LOCAL_ESCAPE = re.compile(r"\\(.)")


def abbreviated(name: str, prefixes: Mapping[str, str]) -> str:
    """A name as SPARQL text, short where a prefix allows it.

    >>> prefixes = {"": "http://ex.org/", "w": "http://w.org/#"}
    >>> [abbreviated(name, prefixes) for name in ("http://ex.org/Bonn", "http://w.org/#Bonn", "http://ex.org/a/b")]
    [':Bonn', 'w:Bonn', '<http://ex.org/a/b>']
    >>> abbreviated("Bonn", {"": ""}), abbreviated("New York", {"": ""})
    (':Bonn', '<New%20York>')
    """
    for prefix in sorted(prefixes):
        namespace = prefixes[prefix] if is_absolute(prefixes[prefix]) else ""
        short = f"{prefix}:{name.removeprefix(namespace)}"
        is_name = [(word.kind, word.text) for word in scan(short).words] == [("name", short)]
        if name.startswith(namespace) and is_name and "%" not in short and "\\" not in short:
            return short
    return written(name)


class QueryNames:
    """The prefixes and the base of one query text."""

    def __init__(self, given: Mapping[str, str], scanned: Scan) -> None:
        # A graph of plain names has no namespace, or an empty one.
        own = given.get("", "")
        self._own = own if is_absolute(own) else PLAIN
        """Namespace of the graph's own names: what a relative IRI is appended to where the query has no BASE."""
        self.prefixes = {**given, "": self._own}
        self.base: str | None = None
        self._scanned = scanned

    def name(self, word: Word) -> str:
        """The graph's name for a word that is an IRI or a prefixed name."""
        iri = self.iri(word)
        if not iri.startswith(PLAIN):
            return iri
        try:
            return unquote(iri.removeprefix(PLAIN), errors="strict")
        except UnicodeDecodeError:
            raise syntax_error(
                self._scanned,
                word.start,
                f"the percent codes of {shown(iri.removeprefix(PLAIN))} are not UTF-8",
                hint="write %C3%A9 for é, or é itself",
            ) from None

    def iri(self, word: Word) -> str:
        """The absolute IRI that a word stands for."""
        if word.kind == "iri":
            return self._absolute(word)
        prefix, _, local = word.text.partition(":")
        if prefix not in self.prefixes:
            known = ", ".join(f"{name}:" for name in sorted(self.prefixes))
            raise syntax_error(
                self._scanned,
                word.start,
                f"prefix {shown(prefix + ':')} is not declared",
                hint=f"declared are {known}; add PREFIX {prefix}: <...>, or write <{word.text}> if that is the name",
            )
        return self.prefixes[prefix] + _LOCAL_ESCAPE.sub(r"\1", local)

    def _absolute(self, word: Word) -> str:
        iri = word.text[1:-1]
        if is_absolute(iri):
            return iri
        # urljoin knows web addresses only. After urn: and the like, and without BASE, the name is simply appended.
        if self.base is None or not re.match(r"[a-z]+://", self.base):
            return (self.base or self._own) + iri
        try:
            # urljoin drops a bare # at the end, which namespaces need.
            return urljoin(self.base, iri) + ("#" if iri.endswith("#") else "")
        except ValueError as error:
            message = f"{shown(iri)} is no IRI relative to {shown(self.base)}: {error}"
            raise syntax_error(self._scanned, word.start, message, hint="write the whole IRI") from None
