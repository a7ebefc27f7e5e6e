"""The words of a SPARQL text, with their places, the limits of a text, and what its names stand for.

The text is cut as the terminals of SPARQL 1.1 (section 19.8 of the recommendation) cut it, in linear time. Parsers take
the words one after the other; ``subset`` says what is wrong with a word that they cannot take.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urljoin

from biqe.errors import SparqlSyntax
from biqe.graph import PLAIN
from biqe.query.question import is_absolute, written
from biqe.query.subset import OUTSIDE, PATTERNS, SUPPORTED, explain, shown

if TYPE_CHECKING:
    from biqe.graph.vocabulary import Names

MAX_CHARACTERS = 100_000
MAX_WORDS = 1_500
"""Room for the most patterns and a long prologue."""
STORE_WORDS = 20_000
"""Words that the exact store is given."""
MAX_DEPTH = 8
"""Brackets within brackets: the parser is recursive."""

STANDARD = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Prefixes that need no declaration."""

_CLOSING = {"{": "}", "(": ")", "[": "]"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_LOCAL_ESCAPE = re.compile(r"\\(.)")

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

    def error(self, offset: int, message: str, hint: str | None = None) -> SparqlSyntax:
        """The error that points at ``offset`` of ``text``."""
        line, column = self.place(offset)
        return SparqlSyntax(message, line=line, column=column, hint=hint)

    def refuse_sizes(self, words: int = MAX_WORDS) -> None:
        """SparqlSyntax for a text without words, with too many of them, or with half a character."""
        broken = _SURROGATE.search(self.text)
        if broken is not None:
            raise self.error(broken.start(), "this is half of a character (a surrogate)", hint="write UTF-8")
        if len(self.words) > words:
            raise self.error(
                self.words[words].start,
                f"the query has {len(self.words):,} words; at most {words:,} are read",
                hint="ask a smaller query",
            )
        if not self.words:
            raise SparqlSyntax("the query is empty", line=1, column=1, hint=PATTERNS)

    def refuse_brackets(self, depth: int = MAX_DEPTH, last: Word | None = None) -> None:
        """SparqlSyntax for the first bracket that does not match or is nested too deeply, or string that is not closed.

        With ``last``, only the words up to this one are looked at.
        """
        open_: list[Word] = []
        for word in self.words:
            if last is not None and word.start > last.start:
                return
            if word.kind == "unclosed":
                raise self.error(word.start, "this string is not closed", hint=SUPPORTED)
            if word.kind != "sign":
                continue
            if word.text in _CLOSING:
                open_.append(word)
                if len(open_) > depth:
                    raise self.error(
                        word.start,
                        f"brackets are nested more than {depth} deep",
                        hint="give the inner nodes variables and write flat patterns",
                    )
            elif word.text in _CLOSING.values():
                if not open_:
                    raise self.error(word.start, f"{word.text!r} closes nothing", hint=PATTERNS)
                opened = open_.pop()
                if _CLOSING[opened.text] != word.text:
                    line, column = self.place(opened.start)
                    raise self.error(
                        word.start,
                        f"{word.text!r} does not close the {opened.text!r} of line {line}, column {column}",
                        hint=PATTERNS,
                    )
        if open_ and (last is None or last.kind == "end"):
            raise self.error(open_[-1].start, f"{open_[-1].text!r} is not closed", hint=PATTERNS)


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


def refuse_oversized(text: str) -> None:
    """SparqlSyntax for a text that is longer than any query has reason to be."""
    if len(text) > MAX_CHARACTERS:
        raise SparqlSyntax(
            f"the query has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", hint="ask a smaller query"
        )


class Words:
    """The words of a text, taken one after the other by a parser.

    >>> words = Words(scan("ASK { ?x OPTIONAL"))
    >>> words.take().text, words.accept("WHERE"), words.accept("{").text, words.word.text
    ('ASK', None, '{', '?x')
    """

    def __init__(self, scanned: Scan) -> None:
        self.scanned = scanned
        self._words = (*scanned.words, Word("end", "", len(scanned.text.rstrip())))
        self._at = 0
        self._depth = 0

    @property
    def word(self) -> Word:
        """The next word; of the kind ``end`` after the last."""
        return self._words[self._at]

    @property
    def following(self) -> Word:
        """The word after the next."""
        return self._words[min(self._at + 1, len(self._words) - 1)]

    def ahead(self, count: int) -> tuple[Word, ...]:
        """The next words; the last of the text again where there are no more."""
        return tuple(self._words[min(self._at + step, len(self._words) - 1)] for step in range(count))

    def take(self) -> Word:
        """The next word, and go on to the one after it."""
        word = self.word
        self._at += word.kind != "end"
        if word.kind == "sign" and word.text in _CLOSING:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self.scanned.refuse_brackets()
        elif word.kind == "sign" and word.text in _CLOSING.values():
            self._depth -= 1
        return word

    def back(self, word: Word) -> None:
        """Go back to a word that was taken, one within the same brackets as the next or within fewer."""
        at = self._words.index(word)
        signs = [each.text for each in self._words[at : self._at] if each.kind == "sign"]
        self._depth -= sum(text in _CLOSING for text in signs) - sum(text in _CLOSING.values() for text in signs)
        self._at = at

    def sees(self, *texts: str) -> bool:
        """Whether the next word is one of these signs or keywords, given in capitals."""
        return self.word.kind in ("sign", "keyword") and self.word.text.upper() in texts

    def accept(self, *texts: str) -> Word | None:
        """Take the next word if it is one of these signs or keywords."""
        return self.take() if self.sees(*texts) else None

    def expect(self, text: str, zone: str) -> Word:
        """Take this sign or keyword; SparqlSyntax if the next word is another."""
        if not self.sees(text):
            raise self.unexpected(zone)
        return self.take()

    def expect_variable(self, zone: str) -> Word:
        """Take a variable; SparqlSyntax if the next word is none."""
        if self.word.kind != "variable":
            raise self.unexpected(zone)
        return self.take()

    def first(self, text: str) -> int:
        """Offset of the first word that is ``text``, whatever its case and with or without a question mark."""
        found = (word.start for word in self.scanned.words if word.text.lstrip("?$").upper() == text.upper())
        return next(found, 0)

    def error(self, where: Word | str, message: str, hint: str) -> SparqlSyntax:
        """The error that points at a word, or at the first word that is ``where``."""
        offset = self.first(where) if isinstance(where, str) else where.start
        return self.scanned.error(offset, message, hint=hint)

    def outside(self, where: Word | str, what: str, instead: str) -> SparqlSyntax:
        """The error for ``what`` SPARQL has and the subset has not, with what to write instead."""
        return self.error(where, f"{what} is {OUTSIDE}", f"{instead}; {SUPPORTED}")

    def unexpected(self, zone: str) -> SparqlSyntax:
        """The error for the next word, which the grammar does not allow here."""
        before = self._words[self._at - 1] if self._at else self.word
        return explain(self, before, zone)


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


def in_query(names: Names, id_: int, prefixes: Mapping[str, str]) -> str:
    """A name as it can be written in a query. An underscore stands for a blank, unless there is such a name, too."""
    name = names[id_]
    joined = name.replace(" ", "_")
    return abbreviated(joined if joined == name or names.find(joined) is None else name, {**STANDARD, **prefixes})


def name_in(text: str, prefixes: Mapping[str, str]) -> str:
    """The graph's name for a single name as queries have it; any other text as it stands. Characters after a prefix
    need no backslashes here: nothing follows that they could be mistaken for.

    >>> [name_in(text, {"": "http://ex.org/"}) for text in (":Bonn", "<http://w.org/#Bonn>", ":Côte_d'Ivoire", "Bonn")]
    ['http://ex.org/Bonn', 'http://w.org/#Bonn', "http://ex.org/Côte_d'Ivoire", 'Bonn']
    """
    try:
        scanned = scan(text)
        words = [word for word in scanned.words if word.kind != "end"]
        if len(words) == 1 and words[0].kind in ("name", "iri"):
            return QueryNames(prefixes, scanned).name(words[0])
    except SparqlSyntax:
        pass
    prefix, colon, local = text.partition(":")
    namespace = prefixes.get(prefix, "" if prefix == "" else None)
    return text if not colon or namespace is None else namespace * is_absolute(namespace) + local


class QueryNames:
    """The prefixes and the base of one query text."""

    def __init__(self, given: Mapping[str, str], scanned: Scan) -> None:
        # A graph of plain names has no namespace, or an empty one.
        own = given.get("", "")
        self._own = own if is_absolute(own) else PLAIN
        """Namespace of the graph's own names: what a relative IRI is appended to where the query has no BASE."""
        self.prefixes = {**STANDARD, **given, "": self._own}
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
            raise self._scanned.error(
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
            raise self._scanned.error(
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
            raise self._scanned.error(word.start, message, hint="write the whole IRI") from None
