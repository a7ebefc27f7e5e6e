"""What the names of a query text stand for: prefixes, relative IRIs, and plain names that are no IRIs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin

from biqe.errors import SparqlSyntax
from biqe.query.ast import is_absolute
from biqe.query.form import Form
from biqe.query.scan import Scan
from biqe.query.subset import shown, syntax_error

PLAIN = "urn:biqe:name:"
"""Namespace that stands for names that are no IRIs: ``:Rhine`` is ``<urn:biqe:name:Rhine>`` is the entity 'Rhine'."""

_LOCAL_ESCAPE = re.compile(r"\\(.)")


@dataclass
class QueryNames:
    """What prefixed names and relative IRIs stand for."""

    scanned: Scan
    prefixes: dict[str, str]
    own: str
    """Namespace of the graph's own names, whatever the query declares: what a relative IRI is put behind."""
    form: Form
    """What stands for names in the tree."""
    base: str | None = None
    """BASE of the query; None where it gave none."""

    # [4] Prologue ::= ( BaseDecl | PrefixDecl )*
    @classmethod
    def of(cls, prologue: Any, given: Mapping[str, str], scanned: Scan, form: Form) -> QueryNames:
        # A graph of plain names has no namespace, or an empty one.
        own = given.get("", "")
        own = own if is_absolute(own) else PLAIN
        names = cls(scanned, {**given, "": own}, own, form)
        for declaration in prologue:
            iri = names._absolute(str(declaration.iri))
            if declaration.name == "Base":
                names.base = iri
            else:
                names.prefixes[str(declaration.prefix or "")] = iri
        names._refuse_undeclared()
        return names

    def _refuse_undeclared(self) -> None:
        for word in self.scanned.words:
            prefix, colon, local = word.text.partition(":")
            if word.kind != "name" or prefix in self.prefixes:
                continue
            known = ", ".join(f"{name}:" for name in sorted(self.prefixes))
            raise syntax_error(
                self.scanned,
                word.start,
                f"prefix {shown(prefix + colon)} is not declared",
                hint=f"declared are {known}; add PREFIX {prefix}: <...>, or write <{word.text}> if that is the name",
            )

    # [136] iri ::= IRIREF | PrefixedName
    def name(self, node: Any) -> str:
        """The graph's name for a node of the tree that is an IRI."""
        word = self.form.name(node)
        if getattr(node, "name", None) == "pname":
            local = _LOCAL_ESCAPE.sub(r"\1", str(node.localname or ""))
            iri = self.prefixes[str(node.prefix or "")] + local
        elif word is None or word.startswith("<"):
            iri = self._absolute(str(node) if word is None else word[1:-1])
        else:
            prefix, _, local = word.partition(":")
            iri = self.prefixes[prefix] + local
        return self._plain(iri)

    def _plain(self, iri: str) -> str:
        if not iri.startswith(PLAIN):
            return iri
        try:
            return unquote(iri.removeprefix(PLAIN), errors="strict")
        except UnicodeDecodeError:
            local = iri.removeprefix(PLAIN)
            message = f"the percent codes of {shown(local)} are not UTF-8"
            raise self._refusal(local, message, "write %C3%A9 for é, or é itself") from None

    def _absolute(self, iri: str) -> str:
        if is_absolute(iri):
            return iri
        # urljoin knows web addresses only; for urn: and the like, and without BASE, the name is put behind.
        if self.base is None or not re.match(r"[a-z]+://", self.base):
            return (self.base or self.own) + iri
        try:
            # A bare # at the end is dropped by urljoin; namespaces live by it.
            return urljoin(self.base, iri) + ("#" if iri.endswith("#") else "")
        except ValueError as error:
            message = f"{shown(iri)} is no IRI relative to {shown(self.base)}: {error}"
            raise self._refusal(iri, message, "write the whole IRI") from None

    def _refusal(self, part: str, message: str, hint: str) -> SparqlSyntax:
        """The error that points at the first word with ``part`` in it."""
        found = (word.start for word in self.scanned.words if part in word.text)
        return syntax_error(self.scanned, next(found, 0), message, hint=hint)
