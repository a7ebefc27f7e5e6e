"""Limits of a query text, the words of it one after the other, and what an unexpected word is told.

SPARQL has many clauses that biqe does not predict. A word of one of them is refused by name, with what to write
instead; so is a literal, a function or a path sign. What a word may be depends on where it stands: its zone.
"""

from __future__ import annotations

import re

from biqe.errors import SparqlSyntax
from biqe.query.scan import TERMS, Scan, Word

MAX_CHARACTERS = 100_000
MAX_WORDS = 1_500
"""Room for the most patterns and a long prologue."""
STORE_WORDS = 20_000
"""Words that the exact store is given."""
MAX_PATTERNS = 256
MAX_BRANCHES = 32
"""Conjunctions that UNION may come to, once every combination of sides is written out."""
MAX_DEPTH = 8
"""Brackets within brackets: the parser is recursive."""
MAX_REGEX = 1_000
"""Characters of a regular expression."""

SUPPORTED = (
    "supported are SELECT, ASK, COUNT, triple patterns, FILTER, VALUES, UNION, ORDER BY, LIMIT and OFFSET; "
    "--mode known takes all of SPARQL 1.1; see docs/concepts/sparql.md"
)
OUTSIDE = "outside the supported subset"
"""Part of every message about something that SPARQL has and biqe does not predict."""
PATTERNS = "a query is SELECT ?x WHERE { subject relation object . ... }; see docs/concepts/sparql.md"

TOP, GROUP, EXPRESSION, VALUES, HEAD, ORDER = "top", "group", "expression", "values", "head", "order"
"""Zones: outside of all brackets; patterns between braces; a FILTER; a VALUES block; COUNT in SELECT; ORDER BY."""

FUNCTIONS = "regex, contains, strstarts, strends, str and isIRI"
_TOP_WORDS = frozenset("SELECT DISTINCT WHERE ASK LIMIT OFFSET PREFIX BASE ORDER BY ASC DESC VALUES".split())
_WORDS = _TOP_WORDS.union(
    "FILTER UNION REGEX STR CONTAINS STRSTARTS STRENDS ISIRI ISURI IN NOT UNDEF COUNT DISTINCT AS".split()
)
"""Keywords of the subset."""

