"""What of SPARQL is outside the subset, found by its words before the parser runs.

To support one more clause, take its keyword out of ``_REFUSED``, join its production in ``grammar`` and
translate its node in ``translate``. A word means different things in different places, so the brackets that are open
are kept on a stack, each with the zone that it opens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from biqe.errors import SparqlSyntax
from biqe.query.scan import Scan, Word

MAX_CHARACTERS = 100_000
MAX_WORDS = 1_500
"""Room for the most patterns and a long prologue; the parser takes up to half a millisecond a word."""
STORE_WORDS = 20_000
"""Words that the exact store is given: its parser takes microseconds a word."""
MAX_PATTERNS = 256
MAX_BRANCHES = 32
"""Conjunctions that UNION may come to, once every combination of sides is written out."""
MAX_DEPTH = 8
"""Brackets within brackets. The parser is recursive and Python's stack is not endless."""
MAX_REGEX = 1_000
"""Characters of a regular expression."""

SUPPORTED = (
    "supported are SELECT, ASK, COUNT, triple patterns, FILTER, VALUES, UNION, ORDER BY, LIMIT and OFFSET; "
    "--mode known takes all of SPARQL 1.1; see docs/concepts/sparql.md"
)
OUTSIDE = "outside the supported subset"
"""What every refusal of something that SPARQL has, and biqe does not predict, says."""
PATTERNS = "a query is SELECT ?x WHERE { subject relation object . ... }; see docs/concepts/sparql.md"

GROUP, EXPRESSION, VALUES, HEAD, ORDER, LIST, TOP = "group", "expression", "values", "head", "order", "list", "top"
"""Zones: between braces; a FILTER; a VALUES block; an expression in SELECT; a key of ORDER BY; brackets of a path, a
collection or a blank node; outside of all brackets."""

_ALLOWED = {
    TOP: frozenset("SELECT DISTINCT WHERE ASK LIMIT OFFSET PREFIX BASE ORDER BY ASC DESC VALUES".split()),
    GROUP: frozenset("A FILTER UNION VALUES".split()),
    LIST: frozenset({"A"}),
    EXPRESSION: frozenset("REGEX STR CONTAINS STRSTARTS STRENDS ISIRI ISURI IN NOT".split()),
    VALUES: frozenset({"UNDEF"}),
    HEAD: frozenset("COUNT DISTINCT AS".split()),
    ORDER: frozenset(),
}
FUNCTIONS = "regex, contains, strstarts, strends, str and isIRI"

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

