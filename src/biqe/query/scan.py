"""Words of a SPARQL text, with their places: what parsers read and error messages point at.

The text is cut as the terminals of SPARQL 1.1 (section 19.8 of the recommendation) cut it, in linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

# PN_CHARS_BASE of the recommendation.
_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_VAR = f"{_BASE}_0-9\u00b7\u0300-\u036f\u203f\u2040"
_CHAR = f"{_VAR}\\-"
_PREFIX = rf"[{_BASE}](?:[{_CHAR}]|\.{{1,8}}(?=[{_CHAR}])){{0,100}}+"
_LOCAL = rf"(?:[{_CHAR}:]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"

# Dots may stand inside a name but not at its end, so that a name can be followed by the full stop of a pattern.
# Unclosed strings take the rest of the line (long ones, of the text), and a prefix is bounded in length: without
# either, text such as a.a.a.a or '\'\'\ would be looked through again from every word.
_WORDS = re.compile(
    rf"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>\#[^\r\n]*)
  | (?P<iri><[^<>"{{}}|^`\\\x00-\x20]*>)
  | (?P<string>'''(?:'{{0,2}}(?:[^'\\]|\\.))*+'''|\"\"\"(?:"{{0,2}}(?:[^"\\]|\\.))*+\"\"\"
      |(?!'''|\"\"\")(?:'(?:[^'\\\r\n]|\\.)*+'|"(?:[^"\\\r\n]|\\.)*+"))
  | (?P<unclosed>'''.*|\"\"\".*|['"][^\r\n]*)
  | (?P<variable>[?$][{_BASE}_0-9][{_VAR}]*)
  | (?P<blank>_:[{_BASE}_0-9](?:[{_CHAR}]|\.+(?=[{_CHAR}]))*)
  | (?P<name>(?:{_PREFIX})?:(?:(?!-){_LOCAL}(?:{_LOCAL}|\.+(?={_LOCAL}))*)?)
  | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<keyword>[{_BASE}_][{_CHAR}]*)
  | (?P<tag>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)
  | (?P<sign>\^\^|&&|\|\||!=|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")

TERMS = frozenset({"iri", "string", "variable", "blank", "name", "number"})
"""Kinds of words that stand for a term by themselves."""


class Word(NamedTuple):
    """A word of a query: iri, string, unclosed (string), variable, blank, name, number, keyword, tag or sign."""

    kind: str
    text: str
    start: int


@dataclass(frozen=True)
class Scan:
    """A query text cut into words."""

    text: str
    """The text with its code points unescaped and its comments blanked out."""
    words: tuple[Word, ...]
    _source: str
    _shifts: tuple[tuple[int, int], ...]
    """(offset in ``text``, characters that the source is longer up to there), in order."""

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, counted from 1, of an offset of ``text``, in the text that the user wrote."""
        before = bisect_right(self._shifts, (offset, 0)) - 1
        offset += self._shifts[before][1] if before >= 0 else 0
        lines = re.split(r"\r\n|\r|\n", self._source[:offset])
        return len(lines), len(lines[-1]) + 1

    def word_at(self, offset: int) -> Word | None:
        """The first word that ends after ``offset``; None at the end of the text."""
        return next((word for word in self.words if word.start + len(word.text) > offset), None)


def scan(source: str) -> Scan:
    r"""The words of ``source``. Never fails: what is no SPARQL at all becomes signs of one character.

    >>> found = scan("SELECT ?x # all\n{ ?x :p.q :r. }")
    >>> [word.text for word in found.words]
    ['SELECT', '?x', '{', '?x', ':p.q', ':r', '.', '}']
    >>> found.place(found.words[4].start)
    (2, 6)
    """
    text, shifts = _unescape(source)
    words: list[Word] = []
    parts: list[str] = []
    for found in _WORDS.finditer(text):
        kind = str(found.lastgroup)
        if kind == "comment":
            parts.append(" " * (found.end() - found.start()))
            continue
        parts.append(found[0])
        if kind != "space":
            words.append(Word(kind, found[0], found.start()))
    return Scan("".join(parts), tuple(words), source, shifts)


def _unescape(source: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    r"""``\uXXXX`` and ``\UXXXXXXXX`` replaced, as SPARQL does before it reads anything; codes of no character stay."""
    parts: list[str] = []
    shifts: list[tuple[int, int]] = []
    at = length = 0
    for found in _ESCAPE.finditer(source):
        code = int(found[1] or found[2], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            continue
        parts += (source[at : found.start()], chr(code))
        length += found.start() - at + 1
        at = found.end()
        shifts.append((length, at - length))
    parts.append(source[at:])
    return "".join(parts), tuple(shifts)
