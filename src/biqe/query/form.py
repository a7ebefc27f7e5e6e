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
LENGTH = 1_500
"""Characters of the longest of them: a tree takes far more room than its text."""

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
        """The form of a text. Prefixes and BASE, before the first brace, stay; a text that names slots stays as it is.

        >>> from biqe.query.scan import scan
        >>> Form.of(scan("SELECT ?x { ?x :on <Rhine> }"))
        Form(text='SELECT ?x { ?x <urn:biqe:slot:0> <urn:biqe:slot:1> }', names=(':on', '<Rhine>'))
        """
        if SLOT in scanned.text:
            return cls.plain(scanned)
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

    @classmethod
    def plain(cls, scanned: Scan) -> Form:
        """The text itself as a form."""
        return cls(scanned.text, ())

    def name(self, node: Any) -> str | None:
        """The name that a node of the form's tree stands for, as it is written; None for any other node."""
        from rdflib.term import URIRef

        if not self.names:
            return None
        return self.names[int(node[len(SLOT) :])] if isinstance(node, URIRef) and node.startswith(SLOT) else None

    def tree(self) -> tuple[Any, Any] | None:
        """Prologue and query; None where the parser cannot read it. Not to be changed: others share it."""
        return _remembered(self.text) if len(self.text) <= LENGTH else _read(self.text)


def _read(text: str) -> tuple[Any, Any] | None:
    try:
        with PARSING:
            prologue, query = grammar().parse_string(text, parse_all=True)
    except Exception:
        # The parser is not ours, and neither is what it raises. Whoever wants to know why reads the text itself.
        return None
    return prologue, query


_remembered = lru_cache(maxsize=REMEMBERED)(_read)