_REFUSED = {
    "OPTIONAL": "ask two queries, with and without the optional patterns",
    "MINUS": "absence is not predicted; drop it",
    "EXISTS": "write the patterns beside the others; absence is not predicted",
    "BIND": "use the value where the variable stands",
    "GRAPH": "a graph here is one set of triples; drop it",
    "SERVICE": "only this graph is asked; drop it",
    "FROM": "only this graph is asked; drop it",
    "REDUCED": "use DISTINCT; rows never come twice here",
    "GROUP": "ask one COUNT for each value, or ask for the rows and group them afterwards",
    "HAVING": "ask for the rows and group them afterwards",
    "CONSTRUCT": "use SELECT",
    "DESCRIBE": "use SELECT with a pattern for each relation",
    **dict.fromkeys(
        ("SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"), "ask for the rows; COUNT is the one aggregate here"
    ),
    **dict.fromkeys(
        ("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH", "USING"),
        "a graph is not changed by a query; import the new triples",
    ),
}
_PATH_SIGNS = {
    "|": "write { ?x :p ?y } UNION { ?x :q ?y }",
    "!": "name the relation",
    "*": "write one pattern for each length of the path, joined by UNION",
    "+": "write one pattern for each length of the path, joined by UNION",
    "?": "write { ... } UNION { ... }, with and without the relation",
}
_CLOSING = {"{": "}", "(": ")", "[": "]"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME_REST = re.compile(r"[^\s<>\"{}|^`\\;]+")
_TO_ESCAPE = re.compile(r"[~!$&'()*+,;=/?#@]")
"""Characters that a prefixed name may have after a backslash only."""


def syntax_error(scanned: Scan, offset: int, message: str, *, hint: str | None = None) -> SparqlSyntax:
    """The error that points at ``offset`` of the scanned text."""
    line, column = scanned.place(offset)
    return SparqlSyntax(message, line=line, column=column, hint=hint)


def shown(text: str) -> str:
    """A piece of the query as an error shows it: quoted, and cut where it is long."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def refuse_oversized(text: str) -> None:
    """SparqlSyntax for a text that is longer than any query has reason to be."""
    if len(text) > MAX_CHARACTERS:
        raise SparqlSyntax(
            f"the query has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", hint="ask a smaller query"
        )


def refuse_unreadable(scanned: Scan, *, depth: int = MAX_DEPTH, words: int = STORE_WORDS) -> None:
    """SparqlSyntax for any SPARQL text that is too long, is nested too deeply, or has brackets that do not match."""
    refuse_sizes(scanned, words)
    refuse_brackets(scanned, depth)


def refuse_sizes(scanned: Scan, words: int = MAX_WORDS) -> None:
    """SparqlSyntax for a text without words, with too many of them, or with half a character."""
    broken = _SURROGATE.search(scanned.text)
    if broken is not None:
        raise syntax_error(scanned, broken.start(), "this is half of a character (a surrogate)", hint="write UTF-8")
    if len(scanned.words) > words:
        raise syntax_error(
            scanned,
            scanned.words[words].start,
            f"the query has {len(scanned.words):,} words; at most {words:,} are read",
            hint="ask a smaller query",
        )
    if not scanned.words:
        raise SparqlSyntax("the query is empty", line=1, column=1, hint=PATTERNS)


def refuse_brackets(scanned: Scan, depth: int = MAX_DEPTH, last: Word | None = None) -> None:
    """SparqlSyntax for the first bracket that does not match or is nested too deeply, or string that is not closed.

    With ``last``, only the words up to this one are looked at.
    """
    open_: list[Word] = []
    for word in scanned.words:
        if last is not None and word.start > last.start:
            return
        if word.kind == "unclosed":
            raise syntax_error(scanned, word.start, "this string is not closed", hint=SUPPORTED)
        if word.kind != "sign":
            continue
        if word.text in _CLOSING:
            open_.append(word)
            if len(open_) > depth:
                raise syntax_error(
                    scanned,
                    word.start,
                    f"brackets are nested more than {depth} deep",
                    hint="give the inner nodes variables and write flat patterns",
                )
        elif word.text in _CLOSING.values():
            if not open_:
                raise syntax_error(scanned, word.start, f"{word.text!r} closes nothing", hint=PATTERNS)
            opened = open_.pop()
            if _CLOSING[opened.text] != word.text:
                line, column = scanned.place(opened.start)
                raise syntax_error(
                    scanned,
                    word.start,
                    f"{word.text!r} does not close the {opened.text!r} of line {line}, column {column}",
                    hint=PATTERNS,
                )
    if open_ and (last is None or last.kind == "end"):
        raise syntax_error(scanned, open_[-1].start, f"{open_[-1].text!r} is not closed", hint=PATTERNS)


class Words:
    """The words of a text, taken one after the other by a parser.

    >>> from biqe.query.scan import scan
    >>> words = Words(scan("ASK { ?x OPTIONAL"))
    >>> words.expect("ASK", TOP).text, words.accept("WHERE"), words.expect("{", TOP).text, words.take().text
    ('ASK', None, '{', '?x')
    >>> print(words.unexpected(GROUP).message)
    line 1, column 10: OPTIONAL is outside the supported subset
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

    def take(self) -> Word:
        """The next word, and go on to the one after it."""
        word = self.word
        self._at += word.kind != "end"
        if word.kind == "sign" and word.text in _CLOSING:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                refuse_brackets(self.scanned)
        elif word.kind == "sign" and word.text in _CLOSING.values():
            self._depth -= 1
        return word

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
        return syntax_error(self.scanned, offset, message, hint=hint)

    def outside(self, where: Word | str, what: str, instead: str) -> SparqlSyntax:
        """The error for ``what`` SPARQL has and the subset has not, with what to write instead."""
        return self.error(where, f"{what} is {OUTSIDE}", f"{instead}; {SUPPORTED}")

    def unexpected(self, zone: str) -> SparqlSyntax:
        """The error for the next word, which the grammar does not allow here."""
        word, after = self.word, self.following
        before = self._words[self._at - 1] if self._at else word
        if zone == ORDER and self._is_operand(word):
            return self.outside(word, "an expression in ORDER BY", "order by a variable, as in ORDER BY DESC(?x)")
        if before.kind == "name" and before.start + len(before.text) == word.start and word.text[:1] in ("'", "(", "&"):
            return self._name_cut_short(before)
        if word.kind == "keyword":
            found = self._keyword(zone)
            if found is not None:
                return found
        elif word.kind == "unclosed":
            return self.error(word, "this string is not closed", SUPPORTED)
        elif word.kind in ("string", "tag", "number"):
            return self._literal(zone)
        elif word.kind == "sign":
            if word.text in "+-" and after.kind == "number":
                return self._literal(zone)
            if zone == EXPRESSION and word.text in "+-*/":
                return self.outside(word, "arithmetic", "entities have names, not numbers")
            if word.text == "<" and after.kind != "end":
                return self.error(
                    word,
                    "this '<' begins no name: a name in <...> has no blank and none of < \" { } | ^ ` \\",
                    "write %20 for a blank, as in <New%20York>, or :New_York",
                )
            if zone == GROUP and word.text in _PATH_SIGNS:
                return self.outside(word, f"the path sign {word.text!r}", _PATH_SIGNS[word.text])
        refuse_brackets(self.scanned, last=word)
        if word.kind == "end":
            return self.error(word, "the query ends too early", PATTERNS)
        is_third_or_more = word.kind in TERMS and zone == GROUP and before.text not in "{}.;"
        hint = f"patterns are parted by '.'; {PATTERNS}" if is_third_or_more else PATTERNS
        return self.error(word, f"{shown(word.text)} is not expected here", hint)

    def _is_operand(self, word: Word) -> bool:
        if word.kind == "keyword":
            return word.text.upper() not in _REFUSED.keys() | _TOP_WORDS
        return word.kind in TERMS - {"variable"} or (word.kind == "sign" and word.text not in "{}()[].,;")

    def _keyword(self, zone: str) -> SparqlSyntax | None:
        word, upper = self.word, self.word.text.upper()
        if upper in ("TRUE", "FALSE"):
            return self._literal(zone)
        if upper == "NOT" and self.following.text.upper() == "EXISTS":
            return self.outside(word, "NOT EXISTS", _REFUSED["MINUS"])
        if upper == "SELECT" and zone != TOP:
            return self.outside(word, "a SELECT within braces", "write its patterns in the outer query")
        if upper == "DISTINCT" and zone != TOP:
            return self.outside(word, "DISTINCT within braces", "rows never come twice here; drop it")
        if upper in _REFUSED:
            return self.outside(word, upper, _REFUSED[upper])
        if zone == EXPRESSION:
            return self.outside(word, f"the function or word {shown(word.text)}", f"functions are {FUNCTIONS}")
        if upper in _WORDS:
            # Where the word is one of this zone, its order is wrong, and the general message says so.
            return None if zone in (TOP, ORDER) else self.error(word, f"{upper} is not expected here", SUPPORTED)
        if word.text == "a":
            return None
        text = word.text if len(word.text) <= 40 else f"{word.text[:37]}..."
        return self.error(
            word,
            f"{text!r} is neither a name nor a word of the supported subset",
            f"write :{text} or <{text}> if it is a name, ?{text} if it is a variable; {SUPPORTED}",
        )

    def _literal(self, zone: str) -> SparqlSyntax:
        what = "a number" if self.word.kind in ("number", "sign") else "a literal"
        instead = "patterns join entities; write an entity's name as :name or <name>"
        if zone == EXPRESSION:
            instead = 'entities have names, not values; compare names, as in str(?x) = "5"'
        return self.outside(self.word, what, instead)

    def _name_cut_short(self, name: Word) -> SparqlSyntax:
        """A prefixed name such as ``:Côte_d'Ivoire`` ends where a character stands that it may have only escaped."""
        end = name.start + len(name.text)
        rest = _NAME_REST.match(self.scanned.text, end)
        tail = rest[0].rstrip(".,") if rest is not None else ""
        if "(" not in tail:  # then a bracket at its end belongs to the query
            tail = tail.rstrip(")")
        whole = name.text + tail
        prefix, _, local = whole.partition(":")
        escaped = name.text + _TO_ESCAPE.sub(r"\\\g<0>", tail)
        either = f"{escaped} or <{local}>" if not prefix else escaped
        return self.error(
            name,
            f"the name {shown(name.text)} ends before {self.scanned.text[end]!r}",
            f"such a character needs a backslash: write {either}",
        )
