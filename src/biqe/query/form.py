"""rdflib's trees, remembered by the form of a text.

A program asks the same question about one entity after the other: its texts differ in nothing but names. So the names
between the braces are taken out before the text is read, and put back when its tree is translated; texts of one form
are then read once. Reading is most of what a text costs, and it depends on no name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biqe.query.grammar import PARSING, grammar
from biqe.query.scan import Scan

SLOT = "urn:biqe:slot:"
"""What stands for the name with the number that follows, in a form."""
REMEMBERED = 256
"""Forms whose trees are kept."""
REMEMBERED_LENGTH = 5_000
"""Characters of the longest of them."""

# Names that every reader of SPARQL cuts out of a text alike; any other stays in the form as it is written.
_SIMPLE = re.compile(r"[A-Za-z]*:[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Form:
    """A text without its names."""

    text: str
    names: tuple[str, ...]
    """As they are written: ``<Rhine>``, ``:Rhine``; number i is ``<SLOT i>`` in the text."""

    @classmethod
    def of(cls, scanned: Scan) -> Form:
        """The form of a text. Prefixes and BASE, before the first brace, stay.

        >>> from biqe.query.scan import scan
        >>> Form.of(scan("SELECT ?x { ?x :on <Rhine> }"))
        Form(text='SELECT ?x { ?x <urn:biqe:slot:0> <urn:biqe:slot:1> }', names=(':on', '<Rhine>'))
        """
        parts: list[str] = []
        names: list[str] = []
        at, inside = 0, False
        for kind, word, start in scanned.words:
            inside = inside or word == "{"
            if inside and (kind == "iri" or kind == "name" and _SIMPLE.fullmatch(word)):
                parts += (scanned.text[at:start], f"<{SLOT}{len(names)}>")
                names.append(word)
                at = start + len(word)
        parts.append(scanned.text[at:])
        return cls("".join(parts), tuple(names))

    def name(self, node: Any) -> str | None:
        """The name that a node of the form's tree stands for, as it is written; None for any other node."""
        from rdflib.term import URIRef

        return self.names[int(node[len(SLOT) :])] if isinstance(node, URIRef) and node.startswith(SLOT) else None

    def tree(self) -> tuple[Any, Any]:
        """Prologue and query; raises what the parser raises. Not to be changed: others share it."""
        return _remembered(self.text) if len(self.text) <= REMEMBERED_LENGTH else _read(self.text)


def _read(text: str) -> tuple[Any, Any]:
    with PARSING:
        prologue, query = grammar().parse_string(text, parse_all=True)
    return prologue, query


_remembered = lru_cache(maxsize=REMEMBERED)(_read)
