"""Declarations of a SPARQL text: what its prefixed names and relative IRIs stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from biqe.query.ast import is_absolute
from biqe.query.scan import Scan, Word
from biqe.query.subset import shown, syntax_error

_LOCAL_ESCAPE = re.compile(r"\\(.)")


@dataclass
class Prologue:
    """PREFIX and BASE at the head of a text."""

    prefixes: dict[str, str] = field(default_factory=dict)
    base: str = ""
    end: int = 0
    """Number of the first word behind them."""

    @classmethod
    def of(cls, words: Sequence[Word]) -> Prologue:
        """The declarations that a text begins with.

        >>> from biqe.query.scan import scan
        >>> words = scan("PREFIX p: <urn:biqe:> ASK { SERVICE p:predict { ?x :on :Rhine } }").words
        >>> Prologue.of(words).iri(words[6])
        'urn:biqe:predict'
        """
        found = cls()
        while (count := declaration(words[found.end : found.end + 3])) > 0:
            iri = found._absolute(words[found.end + count - 1].text[1:-1])
            if count == 2:
                found.base = iri
            else:
                found.prefixes[words[found.end + 1].text[:-1]] = iri
            found.end += count
        return found

    def iri(self, word: Word) -> str | None:
        """The IRI that a word is, or stands for; None for any other word, and for a prefix that is not declared."""
        if word.kind == "iri":
            return self._absolute(word.text[1:-1])
        prefix, _, local = word.text.partition(":")
        if word.kind != "name" or prefix not in self.prefixes:
            return None
        return self.prefixes[prefix] + _LOCAL_ESCAPE.sub(r"\1", local)

    def _absolute(self, iri: str) -> str:
        # As for all queries, the name is put behind a urn: base; web addresses never come to one of our IRIs.
        return iri if is_absolute(iri) else self.base + iri


def declaration(words: Sequence[Word]) -> int:
    """Number of words that declare a prefix or the base, at the beginning; 0 where none do."""
    kinds = [word.kind for word in words[:3]]
    if kinds == ["keyword", "name", "iri"] and words[0].text.upper() == "PREFIX" and words[1].text.endswith(":"):
        return 3
    return 2 if kinds[:2] == ["keyword", "iri"] and words[0].text.upper() == "BASE" else 0


def refuse_undeclared(scanned: Scan, prefixes: Mapping[str, str] | None) -> None:
    """SparqlSyntax for the first prefix that neither the text nor the graph, which has ``prefixes``, declares."""
    declared = {"", *(prefixes or {})}
    for at, word in enumerate(scanned.words):
        prefix, colon, _ = word.text.partition(":")
        if word.kind != "name" or prefix in declared:
            continue
        if at and scanned.words[at - 1].text.upper() == "PREFIX":
            declared.add(prefix)
            continue
        raise syntax_error(
            scanned,
            word.start,
            f"prefix {shown(prefix + colon)} is not declared",
            hint=f"declared are {', '.join(f'{name}:' for name in sorted(declared))}; add PREFIX {prefix}: <...>",
        )