_OPERANDS = ("iri", "name", "string", "number", "tag", "blank")
"""Kinds of words that an expression may have and a variable in brackets has not."""
_PUNCTUATION = "{}()[].,;"
_CLOSING = {"{": "}", "(": ")", "[": "]"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def syntax_error(scanned: Scan, offset: int, message: str, *, hint: str | None = None) -> SparqlSyntax:
    """The error that points at ``offset`` of the scanned text."""
    line, column = scanned.place(offset)
    return SparqlSyntax(message, line=line, column=column, hint=hint)


def shown(text: str) -> str:
    """A piece of the query as an error shows it: quoted, not endless."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def refuse_oversized(text: str) -> None:
    """SparqlSyntax for a text that is longer than any query has reason to be."""
    if len(text) > MAX_CHARACTERS:
        raise SparqlSyntax(
            f"the query has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", hint="ask a smaller query"
        )


def refuse_unreadable(scanned: Scan, *, depth: int = MAX_DEPTH, words: int = STORE_WORDS) -> None:
    """SparqlSyntax for what no SPARQL text may have, or not so much of: what the exact store refuses too."""
    _refuse_sizes(scanned, words)
    _refuse_brackets(scanned, depth)


def refuse_unsupported(scanned: Scan) -> None:
    """SparqlSyntax for the first word that the subset does not have, and for brackets that do not match."""
    _refuse_sizes(scanned)
    # A word that is outside the subset explains more than the bracket that it left open; so words go first.
    _Walk(scanned).words()
    _refuse_brackets(scanned, MAX_DEPTH)


def _refuse_sizes(scanned: Scan, words: int = MAX_WORDS) -> None:
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


def _refuse_brackets(scanned: Scan, depth: int) -> None:
    open_: list[Word] = []
    for word in scanned.words:
        if word.kind == "unclosed":
            raise syntax_error(scanned, word.start, "this string is not closed", hint=SUPPORTED)
        if word.kind == "sign":
            _bracket(scanned, word, open_, depth)
    if open_:
        raise syntax_error(scanned, open_[-1].start, f"{open_[-1].text!r} is not closed", hint=PATTERNS)


def _bracket(scanned: Scan, word: Word, open_: list[Word], depth: int) -> None:
    """Keep the stack of open brackets."""
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
        last = open_.pop()
        if _CLOSING[last.text] != word.text:
            line, column = scanned.place(last.start)
            raise syntax_error(
                scanned,
                word.start,
                f"{word.text!r} does not close the {last.text!r} of line {line}, column {column}",
                hint=PATTERNS,
            )


@dataclass
class _Walk:
    """One pass over the words, with the zones that are open."""

    scanned: Scan
    zones: list[str] = field(default_factory=list)
    expects: str | None = None
    """Zone of the next bracket, announced by a keyword."""
    seen_group: bool = False
    in_order: bool = False
    """Whether the last clause is ORDER BY."""

    @property
    def zone(self) -> str:
        return self.zones[-1] if self.zones else TOP

    def words(self) -> None:
        words = self.scanned.words
        for at, word in enumerate(words):
            before = words[at - 1] if at else None
            after = words[at + 1] if at + 1 < len(words) else None
            self._refuse_order_expression(word)
            if word.kind == "keyword":
                self.keyword(word, before, after)
            elif word.kind == "unclosed":
                raise syntax_error(self.scanned, word.start, "this string is not closed", hint=SUPPORTED)
            elif word.kind == "string":
                if self.zone != EXPRESSION:
                    raise self.literal(word)
                if after is not None and (after.kind == "tag" or after.text == "^^"):
                    raise self.outside(after, "a language or type of a string", "compare with a plain string")
            elif word.kind == "tag":
                raise self.literal(word)
            elif word.kind == "number":
                self.number(word, before)
            elif word.kind == "name" and self.zone == EXPRESSION and after is not None and after.text == "(":
                raise self.outside(word, "a function of one's own", f"functions are {FUNCTIONS}")
            elif word.kind == "sign":
                self.sign(word, after)

    def _refuse_order_expression(self, word: Word) -> None:
        """A key of ORDER BY is a variable, perhaps in brackets: a word of any other kind belongs to an expression."""
        is_key = self.zone == ORDER or (self.zone == TOP and self.in_order)
        if word.kind == "keyword":
            is_other = word.text.upper() not in _REFUSED.keys() | _ALLOWED[TOP]
        else:
            is_other = word.kind in _OPERANDS or (word.kind == "sign" and word.text not in _PUNCTUATION)
        if is_key and is_other:
            raise self.outside(word, "an expression in ORDER BY", "order by a variable, as in ORDER BY DESC(?x)")

    def keyword(self, word: Word, before: Word | None, after: Word | None) -> None:
        upper = word.text.upper()
        # FILTER regex(...): the function stands before the bracket that opens its zone.
        zone = EXPRESSION if self.expects == EXPRESSION else self.zone
        if upper in ("TRUE", "FALSE"):
            raise self.literal(word)
        if upper == "NOT" and after is not None and after.text.upper() == "EXISTS":
            raise self.outside(word, "NOT EXISTS", _REFUSED["MINUS"])
        if upper == "SELECT" and self.zones:
            raise self.outside(word, "a SELECT within braces", "write its patterns in the outer query")
        if upper == "DISTINCT" and self.zones and zone != HEAD:
            raise self.outside(word, "DISTINCT within braces", "rows never come twice here; drop it")
        if upper in _REFUSED:
            raise self.outside(word, upper, _REFUSED[upper])
        if upper in _ALLOWED[zone] and word.text != "A":
            if upper == "FILTER":
                self.expects = EXPRESSION
            elif upper == "VALUES":
                self.expects = VALUES
            elif upper in ("ASC", "DESC"):
                self.direction(upper, after)
            if zone == TOP:
                self.in_order = upper in ("ORDER", "BY", "ASC", "DESC")
            return
        if zone == EXPRESSION:
            raise self.outside(word, f"the function or word {shown(word.text)}", f"functions are {FUNCTIONS}")
        if any(upper in allowed for allowed in _ALLOWED.values()) and word.text != "A":
            raise syntax_error(self.scanned, word.start, f"{upper} is not expected here", hint=SUPPORTED)
        text = word.text if len(word.text) <= 40 else f"{word.text[:37]}..."
        raise syntax_error(
            self.scanned,
            word.start,
            f"{text!r} is neither a name nor a word of the supported subset",
            hint=f"write :{text} or <{text}> if it is a name, ?{text} if it is a variable; {SUPPORTED}",
        )

    def direction(self, word: str, after: Word | None) -> None:
        """ASC and DESC: what they are said of stands in brackets."""
        self.expects = ORDER
        if after is not None and after.kind == "variable":
            raise syntax_error(
                self.scanned,
                after.start,
                f"{after.text} stands without brackets after {word}",
                hint=f"write {word}({after.text})",
            )

    def number(self, word: Word, before: Word | None) -> None:
        if before is None or before.text.upper() not in ("LIMIT", "OFFSET"):
            raise self.literal(word)
        if len(word.text) > 18:
            raise syntax_error(
                self.scanned, word.start, f"{before.text.upper()} is larger than any result", hint="leave it out"
            )

    def sign(self, word: Word, after: Word | None) -> None:
        if word.text in _CLOSING:
            self.open(word)
            return
        if word.text in _CLOSING.values():
            if self.zones:
                self.zones.pop()
            return
        zone = self.zone
        if zone == EXPRESSION:
            if word.text in "+-*/" and not (word.text in "+-" and after is not None and after.kind == "number"):
                raise self.outside(word, "arithmetic", "entities have names, not numbers")
            return
        if word.text in "+-" and after is not None and after.kind == "number":
            raise self.literal(word)
        if word.text == "<" and after is not None:
            raise syntax_error(
                self.scanned,
                word.start,
                "this '<' begins no name: a name in <...> has no blank and none of < \" { } | ^ ` \\",
                hint="write %20 for a blank, as in <New%20York>, or :New_York",
            )
        if zone in (GROUP, LIST) and word.text in _PATH_SIGNS:
            raise self.outside(word, f"the path sign {word.text!r}", _PATH_SIGNS[word.text])

    def open(self, word: Word) -> None:
        """Push the zone that a bracket opens."""
        zone = self.zone
        if self.expects == VALUES and word.text in "({" and zone != VALUES:
            # VALUES (?x ?y) { ... }: the list of variables first, then the block.
            if word.text == "{":
                self.expects = None
            self.zones.append(VALUES)
        elif self.expects in (EXPRESSION, ORDER) and word.text == "(":
            self.zones.append(str(self.expects))
            self.expects = None
        elif zone in (EXPRESSION, VALUES, HEAD, ORDER):
            self.zones.append(zone)
        elif word.text == "{":
            self.seen_group = True
            self.zones.append(GROUP)
        elif zone != TOP:
            self.zones.append(LIST)
        elif self.in_order:
            self.zones.append(ORDER)
        elif self.seen_group:
            raise syntax_error(self.scanned, word.start, f"{word.text!r} is not expected here", hint=SUPPORTED)
        else:
            after = self.scanned.words[self.scanned.words.index(word) + 1 :][:1]
            if word.text != "(" or not after or after[0].text.upper() != "COUNT":
                raise self.outside(word, "an expression in SELECT", "select variables, or (COUNT(*) AS ?n) alone")
            self.zones.append(HEAD)

    def literal(self, word: Word) -> SparqlSyntax:
        what = "a number" if word.kind in ("number", "sign") else "a literal"
        instead = "patterns join entities; write an entity's name as :name or <name>"
        if self.zone == EXPRESSION:
            instead = 'entities have names, not values; compare names, as in str(?x) = "5"'
        return self.outside(word, what, instead)

    def outside(self, word: Word, what: str, instead: str) -> SparqlSyntax:
        message = f"{what} is {OUTSIDE}"
        return syntax_error(self.scanned, word.start, message, hint=f"{instead}; {SUPPORTED}")
